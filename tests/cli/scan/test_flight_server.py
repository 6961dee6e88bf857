"""Arrow Flight SQL by pyarrow's client; the messages are built as the protocol describes them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from seqstore import Session, Store
from seqstore.cli.clients.login_guard import FAILURES_AT_ONCE_MAX
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.flight_messages import encoded, fields
from seqstore.cli.scan.flight_messages import message as sql_message
from seqstore.cli.scan.flight_server import FlightSqlServer
from tests.cli.scan.flight_client import FlightClient, descriptor, message
from tests.support.waiting import until


@pytest.fixture
def client(server: FlightSqlServer) -> FlightClient:
    return FlightClient(server.port)


def test_queries_return_their_rows_with_the_types_of_arrow(client: FlightClient) -> None:
    [row] = client.query("SELECT sum(v) AS n, max(k) FROM db.t WHERE k < 100").to_pylist()
    assert row == {"n": 10, "max(k)": 99}
    [row] = client.query("SELECT * FROM db.every WHERE k = 1").to_pylist()
    assert (row["dt"], row["l"]) == (datetime(1960, 1, 1, 10), "170141183460469231731687303715884105727")
    assert client.query("SELECT k FROM db.seen").num_rows == 280


def test_rows_read_by_tablet_have_text_for_timestamps(client: FlightClient, store: Store) -> None:
    with store.table("db.every").snapshot() as snapshot:
        [only] = snapshot.tablet_ids()
    rows = client.query(f"/* ApplicationName=Spark */SELECT `dt` FROM db.every TABLET({only}) WHERE k = 1")
    assert rows.to_pylist() == [{"dt": "1960-01-01 10:00:00.000000"}]


def test_a_statement_can_be_prepared_without_parameters(client: FlightClient) -> None:
    action = flight.Action(
        "CreatePreparedStatement", message("ActionCreatePreparedStatementRequest", "SELECT 1 AS x")
    )
    [result] = client.client.do_action(action, client.options)
    answer = fields(fields(result.body.to_pybytes())[2])  # type: ignore[arg-type]
    assert pa.ipc.read_schema(pa.py_buffer(answer[2])).names == ["x"]
    assert client.query(answer[1].decode(), "CommandPreparedStatementQuery").to_pylist() == [{"x": 1}]  # type: ignore[union-attr]
    closing = flight.Action("ClosePreparedStatement", b"")
    assert list(client.client.do_action(closing, client.options)) == []


def test_an_update_runs_and_tells_the_number_of_rows(client: FlightClient, store: Store) -> None:
    given = descriptor("CommandStatementUpdate", "INSERT INTO db.t VALUES (5000, 1), (5001, 1)")
    writer, reader = client.client.do_put(given, pa.schema([]), client.options)
    writer.done_writing()
    assert fields(reader.read().to_pybytes()) == {1: 2}
    writer.close()
    assert store.table("db.t").get(pa.table({"k": [5000, 5001]})).num_rows == 2


@pytest.mark.parametrize(
    ("name", "text", "error", "part"),
    [
        ("CommandStatementQuery", "SELEC 1", pa.ArrowInvalid, "SELEC"),
        ("CommandStatementQuery", "SELECT * FROM db.nope", pa.ArrowKeyError, "nope"),
        ("CommandGetCrossReference", "x", pa.ArrowInvalid, "CommandGetCrossReference"),
        ("CommandStatementSubstraitPlan", "x", pa.ArrowInvalid, "not supported"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    client: FlightClient, store: Store, name: str, text: str, error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        client.query(text, name)
    assert "t" in store.tables("db")


def test_bytes_that_are_no_command_are_refused(client: FlightClient) -> None:
    for data in (b"", b"\xff" * 40, b"\x0a\x7f", b"select 1"):
        with pytest.raises(pa.ArrowInvalid, match="command of Arrow Flight SQL"):
            client.client.get_flight_info(flight.FlightDescriptor.for_command(data), client.options)
        with pytest.raises(pa.ArrowInvalid, match="command of Arrow Flight SQL"):
            client.client.do_get(flight.Ticket(data), client.options).read_all()


def test_logins_are_checked_and_failures_are_counted(server: FlightSqlServer) -> None:
    bare = flight.connect(f"grpc://127.0.0.1:{server.port}")
    with pytest.raises(flight.FlightUnauthenticatedError, match="Basic"):
        bare.get_flight_info(descriptor("CommandStatementQuery", "SELECT 1"))
    stale = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer made-up")])
    with pytest.raises(flight.FlightUnauthenticatedError, match="log in again"):
        bare.get_flight_info(descriptor("CommandStatementQuery", "SELECT 1"), stale)
    for _ in range(FAILURES_AT_ONCE_MAX):
        with pytest.raises(flight.FlightUnauthenticatedError):
            FlightClient(server.port, "root", "wrong")
    with pytest.raises(flight.FlightUnauthenticatedError, match="blocked"):
        FlightClient(server.port, "reader", "wrong")


def test_a_token_ends_with_its_password_and_its_user(
    server: FlightSqlServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was good for a day after ALTER USER and DROP USER."""
    store.accounts.create("eve", "first")
    changes: list[tuple[str, Callable[[], None]]] = [
        ("first", lambda: store.accounts.set_password("eve", "next")),
        ("next", lambda: store.accounts.drop("eve")),
    ]
    for password, change in changes:
        client = FlightClient(server.port, "eve", password)
        assert client.query("SELECT 1 AS n").num_rows == 1
        change()
        with pytest.raises(flight.FlightUnauthenticatedError, match="log in again"):
            client.query("SELECT 1 AS n")
    root = FlightClient(server.port)
    monkeypatch.setattr("seqstore.cli.clients.login_guard.is_loopback", lambda _address: False)
    with pytest.raises(flight.FlightUnauthenticatedError, match="machine of the server only"):
        root.query("SELECT 1 AS n")


def test_a_user_reads_only_databases_with_the_privilege(server: FlightSqlServer) -> None:
    assert FlightClient(server.port, "reader", "a-word").query("SELECT k FROM db.t").num_rows == 280
    with pytest.raises(flight.FlightUnauthorizedError, match="SELECT privilege"):
        FlightClient(server.port, "loader", "a-word").query("SELECT k FROM db.t")


def test_a_read_that_is_given_up_releases_its_version(client: FlightClient, store: Store) -> None:
    info = client.client.get_flight_info(
        descriptor("CommandStatementQuery", "SELECT * FROM db.t"), client.options
    )
    reader = client.client.do_get(info.endpoints[0].ticket, client.options)
    reader.read_chunk()
    reader.cancel()
    with Session(store, "db") as session:
        list(session.execute("DROP TABLE t"))
    assert "t" not in store.tables("db")


# ---------------------------------------------------------------------------------------------- uploads


def begin_ingest(client: FlightClient, key: int, *, replaces: bool = False) -> Any:
    """Begins an upload to db.t; returns its writer."""
    how = encoded({2: 3 if replaces else 2})
    command = sql_message("CommandStatementIngest", {1: how, 2: b"t", 3: b"db"})
    rows = pa.table({"k": [key], "v": [0]})
    given = flight.FlightDescriptor.for_command(command)
    writer, _ = client.client.do_put(given, rows.schema, client.options)
    writer.write_table(rows)
    return writer


def ingests(sessions: ServerSessions) -> list[int]:
    """The numbers of the uploads that run."""
    return [each.number for each in sessions.processes.all() if each.text.startswith("INGEST")]


@pytest.mark.parametrize("ends_by", ["insert_timeout", "KILL"])
def test_an_upload_that_stalls_is_ended(store: Store, ends_by: str) -> None:
    """It ran for as long as its client stayed connected."""
    sessions = ServerSessions(store)
    if ends_by == "insert_timeout":
        sessions.global_variables.update({"insert_timeout": "1", "query_timeout": "1"})
    server = FlightSqlServer(sessions, "127.0.0.1", 0)
    try:
        writer = begin_ingest(FlightClient(server.port), 5000)
        until(lambda: bool(ingests(sessions)))
        if ends_by == "KILL":
            [number] = ingests(sessions)
            process = sessions.processes.find(number)
            assert process is not None
            process.interrupt()
        until(lambda: not ingests(sessions))
        with pytest.raises((flight.FlightError, pa.ArrowInvalid, OSError)):
            writer.close()
    finally:
        server.stop()
    assert store.table("db.t").get(pa.table({"k": [5000]})).num_rows == 0


@pytest.mark.parametrize("replaces", [False, True])
def test_rows_of_a_client_that_leaves_within_its_upload_are_not_loaded(store: Store, replaces: bool) -> None:
    """What had arrived was loaded as if it were all: an upload that replaces a table left it nearly empty."""
    sessions = ServerSessions(store)
    server = FlightSqlServer(sessions, "127.0.0.1", 0)
    try:
        with relay(server.port) as (port, cut):
            client = FlightClient(port)
            writer = begin_ingest(client, 5000, replaces=replaces)
            until(lambda: bool(ingests(sessions)))
            cut()
            until(lambda: not ingests(sessions))
            with pytest.raises((flight.FlightError, pa.ArrowInvalid, OSError)):
                writer.close()
    finally:
        server.stop()
    table = store.table("db.t")
    assert table.get(pa.table({"k": [5000]})).num_rows == 0
    assert table.get(pa.table({"k": [0]})).num_rows == 1


@contextmanager
def relay(port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """Passes the bytes of one client on; yields its port, and a function that cuts the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as held:
        sockets: list[socket.socket] = []

        def cut() -> None:
            for each in sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

        def move(source: socket.socket, sink: socket.socket) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    sink.sendall(data)
            cut()

        def serve() -> None:
            with suppress(OSError):
                client = held.enter_context(listener.accept()[0])
                inside = held.enter_context(socket.create_connection(("127.0.0.1", port)))
                sockets.extend((client, inside))
                threading.Thread(target=move, args=(inside, client), daemon=True).start()
                move(client, inside)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1], cut
        finally:
            cut()
            thread.join(60)
