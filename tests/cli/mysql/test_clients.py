"""Other people's clients: the mariadb command, mysql-connector-python, what dbt asks."""

from __future__ import annotations

import shutil
import subprocess
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import mysql.connector
import pytest

from seqstore.cli.mysql import MysqlServer

ROW = (1, "it's \\ ünï", 1.5, date(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5), Decimal("12.30"), 1)


def mariadb(server: MysqlServer, *arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    command = shutil.which("mariadb") or shutil.which("mysql")
    if command is None:
        pytest.skip("no mariadb client on this machine: apt-get install mariadb-client")
    line = [command, "-h127.0.0.1", f"-P{server.port}", "-uroot", "--skip-ssl", *arguments, "-e", text]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


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
