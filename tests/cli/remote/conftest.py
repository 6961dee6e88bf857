"""A store with a table of two rows, a server of it in this process, and a client."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from seqstore import Store, Table
from seqstore.cli.scan.flight_server import FlightSqlServer
from seqstore.store.remote.remote_store import RemoteStore
from seqstore.store.remote.remote_table import RemoteTable
from tests.support.remote.server import client, serving
from tests.support.rows import schema_of


@pytest.fixture
def stored(store: Store) -> Table:
    """The table `db.t` as the server's process has it: version 2, keys 1 and 2."""
    made = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))
    made.upsert(pa.table({"k": [1, 2], "v": ["a", "b"]}), label="first")
    return made


@pytest.fixture
def server(store: Store, stored: Table) -> Iterator[FlightSqlServer]:
    with serving(store) as running:
        yield running


@pytest.fixture
def remote(server: FlightSqlServer) -> Iterator[RemoteStore]:
    """The client of an administrator."""
    with client(server) as connected:
        yield connected


@pytest.fixture
def table(remote: RemoteStore) -> RemoteTable:
    return remote.table("db.t")
