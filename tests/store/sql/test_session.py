"""Databases, tables, DESC, SHOW and SET through a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from seqstore import AlreadyExistsError, InvalidInputError, NotFoundError, Store, UnavailableError
from seqstore.store.sql import ServerContext, Session
from seqstore.store.sql.evaluate import duck
from seqstore.store.sql.evaluate.connections import connect

Run = Callable[[str], Any]
SEQUENCED = (
    "CREATE TABLE s (k INT, v VARCHAR(9) NULL) UNIQUE KEY(k) "
    "PROPERTIES('function_column.sequence_type'='BIGINT')"
)


def test_databases_and_tables_come_and_go(session: Session, rows: Run) -> None:
    list(
        session.execute(
            "CREATE DATABASE a; CREATE DATABASE IF NOT EXISTS a; USE a; CREATE TABLE t1 (k INT) UNIQUE KEY(k)"
        )
    )
    list(
        session.execute(
            "CREATE TABLE a.t2 (k INT) UNIQUE KEY(k); CREATE TABLE IF NOT EXISTS t2 (k INT) UNIQUE KEY(k)"
        )
    )
    assert rows("SHOW DATABASES LIKE 'A%'") == [("a",)]
    assert rows("SHOW TABLES") == [("t1",), ("t2",)]
    assert rows("SHOW FULL TABLES FROM a LIKE '%_1'") == [("t1", "BASE TABLE")]
    list(session.execute("DROP TABLE t1; DROP TABLE IF EXISTS t1"))
    assert rows("SHOW TABLES IN a") == [("t2",)]
    list(session.execute("DROP DATABASE a FORCE; DROP DATABASE IF EXISTS a"))
    assert session.database is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("USE nowhere", NotFoundError),
        ("DROP DATABASE nowhere", NotFoundError),
        ("DROP TABLE nowhere", NotFoundError),
        ("DESC nowhere", NotFoundError),
        ("SHOW TABLES FROM nowhere", NotFoundError),
        ("SELECT * FROM nowhere.t", NotFoundError),
        ("INSERT INTO nowhere VALUES (1)", NotFoundError),
        ("CREATE DATABASE db", AlreadyExistsError),
        ("CREATE DATABASE `1`", InvalidInputError),
    ],
)
def test_what_is_not_there_or_there_already_is_told(
    session: Session, text: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        list(session.execute(text))


def test_without_a_database_a_plain_table_name_is_refused(store: Store) -> None:
    with Session(store) as session, pytest.raises(InvalidInputError, match="No database selected"):
        list(session.execute("SELECT * FROM t"))


def test_desc_lists_hidden_columns_only_when_they_are_shown(session: Session, rows: Run) -> None:
    """T5, T6."""
    list(session.execute(SEQUENCED))
    plain = [("k", "INT", "Yes", "true", None, ""), ("v", "VARCHAR(9)", "Yes", "false", None, "REPLACE")]
    assert rows("DESC s") == plain
    assert rows("SET show_hidden_columns = true; DESCRIBE db.s") == [
        *plain,
        ("__DORIS_DELETE_SIGN__", "TINYINT", "No", "false", "0", "NONE"),
        ("__DORIS_VERSION_COL__", "BIGINT", "No", "false", "0", "NONE"),
        ("__DORIS_SEQUENCE_COL__", "BIGINT", "Yes", "false", None, "NONE"),
    ]


def test_desc_prints_defaults(session: Session, rows: Run) -> None:
    list(
        session.execute(
            "CREATE TABLE d (k INT, a INT DEFAULT '7', b DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)) "
            "UNIQUE KEY(k)"
        )
    )
    assert [row[4] for row in rows("DESC d")] == [None, "7", "CURRENT_TIMESTAMP(3)"]


def test_a_text_with_an_error_in_its_last_statement_runs_nothing(session: Session, rows: Run) -> None:
    with pytest.raises(InvalidInputError):
        session.execute("CREATE DATABASE early; CREATE TABEL t")
    assert rows("SHOW DATABASES LIKE 'early'") == []


def test_session_variables_do_not_leak_into_other_sessions(store: Store) -> None:
    """W13."""
    shared: dict[str, str] = {}
    with (
        Session(store, server=ServerContext(shared)) as one,
        Session(store, server=ServerContext(shared)) as two,
    ):
        list(one.execute("SET show_hidden_columns = ON"))
        assert "show_hidden_columns" in one.variables.on
        assert "show_hidden_columns" not in two.variables.on
        list(one.execute("SET GLOBAL require_sequence_in_insert = 0"))
        assert "require_sequence_in_insert" in one.variables.on
    with Session(store, server=ServerContext(shared)) as later:
        assert "require_sequence_in_insert" not in later.variables.on


def test_variables_are_set_read_and_reset(rows: Run) -> None:
    rows("SET sql_mode = concat(@@sql_mode, 'STRICT'), @x = 1 + 1, optimizer_switch = 'yes'; SELECT 1")
    assert rows("SELECT @@sql_mode, @x + 1, @@session.optimizer_switch, @y, @@autocommit") == [
        ("STRICT", 3, "yes", None, 1)
    ]
    assert rows("SHOW VARIABLES LIKE 'sql_mod_'") == [("sql_mode", "STRICT", "", "1")]
    assert rows("SET sql_mode = DEFAULT; SHOW VARIABLES WHERE Variable_name = 'sql_mode'") == [
        ("sql_mode", "", "", "0")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "SET show_hidden_columns = 'perhaps'",
        "SET insert_max_filter_ratio = 2",
        "SET time_zone = 'Mars'",
        "SELECT @@nothing",
    ],
)
def test_values_a_variable_cannot_take_are_refused(session: Session, text: str) -> None:
    with pytest.raises(InvalidInputError):
        list(session.execute(text))


@pytest.mark.skipif(duckdb.__version__ < "2", reason="DuckDB 1 reads this value without an error")
def test_an_internal_error_of_the_evaluator_ends_one_statement_of_nobody_else(store: Store) -> None:
    """DuckDB ends its whole database then, which all sessions of a process share."""
    schema = pa.schema([("c", pa.struct([("at", pa.timestamp("s"))]))])
    beyond = pa.record_batch([pa.array([{"at": 10**18}], schema.field(0).type)], schema=schema)
    source = duck.Source(schema, lambda: pa.RecordBatchReader.from_batches(schema, [beyond]))
    with Session(store) as other, Session(store) as third:
        list(other.execute("SELECT 1"))
        connection = connect()
        text = "SELECT to_json(c)::VARCHAR FROM s"
        with pytest.raises(InvalidInputError, match="cannot be evaluated"):
            duck.run(connection, text, {"s": source}, has_largeint=False, zone="UTC")
        with pytest.raises(UnavailableError, match="run it again"):
            duck.run(connection, "SELECT 1", {}, has_largeint=False, zone="UTC")
        for session in (other, third):
            (result,) = session.execute("SELECT 2 AS two")
            assert result.rows is not None
            assert result.rows.to_pylist() == [{"two": 2}]


def test_a_user_variable_holds_a_small_decimal_without_an_exponent(rows: Run) -> None:
    assert rows("SET @x = CAST(0 AS DECIMAL(27, 9)); SELECT CONCAT(@x, '')") == [("0.000000000",)]
