"""What connections keep between commands: bounded for each user, and free when they end."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pymysql
import pytest

from seqstore import Store
from seqstore.cli.mysql import MysqlServer
from seqstore.cli.mysql.prepared import Prepared
from seqstore.store.runtime import held_memory
from tests.cli.mysql_client import ask, dial, log_in, read_packet, send_packet
from tests.support.waiting import until

LIMIT = 64 << 20
USER_MAX = LIMIT // 16
PIECE = USER_MAX * 3 // 4
SECONDS_MAX = 60


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(held_memory, "limit_bytes", lambda: LIMIT)
    for name in ("ann", "bob"):
        store.accounts.create(name)


@contextmanager
def prepared(server: MysqlServer, user: str) -> Iterator[tuple[Any, bytes]]:
    """A connection, and the number of its prepared `SELECT length(?)`."""
    client, _ = dial(server.port)
    with client:
        log_in(client, user)
        send_packet(client, b"\x16SELECT length(?)")
        number = read_packet(client)[1:5]
        for _ in range(2 * 2):  # the parameter, the column, and the end of each list
            read_packet(client)
        yield client, number


def send_long(client: Any, number: bytes, size: int) -> None:
    send_packet(client, b"\x18" + number + bytes(2) + b"x" * size)


def execute(client: Any, number: bytes) -> bytes:
    """Executes with the long data; gives the first payload of the answer."""
    send_packet(client, b"\x17" + number + b"\0" + struct.pack("<I", 1) + b"\0\x01" + struct.pack("<H", 0xFC))
    return read_packet(client)


def error_of(payload: bytes) -> int:
    assert payload[:1] == b"\xff", payload
    return int.from_bytes(payload[1:3], "little")


def is_done(work: Callable[[], Any]) -> bool:
    try:
        work()
    except pymysql.err.MySQLError:
        return False
    return True


def test_long_data_of_all_connections_of_a_user_has_one_bound(server: MysqlServer) -> None:
    """200 idle connections of a user without grants held 64 MiB each."""
    users = ("ann", "ann", "bob")
    with ExitStack() as stack:
        first, second, other = (stack.enter_context(prepared(server, user)) for user in users)
        send_long(*first, PIECE)
        send_long(*first, 0)
        send_packet(first[0], b"\x0e")
        read_packet(first[0])  # so the data has arrived
        send_long(*second, PIECE)
        assert error_of(execute(*second)) == 1041
        send_long(*other, PIECE)
        assert execute(*other) == b"\x01"
        assert execute(*first) == b"\x01"


def test_an_execution_frees_its_long_data_for_other_connections(server: MysqlServer) -> None:
    with prepared(server, "ann") as first, prepared(server, "ann") as second:
        send_long(*first, PIECE)
        assert execute(*first) == b"\x01"
        send_long(*second, PIECE)
        assert execute(*second) == b"\x01"


def test_prepared_texts_of_a_user_have_a_bound(server: MysqlServer) -> None:
    """4,096 statements of each connection were kept, of up to 64 MiB each."""
    with prepared(server, "ann") as (client, _):
        text = b"\x16DO 1 -- " + b"x" * PIECE
        send_packet(client, text)
        number = read_packet(client)[1:5]
        send_packet(client, text)
        assert error_of(read_packet(client)) == 1041
        send_packet(client, b"\x19" + number)
        send_packet(client, text)
        assert read_packet(client)[:1] == b"\0"


@pytest.mark.parametrize("name", ["@x", "optimizer_switch"])
def test_variables_of_a_user_have_a_bound(connect: Any, name: str) -> None:
    first, second = (connect(user="ann", database=None) for _ in range(2))
    statement = f"SET {name} = '{'x' * PIECE}'"
    ask(first, statement)
    with pytest.raises(pymysql.err.OperationalError) as refused:
        ask(second, statement)
    assert refused.value.args[0] == 1041
    ask(first, f"SET {name} = ''")
    ask(second, statement)
    second.close()
    until(lambda: is_done(lambda: ask(first, statement)), SECONDS_MAX)


def test_too_many_prepared_statements_have_the_number_of_mysql(
    server: MysqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqstore.cli.mysql.connection._PREPARED_MAX", 1)
    with prepared(server, "ann") as (client, _):
        send_packet(client, b"\x16DO 1")
        assert error_of(read_packet(client)) == 1461


def test_a_connection_that_ends_leaves_nothing_for_the_collector(server: MysqlServer) -> None:
    """Connection and session formed a cycle, and nothing is collected while memory is short."""
    gc.disable()
    try:
        with prepared(server, "ann") as (client, number):
            send_long(client, number, PIECE)
            until(lambda: held_bytes() == PIECE, SECONDS_MAX)
        until(lambda: held_bytes() == 0, SECONDS_MAX)
    finally:
        gc.enable()


def held_bytes() -> int:
    """The long values of all statements of this process."""
    return sum(each.long_bytes for each in gc.get_objects() if isinstance(each, Prepared))
