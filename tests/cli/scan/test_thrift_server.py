"""Doris's scan service: `open_scanner`, `get_next`, `close_scanner`."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Session, Store
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.plan import query_plan
from seqstore.cli.scan.thrift_server import ThriftServer
from seqstore.store.sql import parse
from tests.support.connectors.thrift_client import ThriftClient

OK, INTERNAL, INVALID_CONTEXT, INVALID_OFFSET, NOT_FOUND, INVALID, NOT_AUTHORIZED = 0, 6, 19, 20, 31, 33, 38


@pytest.fixture
def server(store: Store) -> Iterator[ThriftServer]:
    running = ThriftServer(ServerSessions(store), "127.0.0.1", 0)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def client(server: ThriftServer) -> Iterator[ThriftClient]:
    connected = ThriftClient(server.port)
    yield connected
    connected.close()


def planned(store: Store, text: str, table: str = "t") -> tuple[str, list[int]]:
    with Session(store, "db") as session:
        plan: dict[str, Any] = query_plan(session, parse(text), text, f"db.{table}", "here:1")
    return plan["opaqued_query_plan"], [int(number) for number in plan["partitions"]]


def batches(client: ThriftClient, opened: dict[int, Any]) -> list[pa.RecordBatch]:
    """Reads a scanner to its end."""
    assert opened[1][1] == OK, opened
    found: list[pa.RecordBatch] = []
    offset = 0
    while True:
        answer = client.next(opened[2], offset)
        assert answer[1][1] == OK, answer
        if answer[2]:
            return found
        [batch] = pa.ipc.open_stream(answer[3])
        found.append(batch)
        offset += batch.num_rows


def test_the_tablets_of_a_plan_have_every_row_once_and_of_one_version(
    store: Store, client: ThriftClient
) -> None:
    plan, ids = planned(store, "SELECT `k`,`v` FROM `db`.`t`")
    assert len(ids) == 3
    store.table("db.t").upsert(pa.table({"k": [1, 999], "v": [77, 77]}))
    found = [batch for each in ids for batch in batches(client, client.open(plan, [each]))]
    rows = [tuple(row.values()) for batch in found for row in batch.to_pylist()]
    assert sorted(rows) == sorted((k, min(k // 90, 2)) for k in range(280))


def test_conditions_batch_size_and_limit_of_a_scanner_count(store: Store, client: ThriftClient) -> None:
    plan, ids = planned(store, "SELECT v, k FROM t WHERE k >= 10 AND k < 40")
    found = batches(client, client.open(plan, ids, batch_size=7))
    assert [batch.num_rows for batch in found] == [7, 7, 7, 7, 2]
    assert found[0].schema.names == ["v", "k"]
    found = batches(client, client.open(plan, ids, batch_size=7, limit=9))
    assert sum(batch.num_rows for batch in found) == 9


def test_every_type_is_sent_as_the_connectors_read_it(store: Store, client: ThriftClient) -> None:
    plan, ids = planned(store, "SELECT * FROM every", "every")
    opened = client.open(plan, ids)
    kinds = {column[1].decode(): column[2] for column in opened[3]}
    assert kinds == {
        "k": 5, "b": 2, "t": 3, "s": 4, "i": 6, "l": 14, "f": 7, "x": 8, "d": 31, "w": 23, "da": 26, "dt": 27,
        "dt6": 27, "c": 23, "v": 23, "st": 23, "j": 23, "a": 20, "m": 21, "r": 22,
    }  # fmt: skip
    rows = [row for batch in batches(client, opened) for row in batch.to_pylist()]
    full, empty = sorted(rows, key=lambda row: row["k"])
    assert set(empty.values()) == {2, None}
    assert full["l"] == "170141183460469231731687303715884105727"
    assert (full["d"], full["w"]) == (Decimal("1.25"), "3.5")
    assert (full["dt"], full["dt6"]) == ("1960-01-01 10:00:00.000000", "2300-05-06 07:08:09.123456")
    assert (full["a"], full["m"]) == (["5", None], [("x", "2024-01-01 00:00:00.000000")])
    assert full["r"] == {"p": 1, "q": "7"}


def test_an_answer_that_was_lost_is_sent_again_and_other_offsets_are_refused(
    store: Store, client: ThriftClient
) -> None:
    plan, ids = planned(store, "SELECT k FROM t")
    context = client.open(plan, ids, batch_size=10)[2]
    first, again = client.next(context, 0), client.next(context, 0)
    assert first[3] == again[3]
    assert client.next(context, 10)[3] != first[3]
    for offset in (0, 5, 30):
        assert client.next(context, offset)[1][1] == INVALID_OFFSET


@pytest.mark.parametrize(
    ("user", "code"),
    [
        ("root:wrong", NOT_AUTHORIZED),
        ("nobody:", NOT_AUTHORIZED),
        ("loader:a-word", NOT_AUTHORIZED),
        ("reader:a-word", OK),
    ],
)
def test_user_password_and_privilege_are_checked_when_a_tablet_is_read(
    store: Store, client: ThriftClient, user: str, code: int
) -> None:
    plan, ids = planned(store, "SELECT k FROM t")
    assert client.open(plan, ids, user)[1][1] == code


def test_a_user_of_another_host_does_not_log_in(store: Store, client: ThriftClient) -> None:
    """The address did not count, and privileges of a user of the same name did."""
    store.accounts.create("far", host="10.%")
    store.accounts.create("near", host="127.%")
    store.accounts.grant("near:127.%", ["SELECT"], "db.t")
    plan, ids = planned(store, "SELECT k FROM t")
    codes = [client.open(plan, ids, f"{user}:")[1][1] for user in ("near", "far")]
    assert codes[0] == OK
    assert codes[1] != OK


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT count(*) FROM t", INVALID),
        ("DROP TABLE t", INVALID),
        ("SELECT k FROM nope", NOT_FOUND),
        ("SELECT k FROM t; SELECT k FROM t", INVALID),
        ("SELECT nope FROM t", INVALID),
    ],
)
def test_a_plan_that_the_server_did_not_make_is_refused_by_its_query(
    store: Store, client: ThriftClient, text: str, code: int
) -> None:
    _, ids = planned(store, "SELECT k FROM t")
    answer = client.open(base64.b64encode(text.encode()).decode(), ids)
    assert answer[1][1] == code
    assert store.tables("db") == ["every", "t"]


def test_contexts_end_with_close_and_belong_to_their_connection(
    store: Store, server: ThriftServer, client: ThriftClient
) -> None:
    plan, ids = planned(store, "SELECT k FROM t")
    context = client.open(plan, ids)[2]
    other = ThriftClient(server.port)
    assert other.next(context, 0)[1][1] == INVALID_CONTEXT
    other.close()
    assert client.close_scanner(context)[1][1] == OK
    assert client.next(context, 0)[1][1] == INVALID_CONTEXT


def test_other_methods_and_plans_are_refused_and_the_connection_goes_on(
    store: Store, client: ThriftClient
) -> None:
    assert b"there is no method 'transmit_data'" in client.call("transmit_data", {}, {})[1]
    plan, ids = planned(store, "SELECT k FROM t")
    assert client.open("no base64!", ids)[1][1] == INVALID
    assert client.open(plan, [])[1][1] == INVALID
    assert client.open(plan, [ids[-1] + 1])[1][1] == NOT_FOUND
    assert client.open(plan, ids)[1][1] == OK


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x01\x00\x01\x7f\xff\xff\xff",
        b"\x80\x01\x00\x01\xff\xff\xff\xff",
        b"\x80\x01\x00\x01\x00\x00\x00\x01x\x00\x00\x00\x01" + b"\x0c\x00\x01" * 64,
        b"\x80\x01\x00\x01\x00\x00\x00\x01x\x00\x00\x00\x01\x0f\x00\x01\x0c\x7f\xff\xff\xff",
        b"\x80\x01\x00\x01\x00\x00\x00\x01x\x00\x00\x00\x01\x63\x00\x01",
    ],
    ids=["HTTP", "huge name", "negative name", "deep", "huge list", "unknown kind"],
)
def test_bytes_that_are_no_call_end_their_connection_alone(
    store: Store, server: ThriftServer, client: ThriftClient, sent: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as other:
        other.sendall(sent)
        assert other.recv(100) == b""
    plan, ids = planned(store, "SELECT k FROM t")
    assert client.open(plan, ids)[1][1] == OK


def test_a_stop_ends_connections_with_open_scanners(
    store: Store, server: ThriftServer, client: ThriftClient
) -> None:
    plan, ids = planned(store, "SELECT k FROM t")
    context = client.open(plan, ids)[2]
    server.stop()
    with pytest.raises(OSError):  # noqa: PT011
        client.next(context, 0)
