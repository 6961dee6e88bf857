"""A process that loads, compacts and vacuums is killed again and again: nothing is lost, halved or left
behind.

The child loads batch i under label `batch-<i>`, compacts after every second one and vacuums after every
third. The parent kills it at a random moment or at a failpoint, reopens the directory and compares every
version that can be read with the batches it must show.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from seqstore import Column, Settings, Store, TableSchema, parse_type
from tests.seeds import new_seed
from tests.support.faults.dying_child import run_until_dead

KEYS = 1_500
FAILPOINTS = [
    "compaction.merged",
    "compaction.before_commit",
    "compaction.after_commit",
    "vacuum.closed",
    "vacuum.thinned",
    "vacuum.forgotten",
    "vacuum.deleted",
]

CHILD = """
import sys
from tests_maintenance_kills import batch, open_store
store = open_store(sys.argv[1])
table = store.table("db.t")
number = int(sys.argv[2])
print("ready", flush=True)
while True:
    table.upsert(batch(number), label=f"batch-{number}")
    print(number, flush=True)
    if number % 2 == 0:
        table.optimize(full=number % 4 == 0)
    if number % 3 == 0:
        table.vacuum(retention_seconds=None if "version_thinning" in table.schema.properties else 0)
    number += 1
"""


def batch(number: int) -> pa.Table:
    rows = 600 if number % 2 else 200  # files and catalog in turn, see `open_store`
    keys = np.random.default_rng(number).choice(KEYS, rows, replace=False)
    return pa.table(
        {"k": keys, "v": np.full(rows, number), "__DELETE_SIGN__": (keys % 7 == 0).astype(np.int8)}
    )


def open_store(path: str) -> Store:
    sizes = Settings(inline_bytes_max=5_000, segment_rows=400, catalog_bytes_max=2**30)
    return Store.open(path, settings=sizes)


def expected(batches: int) -> dict[int, int]:
    rows: dict[int, int] = {}
    for number in range(1, batches + 1):
        for key in batch(number).column("k").to_pylist():
            if key % 7 == 0:
                rows.pop(key, None)
            else:
                rows[key] = number
    return rows


THINNED = {"version_thinning": "0:1"}  # of each second the last version


@pytest.fixture
def directory(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "data"
    with open_store(str(path)) as store:
        store.create_database("db")
        columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
        properties = {"tombstone_retention_seconds": "0", **getattr(request, "param", {})}
        store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))
    # The child imports this module's functions under a plain name.
    (tmp_path / "tests_maintenance_kills.py").write_text(Path(__file__).read_text())
    return path


def run_child(directory: Path, first: int, *, failpoint: str = "", kill_after: int = 0) -> int:
    """Runs a loading child until it dies; returns the last batch it acknowledged (first - 1 if none)."""
    told = run_until_dead(CHILD, directory, first, failpoint=failpoint, kill_after=kill_after)
    return max([first - 1, *map(int, told)])


def assert_sound(directory: Path, acknowledged: int) -> int:
    """Compares every version with the batches it must show; returns how many the newest holds."""
    with open_store(str(directory)) as store:
        table = store.table("db.t")
        loads = {info.version: int(info.label.partition("-")[2]) for info in table.history() if info.label}
        held = max(loads.values(), default=0)
        assert held in (acknowledged, acknowledged + 1)
        assert sorted(loads.values()) == list(range(1, held + 1))
        kept = table.kept_versions
        for version in (each for each in range(kept.first, table.version + 1) if each in kept):
            batches = max((number for at, number in loads.items() if at <= version), default=0)
            rows = table.scan(version=version).read_all().to_pydict()
            found = dict(zip(rows["k"], rows["v"], strict=True))
            assert len(rows["k"]) == len(found)
            assert found == expected(batches), version
        assert table.check() == []
        assert files(directory) <= named(store), "what nobody names is swept at opening"
        table.vacuum(retention_seconds=0)
        assert files(directory) == named(store), "what a killed vacuum left is deleted by the next"
    return held


def files(directory: Path) -> set[str]:
    return {path.name.rpartition(".")[0] for path in directory.glob("tables/*/*")}


def named(store: Store) -> set[str]:
    with store.catalog.read() as tx:
        records = [record["meta"] for name in ("segments", "trash") for _, record in tx.records(name)]
    return {meta["id"] for meta in records if meta["home"] != "inline"}


def kill_at_random(directory: Path, times: int) -> None:
    seed = new_seed()
    print("seed", seed)
    chosen = random.Random(seed)
    held = 0
    for _ in range(times):
        acknowledged = run_child(directory, held + 1, kill_after=chosen.randint(0, 4))
        held = assert_sound(directory, max(acknowledged, held))


@pytest.mark.crash
def test_kills_during_compaction_and_vacuum_lose_and_leave_nothing(directory: Path) -> None:
    kill_at_random(directory, 6)


@pytest.mark.torture
@pytest.mark.crash
def test_fifty_kills_during_compaction_and_vacuum(directory: Path) -> None:
    kill_at_random(directory, 50)


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_a_kill_at_every_step_loses_and_leaves_nothing(directory: Path, failpoint: str) -> None:
    acknowledged = run_child(directory, 1, failpoint=f"{failpoint}:2")
    assert_sound(directory, acknowledged)


@pytest.mark.crash
@pytest.mark.parametrize("directory", [THINNED], indirect=True, ids=["thinned"])
@pytest.mark.parametrize("failpoint", [name for name in FAILPOINTS if name.startswith("vacuum")])
def test_a_kill_while_versions_are_thinned_loses_and_leaves_nothing(directory: Path, failpoint: str) -> None:
    acknowledged = run_child(directory, 1, failpoint=f"{failpoint}:2")
    assert_sound(directory, acknowledged)
