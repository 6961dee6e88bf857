"""The MySQL server, as PyMySQL sees it: values, warnings, sessions, passwords, TLS, broken clients."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pymysql
import pytest

from seqstore import Store
from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.mysql import MysqlServer


def ask(connection: Any, text: str, arguments: Any = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(text, arguments)
        return list(cursor.fetchall())


def test_values_arrive_in_their_own_types(connect: Any) -> None:
    first, second = ask(connect(), "SELECT * FROM t ORDER BY k")
    moment = datetime(2024, 1, 2, 3, 4, 5)
    assert first == (1, "it's \\ ünï", 1.5, date(2024, 1, 2), moment, Decimal("12.30"), 1)
    assert second == (2, *[None] * 6)


def test_strings_of_every_length_class_arrive_whole(connect: Any) -> None:
    connection = connect()
    for length in (0, 1, 250, 251, 252, 65_535, 65_536, 1 << 20, (1 << 24) - 4, 1 << 24, (1 << 24) + 7):
        [(text,)] = ask(connection, f"SELECT repeat('x', {length})")
        assert len(text) == length
    assert ask(connection, "SELECT 1") == [(1,)]


def test_an_insert_tells_affected_rows_and_its_label(connect: Any) -> None:
    connection = connect()
    with connection.cursor() as cursor:
        assert cursor.execute("INSERT INTO t (k) VALUES (7), (8), (9)") == 3
    assert ask(connection, "SELECT count(*) FROM t") == [(5,)]


def test_warnings_are_counted_and_shown(connect: Any) -> None:
    connection = connect()
    with connection.cursor() as cursor:
        cursor.execute("SET enable_insert_strict = false")
        cursor.execute("INSERT INTO t (k, v) VALUES (20, 'fits'), ('out of place', 'x')")
        assert cursor._result.warning_count == 1
        cursor.execute("SHOW WARNINGS")
        assert "Warning" in cursor.fetchall()[0]
        for text, count in (
            ("SHOW ERRORS", 0),
            ("SHOW WARNINGS WHERE Level = 'Error'", 0),
            ("SHOW WARNINGS LIMIT 1", 1),
            ("SHOW WARNINGS LIMIT 1, 5", 0),
            ("SHOW ERRORS LIMIT 5 OFFSET 0", 0),
            ("SHOW WARNINGS", 1),
        ):
            assert cursor.execute(text) == count, text
        cursor.execute("SELECT k FROM t")
        cursor.execute("SHOW WARNINGS")
        assert cursor.fetchall() == ()


def test_several_statements_in_one_text_give_several_results(connect: Any) -> None:
    options = {"client_flag": pymysql.constants.CLIENT.MULTI_STATEMENTS}
    with connect(**options).cursor() as cursor:
        cursor.execute("SELECT 1; INSERT INTO t (k) VALUES (30); SELECT k FROM t WHERE k = 30")
        assert cursor.fetchall() == ((1,),)
        assert cursor.nextset()
        assert cursor.rowcount == 1
        assert cursor.nextset()
        assert cursor.fetchall() == ((30,),)
        assert not cursor.nextset()


def test_one_connections_variables_and_database_stay_its_own(connect: Any) -> None:
    """W13."""
    one, two = connect(), connect()
    ask(one, "CREATE DATABASE other")
    ask(one, "USE other")
    ask(one, "SET show_hidden_columns = true, @mine = 5")
    assert ask(two, "SELECT DATABASE(), @mine, @@show_hidden_columns") == [("db", None, 0)]
    assert ask(one, "SELECT DATABASE(), @mine, @@show_hidden_columns") == [("other", 5, 1)]


def test_a_global_variable_reaches_later_connections_only(connect: Any) -> None:
    one, before = connect(), connect()
    ask(one, "SET GLOBAL sql_mode = 'TRADITIONAL'")
    assert ask(before, "SELECT @@sql_mode") == [("",)]
    assert ask(connect(), "SELECT @@sql_mode") == [("TRADITIONAL",)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SELEKT 1", 1064),
        ("SELECT * FROM nowhere", 1146),
        ("INSERT INTO nowhere VALUES (1)", 1146),
        ("SHOW CREATE TABLE nowhere", 1146),
        ("DESC nowhere", 1051),
        ("DROP TABLE nowhere", 1051),
        ("SELECT nothing FROM t", 1054),
        ("USE nowhere", 1049),
        ("SELECT no_such_function(1)", 1305),
        ("CREATE DATABASE db", 1050),
        ("INSERT INTO t (k) VALUES (1, 2)", 1136),
    ],
)
def test_errors_have_mysqls_numbers_and_leave_the_connection_usable(
    connect: Any, text: str, number: int
) -> None:
    connection = connect()
    with pytest.raises(pymysql.MySQLError) as caught:
        ask(connection, text)
    assert caught.value.args[0] == number
    assert ask(connection, "SELECT 1") == [(1,)]


@pytest.mark.parametrize(
    ("winner", "name"),
    [
        ("UPDATE t SET v = 'x' WHERE k = 2", "ConcurrentDeleteReadException"),
        ("UPDATE t SET v = NULL WHERE k = 1", "ConcurrentAppendException"),
        ("ALTER TABLE t ADD COLUMN w INT NULL", "MetadataChangedException"),
    ],
)
def test_the_message_of_a_conflict_begins_with_the_name_of_the_exception(
    connect: Any, winner: str, name: str
) -> None:
    """All conflicts have one number, and the message did not tell which of the six it was."""
    loser = connect()
    ask(loser, 'ADMIN SET FRONTEND CONFIG ("enable_concurrent_update" = "true")')
    ask(loser, "BEGIN")
    ask(loser, "DELETE FROM t WHERE v IS NULL")
    ask(connect(autocommit=True), winner)
    with pytest.raises(pymysql.MySQLError) as caught:
        ask(loser, "COMMIT")
    assert caught.value.args[0] == 1213
    assert caught.value.args[1].startswith(f"{name}: TRANSACTION on 'db.t'")


def test_a_hundred_thousand_rows_stream(connect: Any) -> None:
    connection = connect(cursorclass=pymysql.cursors.SSCursor)
    ask(connection, "CREATE TABLE big (k BIGINT, s STRING) UNIQUE KEY(k)")
    numbers = "(SELECT 0 d" + "".join(f" UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
    digits = ", ".join(f"{numbers} AS x{i}" for i in range(5))
    number = " + ".join(f"x{i}.d * {10**i}" for i in range(5))
    ask(connection, f"INSERT INTO big SELECT {number}, concat('row ', {number}) FROM {digits}")
    with connection.cursor() as cursor:
        cursor.execute("SELECT k, s FROM big")
        total = seen = 0
        for k, text in cursor:
            assert text == f"row {k}"
            total, seen = total + k, seen + 1
    assert (seen, total) == (100_000, 4_999_950_000)


_READS_AHEAD = pytest.mark.skipif(
    duckdb.__version__.startswith("1.4."), reason="DuckDB 1.4 reads by Arrow's scanner, which reads ahead"
)


@pytest.mark.parametrize("column", ["s", pytest.param("concat(s, 'x')", marks=_READS_AHEAD)])
def test_rows_wait_for_a_client_that_reads_slowly(connect: Any, store: Store, column: str) -> None:
    """400 MB of rows, of which a client takes one: neither the scan nor DuckDB gathers the rest."""
    connection = connect(cursorclass=pymysql.cursors.SSCursor)
    ask(connection, "CREATE TABLE wide (k BIGINT, s STRING) UNIQUE KEY(k)")
    for start in range(0, 80_000, 10_000):
        texts = pa.array(["x" * 5000] * 10_000)
        store.table("db.wide").upsert(pa.table({"k": range(start, start + 10_000), "s": texts}))
    cursor = connection.cursor()
    before = anonymous_bytes()
    cursor.execute(f"SELECT k, {column} FROM wide")
    assert len(cursor.fetchone()[1]) in (5000, 5001)
    assert "SELECT k" in str(ask(connect(), "SHOW FULL PROCESSLIST"))  # it is still at it
    grown = anonymous_bytes() - before
    cursor.connection, cursor._result.unbuffered_active = None, False  # else it reads to the end now
    connection._force_close()
    assert grown < 200_000_000


def anonymous_bytes() -> int:
    """Memory of this process that is no file's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


def test_a_wrong_password_is_refused_and_the_right_one_taken(connect: Any, store: Store) -> None:
    store.accounts.create("ann", "secret")
    store.accounts.grant("ann", ["SELECT"], "db")
    assert ask(connect(user="ann", password="secret"), "SELECT count(*) FROM t") == [(2,)]
    for user, password in (("ann", "wrong"), ("ann", ""), ("nobody", "secret"), ("root", "x")):
        with pytest.raises(pymysql.err.OperationalError) as caught:
            connect(user=user, password=password)
        assert caught.value.args[0] == 1045


def test_statements_need_their_privilege(connect: Any) -> None:
    root = connect()
    ask(root, "CREATE USER 'ann'@'%' IDENTIFIED BY 'secret'")
    ask(root, "CREATE DATABASE hers")
    ask(root, "CREATE TABLE hers.t (k INT) UNIQUE KEY(k)")
    ask(root, "GRANT SELECT_PRIV, LOAD_PRIV ON hers.* TO 'ann'@'%'")
    ann = connect(user="ann", password="secret", database="hers")
    ask(ann, "INSERT INTO t VALUES (1)")
    assert ask(ann, "SELECT * FROM t") == [(1,)]
    assert [name for (name,) in ask(ann, "SHOW DATABASES")] == ["hers", "information_schema"]
    for text in ("SELECT * FROM db.t", "DROP TABLE t", "CREATE USER eve", "SET GLOBAL sql_mode = ''",
                 "INSERT INTO db.t (k) VALUES (9)", "SET PASSWORD FOR root = 'x'", "DESC db.t"):  # fmt: skip
        with pytest.raises(pymysql.MySQLError) as caught:
            ask(ann, text)
        assert caught.value.args[0] == 1227, text
    ask(ann, "SET PASSWORD = 'new'")
    connect(user="ann", password="new", database="hers")
    ask(root, "REVOKE SELECT_PRIV ON hers.* FROM 'ann'")
    with pytest.raises(pymysql.MySQLError):
        ask(ann, "SELECT * FROM t")


def test_a_client_that_ignores_the_refusal_gets_nothing(server: MysqlServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(20)
        client.recv(4096)
        body = (0x81A200).to_bytes(4, "little") + bytes(28) + b"nobody\0" + b"\0" + b"mysql_native_password\0"
        client.sendall(len(body).to_bytes(3, "little") + b"\1" + body)
        refusal = client.recv(4096)
        assert b"Access denied" in refusal
        answer = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(b"\x09\0\0\0\x03SELECT 1")
            answer = client.recv(4096)
        assert answer == b""


@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\1", b"\xff\xff\xff\1" + bytes(64), b"\5"]
)
def test_noise_ends_its_own_connection_only(server: MysqlServer, connect: Any, noise: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(20)
        client.recv(4096)
        with contextlib.suppress(ConnectionError, OSError):  # it may hang up on us before we are done
            client.sendall(noise)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    assert ask(connect(), "SELECT 1") == [(1,)]


def test_kill_ends_another_connection(connect: Any) -> None:
    one, two = connect(), connect()
    number = two.thread_id()
    assert str(number) in [row[1] for row in ask(one, "SHOW PROCESSLIST")]
    ask(one, f"KILL {number}")
    with pytest.raises(pymysql.MySQLError):
        ask(two, "SELECT 1")


def test_stopping_the_server_ends_its_threads(store: Store) -> None:
    before = threading.active_count()
    with MysqlServer(store) as server:
        connection = pymysql.connect(host="127.0.0.1", port=server.port, user="root")
        assert ask(connection, "SELECT 1") == [(1,)]
    assert threading.active_count() <= before
    connection.close()


def test_more_connections_than_allowed_are_told_so(store: Store) -> None:
    with MysqlServer(store, limits=ConnectionLimits(connections_max=1)) as server:
        options = {"host": "127.0.0.1", "port": server.port, "user": "root"}
        store.accounts.create("ann")
        with pymysql.connect(**options), pytest.raises(pymysql.MySQLError) as caught:
            pymysql.connect(**options | {"user": "ann"})
        assert caught.value.args[0] == 1040


def test_tls_is_offered_and_may_be_demanded(store: Store, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl, which makes the test's certificate, is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with MysqlServer(store, tls=context, tls_required=True) as server:
        options = {"host": "127.0.0.1", "port": server.port, "user": "root"}
        with pymysql.connect(**options, ssl={"ca": str(certificate)}) as connection:
            assert connection._secure
            assert ask(connection, "SELECT count(*) FROM db.t") == [(2,)]
        with pytest.raises(pymysql.MySQLError) as caught:
            pymysql.connect(**options, ssl_disabled=True)
        assert "insecure transport" in str(caught.value)


def test_a_small_decimal_arrives_without_an_exponent(connect: Any) -> None:
    """Zero arrived as 0E-9, which clients other than Python's show so."""
    connection = connect(conv=dict(pymysql.converters.encoders))
    found = ask(connection, "SELECT CAST(0 AS DECIMAL(27, 9)), CAST(-0.0000001 AS DECIMAL(27, 9))")
    assert found == [("0.000000000", "-0.000000100")]


def test_a_parameter_of_bytes_is_a_text(connect: Any) -> None:
    """PyMySQL writes `_binary'..'`, which was an unknown type."""
    connection = connect()
    ask(connection, "CREATE TABLE texts (k INT, s VARCHAR(20)) UNIQUE KEY(k)")
    ask(connection, "INSERT INTO texts VALUES (%s, %s)", (1, "é'\\".encode()))
    assert ask(connection, "SELECT s FROM texts WHERE s = %s", ("é'\\".encode(),)) == [("é'\\",)]
