"""Session variables at the MySQL server: the numbers of refusals, and the end of a silent client."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from tests.cli.mysql_client import ask


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SET enable_unique_key_partial_updat = true", 1193),
        ("SET version = '5.7'", 1238),
        ("SET dry_run_query = true", 1231),
        ("SET NAMES latin1", 1115),
        ("SET collation_connection = latin1_swedish_ci", 1273),
        ("SET wait_timeout = 0", 1231),
    ],
)
def test_refusals_have_the_numbers_of_mysql(connect: Any, text: str, number: int) -> None:
    connection = connect()
    with pytest.raises(pymysql.MySQLError) as refused:
        ask(connection, text)
    assert refused.value.args[0] == number
    assert ask(connection, "SELECT 1") == [(1,)]


def test_safe_updates_have_the_number_of_mysql(connect: Any) -> None:
    connection = connect(init_command="SET sql_safe_updates = 1")
    ask(connection, "CREATE TABLE safe (k INT, v INT) UNIQUE KEY(k)")
    ask(connection, "INSERT INTO safe VALUES (1, 2)")
    with pytest.raises(pymysql.MySQLError) as refused:
        ask(connection, "DELETE FROM safe WHERE v = 2")
    assert refused.value.args[0] == 1175
    assert ask(connection, "SELECT * FROM safe") == [(1, 2)]


def test_a_client_that_is_silent_for_wait_timeout_is_disconnected(connect: Any) -> None:
    connection, other = connect(), connect()
    ask(connection, "SET wait_timeout = 1")
    assert connection._rfile.read(1) == b""
    assert ask(other, "SELECT @@wait_timeout") == [(28_800,)]


def test_row_count_and_found_rows_are_of_the_last_command(connect: Any) -> None:
    connection = connect()
    ask(connection, "CREATE TABLE counted (k INT) UNIQUE KEY(k)")
    ask(connection, "INSERT INTO counted VALUES (1), (2)")
    assert ask(connection, "SELECT ROW_COUNT()") == [(2,)]
    ask(connection, "SELECT k FROM counted")
    assert ask(connection, "SELECT FOUND_ROWS(), ROW_COUNT()") == [(2, -1)]
    ask(connection, "INSERT INTO counted VALUES (3)")
    with pytest.raises(pymysql.MySQLError):
        ask(connection, "SELECT nothing FROM counted")
    assert ask(connection, "SELECT ROW_COUNT()") == [(-1,)]
