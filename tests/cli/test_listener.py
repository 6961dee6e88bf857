"""The listening side that MySQL and Thrift share: places of connections, a lack of descriptors, the stop."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pymysql
import pytest

from seqstore import Store
from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.mysql import MysqlServer
from seqstore.cli.scan.thrift_server import ThriftServer
from tests.cli.mysql_client import ask
from tests.cli.test_descriptors import no_files_left
from tests.support.connectors.thrift_client import ThriftClient

pytestmark = pytest.mark.sql("CREATE TABLE t (k INT, v INT) UNIQUE KEY(k); INSERT INTO t VALUES (1, 1)")
LIMITS = ConnectionLimits()
PLAN = "U0VMRUNUIGsgRlJPTSB0"  # SELECT k FROM t


@contextmanager
def thrift(store: Store, limits: ConnectionLimits = LIMITS) -> Iterator[int]:
    server = ThriftServer(ServerSessions(store), "127.0.0.1", 0, limits)
    server.start()
    try:
        yield server.port
    finally:
        server.stop()


@contextmanager
def mysql(store: Store, limits: ConnectionLimits = LIMITS) -> Iterator[int]:
    with MysqlServer(store, limits=limits) as server:
        yield server.port


class Users:
    """Logs users in over one protocol; the connections stay open until the end of the test."""

    def __init__(self, store: Store, port: int, held: ExitStack) -> None:
        with store.table("db.t").snapshot() as snapshot:
            self._tablets = snapshot.tablet_ids()
        self._port = port
        self._held = held

    def mysql(self, user: str) -> str:
        """Returns the error of a login, empty for none."""
        try:
            connection = pymysql.connect(host="127.0.0.1", port=self._port, user=user)
        except pymysql.MySQLError as error:
            return str(error)
        self._held.callback(connection.close)
        return "" if ask(connection, "SELECT k FROM db.t") == [(1,)] else "no rows"

    def thrift(self, user: str) -> str:
        client = ThriftClient(self._port)
        self._held.callback(client.close)
        status = client.open(PLAN, self._tablets, f"{user}:")[1]
        return "" if not status[1] else str(status[2])


Serve = Callable[..., Any]
PROTOCOLS: dict[str, Serve] = {"mysql": mysql, "thrift": thrift}
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def log_in(store: Store, protocol: str, port: int, held: ExitStack, user: str) -> str:
    found: str = getattr(Users(store, port, held), protocol)(user)
    return found


@each_protocol
def test_a_port_is_served_after_a_lack_of_descriptors(
    store: Store, protocol: str, held: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    """The accepting thread of MySQL ended for good, and that of Thrift used a whole processor."""
    with PROTOCOLS[protocol](store) as port:
        assert log_in(store, protocol, port, held, "root") == ""
        clients = [held.enter_context(socket.socket()) for _ in range(20)]
        with no_files_left(), caplog.at_level(logging.WARNING):
            for client in clients:  # one may get the descriptor of something that ends just now
                client.connect(("127.0.0.1", port))
                end = time.monotonic() + 10
                while "client can be accepted" not in caplog.text and time.monotonic() < end:
                    pass
                if "client can be accepted" in caplog.text:
                    break
        assert 0 < len(caplog.records) < 100
        assert log_in(store, protocol, port, held, "root") == ""


@each_protocol
def test_a_port_is_served_after_a_lack_of_memory(
    store: Store, protocol: str, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The accepting thread ended for good; a client for which there was no thread at once was refused."""
    failures = [RuntimeError("can't start new thread"), MemoryError()]
    start = threading.Thread.start

    def failing(thread: threading.Thread) -> None:
        if failures and thread.name.startswith(protocol) and thread.name[-1].isdigit():
            raise failures.pop()
        start(thread)

    with PROTOCOLS[protocol](store) as port:
        monkeypatch.setattr(threading.Thread, "start", failing)
        with socket.create_connection(("127.0.0.1", port), 60) as refused:
            assert is_closed(refused)
        assert log_in(store, protocol, port, held, "root") == ""
        assert not failures


@each_protocol
def test_users_have_so_many_places_and_administrators_a_few_more(
    store: Store, protocol: str, held: ExitStack
) -> None:
    for user in ("ann", "bob"):
        store.accounts.create(user)
        store.accounts.grant(user, ["SELECT"], "db")
    limits = ConnectionLimits(connections_max=3, user_connections_max=2)
    with PROTOCOLS[protocol](store, limits) as port, held:
        assert [log_in(store, protocol, port, held, "ann") for _ in range(2)] == ["", ""]
        assert "max_user_connections" in log_in(store, protocol, port, held, "ann")
        assert log_in(store, protocol, port, held, "bob") == ""
        assert "Too many connections" in log_in(store, protocol, port, held, "bob")
        assert log_in(store, protocol, port, held, "root") == ""


@each_protocol
def test_clients_that_do_not_log_in_keep_nobody_out(store: Store, protocol: str, held: ExitStack) -> None:
    limits = ConnectionLimits(connections_max=4)  # and eight logins
    with PROTOCOLS[protocol](store, limits) as port, held:
        silent = [held.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(20)]
        assert log_in(store, protocol, port, held, "root") == ""
        assert all(is_closed(each) for each in silent[:12])


@each_protocol
def test_a_login_has_a_time_however_its_bytes_come(store: Store, protocol: str, held: ExitStack) -> None:
    """A byte a minute kept a connection for ever."""
    with PROTOCOLS[protocol](store, ConnectionLimits(login_seconds_max=1)) as port:
        client = held.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        client.sendall(b"\x80")
        assert is_closed(client)


@each_protocol
def test_a_stop_ends_every_connection(store: Store, protocol: str, held: ExitStack) -> None:
    with PROTOCOLS[protocol](store) as port:
        silent = held.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        assert log_in(store, protocol, port, held, "root") == ""
    assert is_closed(silent)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 60)


def is_closed(client: socket.socket) -> bool:
    """Reads to the end of a connection, which the server closes; else the read has no end in time."""
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        pass
    return True
