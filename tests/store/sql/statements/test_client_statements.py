"""Statements and clauses that clients of MySQL and Doris send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, LabelExistsError, Store, UnavailableError
from seqstore.store.sql import Session

Run = Callable[[str], Any]


@pytest.fixture(autouse=True)
def _table(session: Session) -> None:
    list(
        session.execute(
            "CREATE TABLE t (k INT NOT NULL, a INT, s VARCHAR(9) DEFAULT 'x', d DATETIME(1)) UNIQUE KEY(k);"
            "INSERT INTO t VALUES (1, 10, 'x', '2024-01-02 03:04:05'), (2, 20, 'y', NULL), (3, 30, 'z', NULL)"
        )
    )


def test_a_hint_sets_variables_for_one_query(rows: Run) -> None:
    assert rows(
        "SELECT /*+ SET_VAR(time_zone = '+05:00', query_timeout=7) */ @@time_zone, @@query_timeout"
    ) == [("+05:00", 7)]
    assert rows("SELECT @@time_zone, @@query_timeout") == [("+00:00", 900)]
    assert rows("(SELECT /*+ LEADING(t) SET_VAR(time_zone='+01:00') */ hour(now()) FROM t LIMIT 1)") == [
        (13,)
    ]


def test_a_hint_sets_the_time_limit_of_a_statement_that_writes(session: Session) -> None:
    """The limit was taken before the hint was read."""
    list(session.execute("SET query_timeout = 60, insert_timeout = 60"))
    many = ", ".join(f"t AS t{number}" for number in range(40))
    hint = "/*+ SET_VAR(query_timeout = 1, insert_timeout = 1) */"
    for text in (
        f"INSERT {hint} INTO t (k, a) SELECT 9, count(*) FROM {many}",
        f"UPDATE {hint} t SET a = 0 WHERE k IN (SELECT count(*) FROM {many})",
        f"DELETE {hint} FROM t WHERE k IN (SELECT count(*) FROM {many})",
    ):
        with pytest.raises(UnavailableError, match="longer than insert_timeout = 1 seconds"):
            list(session.execute(text))


@pytest.mark.parametrize(
    "text",
    [
        "INSERT /*+ SET_VAR(enable_insert_strict=false) */ INTO t (k, a) VALUES (4, 'x')",
        "INSERT /*+ SET_VAR(enable_insert_strict=false) */ INTO t (k, a) SELECT 4, 'x'",
    ],
)
def test_a_hint_sets_variables_for_one_insert(session: Session, rows: Run, text: str) -> None:
    list(session.execute(text))
    assert rows("SELECT a FROM t WHERE k = 4") == [(None,)]
    assert rows("SELECT @@enable_insert_strict") == [(1,)]
    with pytest.raises(InvalidInputError, match="can't be set to the value of 'maybe'"):
        list(session.execute(text.replace("false", "maybe")))


def test_a_comma_may_stand_behind_the_last_column(rows: Run) -> None:
    assert rows("CREATE TABLE u (k INT, a INT,) UNIQUE KEY(k); SELECT count(*) FROM u") == [(0,)]


@pytest.mark.parametrize(
    ("query", "hidden", "shown"),
    [
        ("SELECT k FROM t", [(1,), (3,)], [(1,), (2,), (3,)]),
        ("SELECT k FROM t WHERE k = 2", [], [(2,)]),
        ("SELECT count(*) FROM t", [(2,)], [(3,)]),
        ("SELECT max(k) FROM t WHERE k < 3", [(1,)], [(2,)]),
        ("SELECT k + 1 FROM t WHERE abs(k) = 2", [], [(3,)]),
        ("SELECT k, __DORIS_DELETE_SIGN__ FROM t WHERE k = 2", [], [(2, 1)]),
    ],
)
def test_skip_delete_sign_shows_deleted_rows(
    session: Session, rows: Run, query: str, hidden: list[Any], shown: list[Any]
) -> None:
    list(session.execute("DELETE FROM t WHERE k = 2"))
    assert sorted(rows(query)) == hidden
    list(session.execute("SET skip_delete_sign = true"))
    assert sorted(rows(query)) == shown
    assert len(rows("SELECT * FROM t")[0]) == len(rows("DESC t"))  # and no hidden column
    list(session.execute("SET skip_delete_sign = false"))
    assert sorted(rows(query)) == hidden


def test_desc_has_null_for_no_default(rows: Run) -> None:
    assert [row[4] for row in rows("DESC t")] == [None, None, "x", None]
    assert [row[4] for row in rows("SHOW COLUMNS FROM t")] == [None, None, "x", None]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("WITH q AS (SELECT 2 AS k) DELETE FROM t USING q WHERE t.k = q.k", [1, 3]),
        ("WITH q AS (SELECT 2 AS k) DELETE FROM t WHERE k IN (SELECT k FROM q)", [1, 3]),
        ("DELETE FROM t ORDER BY k DESC LIMIT 1", [1, 2]),
        ("DELETE FROM t WHERE a > 10 ORDER BY a LIMIT 1", [1, 3]),
        ("DELETE FROM t WHERE a > 10 LIMIT 5", [1]),
    ],
)
def test_deletes_with_with_order_and_limit(session: Session, rows: Run, text: str, left: list[int]) -> None:
    list(session.execute(text))
    assert rows("SELECT k FROM t ORDER BY k") == [(k,) for k in left]


def test_updates_with_with_order_and_limit(session: Session, rows: Run) -> None:
    list(session.execute("UPDATE t SET a = 0 WHERE k > 0 ORDER BY k DESC LIMIT 1"))
    list(session.execute("WITH q AS (SELECT 1 AS k) UPDATE t SET a = 5 WHERE k IN (SELECT k FROM q)"))
    assert rows("SELECT a FROM t ORDER BY k") == [(5,), (20,), (0,)]
    with pytest.raises(InvalidInputError, match="on one table also ORDER BY and LIMIT"):
        list(session.execute("DELETE FROM t USING t u WHERE t.k = u.k LIMIT 1"))


def test_cluster_by_sorts_the_rows_of_a_segment(store: Store, session: Session, rows: Run) -> None:
    """Zone maps prune batches by these columns, in loaded segments and in compacted ones."""
    list(
        session.execute(
            "CREATE TABLE c (k INT NOT NULL, a INT, s VARCHAR(9), j JSON) UNIQUE KEY(k) CLUSTER BY (S, a) "
            "DISTRIBUTED BY HASH(k) BUCKETS 1"
        )
    )
    table = store.table("db.c")
    for part in range(2):
        keys = range(part * 500, part * 500 + 1000)
        table.upsert(
            pa.table({"k": keys, "a": [k * 7 % 1000 for k in keys], "s": [str(k % 3) for k in keys]})
        )
        stored = [(row[1], row[0]) for row in rows("SELECT a, s FROM c") if part == 0]
        assert stored == sorted(stored)
    list(session.execute("OPTIMIZE TABLE c"))
    assert len(rows("SELECT k FROM c")) == 1500
    stored = [(row[1], row[0]) for row in rows("SELECT a, s FROM c")]
    assert stored == sorted(stored)
    assert rows("SELECT a FROM c WHERE k = 1200") == [(400,)]
    list(session.execute("ALTER TABLE c RENAME COLUMN s TO name"))
    text = rows("SHOW CREATE TABLE c")[0][1]
    assert "CLUSTER BY (`name`, `a`)\nDISTRIBUTED BY" in text
    assert "cluster_by" not in text
    list(session.execute("CREATE TABLE l LIKE c"))
    assert rows("SHOW CREATE TABLE l")[0][1] == text.replace("`c`", "`l`")
    for statement, message in (
        ("ALTER TABLE c DROP COLUMN a", r"'a' is in CLUSTER BY \(name, a\) and cannot be dropped"),
        ("CREATE TABLE e (k INT, j JSON) UNIQUE KEY(k) CLUSTER BY (j)", "'j' is JSON; expected a column of"),
        ("CREATE TABLE e (k INT, j JSON) UNIQUE KEY(k) CLUSTER BY (x)", "unknown column 'x'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            list(session.execute(statement))


def test_clean_label_frees_the_labels_of_ended_loads(store: Store, session: Session) -> None:
    def load(label: str) -> None:
        list(session.execute(f"INSERT INTO t WITH LABEL {label} (k) VALUES (9)"))

    load("one")
    load("two")
    with pytest.raises(LabelExistsError):
        load("one")
    list(session.execute("CLEAN LABEL one FROM db"))
    load("one")
    with pytest.raises(LabelExistsError):
        load("two")
    open_load = store.table("db.t").begin_load(label="open")
    list(session.execute("CLEAN LABEL FROM db"))
    load("one")
    load("two")
    with pytest.raises(LabelExistsError):
        store.table("db.t").begin_load(label="open")
    open_load.abort("test")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 1 FROM dual", 2),
        ("1 FROM DUAL WHERE 1 = 1", 1),
        ("convert('a' USING utf8mb4)", "a"),
        ("convert(12 USING utf8)", "12"),
        ("convert('12', SIGNED)", 12),
        ("time(cast('2024-01-02 03:04:05.5' AS DATETIME(1)))", "03:04:05.5"),
        ("time(cast('2024-01-02 03:04:05.5' AS DATETIME))", "03:04:06"),
        ("time(date '2024-01-02')", "00:00:00"),
        ("time('2024-01-02 03:04:05.25')", "03:04:05.25"),
        ("time('10:11:12')", "10:11:12"),
        ("time('nothing')", None),
        ("str_to_date('200442 Monday', '%X%V %W')", date(2004, 10, 18)),
        ("str_to_date('200442 Sunday', '%X%V %W')", date(2004, 10, 17)),
        ("str_to_date('200442 Friday', '%x%v %W')", date(2004, 10, 15)),
        ("str_to_date('2004 42 1', '%Y %U %w')", date(2004, 10, 18)),
        ("str_to_date('2024-01 Mon', '%x-%v %a')", date(2024, 1, 1)),
        ("str_to_date('nothing', '%X%V %W')", None),
    ],
)
def test_expressions_of_clients(value: Run, expression: str, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SHOW TABLES WHERE Tables_in_db = 't'", 1),
        ("SHOW FULL TABLES WHERE Table_type = 'VIEW'", 0),
        ("SHOW DATABASES WHERE `Database` LIKE 'd%'", 1),
        ("SHOW COLUMNS FROM t WHERE Field IN ('k', 'a')", 2),
        ("SHOW FULL COLUMNS FROM t WHERE `Null` = 'NO'", 1),
        ("SHOW TABLE STATUS WHERE Name = 't'", 1),
        ("SHOW TABLE STATUS FROM db WHERE Rows > 1000", 0),
        ("SHOW INDEX FROM t WHERE Key_name = 'PRIMARY'", 1),
        ("SHOW VARIABLES WHERE Variable_name = 'time_zone' OR variable_name = 'version'", 2),
        ("SHOW VARIABLES WHERE Variable_name LIKE 'tx_iso%' AND Value <> ''", 1),
        ("SHOW GLOBAL VARIABLES WHERE variable_name = 'version'", 1),
        ("SHOW PROCESSLIST WHERE Id < 0", 0),
        ("SHOW COLLATION WHERE Charset = 'utf8mb4' AND `Default` = 'Yes'", 1),
        ("SHOW COLLATION WHERE Charset = 'latin1'", 0),
        ("SHOW CHARACTER SET WHERE Charset = 'utf8mb4'", 1),
        ("SHOW ENGINES WHERE Engine = 'Olap'", 1),
        ("SHOW WARNINGS WHERE Level = 'Error'", 0),
        ("SHOW STATUS WHERE Variable_name = 'Uptime'", 0),
        ("SHOW PROCEDURE STATUS WHERE Db = 'db'", 0),
        ("SHOW FUNCTION STATUS WHERE Db = 'db'", 0),
        ("SHOW TRIGGERS WHERE `Table` = 't'", 0),
        ("SHOW TRIGGERS FROM db LIKE 't%'", 0),
        ("SHOW OPEN TABLES", 0),
        ("SHOW OPEN TABLES FROM db LIKE 't%'", 0),
        ("SHOW OPEN TABLES IN db WHERE In_use > 0", 0),
        ("SHOW GRANTS WHERE Password = 'No'", 1),
    ],
)
def test_show_where_selects_rows(rows: Run, text: str, count: int) -> None:
    assert len(rows(text)) == count


def test_show_where_names_an_unknown_column(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="unknown column 'nope'"):
        list(session.execute("SHOW TABLES WHERE nope = 1"))


@pytest.mark.parametrize("table", ["parameters", "column_privileges", "routines"])
def test_empty_tables_of_the_information_schema(rows: Run, table: str) -> None:
    assert rows(f"SELECT * FROM information_schema.{table}") == []


MYSQL_TYPES = {
    "DOUBLE PRECISION": "double", "REAL": "double",
    "FLOAT(53)": "double", "FLOAT(24)": "float", "FLOAT(7, 4)": "float", "DOUBLE(16, 4)": "double",
    "MEDIUMINT": "int", "MEDIUMINT UNSIGNED": "int",
    "TINYINT(1)": "tinyint", "TINYINT UNSIGNED": "smallint", "SMALLINT(5) UNSIGNED": "int",
    "INT(11)": "int", "INT(10) UNSIGNED ZEROFILL": "bigint", "INTEGER UNSIGNED": "bigint",
    "BIGINT UNSIGNED": "largeint", "BIT": "boolean", "BIT(1)": "boolean", "YEAR": "smallint",
    "TINYTEXT": "string", "MEDIUMTEXT": "string", "LONGTEXT": "string", "TEXT CHARACTER SET utf8": "string",
    "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": "varchar(9)", "CHAR(36) BINARY": "char(36)",
    "TIMESTAMP": "datetime", "NUMERIC(10, 2)": "decimal(10,2)",
}  # fmt: skip


@pytest.mark.parametrize("kind", MYSQL_TYPES)
def test_a_type_of_mysql_is_the_narrowest_that_holds_it(rows: Run, kind: str) -> None:
    """ORMs and Spark create their tables with types that Doris does not have."""
    rows(
        f"CREATE TABLE u (id INT PRIMARY KEY, c {kind} NULL); ALTER TABLE u ADD COLUMN d {kind} NULL; DESC u"
    )
    found = [row[1].lower() for row in rows("DESC u")]
    assert found == ["int", MYSQL_TYPES[kind], MYSQL_TYPES[kind]]


@pytest.mark.parametrize(
    "body",
    [
        "(id INT, v INT, PRIMARY KEY (id))",
        "(id INT PRIMARY KEY, v INT)",
        "(id INT NOT NULL PRIMARY KEY COMMENT 'x', v INT) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
        " COLLATE=utf8mb4_bin",
        "(id INT, v INT, CONSTRAINT pk PRIMARY KEY USING BTREE (id)) ENGINE = MyISAM ROW_FORMAT=DYNAMIC"
        " COMMENT='c'",
        "(id INT, v INT, CONSTRAINT PRIMARY KEY (id)) AUTO_INCREMENT=7 DEFAULT CHARACTER SET = utf8",
    ],
)
def test_a_primary_key_of_mysql_is_a_unique_key(rows: Run, body: str) -> None:
    """create_all of SQLAlchemy and sync of Sequelize were refused for it."""
    rows(f"CREATE TABLE u {body}; INSERT INTO u VALUES (1, 2); INSERT INTO u VALUES (1, 3); DESC u")
    assert rows("SELECT * FROM u") == [(1, 3)]
    assert [row[2] for row in rows("DESC u")] == ["No", "Yes"]
    assert "UNIQUE KEY(`id`)" in rows("SHOW CREATE TABLE u")[0][1]


def test_an_auto_increment_key_of_mysql_counts(rows: Run) -> None:
    rows("CREATE TABLE u (id INTEGER NOT NULL AUTO_INCREMENT, v INT, PRIMARY KEY (id)); DESC u")
    rows("INSERT INTO u (v) VALUES (5); INSERT INTO u (id, v) VALUES (DEFAULT, 6); DESC u")
    assert sorted(rows("SELECT v FROM u")) == [(5,), (6,)]
    assert rows("DESC u")[0][1].upper() == "BIGINT"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(id INT PRIMARY KEY, v INT, UNIQUE KEY u (v))", "UNIQUE is not kept here"),
        ("(id INT PRIMARY KEY, v INT, UNIQUE (v))", "UNIQUE is not kept here"),
        ("(id INT PRIMARY KEY, v INT, CONSTRAINT f FOREIGN KEY (v) REFERENCES t(k))", "FOREIGN KEY is not"),
        ("(id INT PRIMARY KEY, v INT, KEY i (v))", "KEY is not supported"),
        ("(id INT PRIMARY KEY, v INT, INDEX i (v))", "INDEX is not supported"),
        ("(id INT PRIMARY KEY, v TEXT, FULLTEXT KEY i (v))", "FULLTEXT KEY is not supported"),
        ("(id INT PRIMARY KEY, v INT PRIMARY KEY)", "keys are declared behind"),
        ("(id INT PRIMARY KEY, v INT, PRIMARY KEY (v))", "a table has one PRIMARY KEY"),
        ("(id INT PRIMARY KEY, v INT) UNIQUE KEY(id)", "name one key"),
        ("(id INT PRIMARY KEY, v BIT(8))", "no such type"),
    ],
)
def test_clauses_of_mysql_that_nothing_would_keep_are_refused(
    session: Session, body: str, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        list(session.execute(f"CREATE TABLE u {body}"))


def test_settings_are_shown_without_the_keys_of_uris(store: Store) -> None:
    """The login of a schema registry, which is a part of its address, was shown."""
    settings = replace(
        store.settings, schema_registries=("https://user:hush@registry:8081", "http://other:1")
    )
    with Store.open(store.path, settings=settings) as again, Session(again) as session:
        [result] = session.execute("ADMIN SHOW FRONTEND CONFIG LIKE 'schema_registries'")
    assert result.rows is not None
    assert result.rows["Value"].to_pylist() == ["https://******@registry:8081,http://other:1"]
