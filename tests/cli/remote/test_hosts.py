"""Two hosts, each in a network namespace of its own, load one table of a third; one is cut off meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from seqstore import Store, Table
from tests.support.children import MODULES
from tests.support.remote.hosts import Host, hosts, why_no_hosts
from tests.support.rows import schema_of

pytestmark = [
    pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts()),
    pytest.mark.xdist_group("hosts"),
]
PASSWORD = "a-word-for-jobs"
LOADS = 12
SERVE = """
import sys
from seqstore import Store
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.scan.flight_server import FlightSqlServer
with Store.open(sys.argv[1]) as store:
    server = FlightSqlServer(ServerSessions(store), sys.argv[2], 0)
    print(server.port, flush=True)
    sys.stdin.readline()
    server.stop()
"""
DRIVE = """
import json, sys
import pyarrow as pa
from seqstore.store.remote.remote_store import connect
url, name, loads, half = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with connect(url, user="loader", password="a-word-for-jobs", retry_seconds=300) as store:
    table = store.table("db.t")
    for number in range(loads):
        keys = [0, *range(half + number * 50, half + number * 50 + 50)]
        if number % 2:
            task = table.write_task()
            rows = pa.table({"k": pa.array(keys, pa.int64()), "v": [f"{name} {number}"] * len(keys)})
            share = task.run(rows)
            with table.begin_load(label=f"{name}-{number}") as load:
                load.adopt(share)
                done = load.commit(max_filter_ratio=0)
            table.end_stagings([task.load])
        else:
            done = table.upsert(
                pa.table({"k": pa.array(keys, pa.int64()), "v": [f"{name} {number}"] * len(keys)}),
                label=f"{name}-{number}",
            )
        print(json.dumps([done.label, done.version]), flush=True)
"""


@pytest.fixture
def three() -> Iterator[list[Host]]:
    with hosts(3) as made:
        yield made


def start(stack: ExitStack, host: Host, program: str, *arguments: str) -> subprocess.Popen[str]:
    found = stack.enter_context(
        subprocess.Popen(
            host.command(sys.executable, "-c", program, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": MODULES, "PATH": ""},
        )
    )
    stack.callback(found.kill)
    return found


def line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


@pytest.mark.long
@pytest.mark.parametrize("is_cut", [False, True], ids=["joined", "cut off"])
def test_two_drivers_load_one_table_of_a_third_host(
    store: Store, tmp_path: Path, three: list[Host], is_cut: bool
) -> None:
    """Each acknowledged load is there once, under its version, whatever the other host did."""
    prepare(store)
    store.close()
    with ExitStack() as stack:
        server = start(stack, three[0], SERVE, str(tmp_path / "data"), three[0].address)
        url = f"seqstore://{three[0].address}:{line(server)}"
        drivers = {
            name: start(stack, host, DRIVE, url, name, str(LOADS), str(1 + place * 100_000))
            for place, (name, host) in enumerate(zip("ab", three[1:], strict=True))
        }
        acknowledged: dict[str, int] = {}
        read(drivers["a"], acknowledged, LOADS // 3)
        read(drivers["b"], acknowledged, LOADS // 3)
        if is_cut:
            three[2].unplug()
            read(drivers["a"], acknowledged, LOADS // 3)  # does not wait for the other host
            three[2].plug_in()
        for driver in drivers.values():
            read(driver, acknowledged, LOADS)
        assert server.stdin is not None
        server.stdin.write("\n")
        server.stdin.flush()
        assert server.wait() == 0
    check(tmp_path, acknowledged)


def prepare(store: Store) -> Table:
    store.accounts.create("loader", PASSWORD)
    store.accounts.grant("loader", ["LOAD", "SELECT"], "db.t")
    return store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))


def read(driver: subprocess.Popen[str], acknowledged: dict[str, int], most: int) -> None:
    """Reads what a driver says of its next loads, up to its last one."""
    assert driver.stdout is not None
    for _ in range(most):
        told = driver.stdout.readline()
        if not told:
            return
        label, version = json.loads(told)
        acknowledged[label] = version


def check(tmp_path: Path, acknowledged: dict[str, int]) -> None:
    with Store.open(tmp_path / "data") as store:
        table = store.table("db.t")
        labels = {info.label: info.version for info in table.history() if info.label in acknowledged}
        assert labels == acknowledged
        assert len(acknowledged) == 2 * LOADS
        rows = {row["k"]: row["v"] for row in table.scan().read_all().to_pylist()}
        assert len(rows) == 2 * LOADS * 50 + 1
        last = max(acknowledged, key=acknowledged.__getitem__)
        assert rows[0] == last.replace("-", " ")
