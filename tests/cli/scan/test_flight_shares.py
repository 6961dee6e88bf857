"""Several endpoints of one scan: read by threads, in any order, each row is in one of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from seqstore import Store
from seqstore.cli.scan.flight_server import FlightSqlServer
from tests.cli.scan.flight_client import FlightClient, descriptor

QUERY = "CommandStatementQuery"


@pytest.fixture
def client(server: FlightSqlServer, store: Store, monkeypatch: pytest.MonkeyPatch) -> FlightClient:
    """A client of a server whose table `db.t` has ten tablets."""
    monkeypatch.setattr("seqstore.store.read.tablets.TABLET_ROWS", 1)
    for start in range(1000, 8000, 1000):
        store.table("db.t").upsert(pa.table({"k": range(start, start + 100), "v": [start] * 100}))
    return FlightClient(server.port, "root", "")


def asking(client: FlightClient, count: str) -> Any:
    return flight.FlightCallOptions(headers=[client.token, (b"endpoints", count.encode())])


def endpoints(client: FlightClient, text: str, count: str) -> Any:
    return client.client.get_flight_info(descriptor(QUERY, text), asking(client, count)).endpoints


def read(client: FlightClient, endpoint: Any) -> pa.Table:
    return client.client.do_get(endpoint.ticket, client.options).read_all()


@pytest.mark.parametrize("count", [2, 3, 100])
def test_threads_read_each_row_once(client: FlightClient, store: Store, count: int) -> None:
    found = endpoints(client, "SELECT v, k FROM db.t WHERE k >= 50", str(count))
    assert len(found) == min(count, 10)
    store.table("db.t").upsert(pa.table({"k": [1_000_000], "v": [1]}))  # later than the plan
    store.table("db.t").optimize(full=True)
    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(lambda each: read(client, each), reversed(found)))
    whole = pa.concat_tables(parts)
    assert sorted(whole["k"].to_pylist()) == [
        *range(50, 280),
        *(n + m for n in range(1000, 8000, 1000) for m in range(100)),
    ]


def test_a_client_that_asks_for_nothing_has_one_endpoint(client: FlightClient) -> None:
    info = client.client.get_flight_info(descriptor(QUERY, "SELECT k FROM db.t"), client.options)
    assert len(info.endpoints) == 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k FROM db.t ORDER BY k",
        "SELECT k FROM db.t LIMIT 3",
        "SELECT count(*) FROM db.t",
        "SELECT DISTINCT v FROM db.t",
        "SELECT a.k FROM db.t a JOIN db.t b ON a.k = b.k",
        "SELECT k FROM db.seen",
        "SELECT 1",
    ],
)
def test_a_query_that_is_more_than_a_scan_has_one_endpoint(client: FlightClient, text: str) -> None:
    assert len(endpoints(client, text, "4")) == 1


@pytest.mark.parametrize("count", ["0", "257", "x", "-1"])
def test_another_number_is_refused(client: FlightClient, count: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match="a number from 1 to 256"):
        endpoints(client, "SELECT k FROM db.t", count)


def test_times_keep_their_type_in_each_share(client: FlightClient, store: Store) -> None:
    store.table("db.every").upsert(pa.table({"k": [77]}))
    [first, second] = endpoints(client, "SELECT dt FROM db.every", "2")
    assert {read(client, each).schema.field("dt").type for each in (first, second)} == {pa.timestamp("us")}
