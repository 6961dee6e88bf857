"""`seqstore serve` keeps tables in order that other processes load: it compacts, vacuums and forgets."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import Column, Store, Table, TableSchema, parse_type
from seqstore.store.segment.segment import INLINE
from tests.support.http_server import ServerProcess

CONFIG = """
[store]
label_keep_seconds = 1
[server]
maintenance_seconds = 1
"""


def load(table: Table, first: int, count: int) -> None:
    """Small loads that this process does not compact."""
    for number in range(first, first + count):
        rows = {"k": list(range(20 * number, 20 * number + 20)), "v": [number] * 20}
        table.upsert(pa.table(rows), label=f"load-{number}")


def soon(condition: Callable[[], bool]) -> bool:
    """Whether it becomes true; nothing tells this process when the server has done its round."""
    deadline = time.monotonic() + 200
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def table(store: Store) -> Table:
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
    properties = {"version_retention_seconds": "0"}
    return store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))


def test_serve_maintains_tables_that_others_load(table: Table, tmp_path: Path) -> None:
    load(table, 0, 25)
    time.sleep(1.1)  # until the labels are older than `label_keep_seconds`
    config = tmp_path / "settings.toml"
    config.write_text(CONFIG)
    server = ServerProcess(tmp_path / "data", "--config", str(config))
    try:
        store = Store.open(tmp_path / "data")
        assert soon(lambda: table.oldest_version > 1), "old versions went"
        assert soon(lambda: store.find_transaction("db", "load-0") is None), "old labels went"
        assert len(table.state().segments) < 10
        assert all(live.segment.meta.home != INLINE for live in table.state().segments.values())
        load(table, 25, 15)  # while the server runs
        assert soon(lambda: len(table.state().segments) <= 10)
        assert store.find_transaction("db", "load-39") is not None, "young labels stay"
        assert table.count() == 40 * 20
    finally:
        assert server.stop() == 0
    assert table.check() == []


def test_serve_leaves_tables_alone_when_told_so(table: Table, tmp_path: Path) -> None:
    load(table, 0, 25)
    config = tmp_path / "settings.toml"
    config.write_text("[server]\nmaintenance_seconds = 0\n")
    server = ServerProcess(tmp_path / "data", "--config", str(config))
    try:
        assert server.client.request("GET", "/metrics").status == 200
    finally:
        assert server.stop() == 0
    assert table.version == 26
