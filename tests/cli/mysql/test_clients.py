"""Other people's clients: the mariadb command and its dump, mysql-connector-python, what dbt asks."""

from __future__ import annotations

import shutil
import subprocess
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import mysql.connector
import pymysql
import pytest
from pymysql.constants import CLIENT

from seqstore.cli.mysql import MysqlServer
from seqstore.store.sql.parse.executable_comments import VERSION
from seqstore.store.sql.translate.functions import SERVER_VERSION

ROW = (1, "it's \\ ünï", 1.5, date(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5), Decimal("12.30"), 1)


def mariadb(server: MysqlServer, *arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    command = shutil.which("mariadb") or shutil.which("mysql")
    if command is None:
        pytest.skip("no mariadb client on this machine: apt-get install mariadb-client")
    line = [command, "-h127.0.0.1", f"-P{server.port}", "-uroot", "--skip-ssl", *arguments, "-e", text]
    return subprocess.run(line, capture_output=True, text=True, timeout=200, check=False)


def test_the_mariadb_client_draws_our_rows(server: MysqlServer) -> None:
    done = mariadb(server, "db", "-t", text="SELECT k, v, n, b FROM t WHERE k = 1; SHOW TABLES")
    assert done.stderr == ""
    assert [line.split() for line in done.stdout.splitlines() if line[0] == "|"] == [
        ["|", "k", "|", "v", "|", "n", "|", "b", "|"],
        ["|", "1", "|", "it's", "\\", "ünï", "|", "12.30", "|", "1", "|"],
        ["|", "Tables_in_db", "|"],
        ["|", "t", "|"],
    ]


def test_the_mariadb_client_tells_affected_rows_and_the_label(server: MysqlServer) -> None:
    done = mariadb(server, "db", "-vv", text="INSERT INTO t WITH LABEL my_label (k) VALUES (5), (6)")
    assert "Query OK, 2 rows affected" in done.stdout
    assert "'label':'my_label', 'status':'VISIBLE'" in done.stdout


def test_the_mariadb_client_shows_our_error(server: MysqlServer) -> None:
    done = mariadb(server, "db", text="SELECT FROM")
    assert done.returncode == 1
    assert "ERROR 1064 (42000)" in done.stderr


@pytest.mark.parametrize("mode", ["--lock-tables", "--single-transaction"])
def test_a_dump_by_mariadb_dump_makes_the_database_anew(server: MysqlServer, mode: str) -> None:
    """Its first statement, an executable comment, was refused; LOCK TABLES, views and SAVEPOINT were too."""
    dump = shutil.which("mariadb-dump") or shutil.which("mysqldump")
    if dump is None:
        pytest.skip("no mariadb-dump on this machine: apt-get install mariadb-client")
    mariadb(
        server, "db", text="CREATE VIEW w AS SELECT k, NULL AS n, v FROM t WHERE d > 1; CREATE DATABASE copy"
    )
    line = [dump, "-h127.0.0.1", f"-P{server.port}", "-uroot", "--skip-ssl", "--no-tablespaces", mode, "db"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # with the way back to what the mariadb client reads from a file
    loaded = mariadb(server, "copy", text=done.stdout)
    assert loaded.stderr == ""
    question = "SELECT * FROM {}.t ORDER BY k; SELECT * FROM {}.w; SHOW CREATE TABLE {}.t"
    before, after = (mariadb(server, text=question.replace("{}", name)) for name in ("db", "copy"))
    assert before.stdout == after.stdout
    assert before.stdout.count("\n") > 5


def test_the_generated_key_is_in_the_ok_packet(connect: Any) -> None:
    """It was always 0, so no client could tell the rows that it had just inserted."""
    cursor = connect(autocommit=True).cursor()
    cursor.execute("CREATE TABLE ids (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)")
    found = []
    for text in ("INSERT INTO ids (v) VALUES (1)", "INSERT INTO ids VALUES (NULL, 2), (NULL, 3)", "SELECT 1",
                 "INSERT INTO ids VALUES (40, 4), (50, 5)", "UPDATE ids SET v = 9 WHERE id = 1",
                 "REPLACE INTO ids (v) SELECT v FROM ids WHERE v > 4", "DELETE FROM ids WHERE v = 9",
                 "INSERT IGNORE INTO ids VALUES (40, 4)",
                 "INSERT IGNORE INTO ids VALUES (NULL, 8)"):  # fmt: skip
        cursor.execute(text)
        number = cursor.lastrowid
        cursor.execute("SELECT LAST_INSERT_ID(), @@last_insert_id, @@identity")
        (row,) = cursor.fetchall()
        assert len(set(row)) == 1
        found.append((number, row[0]))
    assert found == [(1, 1), (2, 2), (None, 2), (50, 2), (0, 2), (4, 4), (0, 4), (0, 4), (6, 6)]


def test_locked_tables_are_read_as_of_one_moment(connect: Any) -> None:
    """mysqldump reads under LOCK TABLES; the refusal of it ended the dump."""
    reader, writer = connect(autocommit=True), connect(autocommit=True)
    ask, tell = reader.cursor(), writer.cursor()
    ask.execute("LOCK TABLES t READ LOCAL, `db`.t AS u READ")
    tell.execute("DELETE FROM t WHERE k = 2")
    ask.execute("SELECT count(*) FROM t")
    assert ask.fetchall() == ((2,),)
    with pytest.raises(pymysql.MySQLError, match="READ ONLY transaction"):
        ask.execute("DELETE FROM t WHERE k = 1")
    ask.execute("UNLOCK TABLES")
    ask.execute("SELECT count(*) FROM t")
    assert ask.fetchall() == ((1,),)
    ask.execute("LOCK TABLES t WRITE")
    ask.execute("SHOW WARNINGS")
    assert "locks no table" in ask.fetchall()[0][2]
    ask.execute("ALTER TABLE t DISABLE KEYS")
    ask.execute("INSERT INTO t (k) VALUES (7)")
    ask.execute("UNLOCK TABLES")
    with pytest.raises(pymysql.MySQLError) as caught:
        ask.execute("LOCK TABLES nowhere READ")
    assert caught.value.args[0] == 1146


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT /*! 1 + */ 2", 3),
        ("SELECT /*!50001 1 + */ 2", 3),
        ("SELECT /*!80001 1 + */ 2", 2),
        ("SELECT /*M!100100 1 + */ 2", 2),
        ("SELECT '/*!50001 1 */'", "/*!50001 1 */"),
        ("SELECT /*!50001 concat('*/', */ 'x' /*!50001 )*/", "*/x"),
        ("SELECT /* '*/ 1 /*!50001 + 1 */", 2),
        ("SELECT SQL_NO_CACHE 1", 1),
        ("SELECT /*!40001 SQL_NO_CACHE */ 1", 1),
    ],
)
def test_executable_comments_run(connect: Any, text: str, expected: object) -> None:
    cursor = connect().cursor()
    cursor.execute(text)
    assert cursor.fetchone() == (expected,)


def test_a_comment_alone_is_no_error_and_nothing_is_one(connect: Any) -> None:
    cursor = connect().cursor()
    cursor.execute("/*!80000 SET SESSION information_schema_stats_expiry=0 */")
    cursor.execute("-- a remark")
    with pytest.raises(pymysql.MySQLError) as caught:
        cursor.execute(" ; ")
    assert caught.value.args[0] == 1065


def test_executable_comments_know_the_version_that_clients_are_told() -> None:
    major, minor, patch = map(int, SERVER_VERSION.split("."))
    assert major * 10_000 + minor * 100 + patch == VERSION


def test_a_prepared_query_describes_its_columns(connector: Any) -> None:
    """connectorx takes the columns of its frame from the answer to COM_STMT_PREPARE, which named none."""
    for query, names in (
        ("SELECT k, v FROM t WHERE k = ? LIMIT ?", ["k", "v"]),
        ("SELECT count(*) AS c FROM t", ["c"]),
        ("SELECT k FROM t ORDER BY k DESC LIMIT 5", ["k"]),
        ("SELECT 1 AS a, 2 AS a UNION ALL SELECT 3, 4 ORDER BY 1 LIMIT ? OFFSET ?", ["a", "a"]),
        ("(SELECT k AS x FROM t LIMIT 2)", ["x"]),
        ("WITH x AS (SELECT k, ? AS y FROM t LIMIT 3) SELECT * FROM x", ["k", "y"]),
        ("SHOW TABLES", []),
        ("SELECT * FROM nowhere", []),
        ("INSERT INTO t (k) VALUES (?)", []),
    ):
        found = connector.cmd_stmt_prepare(query.encode())
        assert [column[0] for column in found["columns"]] == names
        connector.cmd_stmt_close(found["statement_id"])


@pytest.fixture
def connector(server: MysqlServer) -> Any:
    options = {"host": "127.0.0.1", "port": server.port, "user": "root", "database": "db"}
    with mysql.connector.connect(**options, use_pure=True, ssl_disabled=True) as connection:
        yield connection


def test_mysql_connector_reads_typed_rows(connector: Any) -> None:
    cursor = connector.cursor()
    cursor.execute("SELECT * FROM t ORDER BY k")
    assert cursor.fetchall() == [ROW, (2, *[None] * 6)]


def test_prepared_statements_bind_values_of_every_type(connector: Any) -> None:
    cursor = connector.cursor(prepared=True)
    row = (-3, "a 'quoted' \\ ? text", 0.1, date(1999, 12, 31), datetime(2000, 1, 1, 1, 2, 3, 450000),
           Decimal("-0.05"), False)  # fmt: skip
    cursor.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    assert cursor.rowcount == 1
    # DATETIME without a precision keeps whole seconds
    kept = (*row[:4], datetime(2000, 1, 1, 1, 2, 3), row[5], 0)
    query = "SELECT *, '?' AS mark FROM t WHERE k = ? AND v = ?"
    for _ in range(3):
        cursor.execute(query, (-3, row[1]))
        assert cursor.fetchall() == [(*kept, "?")]
    cursor.execute("SELECT * FROM t WHERE k IN (?, ?) ORDER BY k", (1, 2))
    assert cursor.fetchall() == [ROW, (2, *[None] * 6)]
    cursor.execute("SELECT ?, ? IS NULL", (None, None))
    assert cursor.fetchall() == [(None, 1)]


def test_a_reset_connection_forgets_what_was_set(connector: Any) -> None:
    cursor = connector.cursor()
    cursor.execute("SET @mine = 1")
    connector.cmd_reset_connection()
    cursor = connector.cursor()
    cursor.execute("SELECT @mine, DATABASE()")
    assert cursor.fetchall() == [(None, "db")]


def test_changing_the_user_checks_the_password(server: MysqlServer, connector: Any) -> None:
    cursor = connector.cursor()
    cursor.execute("CREATE USER bob IDENTIFIED BY 'pw'")
    connector.cmd_change_user("bob", "pw", "")
    cursor = connector.cursor()
    cursor.execute("SELECT CURRENT_USER()")
    assert "bob" in cursor.fetchone()[0]


DBT = [
    "select table_name as name, table_schema as `schema`, case when table_type = 'BASE TABLE' then 'table'"
    " when table_type = 'VIEW' then 'view' else table_type end as table_type"
    " from information_schema.tables where table_schema = 'db'",
    "select column_name as `column`, column_type as `dtype`, character_maximum_length as char_size,"
    " numeric_precision, numeric_scale from information_schema.columns where table_schema = 'db'"
    " and table_name = 't' order by ordinal_position",
    "select distinct schema_name from information_schema.schemata",
    # of `docs generate`
    'with tables as (select null as "table_database", table_schema, table_name, case when table_type ='
    " 'BASE TABLE' then 'table' when table_type = 'VIEW' then 'view' else table_type end as table_type,"
    " null as table_owner, table_comment from information_schema.tables), columns as (select null as"
    ' "table_database", table_schema as "table_schema", table_name as "table_name", column_name as'
    ' "column_name", ordinal_position as "column_index", data_type as "column_type", column_comment as'
    ' "column_comment" from information_schema.columns) select columns.table_database, columns.table_schema,'
    ' columns.table_name, tables.table_type, tables.table_comment as "table_comment", tables.table_owner,'
    " columns.column_name, columns.column_index, columns.column_type, columns.column_comment from tables join"
    " columns using (table_schema, table_name) where tables.table_schema not in ('information_schema') and"
    " (upper(tables.table_schema) = upper('db')) order by column_index",
]


def test_what_dbt_asks_information_schema_is_answered(connector: Any) -> None:
    cursor = connector.cursor()
    cursor.execute(DBT[0])
    assert cursor.fetchall() == [("t", "db", "table")]
    cursor.execute(DBT[1])
    assert cursor.fetchall() == [
        ("k", "bigint", None, 19, 0), ("v", "varchar(300)", 300, None, None),
        ("d", "double", None, 15, None), ("dd", "date", None, None, None),
        ("ts", "datetime", None, None, None), ("n", "decimal(10,2)", None, 10, 2),
        ("b", "boolean", None, None, None),
    ]  # fmt: skip
    cursor.execute(DBT[2])
    assert sorted(cursor.fetchall()) == [("db",), ("information_schema",)]
    cursor.execute(DBT[3])
    rows = cursor.fetchall()
    assert [column[0] for column in cursor.description][:3] == [
        "table_database",
        "table_schema",
        "table_name",
    ]
    assert rows[0] == (None, "db", "t", "table", "", None, "k", 1, "bigint", "")
    assert [row[6] for row in rows] == ["k", "v", "d", "dd", "ts", "n", "b"]


def test_several_statements_in_a_text_run_where_the_client_allows_them(connect: Any) -> None:
    """MySQL's guard against statements within a value: clients ask for it, or for COM_SET_OPTION."""
    text = "SELECT 1; INSERT INTO t (k) VALUES (777)"
    cursor = connect().cursor()
    with pytest.raises(pymysql.err.ProgrammingError, match="expected one statement, found 2") as refused:
        cursor.execute(text)
    assert refused.value.args[0] == 1064
    cursor.execute("SELECT count(*) FROM t WHERE k = 777;")
    assert cursor.fetchone() == (0,)
    allowed = connect(client_flag=CLIENT.MULTI_STATEMENTS).cursor()
    allowed.execute(text)
    while allowed.nextset():
        pass
    allowed.execute("SELECT count(*) FROM t WHERE k = 777")
    assert allowed.fetchone() == (1,)


def test_a_limit_for_all_queries_of_a_session(connect: Any) -> None:
    """Connector/J's setMaxRows sends it."""
    cursor = connect().cursor()
    cursor.execute("SET SQL_SELECT_LIMIT = 1")
    for query in (
        "SELECT k FROM t ORDER BY k",
        "SELECT 1 UNION ALL SELECT 2",
        "WITH c AS (SELECT k FROM t) SELECT k FROM c",
    ):
        cursor.execute(query)
        assert len(cursor.fetchall()) == 1, query
    cursor.execute("SELECT k FROM t LIMIT 5")
    assert len(cursor.fetchall()) == 2
    cursor.execute("SELECT count(*) FROM (SELECT k FROM t) AS u")
    assert cursor.fetchone() == (2,)
    cursor.execute("SET SQL_SELECT_LIMIT = DEFAULT")
    cursor.execute("SELECT k FROM t")
    assert len(cursor.fetchall()) == 2


@pytest.mark.parametrize(
    "mode", ["ANSI_QUOTES", "STRICT_TRANS_TABLES,PIPES_AS_CONCAT", "no_backslash_escapes", "ANSI"]
)
def test_a_mode_that_would_change_the_reading_of_texts_is_refused(connect: Any, mode: str) -> None:
    cursor = connect().cursor()
    with pytest.raises(pymysql.MySQLError, match="is not supported; texts, names"):
        cursor.execute(f"SET sql_mode = '{mode}'")
    cursor.execute("SET sql_mode = 'STRICT_TRANS_TABLES,NO_ZERO_DATE'")


def test_the_heading_of_an_expression_is_cut(connect: Any) -> None:
    """MySQL cuts it at 256 characters; clients fail at a name of megabytes."""
    cursor = connect().cursor()
    cursor.execute(f"SELECT length('{'x' * 100_000}')")
    assert (len(cursor.description[0][0]), cursor.fetchone()) == (256, (100_000,))
