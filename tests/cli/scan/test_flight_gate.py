"""Hostile and idle clients of Arrow Flight SQL: bounded before they log in, and the others are served."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from seqstore import Session, Store
from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.clients.audit_log import FILE, AuditLog
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.call_paces import CallPaces
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.cli.scan.request_frames import PREFACE, RequestFrames, RequestRefusedError
from tests.cli.scan.flight_client import FlightClient, descriptor
from tests.seeds import new_seed
from tests.support.certificates import write_certificate
from tests.support.hostile.usage import descriptors
from tests.support.kafka import wait_until
from tests.weight import by_form

DATA, HEADERS, RESET, SETTINGS, CONTINUATION = 0, 1, 3, 4, 9
END_STREAM, END_HEADERS = 1, 4
PATH = "/arrow.flight.protocol.FlightService/GetFlightInfo"
SECONDS_MAX = 60.0
_NAME = "x-client"


@contextlib.contextmanager
def serving(
    store: Store, audit: AuditLog | None = None, tls: ssl.SSLContext | None = None, **limits: Any
) -> Iterator[FlightSqlServer]:
    sessions = ServerSessions(store, audit=audit)
    server = FlightSqlServer(sessions, "127.0.0.1", 0, tls, ConnectionLimits(**limits))
    try:
        yield server
    finally:
        server.stop()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: str, value: str) -> bytes:
    """A header as HTTP/2 writes one that no table knows."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def head(*others: tuple[str, str]) -> bytes:
    """The headers of a call."""
    given = {":method": "POST", ":scheme": "http", ":path": PATH, ":authority": "x", "te": "trailers"}
    given["content-type"] = "application/grpc"
    return b"".join(literal(*each) for each in (*given.items(), *others))


def begun(port: int) -> socket.socket:
    """A connection that has begun to speak HTTP/2."""
    client = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
    client.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
    return client


def until_closed(client: socket.socket) -> bytes:
    """What comes until the server closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            found += piece
    return found


def send(client: socket.socket, pieces: Iterator[bytes]) -> int:
    """Sends until the server closes; returns the bytes that it took."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            client.sendall(piece)
            sent += len(piece)
    return sent


@pytest.mark.parametrize("begin", [b"", PREFACE, PREFACE + frame(SETTINGS, 0, 0, b"")])
def test_idle_connections_are_bounded_and_keep_nobody_out(store: Store, begin: bytes) -> None:
    """gRPC accepted each of them, until the process could open no file."""
    count = by_form(200, 600)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        server = held.enter_context(serving(store, connections_max=20, login_seconds_max=600))
        before = descriptors()
        for _ in range(count):
            client = held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            client.sendall(begin)
        with contextlib.closing(FlightClient(server.port).client) as last:
            assert last is not None
        assert FlightClient(server.port).query("SELECT 1 AS n").to_pylist() == [{"n": 1}]
        wait_until(lambda: descriptors() - before < count + 150, "descriptors", lambda: f"{descriptors()}")


def test_a_client_that_does_not_log_in_is_disconnected(store: Store) -> None:
    with serving(store, login_seconds_max=1) as server, begun(server.port) as client:
        until_closed(client)


def test_a_client_that_is_silent_is_disconnected_and_connects_again(store: Store) -> None:
    with serving(store, idle_seconds_max=1) as server:
        client = FlightClient(server.port)
        assert client.query("SELECT 1 AS n").num_rows == 1
        wait_until(lambda: server.connections == 0, "the end", lambda: f"{server.connections}")

        def is_answered() -> bool:
            try:
                assert client.query("SELECT 1 AS n").num_rows == 1
            except flight.FlightUnavailableError:  # the client sent before it read the end of the connection
                return False
            return True

        wait_until(is_answered, "an answer", lambda: f"{server.connections}")


@pytest.mark.parametrize("has_user", [True, False])
def test_a_call_that_a_client_leaves_half_sent_ends(store: Store, has_user: bool) -> None:
    """Its thread, its memory and its place would be taken until the client leaves."""
    with serving(store, body_idle_seconds=1) as server:
        if has_user:
            stalled = FlightClient(server.port)
            given = descriptor("CommandStatementUpdate", "INSERT INTO db.t VALUES (?, ?)")
            rows = pa.record_batch({"k": [700], "v": [1]})
            writer, reader = stalled.client.do_put(given, rows.schema, stalled.options)
            writer.write_batch(rows)
            assert reader.read() is None
            with pytest.raises(flight.FlightUnavailableError):
                writer.close()
        else:
            with begun(server.port) as client:
                client.sendall(frame(HEADERS, END_HEADERS, 1, head()))
                client.sendall(frame(DATA, 0, 1, b"\0\0\0\0\x09half"))
                until_closed(client)
        wait_until(lambda: server.connections == 0, "the end", lambda: f"{server.connections}")
        found = FlightClient(server.port).query("SELECT count(*) AS n FROM db.t WHERE k = 700")
        assert found.to_pylist() == [{"n": 0}]


def test_a_client_that_sends_in_time_may_take_long(store: Store) -> None:
    with serving(store, body_idle_seconds=1, body_bytes_per_second_min=1) as server:
        client = FlightClient(server.port)
        given = descriptor("CommandStatementUpdate", "INSERT INTO db.t VALUES (?, ?)")
        rows = [pa.record_batch({"k": [each], "v": [1]}) for each in range(800, 812)]
        writer, reader = client.client.do_put(given, rows[0].schema, client.options)
        for row in rows:
            writer.write_batch(row)
            threading.Event().wait(0.2)  # the pause is what is tested
        writer.done_writing()
        assert reader.read() is not None
        writer.close()
        found = client.query("SELECT count(*) AS n FROM db.t WHERE k BETWEEN 800 AND 811")
        assert found.to_pylist() == [{"n": 12}]


class _Clock:
    """Seconds that a test lets pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("seqstore.cli.scan.call_paces.time", self)

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    return _Clock(monkeypatch)


def test_time_in_which_the_server_works_is_no_wait_for_its_client(clock: _Clock) -> None:
    paces = CallPaces(ConnectionLimits(body_idle_seconds=60, body_bytes_per_second_min=1000))
    paces.begin(1)
    clock.now = 59
    assert not paces.late()
    with paces.working(1):
        clock.now += 3600
        assert not paces.late()
        with paces.waiting(1):
            clock.now += 30
            paces.arrived(1, 1 << 20)
            clock.now += 59
            assert not paces.late()
            clock.now += 1
            assert paces.late() == "the client sent nothing for 60 s within a call"
        clock.now += 3600
        assert not paces.late()
    paces.end(1)
    clock.now += 3600
    assert not paces.late()


def test_a_call_that_trickles_is_late(clock: _Clock) -> None:
    paces = CallPaces(ConnectionLimits(body_idle_seconds=60, body_bytes_per_second_min=1000))
    paces.begin(1)
    paces.begin(3)
    for _ in range(7):
        clock.now += 10
        assert not paces.late() or clock.now > 60
        paces.arrived(1, 20_000)
        paces.arrived(3, 1)
    assert paces.late() == "the client sent 7 bytes of a call in 70 s"
    paces.end(3)
    assert not paces.late(), "the other one is fast enough"


def test_a_client_without_a_login_sends_little(store: Store) -> None:
    """gRPC took messages of gigabytes from clients without a login, and ended the process without memory."""
    with serving(store) as server:
        with flight.connect(f"grpc://127.0.0.1:{server.port}") as stranger:
            with pytest.raises(flight.FlightUnauthenticatedError, match="Basic"):
                stranger.get_flight_info(descriptor("CommandStatementQuery", "x" * 1000))
            with pytest.raises(flight.FlightUnavailableError):
                stranger.get_flight_info(descriptor("CommandStatementQuery", "x" * (16 << 20)))
        assert FlightClient(server.port).query("SELECT 1 AS n").num_rows == 1


def test_calls_of_a_connection_are_bounded(store: Store) -> None:
    with serving(store) as server, begun(server.port) as client:
        opening = (frame(HEADERS, END_HEADERS, 2 * n + 1, head()) for n in range(100_000))
        send(client, opening)
        until_closed(client)
        assert FlightClient(server.port).query("SELECT 1 AS n").num_rows == 1


def test_calls_that_ended_do_not_count(store: Store) -> None:
    with serving(store) as server:
        client = FlightClient(server.port)
        for _ in range(300):
            list(client.client.list_actions(client.options))
        assert server.connections == 1


def test_a_long_statement_passes_and_one_that_is_too_long_ends_its_connection(store: Store) -> None:
    with serving(store, packet_bytes_max=4 << 20) as server:
        client = FlightClient(server.port)
        text = f"SELECT length('{'a' * (3 << 20)}') AS n"
        assert client.query(text).to_pylist() == [{"n": 3 << 20}]
        with pytest.raises((flight.FlightError, pa.ArrowException, OSError)):
            client.query(f"SELECT length('{'a' * (9 << 20)}') AS n")
        assert client.query("SELECT 1 AS n").num_rows == 1


def test_a_client_cannot_hide_or_forge_who_it_is(store: Store) -> None:
    """A literal that is left open takes the first bytes of the header that follows."""
    basic = ("authorization", "Basic cmVhZGVyOmEtd29yZA==")
    for rest in (b"", b"\0\3foo\x7e" + b"v" * 10, b"\0\3foo\x0a", b"\0\x30"):
        with serving(store) as server, begun(server.port) as client:
            client.sendall(frame(HEADERS, END_HEADERS, 1, head(basic, (_NAME, "1 10.0.0.1 1")) + rest))
            client.sendall(frame(DATA, END_STREAM, 1, bytes(5)))
            with contextlib.suppress(OSError):  # the server may have ended the connection already
                client.shutdown(socket.SHUT_WR)
            assert b"10.0.0.1" not in until_closed(client)


def test_logins_and_statements_are_recorded_with_the_address(store: Store, tmp_path: Path) -> None:
    """A login over a port that is not local had the address 0.0.0.0, and so had its failures."""
    audit = AuditLog(tmp_path / "audit")
    audit.start()
    with serving(store, audit) as server:
        FlightClient(server.port).query("SELECT 1 AS n")
    audit.stop()
    lines = [json.loads(line) for line in (tmp_path / "audit" / FILE).read_text().splitlines()]
    assert {(line["event"], line["address"]) for line in lines} == {
        ("login", "127.0.0.1"),
        ("statement", "127.0.0.1"),
    }


def test_users_at_hosts_log_in_from_there_only(store: Store) -> None:
    with Session(store) as session:
        for host, password in (("127.0.0.%", "near"), ("10.%", "far")):
            list(session.execute(f"CREATE USER 'ann'@'{host}' IDENTIFIED BY '{password}'"))
    with serving(store) as server:
        assert FlightClient(server.port, "ann", "near").query("SELECT 1 AS n").num_rows == 1
        with pytest.raises(flight.FlightUnauthenticatedError):
            FlightClient(server.port, "ann", "far")


def test_connections_of_a_user_are_bounded(store: Store) -> None:
    with serving(store, user_connections_max=2) as server:
        held = [FlightClient(server.port, "reader", "a-word") for _ in range(2)]
        with pytest.raises(flight.FlightUnavailableError, match="max_user_connections"):
            FlightClient(server.port, "reader", "a-word")
        assert FlightClient(server.port).query("SELECT 1 AS n").num_rows == 1
        assert held


@pytest.mark.long
def test_a_client_that_reads_no_rows_ends_with_its_connection(store: Store) -> None:
    """It kept its version, and its place, for as long as it liked."""
    sessions = ServerSessions(store)
    server = FlightSqlServer(sessions, "127.0.0.1", 0)
    try:
        client = FlightClient(server.port)
        text = "SELECT a.k, repeat('x', 100000) FROM db.t a, db.t b"
        info = client.client.get_flight_info(descriptor("CommandStatementQuery", text), client.options)
        reader = client.client.do_get(info.endpoints[0].ticket, client.options)
        reader.read_chunk()
        [running] = sessions.processes.all()
        running.interrupt()
        wait_until(lambda: not sessions.processes.all(), "the end", lambda: f"{sessions.processes.all()}")
    finally:
        server.stop()


def test_flight_takes_tls_and_certificates_that_change(store: Store, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first, second = (write_certificate(folder, "localhost") for folder in folders)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*first)
    with serving(store, tls=context) as server:
        for certificate in (first, second):
            context.load_cert_chain(*certificate)
            client = FlightClient(server.port, certificate=certificate[0].read_bytes())
            assert client.query("SELECT k FROM db.t").num_rows == 280
        with contextlib.closing(begun(server.port)) as plain:
            until_closed(plain)


def test_random_frames_end_nothing_but_their_connection(store: Store) -> None:
    seed = new_seed()
    print(f"seed {seed}")
    choose = random.Random(seed)
    with serving(store, login_seconds_max=5) as server:
        before = descriptors()
        for _ in range(by_form(60, 300)):
            with begun(server.port) as client:
                sent = b"".join(any_frame(choose) for _ in range(choose.randrange(1, 20)))
                with contextlib.suppress(OSError):
                    client.sendall(sent)
                    client.shutdown(socket.SHUT_WR)
                until_closed(client)
        assert FlightClient(server.port).query("SELECT 1 AS n").num_rows == 1
        wait_until(lambda: descriptors() < before + 20, "descriptors", lambda: f"{descriptors()}")


def any_frame(choose: random.Random) -> bytes:
    """A frame of any kind: valid headers, messages, or bytes of chance, now and then cut."""
    payload = choose.choice([b"", head(), head()[: choose.randrange(60)], choose.randbytes(20), bytes(5)])
    kind = choose.choice(
        [DATA, HEADERS, HEADERS, 2, 3, SETTINGS, 5, 6, 7, 8, CONTINUATION, choose.randrange(256)]
    )
    found = frame(kind, choose.choice([0, 1, 4, 5, choose.randrange(256)]), choose.randrange(8), payload)
    return found[: choose.randrange(len(found))] if choose.random() < 0.1 else found


# ---------------------------------------------------------------------------------------------- frames


def frames(**limits: Any) -> RequestFrames:
    paces = CallPaces(ConnectionLimits())
    return RequestFrames(
        _NAME, "7 10.0.0.1", **{"bytes_max": 1000, "streams_max": 3, "paces": paces, **limits}
    )


def test_each_request_gets_the_header_however_its_bytes_arrive() -> None:
    sent = [
        PREFACE,
        frame(SETTINGS, 0, 0, bytes(6)),
        frame(HEADERS, END_HEADERS, 1, b"one"),
        frame(DATA, END_STREAM, 1, b"message"),
        frame(HEADERS, 0, 3, b"two"),
        frame(CONTINUATION, END_HEADERS, 3, b"three"),
        frame(DATA, END_STREAM, 3, b""),
    ]
    ours = [
        frame(CONTINUATION, END_HEADERS, stream, literal(_NAME, f"7 10.0.0.1 {stream}")) for stream in (1, 3)
    ]
    wanted = [*sent[:2], frame(HEADERS, 0, 1, b"one"), ours[0], *sent[3:5]]
    wanted += [frame(CONTINUATION, 0, 3, b"three"), ours[1], sent[6]]
    data = b"".join(sent)
    for size in (1, 2, 5, 9, 16, len(data)):
        given = frames()
        pieces = [given.feed(data[at : at + size]) for at in range(0, len(data), size)]
        assert b"".join(pieces) == b"".join(wanted)


def test_a_call_is_complete_with_the_last_byte_of_its_last_frame() -> None:
    given = frames()
    last = frame(DATA, END_STREAM, 1, b"message")
    given.feed(PREFACE + frame(HEADERS, END_HEADERS, 1, b"one") + frame(DATA, 0, 1, b"first") + last[:-1])
    assert not given.has_all(1)
    given.feed(last[-1:])
    assert given.has_all(1)
    given.feed(frame(HEADERS, END_HEADERS | END_STREAM, 3, b""))
    assert given.has_all(3)
    given.end(1)
    given.feed(frame(HEADERS, END_HEADERS, 5, b""))
    assert not given.has_all(1)
    assert not given.has_all(5)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "no HTTP/2"),
        (PREFACE + b"".join(frame(HEADERS, END_HEADERS, n, b"") for n in (1, 3, 5, 7)), "calls at a time"),
        (PREFACE + frame(HEADERS, 4, 1, b"") + frame(DATA, 0, 1, bytes(990)), "bytes in calls"),
        (
            PREFACE + frame(HEADERS, 0, 1, bytes(500)) + frame(CONTINUATION, 0, 1, bytes(500)),
            "bytes in calls",
        ),
    ],
)
def test_what_is_too_much_or_no_request_is_refused(data: bytes, part: str) -> None:
    with pytest.raises(RequestRefusedError, match=part):
        frames().feed(data)


def test_a_call_is_cancelled_from_its_reset_to_its_end() -> None:
    """gRPC's own answer is freed with the call: a statement that asked for it ended the server (SIGSEGV)."""
    given = frames()
    given.feed(PREFACE + frame(HEADERS, END_HEADERS, 1, b""))
    assert not given.is_reset(1)
    given.feed(frame(RESET, 0, 1, bytes(4)))
    assert given.is_reset(1)
    given.end(1)
    given.feed(frame(HEADERS, END_HEADERS, 3, b""))
    assert not given.is_reset(1)
    given.feed(frame(RESET, 0, 99, bytes(4)))
    assert not given.is_reset(99)


def test_ended_calls_leave_room() -> None:
    given = frames()
    given.feed(PREFACE)
    for stream in range(1, 41, 2):
        given.feed(frame(HEADERS, END_HEADERS, stream, b"") + frame(DATA, 0, stream, bytes(900)))
        given.end(stream)
    assert given.bytes < 1000
