"""A client that is killed, and commands that run at a server of another process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from seqstore import Store, Table
from seqstore.cli.main import app
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython
from tests.support.remote.server import ServerProcess, serving
from tests.support.rows import rows_of

HOLDER = """
import sys
import pyarrow as pa
from seqstore import Store
store = Store.connect(sys.argv[1])
table = store.table("db.t")
snapshot, load = table.snapshot(), table.begin_load(label="killed")
load.write(pa.table({"k": [9]}))
print("holds", flush=True)
sys.stdin.read()
"""


def test_the_loads_and_versions_of_a_client_that_was_killed_are_released(store: Store, stored: Table) -> None:
    with serving(store, lease_seconds=1.0) as server:
        arguments = ["-c", HOLDER, f"seqstore://127.0.0.1:{server.port}"]
        with ForkedPython(arguments, environment={"PYTHONPATH": MODULES}, has_input=True) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "holds\n"
            stored.upsert(pa.table({"k": [3]}))
            assert stored.vacuum(retention_seconds=0).held == (2,)
            assert stored.find_label("killed").status == "PREPARE"  # type: ignore[union-attr]
            client.kill()
        while stored.vacuum(retention_seconds=0).held:
            threading.Event().wait(0.05)
        assert stored.find_label("killed").status == "ABORTED"  # type: ignore[union-attr]
        assert stored.upsert(pa.table({"k": [9]}), label="killed").version == 4


@pytest.fixture(scope="module")
def process() -> Iterator[ServerProcess]:
    made = ServerProcess()
    yield made
    made.end()


@pytest.fixture
def url(process: ServerProcess, store: Store, stored: Table, tmp_path: Path) -> Iterator[str]:
    yield process.open(tmp_path / "data", store.settings)
    process.close()


def run(url: str, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["--url", url, *arguments], env={"SEQSTORE_DATA_DIR": "/nowhere"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_commands_run_at_a_server(url: str, stored: Table) -> None:
    run(url, "sql", "-D", "db", "-e", "INSERT INTO t VALUES (5, 'e'); DELETE FROM t WHERE k = 1")
    assert rows_of(stored) == [(2, "b"), (5, "e")]
    assert run(url, "sql", "-e", "SELECT max(k) AS m FROM db.t", "--format", "csv") == "m\n5\n"
    assert "first" in run(url, "history", "db.t")
    assert "deleted" in run(url, "history", "db.t", "--key", "1")
    assert run(url, "check") == "db.t: sound\n"
    assert "2 segments" not in run(url, "optimize", "db.t", "--full")
    assert "readable from version" in run(url, "vacuum", "db.t", "--dry-run")
    assert '"k":5' in run(url, "changes", "db.t", "--since", "3").replace(" ", "")


def test_a_wrong_password_is_an_error_of_one_line(url: str) -> None:
    done = CliRunner().invoke(app, ["--url", url, "--user", "x", "check"], env={"SEQSTORE_PASSWORD": "y"})
    assert (done.exit_code, "Access denied for user 'x'" in done.output) == (1, True)


def test_the_server_and_programs_beside_it_see_one_store(url: str, stored: Table) -> None:
    with Store.connect(url) as remote:
        table = remote.table("db.t")
        stored.upsert(pa.table({"k": [8], "v": ["h"]}))
        assert table.count() == 3
        table.delete({"k": [8]})
    assert stored.count() == 2
