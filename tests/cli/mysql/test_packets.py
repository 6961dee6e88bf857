"""The size of packets: `max_allowed_packet` for statements and for the long data of parameters."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from seqstore import Store
from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.mysql import MysqlServer, wire
from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import memory_pool
from tests.cli.mysql_client import ask, dial, log_in, read_packet, send_packet

BYTES_MAX = 100_000


@pytest.fixture
def server(store: Store) -> Iterator[MysqlServer]:
    with MysqlServer(store, limits=ConnectionLimits(packet_bytes_max=BYTES_MAX)) as server:
        yield server


def test_a_statement_larger_than_max_allowed_packet_is_refused_with_the_number_of_mysql(connect: Any) -> None:
    """Packets of up to 1 GiB were read into memory, from every client at once."""
    with pytest.raises(pymysql.err.OperationalError) as refused:
        ask(connect(), f"SELECT '{'x' * BYTES_MAX}'")
    assert refused.value.args[0] == 1153
    assert ask(connect(), f"SELECT length('{'x' * (BYTES_MAX - 100)}')") == [(BYTES_MAX - 100,)]


def test_max_allowed_packet_is_set_for_later_connections_and_not_for_one_session(connect: Any) -> None:
    first = connect()
    assert ask(first, "SELECT @@max_allowed_packet") == [(BYTES_MAX,)]
    with pytest.raises(pymysql.err.MySQLError) as refused:
        ask(first, "SET max_allowed_packet = 1048576")
    assert refused.value.args[0] == 1621
    ask(first, "SET GLOBAL max_allowed_packet = 1048576")
    assert ask(connect(), f"SELECT length('{'x' * 2 * BYTES_MAX}')") == [(2 * BYTES_MAX,)]


def test_long_data_beyond_max_allowed_packet_fails_its_execution_and_not_the_connection(
    server: MysqlServer,
) -> None:
    """1.6 GB in small packets of COM_STMT_SEND_LONG_DATA were collected in memory."""
    client, _ = dial(server.port)
    with client:
        assert log_in(client, "root")[0] == 0
        send_packet(client, b"\x16SELECT length(?)")
        prepared = read_packet(client)
        number = prepared[1:5]
        for _ in range(2 * 2):  # the parameter, the column, and the end of each list
            read_packet(client)
        for _ in range(20):
            send_packet(client, b"\x18" + number + bytes(2) + b"x" * (BYTES_MAX // 10))
        execute = b"\x17" + number + b"\0" + struct.pack("<I", 1) + b"\0\x01" + struct.pack("<H", 0xFC)
        send_packet(client, execute)
        refused = read_packet(client)
        assert int.from_bytes(refused[1:3], "little") == 1153, refused
        send_packet(client, b"\x18" + number + bytes(2) + b"xyz")
        send_packet(client, execute)
        assert read_packet(client) == b"\x01"  # one column: the rows of an answer follow


def announce(server: MysqlServer, size: int) -> Any:
    """A connection of ann that has sent the head of a statement and no more."""
    client, _ = dial(server.port)
    log_in(client, "ann")
    client.sendall(size.to_bytes(3, "little") + b"\0\3SELECT")
    return client


def test_packets_that_are_announced_and_never_sent_leave_room_for_other_users(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight of 16 MiB took all memory for long statements of a server of 1 GiB."""
    monkeypatch.setattr(memory_pool, "limit_bytes", lambda: 64 << 20)  # an eighth for statements: 8 MiB
    store.accounts.create("ann")
    with MysqlServer(store) as server, ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(announce(server, 3 << 20))
        root = pymysql.connect(host="127.0.0.1", port=server.port, user="root", max_allowed_packet=64 << 20)
        with root:
            assert ask(root, f"SELECT length('{'x' * (3 << 20)}')") == [(3 << 20,)]


def test_a_client_that_stops_within_a_packet_is_told_and_disconnected(store: Store) -> None:
    """It kept the memory of the packet for `mysql_idle_seconds`, eight hours."""
    store.accounts.create("ann")
    with (
        MysqlServer(store, limits=ConnectionLimits(body_idle_seconds=0.01)) as server,
        announce(server, 3 << 20) as client,
    ):
        answer = read_packet(client)
        assert int.from_bytes(answer[1:3], "little") == 1159, answer
        assert b"after 7 bytes of a packet" in answer
        assert read_packet(client) == b""


class Trickle:
    """A socket whose client sends one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = iter(data)

    def recv_into(self, view: memoryview) -> int:
        count = min(len(view), 4 if len(view) == 4 else 1)  # the header at once
        view[:count] = bytes(next(self._data) for _ in range(count))
        return count

    def gettimeout(self) -> None:
        return None

    def settimeout(self, _seconds: float | None) -> None:
        pass


@pytest.mark.parametrize(("seconds", "is_refused"), [(40.0, True), (0.0001, False)])
def test_a_client_that_sends_a_packet_too_slowly_is_refused(
    monkeypatch: pytest.MonkeyPatch, seconds: float, is_refused: bool
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(wire, "time", SimpleNamespace(monotonic=lambda: next(ticks) * seconds))
    trickle: Any = Trickle(b"\x09\0\0\0\3abcdefgh")
    channel = wire.Channel(trickle, BYTES_MAX, wire.Pace(60.0, 1024.0))
    if not is_refused:
        assert channel.read() == b"\3abcdefgh"
        return
    with pytest.raises(UnavailableError, match=r"less than 1024 bytes a second after 2 bytes"):
        channel.read()
