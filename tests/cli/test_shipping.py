"""`seqstore ship`, `restore --from` and `serve --follow`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from seqstore import Store
from seqstore.cli.main import app
from tests.support.http_server import ServerProcess, serving
from tests.support.rows import rows_of, schema_of


@pytest.fixture
def leader(tmp_path: Path) -> Path:
    """A directory whose segments are elsewhere."""
    path = tmp_path / "leader"
    with Store.open(path, segments=f"file://{tmp_path}/segments") as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))
        table.upsert(pa.table({"k": [1, 2], "v": ["a", "b"]}))
    return path


def seqstore(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_store_is_shipped_and_restored(leader: Path, tmp_path: Path) -> None:
    place, new = str(tmp_path / "shipped"), str(tmp_path / "new")
    assert seqstore("--data-dir", str(leader), "ship", place).output.startswith("shipping to ")
    done = seqstore("--data-dir", new, "restore", "--from", place)
    assert done.output.startswith("epoch 2: "), done.output
    with Store.open(new) as restored:
        assert rows_of(restored.table("db.t")) == [(1, "a"), (2, "b")]
    assert seqstore("--data-dir", new, "restore", "--from", place).exit_code == 1
    for wrong in (("restore",), ("restore", "db"), ("restore", "db", place, "--from", place)):
        assert seqstore("--data-dir", str(tmp_path / "other"), *wrong).exit_code == 2


def test_metrics_tell_the_loss_window(leader: Path, tmp_path: Path) -> None:
    """A store that is not shipped has no such metrics."""
    with Store.open(leader) as store, serving(store) as client:
        assert b"seqstore_shipping" not in client.request("GET", "/metrics").body
        store.shipping.begin(str(tmp_path / "shipped"))
        found = client.request("GET", "/metrics").body.decode()
        for line in ("loss_window_seconds 0.0", "waiting_commits 0.0", "epoch 1.0", "failing 0.0"):
            assert f"seqstore_shipping_{line}\n" in found


def test_a_follower_serves_queries_and_sends_loads_to_the_leader(leader: Path, tmp_path: Path) -> None:
    """Its directory is a copy that jobs, maintenance and loads leave alone."""
    place = str(tmp_path / "shipped")
    with Store.open(leader) as store:
        store.shipping.begin(place)
    options = ("--follow", place, "--advertise", "leader.example:8030")
    server = ServerProcess(tmp_path / "copy", *options)
    try:
        answer = server.client.request("PUT", "/api/db/t/_stream_load", b"3,c\n", {"column_separator": ","})
        assert answer.status == 307
        assert answer.headers["Location"].startswith("http://leader.example:8030/api/db/t/_stream_load")
        found = server.client.request("POST", "/api/query/internal/db", b'{"stmt": "SELECT count(*) FROM t"}')
        assert found.json["data"]["data"] == [[2]]
    finally:
        assert server.stop() == 0
    with Store.open(place, mode="r") as copy:
        assert rows_of(copy.table("db.t")) == [(1, "a"), (2, "b")]
