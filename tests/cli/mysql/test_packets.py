"""The size of packets: `max_allowed_packet` for statements and for the long data of parameters."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from seqstore import Store
from seqstore.cli.clients.admission import ConnectionLimits
from seqstore.cli.mysql import MysqlServer
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
