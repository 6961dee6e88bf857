"""Mistakes of users that DuckDB finds: our words, and the number that MySQL has for them."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError, Session
from seqstore.cli.clients.refusal import number_and_state
from tests.support.statements import last_result

pytestmark = pytest.mark.sql(
    "CREATE TABLE t (k INT, a INT, b VARCHAR(9), g BIGINT) UNIQUE KEY(k);"
    "INSERT INTO t VALUES (1, 1, 'x', 9223372036854775807), (2, 2, 'y', 1)"
)
SOURCE = "USING (SELECT 1 AS k) AS s"


@pytest.mark.parametrize(
    ("statement", "number", "message"),
    [
        ("SELECT zz FROM t", 1054, "unknown column 'zz' in the query"),
        ("SELECT u.zz FROM t AS u", 1054, "unknown column 'u.zz' in the query"),
        ("SELECT s.nope FROM (SELECT 1 AS k) AS s", 1054, "unknown column 's.nope' in the query"),
        ("SELECT x.k FROM t", 1054, "unknown table or alias 'x' before a column of the query"),
        ("UPDATE t SET a = t.zz", 1054, "unknown column 't.zz'"),
        ("UPDATE t SET a = x.k", 1054, "unknown table or alias 'x'"),
        ("DELETE FROM t WHERE t.zz = 1", 1054, "unknown column 't.zz'"),
        (f"MERGE INTO t {SOURCE} ON t.zz = s.k WHEN MATCHED THEN DELETE", 1054, "unknown column 't.zz'"),
        (f"MERGE INTO t {SOURCE} ON t.k = s.k WHEN MATCHED THEN UPDATE SET a = s.no", 1054, "column 's.no'"),
        ("SELECT k FROM t AS x JOIN t AS y ON x.k = y.k", 1052, "column 'k' is of several tables"),
        (
            "MERGE INTO t AS x USING (SELECT 1 AS k) AS x ON x.k = x.k WHEN MATCHED THEN DELETE",
            1066,
            "'x' names two tables of the query",
        ),
        ("SELECT k, count(*) FROM t", 1055, "column 'k' must stand in GROUP BY"),
        ("SELECT k FROM t ORDER BY sum(a)", 1055, "column 'k' must stand in GROUP BY"),
        ("UPDATE t SET a = count(*)", 1055, "column 'k' must stand in GROUP BY"),
        ("SELECT k FROM t WHERE sum(a) > 1", 1111, "WHERE cannot hold aggregates"),
        ("DELETE FROM t WHERE a = sum(a)", 1111, "WHERE cannot hold aggregates"),
        ("SELECT k FROM t WHERE row_number() OVER () > 1", 1111, "WHERE cannot hold window functions"),
        ("SELECT (SELECT k FROM t)", 1242, "returned more than one row"),
        ("UPDATE t SET a = (SELECT k FROM t)", 1242, "returned more than one row"),
        ("SELECT *", 1096, "the query has no FROM"),
        ("SELECT g + 1 FROM t", 1690, r"BIGINT value is out of range in \(9223372036854775807 \+ 1\)"),
        ("SELECT g * 2 FROM t", 1690, "BIGINT value is out of range"),
        ("UPDATE t SET g = g + 9223372036854775807", 1690, "BIGINT value is out of range"),
        ("SELECT array_contains([1, 2], 'x')", 1105, "the text 'x' is no INT"),
        ("SELECT k FROM t LIMIT -1", 1105, "LIMIT and OFFSET take a whole number from 0 on"),
    ],
)
def test_a_mistake_has_our_words_and_the_number_of_mysql(
    session: Session, statement: str, number: int, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as refused:
        last_result(session, statement)
    assert number_and_state(refused.value)[0] == number
    assert "the query cannot be evaluated" not in str(refused.value)
