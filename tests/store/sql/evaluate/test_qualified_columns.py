"""Names before a column are those of the table or its alias, in every statement that has columns."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError, Session
from tests.support.statements import run

pytestmark = pytest.mark.sql("CREATE TABLE t (k INT, v INT) UNIQUE KEY(k)")

_STATEMENTS = (
    "SELECT {}.v FROM t",
    "SELECT v FROM t WHERE {}.k = 1",
    "SELECT k, v FROM t WHERE {}.k IN (1, 2)",
    "SELECT * FROM t WHERE {}.k >= 1 ORDER BY k LIMIT 20",
    "SELECT v FROM t ORDER BY {}.k",
    "SELECT count(*) FROM t GROUP BY {}.v",
    "SELECT v FROM t GROUP BY v HAVING max({}.v) > 1",
    "SELECT v FROM t QUALIFY row_number() OVER (ORDER BY {}.v) = 1",
    "SELECT (SELECT max({}.v) FROM t) AS m",
    "SELECT count(DISTINCT {}.v) FROM t",
    "WITH c AS (SELECT {}.v FROM t) SELECT * FROM c",
    "INSERT INTO t SELECT {}.k, v FROM t",
    "UPDATE t SET v = 1 WHERE {}.k = 1",
    "UPDATE t SET {}.v = 1 WHERE k = 1",
    "UPDATE t SET v = {}.v WHERE k = 1",
    "DELETE FROM t WHERE {}.k = 1",
    "DELETE FROM t WHERE {}.v = 1",
    "INSERT INTO db.t VALUES (1, 2) ON DUPLICATE KEY UPDATE {}.v = 3",
    "INSERT INTO db.t VALUES (1, 2) ON DUPLICATE KEY UPDATE v = {}.v",
    "INSERT INTO db.t SET {}.k = 1, v = 2",
    "MERGE INTO t USING (SELECT 1 AS k, 5 AS v) AS s ON t.k = s.k AND {}.v = 2 WHEN MATCHED THEN DELETE",
    "CREATE VIEW w AS SELECT {}.v FROM t",
    "ALTER TABLE t ADD CONSTRAINT c CHECK ({}.v > 0)",
)  # fmt: skip
_MERGE = (
    "MERGE INTO t USING (SELECT 7 AS k, 5 AS v) AS s ON t.k = s.k "
    "WHEN NOT MATCHED THEN INSERT ({}.k, v) VALUES (7, 1)"
)


@pytest.mark.parametrize("text", [*_STATEMENTS, _MERGE])
def test_an_unknown_name_is_refused(session: Session, text: str) -> None:
    """In an assignment of ON DUPLICATE KEY UPDATE, in CHECK and in MERGE it was taken for the table."""
    run(session, "INSERT INTO t VALUES (1, 2)")
    with pytest.raises(InvalidInputError) as raised:
        run(session, text.format("zz"))
    assert raised.value.kind in ("unknown_column", "bad_assignment", "invalid_view")
    assert run(session, "SELECT * FROM t") == [(1, 2)]


@pytest.mark.parametrize(
    "text", [text for text in _STATEMENTS if "CREATE" not in text and "ALTER" not in text]
)
def test_the_database_is_that_of_the_table(session: Session, text: str) -> None:
    """`other.t.v` was read as `t.v`, whatever the database."""
    run(session, "INSERT INTO t VALUES (1, 2); CREATE DATABASE other")
    with pytest.raises(InvalidInputError) as raised:
        run(session, text.format("other.t"))
    assert raised.value.kind in ("unknown_column", "bad_assignment")
    assert run(session, "SELECT * FROM t") == [(1, 2)]
    run(session, text.format("db.t"))


def test_the_database_is_the_current_one_of_each_run(session: Session) -> None:
    run(session, "CREATE DATABASE other; CREATE TABLE other.t (k INT, v INT) UNIQUE KEY(k)")
    run(session, "INSERT INTO t VALUES (1, 2); INSERT INTO other.t VALUES (3, 4)")
    for text in ("SELECT other.t.v FROM t WHERE k = 3", "SELECT other.t.v + 0 FROM t"):
        for _ in range(3):
            with pytest.raises(InvalidInputError, match=r"unknown table 'other\.t' before a column"):
                run(session, text)
            run(session, "USE other")
            assert run(session, text) == [(4,)]
            run(session, "USE db")


@pytest.mark.sql(
    "CREATE TABLE st (k INT, t STRUCT<k:INT, v:INT>) UNIQUE KEY(k)",
)
def test_a_field_of_a_struct_is_no_column_of_a_table(session: Session) -> None:
    run(session, "INSERT INTO t VALUES (1, 2); INSERT INTO st VALUES (1, named_struct('k', 5, 'v', 6))")
    for text in ("SELECT st.t.v FROM st", "SELECT st.t.v FROM st WHERE st.k IN (SELECT k FROM t)",
                 "SELECT a.t.v FROM st AS a JOIN t AS b ON a.k = b.k"):  # fmt: skip
        assert run(session, text) == [(6,)]


def test_the_table_is_that_of_the_nearest_query(session: Session) -> None:
    run(session, "CREATE DATABASE other; CREATE TABLE other.t (k INT, v INT) UNIQUE KEY(k)")
    run(session, "INSERT INTO t VALUES (1, 2); INSERT INTO other.t VALUES (1, 4)")
    assert run(session, "SELECT db.t.v, (SELECT max(other.t.v) FROM other.t) FROM t") == [(2, 4)]
    with pytest.raises(InvalidInputError, match=r"unknown table 'other\.t'"):
        run(session, "SELECT other.t.v FROM t WHERE EXISTS (SELECT 1 FROM other.t WHERE other.t.v > 0)")
    with pytest.raises(InvalidInputError, match=r"unknown column 'zz\.t\.v' in the constraint"):
        run(session, "ALTER TABLE t ADD CONSTRAINT c CHECK (zz.t.v > 0)")


def test_an_alias_keeps_the_database_of_its_table(session: Session) -> None:
    run(session, "INSERT INTO t VALUES (1, 2)")
    assert run(session, "SELECT db.x.v FROM t AS x") == [(2,)]
    with pytest.raises(InvalidInputError, match=r"there is 'db\.x'"):
        run(session, "SELECT other.x.v FROM t AS x")
