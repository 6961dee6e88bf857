"""GROUP BY .. WITH ROLLUP of MySQL, and clauses that no query may have: each is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from seqstore import InvalidInputError
from tests.store.sql.conftest import Run

pytestmark = pytest.mark.sql(
    "CREATE TABLE g (k INT, a INT NOT NULL, b VARCHAR(9), x INT) UNIQUE KEY(k);"
    "INSERT INTO g VALUES (1, 1, 'p', 10), (2, 1, 'q', 20), (3, 2, 'p', 5)"
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT a, b, sum(x) FROM g GROUP BY a, b WITH ROLLUP ORDER BY 1, 2",
            [(None, None, 35), (1, None, 30), (1, "p", 10), (1, "q", 20), (2, None, 5), (2, "p", 5)],
        ),
        ("SELECT a, sum(x) FROM g GROUP BY a WITH ROLLUP HAVING a IS NULL", [(None, 35)]),
        ("SELECT a + 1 AS z, sum(x) FROM g GROUP BY z WITH ROLLUP HAVING z IS NULL", [(None, 35)]),
        ("SELECT a, grouping(a) FROM g GROUP BY 1 WITH ROLLUP ORDER BY a", [(None, 1), (1, 0), (2, 0)]),
        (
            "SELECT ifnull(b, 'all'), count(*) FROM g WHERE a = 1 GROUP BY b WITH ROLLUP ORDER BY 1",
            [("all", 2), ("p", 1), ("q", 1)],
        ),
        ("SELECT count(*) FROM (SELECT a, b FROM g GROUP BY a, b WITH CUBE) q", [(8,)]),
        ("SELECT a, sum(x) FROM g GROUP BY ROLLUP (a) ORDER BY a", [(None, 35), (1, 30), (2, 5)]),
    ],
)
def test_with_rollup_adds_rows_of_totals(rows: Run, query: str, expected: list[Any]) -> None:
    """DuckDB knows `ROLLUP (a)` alone: the clause of MySQL ended in a syntax error of DuckDB's."""
    assert rows(query) == expected


def test_a_key_of_totals_may_be_null(rows: Run) -> None:
    assert rows(
        "CREATE TABLE c UNIQUE KEY(a) AS SELECT a, sum(x) s FROM g GROUP BY a WITH ROLLUP; "
        "SELECT a, s FROM c ORDER BY a"
    ) == [(None, 35), (1, 30), (2, 5)]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "SELECT @n := 5",
            "@n := .. is not supported within a statement; assign the variable by SET @n = ..",
        ),
        ("UPDATE g SET x = (@n := @n + 1)", "@n := .. is not supported within a statement"),
        ("SELECT a FROM g GROUP BY a WITH TOTALS", "WITH TOTALS is not supported; use WITH ROLLUP"),
        ("SELECT a FROM g CONNECT BY a = 1", "has a clause that is not supported, near 'CONNECT'"),
    ],
)
def test_clauses_without_support_are_refused_by_name(rows: Run, statement: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        rows(statement)
