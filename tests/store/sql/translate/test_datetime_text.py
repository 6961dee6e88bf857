"""A DATETIME that becomes text has the fraction digits of its column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seqstore.store.sql import Session
from seqstore.store.types.fraction_digits import fraction_digits_of

Run = Callable[[str], Any]
WHOLE, MILLIS, MICROS = "2024-01-02 03:04:05", "2024-01-02 03:04:05.500", "2024-01-02 03:04:05.500000"


@pytest.fixture(autouse=True)
def tables(session: Session) -> None:
    """A source `s` with DATETIME columns of three scales, and a target `t` with text columns."""
    list(
        session.execute(
            "CREATE TABLE s (k INT, a DATETIME NULL, b DATETIME(3) NULL, c DATETIME(6) NULL, d DATE NULL) "
            "UNIQUE KEY(k);"
            "INSERT INTO s VALUES (1, '2024-01-02 03:04:05', '2024-01-02 03:04:05.5', "
            "'2024-01-02 03:04:05.5', '2024-01-02'), (2, NULL, NULL, NULL, NULL);"
            "CREATE TABLE t (k INT, a VARCHAR(30) NULL, b STRING NULL, c CHAR(30) NULL) UNIQUE KEY(k)"
        )
    )


WRITES = [
    "INSERT INTO t SELECT k, a, b, c FROM s",
    "INSERT INTO t SELECT k, a, b, c FROM s ORDER BY k",
    "INSERT INTO t SELECT * FROM (SELECT k, a, b, c FROM s UNION ALL SELECT 3, NULL, NULL, NULL) u "
    "WHERE k < 3",
    "INSERT INTO t SELECT s.k, max(s.a), min(s.b), s2.c FROM s JOIN s s2 ON s.k = s2.k GROUP BY s.k, s2.c",
    "INSERT INTO t (k) VALUES (1), (2); UPDATE t, s SET t.a = s.a, t.b = s.b, t.c = s.c WHERE t.k = s.k",
    "INSERT INTO t (k) VALUES (1), (2); UPDATE t SET a = (SELECT max(a) FROM s WHERE s.k = t.k), "
    "b = (SELECT max(b) FROM s WHERE s.k = t.k), c = (SELECT max(c) FROM s WHERE s.k = t.k) WHERE true",
    "MERGE INTO t USING s ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k, a, b, c) VALUES (s.k, s.a, s.b, s.c)",
    "INSERT INTO t (k) VALUES (1), (2); MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET "
    "a = s.a, b = s.b, c = s.c",
    "SET enable_insert_strict = false; INSERT INTO t SELECT k, a, b, c FROM s",
    "INSERT INTO t SELECT k, concat(a), concat(b), cast(c AS STRING) FROM s",
    "INSERT INTO t SELECT k, ifnull(a, NULL), if(true, b, 'never'), coalesce(c, NULL) FROM s",
]


@pytest.mark.parametrize("statements", WRITES)
def test_every_write_of_a_datetime_to_text_keeps_its_scale(
    session: Session, rows: Run, statements: str
) -> None:
    list(session.execute(statements))
    assert rows("SELECT k, a, b, c FROM t ORDER BY k") == [(1, WHOLE, MILLIS, MICROS), (2, None, None, None)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("now()", "2024-05-06 12:30:45"),
        ("now(3)", "2024-05-06 12:30:45.678"),
        ("cast('2024-01-02 03:04:05.5' AS DATETIME(2))", "2024-01-02 03:04:05.50"),
        ("date_add(cast('2024-01-02' AS DATETIME(1)), INTERVAL 1 SECOND)", "2024-01-02 00:00:01.0"),
        ("date_trunc('2024-01-02 03:04:05', 'hour')", "2024-01-02 03:00:00"),
        ("date_add('2024-01-02', INTERVAL 1 DAY)", "2024-01-03"),
        ("date_add('2024-01-02 00:00:00', INTERVAL 1 DAY)", "2024-01-03 00:00:00"),
        ("str_to_date('2024-01-02 03', '%Y-%m-%d %H')", "2024-01-02 03:00:00"),
        ("curdate()", "2024-05-06"),
    ],
)
def test_the_scale_of_a_computed_datetime(
    session: Session, rows: Run, expression: str, expected: str
) -> None:
    list(session.execute(f"INSERT INTO t (k, a) VALUES (1, {expression})"))
    list(session.execute(f"INSERT INTO t (k, a) SELECT 2, {expression}"))
    assert rows("SELECT a FROM t ORDER BY k") == [(expected,), (expected,)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, b, c FROM s",
        "SELECT a, max(b), min(c) FROM s GROUP BY a",
        "SELECT min(a), max(b), min(c) FROM s",
        "SELECT min(a), max(b), min(c) FROM s WHERE k + 0 = 1",
    ],
)
def test_a_result_names_the_scale_of_its_columns(session: Session, query: str) -> None:
    """The scan's own answer of extremes named none, and MySQL's clients got six digits."""
    (result,) = session.execute(query)
    assert result.rows is not None
    assert [fraction_digits_of(field) for field in result.rows.schema] == [0, 3, 6]
