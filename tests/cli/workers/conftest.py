"""A server with two workers, for all tests of a module that change nothing of each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seqstore import Store
from tests.cli.workers.worker_server import WorkerServer, serving_workers, write_settings
from tests.support.rows import schema_of

SETTINGS = {"user_loads_max": 1, "mysql_connections_max": 60, "mysql_user_connections_max": 3}


def make_store(path: Path) -> None:
    """Creates `db.t` (k INT, v INT), and users that may load and read it."""
    with Store.open(path) as store:
        store.create_database("db")
        store.create_table("db.t", schema_of("k INT NOT NULL", "v INT"))
        for name in ("ann", "bob"):
            store.accounts.create(name, "")
            store.accounts.grant(name, ["LOAD", "SELECT"], "db")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerServer]:
    directory = tmp_path_factory.mktemp("workers")
    make_store(directory / "data")
    config = write_settings(directory / "server.toml", **SETTINGS)
    with serving_workers(directory / "data", 2, "--config", str(config)) as running:
        yield running


@pytest.fixture
def places(server: WorkerServer) -> Iterator[list[int]]:
    """Process ids of both workers."""
    found = server.workers()
    assert len(found) == 2
    yield found
    server.close_clients()
