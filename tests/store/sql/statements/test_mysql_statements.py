"""Forms of MySQL that Doris lacks: INSERT .. SET, DELETE with joins, RENAME TABLE, DO, FLUSH, counts."""

from __future__ import annotations

from itertools import product

import pytest

from seqstore import InvalidInputError, NotFoundError, Session
from tests.support.statements import run

pytestmark = pytest.mark.sql(
    "CREATE TABLE t (k INT, v INT DEFAULT 7) UNIQUE KEY(k);"
    "CREATE TABLE s (k INT, v INT) UNIQUE KEY(k);"
    "CREATE TABLE r (k INT, v INT) UNIQUE KEY(k)"
)
ROWS = (
    "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30), (4, NULL); INSERT INTO s VALUES (2, 1), (3, 2), (5, 3)"
)


class TestInsertSet:
    @pytest.mark.parametrize(
        ("text", "row"),
        [
            ("INSERT INTO t SET k = 1, v = 2", (1, 2)),
            ("INSERT INTO t SET v = 1 + 1, t.k = 1", (1, 2)),
            ("INSERT INTO db.t SET db.t.k = -1, v = NULL", (-1, None)),
            ("INSERT INTO t SET k = 1", (1, 7)),
            ("INSERT INTO t SET k = 1, v = DEFAULT", (1, 7)),
            ("INSERT IGNORE INTO t SET k = 1, v = 2", (1, 2)),
            ("REPLACE INTO t SET k = 1, v = DEFAULT", (1, 7)),
            ("INSERT INTO t SET k = 1, v = 2 ON DUPLICATE KEY UPDATE v = 3", (1, 2)),
        ],
    )
    def test_it_is_one_row_of_the_named_columns(
        self, session: Session, text: str, row: tuple[int, int | None]
    ) -> None:
        assert run(session, text).affected_rows == 1
        assert run(session, "SELECT * FROM t") == [row]

    def test_its_alias_names_the_new_row(self, session: Session) -> None:
        run(session, "INSERT INTO t SET k = 1, v = 2")
        run(session, "INSERT INTO t SET k = 1, v = 5 AS n ON DUPLICATE KEY UPDATE v = n.v + t.v")
        assert run(session, "SELECT * FROM t") == [(1, 7)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("INSERT INTO t SET k", "expected =, found the end of the statement"),
            ("INSERT INTO t (k) SET k = 1", "expected VALUES or SELECT, found 'SET'"),
            ("INSERT INTO t SET k = 1, k = 2", "column 'k' is listed twice"),
        ],
    )
    def test_other_forms_are_refused(self, session: Session, text: str, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            run(session, text)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT t VALUES (1, 2)",
        "INSERT db.t (k, v) VALUES (1, 2)",
        "INSERT t (t.k, t.v) VALUES (1, 2)",
        "INSERT INTO db.t (db.t.v, db.t.k) VALUES (2, 1)",
        "INSERT `t` SET k = 1, v = 2",
        "INSERT IGNORE t VALUES (1, 2)",
        "REPLACE t VALUES (1, 2)",
        "REPLACE t SELECT 1 AS k, 2 AS v",
        "INSERT LOW_PRIORITY INTO t VALUES (1, 2)",
        "INSERT HIGH_PRIORITY IGNORE t VALUES (1, 2)",
        "REPLACE DELAYED t VALUES (1, 2)",
        "INSERT INTO t (db.t.k, v) VALUES (1, 2)",
        "INSERT INTO t SET db.t.k = 1, t.v = 2 ON DUPLICATE KEY UPDATE db.t.v = 3",
    ],
)
def test_into_and_names_before_columns_are_optional(session: Session, text: str) -> None:
    run(session, text)
    assert run(session, "SELECT * FROM t") == [(1, 2)]


@pytest.mark.parametrize("text", ["INSERT t (s.k) VALUES (1)", "INSERT t (other.t.k) VALUES (1)"])
def test_a_listed_column_is_of_the_table(session: Session, text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"Unknown column '(s\.k|other\.t)' in the field list"):
        run(session, text)


class TestKeptKeys:
    @pytest.mark.parametrize(
        "text",
        [
            "UPDATE t SET k = 1, v = 9 WHERE k = 1",
            "UPDATE t SET t.k = 1, t.v = 9 WHERE (t.k <=> 1) AND v = 10",
        ],
    )
    def test_an_update_may_give_a_key_the_value_that_it_has(self, session: Session, text: str) -> None:
        run(session, ROWS)
        assert run(session, text).affected_rows == 1
        assert run(session, "SELECT v FROM t WHERE k = 1") == [(9,)]

    @pytest.mark.parametrize(
        "text",
        [
            "UPDATE t SET k = 2, v = 9 WHERE k = 1",
            "UPDATE t SET k = 1 WHERE k = 1",
            "UPDATE t SET k = 1, v = 9 WHERE k = 1 OR v = 20",
            "UPDATE t SET k = 1, v = 9 WHERE k >= 1",
            "UPDATE t SET k = v, v = 9 WHERE k = v",
            "UPDATE t SET k = 2, v = 100 FROM s WHERE s.k = 2",
            "UPDATE t SET k = 2, v = 100 FROM s WHERE k = 2 AND t.v = s.v",
            "UPDATE t JOIN s ON t.k = s.k SET t.k = 2 , t.v = 9 WHERE s.k = 2",
            "UPDATE t SET x.k = 1, v = 9 WHERE k = 1",
            "UPDATE t SET k = 1, k = 1, v = 9 WHERE k = 1",
            "UPDATE n SET k = 1, v = 9 WHERE k = 1",
        ],
    )
    def test_it_changes_no_key(self, session: Session, text: str) -> None:
        run(session, f"{ROWS}; CREATE TABLE n (k VARCHAR(9), v INT) UNIQUE KEY(k); INSERT n VALUES ('01', 1)")
        before = run(session, "SELECT * FROM t")
        with pytest.raises(InvalidInputError) as raised:
            run(session, text)
        assert raised.value.kind in ("key_column", "bad_assignment", "duplicate_column", "ambiguous_column")
        assert run(session, "SELECT * FROM t") == before
        assert run(session, "SELECT * FROM n") == [("01", 1)]


class TestDeleteWithJoins:
    @pytest.mark.parametrize(
        ("text", "left"),
        [
            ("DELETE t FROM t JOIN s ON t.k = s.k", [1, 4]),
            ("DELETE FROM t USING t JOIN s ON t.k = s.k", [1, 4]),
            ("DELETE t.* FROM t JOIN s ON t.k = s.k", [1, 4]),
            ("DELETE FROM db.t.* USING db.t JOIN s ON t.k = s.k WHERE t.k * 1 = 2", [1, 3, 4]),
            ("DELETE FROM t USING t, s WHERE t.k = s.k", [1, 4]),
            ("DELETE t FROM t, s WHERE t.k = s.k AND s.v = 1", [1, 3, 4]),
            ("DELETE t FROM t INNER JOIN s ON t.k = s.k WHERE s.v = 2", [1, 2, 4]),
            ("DELETE t FROM t LEFT JOIN s ON t.k = s.k WHERE s.k IS NULL", [2, 3]),
            ("DELETE x FROM t AS x LEFT JOIN s USING (k) WHERE s.v IS NULL", [2, 3]),
            ("DELETE db.t FROM db.t JOIN s ON t.k = s.k", [1, 4]),
            ("DELETE t FROM s JOIN t ON t.k = s.k WHERE s.v = 1", [1, 3, 4]),
            ("DELETE t FROM s, t WHERE t.k = s.k", [1, 4]),
            ("DELETE a FROM t AS a JOIN t AS b ON a.k = b.k + 1", [1]),
            ("DELETE b FROM t AS a JOIN t AS b ON a.k = b.k + 1", [4]),
            ("DELETE t FROM t WHERE t.k = 1", [2, 3, 4]),
        ],
    )
    def test_the_named_table_loses_the_rows_that_join(
        self, session: Session, text: str, left: list[int]
    ) -> None:
        run(session, ROWS)
        assert run(session, text).affected_rows == 4 - len(left)
        assert [k for k, _ in run(session, "SELECT * FROM t")] == left
        assert len(run(session, "SELECT * FROM s")) == 3

    @pytest.mark.parametrize(
        ("target", "join", "where"),
        list(
            product(
                ["t", "s", "r"],
                ["t JOIN s ON t.k = s.k JOIN r ON r.v = s.v", "s JOIN r ON s.v = r.v, t", "r, s, t"],
                ["t.k > 1 AND r.k < 4", "t.v IS NULL OR s.v = 1"],
            )
        ),
    )
    def test_it_deletes_what_a_select_of_the_same_joins_finds(
        self, session: Session, target: str, join: str, where: str
    ) -> None:
        run(session, f"{ROWS}; INSERT INTO r VALUES (1, 1), (3, 2), (4, 2), (6, 9)")
        found = {k for (k,) in run(session, f"SELECT {target}.k FROM {join} WHERE {where}")}
        before = run(session, f"SELECT * FROM {target}")
        run(session, f"DELETE {target} FROM {join} WHERE {where}")
        assert run(session, f"SELECT * FROM {target}") == [row for row in before if row[0] not in found]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("DELETE t, s FROM t JOIN s ON t.k = s.k", "removes rows of one table"),
            ("DELETE FROM t, s USING t JOIN s ON t.k = s.k", "removes rows of one table"),
            ("DELETE s FROM t LEFT JOIN s ON t.k = s.k", "takes inner joins with ON; name s first"),
            ("DELETE x FROM t JOIN s ON t.k = s.k", "Unknown table 'x' in MULTI DELETE"),
            ("DELETE T FROM t JOIN s ON t.k = s.k", "Unknown table 'T' in MULTI DELETE"),
            ("DELETE other.t FROM t JOIN s ON t.k = s.k", r"Unknown table 'other\.t' in MULTI DELETE"),
            ("DELETE other.t FROM db.s JOIN db.t ON t.k = s.k", r"Unknown table 'other\.t' in MULTI DELETE"),
            ("DELETE other.t FROM db.t WHERE k = 1", r"Unknown table 'other\.t' in MULTI DELETE"),
            ("DELETE t FROM t AS x JOIN s ON x.k = s.k", "Unknown table 't' in MULTI DELETE"),
            ("DELETE t FROM t JOIN other.t ON true", "Unknown table 't' in MULTI DELETE"),
            ("DELETE FROM db.t USING other.t WHERE v = 10", "'t' names two tables of the query"),
            ("DELETE t FROM s JOIN t ON t.k = s.k ANTI JOIN r ON r.k = t.k", "takes inner joins with ON"),
            ("DELETE t FROM t, s", "delete all rows is forbidden"),
            ("DELETE FROM (SELECT 1) USING t WHERE t.k = 1", "should be an olapTable"),
            ("DELETE t FROM t", "delete all rows is forbidden"),
            ("DELETE t FROM t JOIN s ON t.k = s.k LIMIT 1", "on one table also ORDER BY and LIMIT"),
        ],
    )
    def test_other_forms_are_refused(self, session: Session, text: str, message: str) -> None:
        """`other.t`, `T` and an ANTI JOIN were taken for what they are not, and other rows went."""
        run(session, f"{ROWS}; CREATE DATABASE other; CREATE TABLE other.t (k INT, v INT) UNIQUE KEY(k)")
        run(session, "INSERT INTO other.t VALUES (1, 10)")
        with pytest.raises(InvalidInputError, match=message):
            run(session, text)
        assert len(run(session, "SELECT * FROM other.t")) == 1
        assert len(run(session, "SELECT * FROM t")) == 4


class TestIntroducers:
    """Drivers write bytes as `_binary'..'`, and files of dumps name a character set before a text."""

    @pytest.mark.parametrize("name", ["_binary", "_utf8mb4", "_UTF8", "_utf8mb3", "_ascii"])
    def test_a_text_in_utf_8_is_as_it_is(self, session: Session, name: str) -> None:
        run(session, "CREATE TABLE w (k INT, s VARCHAR(9)) UNIQUE KEY(k)")
        run(session, f"INSERT INTO w VALUES (1, {name}'a'), (2, {name} 'b'), (3, concat({name}'c', 'd'))")
        run(session, f"UPDATE w SET s = {name}'x' WHERE s = {name}'a'")
        run(session, f"DELETE FROM w WHERE s IN ({name}'b')")
        for text in ("x", "y", "x"):  # the third time by what is known of the statement
            assert run(session, f"SELECT k FROM w WHERE s = {name}'{text}'") == [(1,)] * (text == "x")
        assert run(session, f"SELECT {name}'a', s FROM w") == [("a", "cd"), ("a", "x")]

    @pytest.mark.parametrize("text", ["SELECT _latin1'a'", "INSERT INTO t VALUES (1, _gbk'a')"])
    def test_a_text_in_another_character_set_is_refused(self, session: Session, text: str) -> None:
        with pytest.raises(InvalidInputError, match=r"expected _utf8mb4, .*, as texts are UTF-8"):
            run(session, text)


@pytest.mark.parametrize(
    "hints", ["USE INDEX (k)", "FORCE KEY (PRIMARY)", "IGNORE INDEX FOR JOIN (a, b)", "USE INDEX ()"]
)
def test_hints_on_indexes_have_no_effect(session: Session, hints: str) -> None:
    run(session, ROWS)
    for _ in range(3):
        assert run(session, f"SELECT v FROM t {hints} WHERE k = 1") == [(10,)]
    assert run(session, f"SELECT t.k FROM t {hints} JOIN s AS o {hints} ON t.k = o.k") == [(2,), (3,)]


class TestTables:
    @pytest.mark.parametrize(
        "text",
        [
            "RENAME TABLE t TO u",
            "RENAME TABLE db.t TO db.u",
            "RENAME TABLE t TO db.u",
            "ALTER TABLE t RENAME u",
            "ALTER TABLE t RENAME TO u",
            "ALTER TABLE t RENAME AS u",
        ],
    )
    def test_a_table_gets_another_name(self, session: Session, text: str) -> None:
        run(session, ROWS)
        run(session, text)
        assert len(run(session, "SELECT * FROM u")) == 4
        assert run(session, "SHOW TABLES") == [("r",), ("s",), ("u",)]

    @pytest.mark.parametrize("name", ["to", "as"])
    def test_the_words_before_a_new_name_can_be_names(self, session: Session, name: str) -> None:
        run(session, f"ALTER TABLE t RENAME `{name}`")
        assert (name,) in run(session, "SHOW TABLES")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("RENAME TABLE t TO u, s TO v", "takes one table; ALTER TABLE a REPLACE WITH TABLE b"),
            ("RENAME TABLE t TO other.u", r"a table stays in its database; name it db\.u"),
            ("ALTER TABLE t RENAME TO", "expected its new name"),
        ],
    )
    def test_other_renames_are_refused(self, session: Session, text: str, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            run(session, text)
        assert ("t",) in run(session, "SHOW TABLES")

    @pytest.mark.parametrize("end", ["", " FORCE", " RESTRICT", " CASCADE"])
    def test_several_tables_are_dropped(self, session: Session, end: str) -> None:
        run(session, f"DROP TABLE t, db.s{end}")
        assert run(session, "SHOW TABLES") == [("r",)]

    def test_no_table_is_dropped_where_one_is_unknown(self, session: Session) -> None:
        with pytest.raises(NotFoundError, match=r"Unknown table 'db\.no'"):
            run(session, "DROP TABLE t, no, s")
        assert len(run(session, "SHOW TABLES")) == 3
        run(session, "DROP TABLE IF EXISTS t, no, s")
        assert run(session, "SHOW TABLES") == [("r",)]

    def test_explain_of_a_table_is_desc(self, session: Session) -> None:
        assert run(session, "EXPLAIN t") == run(session, "EXPLAIN db.t") == run(session, "DESC t")


class TestCounts:
    def test_row_count_is_of_the_last_statement(self, session: Session) -> None:
        run(session, "INSERT INTO t VALUES (1, 1), (2, 2)")
        assert run(session, "SELECT row_count()") == [(2,)]
        assert run(session, "SELECT row_count()") == [(-1,)]
        run(session, "UPDATE t SET v = 3 WHERE k = 1")
        assert run(session, "SELECT row_count() + 1") == [(2,)]
        run(session, "USE db")
        assert run(session, "SELECT row_count()") == [(0,)]
        run(session, "INSERT INTO t VALUES (1, 1), (2, 2)")
        run(session, "SET @n = row_count()")
        assert run(session, "SELECT @n") == [(2,)]

    @pytest.mark.parametrize("text", ["SELECT nothing", "INSERT INTO nowhere VALUES (1)"])
    def test_row_count_of_a_statement_that_failed_is_minus_one(self, session: Session, text: str) -> None:
        run(session, "INSERT INTO t VALUES (1, 1), (2, 2)")
        with pytest.raises((InvalidInputError, NotFoundError)):
            run(session, text)
        assert run(session, "SELECT row_count()") == [(-1,)]

    def test_found_rows_is_of_the_last_answer(self, session: Session) -> None:
        run(session, ROWS)
        run(session, "SELECT k FROM t WHERE k > 1")
        run(session, "INSERT INTO t VALUES (9, 9)")
        assert run(session, "SELECT found_rows()") == [(3,)]
        assert run(session, "SELECT found_rows()") == [(1,)]

    def test_warnings_are_counted(self, session: Session) -> None:
        count = "SELECT @@warning_count, @@session.error_count"
        run(session, "INSERT IGNORE INTO t VALUES (1, 'x'), (2, 'y')")
        assert run(session, count) == run(session, count) == [(2, 0)]
        assert run(session, "SHOW COUNT(*) WARNINGS") == [("2",)]
        assert run(session, "SHOW COUNT(*) ERRORS") == [("0",)]
        run(session, "SET @n = @@warning_count")
        assert run(session, "SELECT @n") == [(2,)]
        run(session, "SELECT k FROM t")
        assert run(session, count) == [(0, 0)]


def test_do_computes_and_returns_nothing(session: Session) -> None:
    assert run(session, "DO 1, (SELECT max(k) FROM t)").rows is None
    with pytest.raises(InvalidInputError, match="function 'nope' is not known"):
        run(session, "DO nope(1)")
    with pytest.raises(InvalidInputError, match="expected an expression"):
        run(session, "DO")


@pytest.mark.parametrize("text", ["DO 1", "SELECT row_count()", "SHOW COUNT(*) WARNINGS", "EXPLAIN t"])
def test_what_changes_nothing_leaves_a_transaction_open(session: Session, text: str) -> None:
    run(session, f"BEGIN; INSERT t SET k = 1; {text}; ROLLBACK")
    assert run(session, "SELECT * FROM t") == []


@pytest.mark.parametrize(
    "text", ["INSERT t SET k = 1", "RENAME TABLE t TO u", "DROP TABLE s, r", "DELETE t FROM t JOIN s"]
)
def test_a_read_only_session_changes_nothing(session: Session, text: str) -> None:
    run(session, "SET SESSION TRANSACTION READ ONLY")
    with pytest.raises(InvalidInputError, match="READ ONLY transaction"):
        run(session, text)
    assert len(run(session, "SHOW TABLES")) == 3


@pytest.mark.parametrize("text", ["FLUSH TABLES", "RENAME TABLE s TO u", "DROP TABLE s, r"])
def test_changes_of_tables_are_refused_in_a_transaction(session: Session, text: str) -> None:
    run(session, "BEGIN; INSERT t SET k = 1")
    with pytest.raises(InvalidInputError, match="This is in a transaction"):
        run(session, text)
    run(session, "COMMIT")
    assert run(session, "SELECT * FROM t") == [(1, 7)]
    assert len(run(session, "SHOW TABLES")) == 3


@pytest.mark.parametrize(
    "what",
    [
        "PRIVILEGES",
        "TABLES",
        "LOCAL LOGS",
        "NO_WRITE_TO_BINLOG STATUS",
        "QUERY CACHE",
        "TABLES t, s",
        "STATUS, PRIVILEGES",
        "BINARY LOGS",
    ],
)
def test_flush_has_nothing_to_do(session: Session, what: str) -> None:
    assert run(session, f"FLUSH {what}").rows is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FLUSH", "expected PRIVILEGES or TABLES"),
        ("FLUSH TABLES WITH READ LOCK", "LOCK TABLES t READ, or a transaction"),
        ("FLUSH TABLES t FOR EXPORT", "LOCK TABLES t READ, or a transaction"),
        ("SELECT k FROM t FOR UPDATE", "rows are not locked; of two transactions"),
        ("SELECT k FROM t LOCK IN SHARE MODE", "rows are not locked; of two transactions"),
        ("SELECT SQL_CALC_FOUND_ROWS k FROM t", r"SELECT count\(\*\) of the same query"),
        ("SELECT STRAIGHT_JOIN t.k FROM t, s", "STRAIGHT_JOIN is not supported: tables are joined"),
        ("CREATE TEMPORARY TABLE u (k INT) UNIQUE KEY(k)", "CREATE TEMPORARY TABLE is not supported: "),
        ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN ANALYZE is not supported: EXPLAIN shows the plan"),
        ("SELECT k FROM t WITH (NOLOCK)", r"WITH \(hint\) behind table 't' is not supported"),
        ("CALL p()", "there are no stored procedures"),
        ("CHECK TABLE t", "CHECK TABLE is not supported: "),
    ],
)
def test_what_is_not_done_is_refused_by_name(session: Session, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run(session, text)


@pytest.mark.parametrize("what", ["PROFILES", "MASTER STATUS", "SLAVE STATUS"])
def test_lists_of_what_is_not_there_are_empty(session: Session, what: str) -> None:
    assert run(session, f"SHOW {what}") == []
