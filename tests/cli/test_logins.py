"""Clients that never log in, guess passwords, or send bodies that do not end: the others are served."""

from __future__ import annotations

import contextlib
import errno
import json
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pyarrow import flight

from seqstore import AccessDeniedError, Store
from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.clients.listener import Listener
from seqstore.cli.clients.login_guard import FAILURES_AT_ONCE_MAX, LoginGuard
from seqstore.cli.clients.login_guard import log_in as log_in_with_guard
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.mysql import MysqlServer
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.cli.scan.thrift_server import ThriftServer
from tests.cli.mysql_client import CAPABILITIES, ask, dial, log_in, read_packet, scramble, send_packet
from tests.support.certificates import write_certificate
from tests.support.connectors.thrift_client import ThriftClient
from tests.support.http_server import Client, basic, serving

pytestmark = pytest.mark.sql("CREATE TABLE t (k INT, v STRING NULL) UNIQUE KEY(k)")
PLAN = "U0VMRUNUIGsgRlJPTSB0"  # SELECT k FROM t
HEAD = "PUT /api/db/t/_stream_load?redirected=1 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"


@pytest.fixture
def users(store: Store) -> None:
    """Two users that may load, and root with a password."""
    for name in ("ann", "bob"):
        store.accounts.create(name, name)
        store.accounts.grant(name, ["LOAD", "SELECT"], "db")
    store.accounts.set_password("root", "root")


@contextlib.contextmanager
def mysql(store: Store, **limits: Any) -> Iterator[MysqlServer]:
    with MysqlServer(store, limits=ConnectionLimits(**limits)) as server:
        yield server


def connect(server: MysqlServer, user: str, password: str | None = None) -> Any:
    given = user if password is None else password
    return pymysql.connect(host="127.0.0.1", port=server.port, user=user, password=given)


def number_of(server: MysqlServer, user: str, password: str) -> int:
    """The error of a login, 0 when it succeeds."""
    try:
        connect(server, user, password).close()
    except pymysql.MySQLError as error:
        return int(error.args[0])
    return 0


def until_closed(client: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while client.recv(4096):
            pass


# ---------------------------------------------------------------------------------------------- places


def test_clients_that_never_log_in_keep_nobody_out(store: Store, users: None) -> None:
    """256 of them took every place for as long as they liked."""
    with mysql(store, connections_max=20) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(100)]
        with connect(server, "ann") as connection:
            assert ask(connection, "SELECT 1") == [(1,)]
        for each in silent:
            each.close()


def trickle_until_closed(client: socket.socket, head: bytes) -> None:
    """Sends the beginning of a message, then a byte now and then, until the server closes the connection."""
    ended = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            client.sendall(head)
            while not ended.wait(0.2):
                client.sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        until_closed(client)
    finally:
        ended.set()
        thread.join()
        client.close()


def test_a_login_has_a_deadline_as_a_whole(store: Store) -> None:
    """Each byte began the time anew."""
    with mysql(store, login_seconds_max=1) as server:
        trickle_until_closed(dial(server.port)[0], b"\xff\xff\0\1")


def test_a_connection_can_be_ended_within_the_handshake_of_tls(store: Store, tmp_path: Path) -> None:
    """The end of a login that was late closed the socket that was accepted, which TLS had taken over."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*write_certificate(tmp_path, "localhost"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with MysqlServer(store, tls=tls, limits=ConnectionLimits(login_seconds_max=3600)) as server:
        client = dial(server.port)[0]
        with client:
            send_packet(client, (CAPABILITIES | 0x800).to_bytes(4, "little") + bytes(28), 1)
            with contextlib.suppress(ssl.SSLWantReadError):
                context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
            client.sendall(outgoing.read())
            assert client.recv(1)  # the server waits for the rest of the handshake
            [number] = server._listener._open
            server._listener._end([number])
            until_closed(client)


def test_root_has_a_place_when_all_are_taken(store: Store, users: None) -> None:
    with mysql(store, connections_max=2) as server, connect(server, "ann"), connect(server, "bob"):
        assert number_of(server, "ann", "ann") == 1040
        with connect(server, "root") as root:
            assert ask(root, "SELECT 1") == [(1,)]


def test_one_user_cannot_take_all_places(store: Store, users: None) -> None:
    limits = {"connections_max": 4, "user_connections_max": 2}
    with mysql(store, **limits) as server, connect(server, "ann"), connect(server, "ann"):
        assert number_of(server, "ann", "ann") == 1203
        connect(server, "bob").close()


def test_a_place_is_free_when_its_connection_has_ended(store: Store, users: None) -> None:
    with mysql(store, connections_max=2, user_connections_max=1) as server:
        connect(server, "ann").close()
        while (number := number_of(server, "ann", "ann")) == 1203:
            time.sleep(0.01)
        assert number == 0


# ---------------------------------------------------------------------------------------------- guesses


def test_an_address_has_ten_guesses_over_mysql(store: Store, users: None) -> None:
    """It had 2,300 a second."""
    with mysql(store) as server:
        connect(server, "bob").close()  # trusted on this address
        started = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            found = Counter(pool.map(lambda n: number_of(server, "ann", f"guess {n}"), range(60)))
        seconds = time.monotonic() - started
        assert set(found) == {1045, 1129}
        assert found[1045] <= FAILURES_AT_ONCE_MAX + seconds + 1
        assert number_of(server, "ann", "ann") in (0, 1129)
        assert number_of(server, "bob", "bob") == 0


def test_a_refused_guess_is_not_looked_at(store: Store, users: None) -> None:
    """Else the right password would be told from the wrong ones."""
    now = [0.0]
    with MysqlServer(store, sessions=ServerSessions(store, guard=LoginGuard(lambda: now[0]))) as server:
        assert [number_of(server, "ann", "x") for _ in range(11)] == [1045] * 10 + [1129]
        assert number_of(server, "ann", "ann") == 1129
        now[0] += 2.0
        assert number_of(server, "ann", "ann") == 0


def test_wrong_http_logins_keep_nobody_out(store: Store, users: None) -> None:
    """100 of them kept every login waiting: each takes 40 ms of one thread."""
    with serving(store) as client:
        assert client.load("t", "1,a\n", user="bob:bob")["Status"] == "Success"
        started = time.monotonic()
        with ThreadPoolExecutor(20) as pool:
            guesses = [pool.submit(status_of, client, f"ann:{number}") for number in range(100)]
            assert client.load("t", "2,b\n", user="bob:bob")["Status"] == "Success"
            found = Counter(each.result() for each in guesses)
        seconds = time.monotonic() - started
        assert set(found) == {401, 429}
        assert found[401] <= FAILURES_AT_ONCE_MAX + seconds + 1


def status_of(client: Client, user: str) -> int:
    return client.request("GET", "/api/backends", user=user).status


def test_both_protocols_count_the_same_failures(store: Store, users: None) -> None:
    guard = LoginGuard(lambda: 0.0)
    with (
        MysqlServer(store, sessions=ServerSessions(store, guard=guard)) as server,
        serving(store, guard=guard) as client,
    ):
        assert [number_of(server, "ann", "x") for _ in range(6)] == [1045] * 6
        assert [status_of(client, "ann:x") for _ in range(6)] == [401] * 4 + [429] * 2


def test_many_first_logins_of_one_address_are_no_guesses(store: Store, users: None) -> None:
    with serving(store, guard=LoginGuard(lambda: 0.0)) as client, ThreadPoolExecutor(30) as pool:
        assert set(pool.map(lambda _: status_of(client, "ann:ann"), range(30))) == {200}


def flight_guess(port: int, user: str, password: str) -> str:
    """The error of a login by Arrow Flight SQL, empty for none."""
    with flight.connect(f"grpc://127.0.0.1:{port}") as client:
        try:
            client.authenticate_basic_token(user, password)
        except flight.FlightUnauthenticatedError as error:
            return str(error)
    return ""


def thrift_guess(port: int, user: str, password: str) -> str:
    client = ThriftClient(port)
    try:
        status = client.open(PLAN, [], f"{user}:{password}")[1]
    finally:
        client.close()
    return str(status[2]) if status[1] else ""


def http_guess(port: int, user: str, password: str) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/api/backends", headers={"Authorization": basic(f"{user}:{password}")})
        response = connection.getresponse()
        body = response.read().decode()
    return body if response.status != 200 else ""


def mysql_guess(port: int, user: str, password: str) -> str:
    try:
        pymysql.connect(host="127.0.0.1", port=port, user=user, password=password).close()
    except pymysql.MySQLError as error:
        return str(error)
    return ""


def console_guess(port: int, user: str, password: str) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        body = json.dumps({"user": user, "password": password})
        headers = {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/json"}
        connection.request("POST", "/api/console/login", body, headers)
        response = connection.getresponse()
        answer = response.read().decode()
    return answer if response.status != 200 else ""


GUESSES: dict[str, Callable[[int, str, str], str]] = {
    "console": console_guess,
    "flight": flight_guess,
    "http": http_guess,
    "mysql": mysql_guess,
    "thrift": thrift_guess,
}
each_protocol = pytest.mark.parametrize("protocol", GUESSES)


@contextlib.contextmanager
def served(store: Store, protocol: str, guard: LoginGuard) -> Iterator[int]:
    """A server of one protocol; yields its port."""
    sessions = ServerSessions(store, guard=guard)
    with contextlib.ExitStack() as held:
        if protocol == "mysql":
            yield held.enter_context(MysqlServer(store, sessions=sessions)).port
        elif protocol in ("http", "console"):
            yield held.enter_context(serving(store, guard=guard)).port
        elif protocol == "thrift":
            thrift = ThriftServer(sessions, "127.0.0.1", 0)
            thrift.start()
            held.callback(thrift.stop)
            yield thrift.port
        else:
            running = FlightSqlServer(sessions, "127.0.0.1", 0)
            held.callback(running.stop)
            yield running.port


@pytest.mark.family(2)
@each_protocol
def test_guesses_at_the_same_time_are_ten_too(store: Store, users: None, protocol: str) -> None:
    """Thrift and Arrow Flight SQL compared as many passwords as arrived before the first had failed."""
    guess = GUESSES[protocol]
    with served(store, protocol, LoginGuard(lambda: 0.0)) as port, ThreadPoolExecutor(24) as pool:
        found = Counter(pool.map(lambda n: "blocked" in guess(port, "ann", f"guess {n}"), range(24)))
        assert found == {False: FAILURES_AT_ONCE_MAX, True: 24 - FAILURES_AT_ONCE_MAX}
        assert "blocked" in guess(port, "ann", "ann")


@pytest.mark.family(2)
@each_protocol
@pytest.mark.parametrize("known_from", ["127.0.0.1", "127.0.0.2"])
def test_a_blocked_address_does_not_learn_a_password_that_matched_before(
    store: Store, users: None, protocol: str, known_from: str
) -> None:
    """A right password was answered, and only wrong ones were refused."""
    guess = GUESSES[protocol]
    guard = LoginGuard(lambda: 0.0)
    with served(store, protocol, guard) as port:
        if known_from == "127.0.0.1":
            assert "denied" not in guess(port, "ann", "ann")
        else:
            log_in_with_guard(store.accounts, guard, "ann", "ann", known_from)
        found = ["blocked" in guess(port, "ann", f"guess {n}") for n in range(FAILURES_AT_ONCE_MAX + 2)]
        assert found == [False] * FAILURES_AT_ONCE_MAX + [True] * 2
        assert "blocked" in guess(port, "ann", "ann")


def test_logins_are_quick_until_one_fails_and_again_after_the_next_success() -> None:
    now = [0.0]
    guard = LoginGuard(lambda: now[0])
    assert guard.quick("1.2.3.4", "ann", lambda: True) is None
    guard.succeeded("1.2.3.4", "ann")
    assert guard.quick("1.2.3.4", "ann", lambda: True)
    assert guard.quick("1.2.3.5", "ann", lambda: True) is None
    assert guard.quick("1.2.3.4", "ann", lambda: None) is None
    assert guard.quick("1.2.3.4", "ann", lambda: True) is None
    guard.succeeded("1.2.3.4", "ann")
    guard.failed("1.2.3.4", "ann")
    assert guard.quick("1.2.3.4", "ann", lambda: True) is None
    guard.succeeded("1.2.3.4", "ann")
    now[0] = 1800.0
    assert guard.quick("1.2.3.4", "ann", lambda: True) is None


@each_protocol
def test_root_without_password_is_out_of_reach_from_other_machines(
    store: Store, users: None, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guess = GUESSES[protocol]
    monkeypatch.setattr("seqstore.cli.clients.login_guard.is_loopback", lambda _address: False)
    with served(store, protocol, LoginGuard()) as port:
        assert "root" not in guess(port, "root", "root")  # a password was set
        store.accounts.set_password("root", "")
        assert "logs in from the machine of the server only" in guess(port, "root", "")
        assert "logs in from the machine" not in guess(port, "bob", "bob")


def test_a_change_of_user_is_a_guess_too(store: Store, users: None) -> None:
    """COM_CHANGE_USER checks a password on a connection that is open already."""
    with MysqlServer(store, sessions=ServerSessions(store, guard=LoginGuard(lambda: 0.0))) as server:
        answers = [change_user(server, scramble("wrong", bytes(20))) for _ in range(11)]
    assert [b"Access denied" in each for each in answers] == [True] * 10 + [False]
    assert b"is blocked" in answers[-1]


def change_user(server: MysqlServer, scrambled: bytes) -> bytes:
    """The answer to COM_CHANGE_USER from bob to ann."""
    client, nonce = dial(server.port)
    with client:
        assert log_in(client, "bob", scramble("bob", nonce))[0] == 0
        body = b"ann\0" + bytes([len(scrambled)]) + scrambled + b"\0" + bytes(2) + b"mysql_native_password\0"
        send_packet(client, b"\x11" + body)
        return read_packet(client)


def test_failures_of_an_address_are_forgotten_one_a_second() -> None:
    now = [0.0]
    guard = LoginGuard(lambda: now[0])
    for _ in range(FAILURES_AT_ONCE_MAX):
        guard.check("1.2.3.4", "ann")
        guard.failed("1.2.3.4", "ann")
    with pytest.raises(AccessDeniedError, match=r"Host '1\.2\.3\.4' is blocked"):
        guard.check("1.2.3.4", "bob")
    guard.check("1.2.3.5", "ann")
    now[0] = 1.0
    guard.check("1.2.3.4", "ann")


def test_the_guard_has_a_bounded_memory() -> None:
    guard = LoginGuard()
    for number in range(20_000):
        guard.failed(str(number), "")
        guard.succeeded(str(number), "")
    assert len(guard._allowances) == len(guard._trusted) == 10_000
    assert len(guard._quick) == 10_000


# ---------------------------------------------------------------------------------------------- bodies


def begin_load(client: Client, user: str) -> socket.socket:
    """A load whose body does not end."""
    connection = socket.create_connection((client.host, client.port), timeout=60)
    connection.sendall(f"{HEAD}Authorization: {basic(user)}\r\nExpect: 100-continue\r\n\r\n".encode())
    return connection


def admit(connections: list[socket.socket], number: int) -> None:
    """Waits until so many of the loads, whichever they are, may send their bodies."""
    waiting = list(connections)
    while len(connections) - len(waiting) < number:
        answered, _, _ = select.select(waiting, [], [], 60)
        assert answered, f"{len(connections) - len(waiting)} of {number} were admitted in a minute"
        for each in answered:
            assert b"100 Continue" in each.recv(4096)
            waiting.remove(each)


def test_bodies_that_do_not_end_leave_room_for_others(store: Store, users: None) -> None:
    """64 of them took every thread; even the commit of a pre-committed load waited."""
    with serving(store, concurrent_loads_max=4, user_loads_max=2) as client:
        held = [begin_load(client, "ann:ann") for _ in range(8)]
        admit(held, 2)
        assert client.load("t", "1,a\n", user="bob:bob")["Status"] == "Success"
        prepared = client.load("t", "2,b\n", user="bob:bob", two_phase_commit="true")
        held += [begin_load(client, "bob:bob") for _ in range(2)]
        admit(held[-2:], 2)
        assert client.load("t", "3,c\n", user="root:root")["Status"] == "Success"
        headers = {"txn_id": str(prepared["TxnId"]), "txn_operation": "commit"}
        ended = client.request("PUT", "/api/db/_stream_load_2pc?redirected=1", b"", headers, "bob:bob").json
        assert ended["status"] == "Success", ended
        for each in held:
            each.close()


def test_a_body_of_a_byte_now_and_then_is_given_up(store: Store) -> None:
    """A byte within each `body_idle_seconds` held a thread for ever."""
    with serving(store, body_idle_seconds=1, body_bytes_per_second_min=1000) as client:
        connection = begin_load(client, "root:")
        assert b"100 Continue" in connection.recv(4096)
        ended = threading.Event()

        def trickle() -> None:
            with contextlib.suppress(OSError):
                while not ended.wait(0.1):
                    connection.sendall(b"1\r\n1\r\n")

        thread = threading.Thread(target=trickle)
        thread.start()
        answer = connection.recv(65536)
        ended.set()
        thread.join()
        connection.close()
        assert b"send at least 1000 a second" in answer


@pytest.mark.parametrize("path", ["/iceberg/v1/oauth/tokens", "/api/console/login"])
def test_logins_whose_bodies_do_not_come_leave_room_for_others(store: Store, path: str) -> None:
    """They needed no password, counted as busy and had no end: a few of them kept everybody out."""
    with serving(store, http_connections_max=4, body_idle_seconds=3600) as client:
        held = []
        for _ in range(8):
            held.append(begin_body(client, "POST", path))
            # It is answered behind the request before, whose head was read when it came.
            assert client.request("GET", "/health/live", user=None).status == 200
        for each in held:
            each.close()


def begin_body(client: Client, method: str, path: str, *headers: str) -> socket.socket:
    """A request with the first byte of its body."""
    connection = socket.create_connection((client.host, client.port), timeout=60)
    host = f"{client.host}:{client.port}"
    given = (f"Host: {host}", f"Origin: http://{host}", "Content-Length: 2000", *headers)
    connection.sendall("\r\n".join((f"{method} {path} HTTP/1.1", *given, "", "{")).encode())
    return connection


def test_hundreds_of_clients_that_connect_at_once_are_all_greeted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond 128 the system dropped connections, whose clients waited for a greeting until they gave up."""
    if int(Path("/proc/sys/net/core/somaxconn").read_text()) < 512:
        pytest.skip("net.core.somaxconn is too small")
    admit, may_go_on = Listener._admit, threading.Event()

    def wait(listener: Listener, client: socket.socket) -> None:
        may_go_on.wait(120)
        admit(listener, client)

    monkeypatch.setattr(Listener, "_admit", wait)
    with mysql(store, connections_max=1000) as server, contextlib.ExitStack() as opened:
        clients = []
        for _ in range(400):
            clients.append(opened.enter_context(socket.socket()))
            clients[-1].setblocking(False)
            clients[-1].connect_ex(("127.0.0.1", server.port))
        for client in clients:
            client.settimeout(2)
            assert client.connect_ex(("127.0.0.1", server.port)) in (0, errno.EISCONN)
        may_go_on.set()
        for client in clients:
            client.settimeout(60)
            assert client.recv(5)


def test_the_host_of_a_user_counts_over_both_protocols(store: Store) -> None:
    """The host had no effect: 'ann'@'10.%' logged in from everywhere."""
    accounts = store.accounts
    accounts.create("ann", "everywhere")
    accounts.create("ann", "loopback", host="127.0.0.0/8")
    accounts.create("ann", "here", host="127.0.0.2")
    accounts.create("bob", "far", host="10.%")
    accounts.grant("ann:127.0.0.2", ["LOAD"], "db")

    def enters(server: MysqlServer, http: Client, user: str, password: str, address: str) -> list[bool]:
        connection = HTTPConnection(http.host, http.port, source_address=(address, 0))
        headers = {"Authorization": basic(f"{user}:{password}")}
        connection.request("GET", "/api/backends", headers=headers)
        found = [connection.getresponse().status == 200]
        connection.close()
        try:
            client = pymysql.connect(
                host="127.0.0.1", port=server.port, user=user, password=password, bind_address=address
            )
        except pymysql.MySQLError:
            return [*found, False]
        found.append(ask(client, "SELECT current_user()") != [])
        client.close()
        return found

    with MysqlServer(store) as server, serving(store) as http:
        for address, password in (("127.0.0.1", "loopback"), ("127.0.0.2", "here")):
            for tried in ("everywhere", "loopback", "here"):
                expected = [tried == password] * 2
                assert enters(server, http, "ann", tried, address) == expected, (address, tried)
        assert enters(server, http, "bob", "far", "127.0.0.1") == [False, False]
