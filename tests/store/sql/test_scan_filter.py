"""What a condition may say where a scan alone decides it, and what it is told when it says something else."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from seqstore import InvalidInputError
from seqstore.store.sql.parse.tokens import parse_tree
from seqstore.store.sql.translate.predicates import scan_filter
from tests.seeds import new_seed
from tests.support.rows import schema_of

Run = Callable[[str], Any]

ROWS = (
    "(1, '2024-05-01', '2024-05-01 10:00:00', '20240501', 20240501, 1.50),"
    "(2, '2024-05-02', '2024-05-01 00:00:00', '2024-05-01', 1, 0),"
    "(3, '2024-04-30', '2024-05-01 09:59:59.6', '2024-05-01 00:00:00', 2, 2),"
    "(4, NULL, NULL, NULL, NULL, NULL), (5, '1999-12-31', '1999-12-31 23:59:59.999', 'x', -1, -1.5)"
)
CONSTANTS = [
    f"{value}" if kind is None else f"CAST({value} AS {kind})"
    for value in ("'2024-05-01'", "'2024-05-01 10:00:00'", "'2024-05-01 09:59:59.6'", "'20240501'", "'x'",
                  "'2024-05-01 24:00:00'", "'1.5'", "20240501", "1.5", "NULL")
    for kind in (None, "DATE", "DATETIME", "DATETIME(3)", "INT", "VARCHAR(10)", "DECIMAL(10, 1)")
] + ["DATE '2024-05-01'", "TIMESTAMP '2024-05-01 10:00:00'", "-1", "1 + 1", "-CAST('1' AS INT)"]  # fmt: skip


FORMS = ("{0} = {1}", "{1} <= {0}", "{0} BETWEEN {1} AND {1}", "{0} IN (NULL, {1})")


@pytest.mark.family(1)
@pytest.mark.parametrize("column", ["d", "dt", "s", "n", "x"])
def test_a_scan_decides_a_condition_as_the_query_engine_does(rows: Run, column: str) -> None:
    """The scan read the text of a CAST as a value of the column's type: rows were missing in SELECT, and
    DELETE spared rows."""
    rows(
        "CREATE TABLE t (id INT, d DATE, dt DATETIME(3), s VARCHAR(20), n INT, x DECIMAL(10, 2)) "
        f"UNIQUE KEY(id); INSERT INTO t VALUES {ROWS}; SELECT 1"
    )
    chance = random.Random(new_seed())
    conditions = [chance.choice(FORMS).format(column, constant) for constant in CONSTANTS]
    computed = rows(f"SELECT id, {', '.join(conditions)} FROM t ORDER BY id")
    wanted = {
        c: [(row[0],) for row in computed if row[place] is True] for place, c in enumerate(conditions, 1)
    }
    found = {c: sorted(rows(f"SELECT id FROM t WHERE {c}")) for c in conditions}
    assert found == wanted


def test_a_delete_evaluates_the_casts_of_its_condition(rows: Run) -> None:
    rows(
        "CREATE TABLE t (dt DATETIME, v INT) UNIQUE KEY(dt) "
        "PROPERTIES('enable_unique_key_merge_on_write'='false');"
        "INSERT INTO t VALUES ('2024-05-01 10:00:00', 1), ('2024-05-01 00:00:00', 2);"
        "DELETE FROM t WHERE dt >= CAST('2024-05-01 23:59:59' AS DATE); SELECT 1"
    )
    assert rows("SELECT count(*) FROM t") == [(0,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope = 1", "unknown column 'nope'; there are k, f"),
        ("f >= 1.5", r"f is DOUBLE, of which only IS \[NOT\] NULL can be asked here, because of NaN"),
        ("k + 1 = 2", "expected comparisons of a column with constants, and AND"),
    ],
)
def test_what_a_scan_cannot_decide_is_named(text: str, message: str) -> None:
    schema = schema_of("k INT NOT NULL", "f DOUBLE")
    with pytest.raises(InvalidInputError, match=message):
        scan_filter(schema, parse_tree(text, 0, len(text)), "option filter:")
