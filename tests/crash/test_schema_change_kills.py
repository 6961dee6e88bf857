"""A process that changes the types of columns beside its loads is killed again and again: the job goes on
at the next opening, each version has its own types, and no file is left behind.

The child loads batch i under label `batch-<i>` and changes types after every second one.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Settings, Store
from seqstore.store.sql import Session
from tests.seeds import new_seed
from tests.support.faults.dying_child import run_until_dead
from tests.support.statements import run
from tests.weight import by_form

FAILPOINTS = ["rewrite.merged", "rewrite.before_commit", "rewrite.after_commit"]
TYPES = [("INT", "VARCHAR(11)"), ("VARCHAR(11)", "INT")]

CHILD = """
import sys
from tests_schema_change_kills import batch, change, open_store
store = open_store(sys.argv[1])
table = store.table("db.t")
number = int(sys.argv[2])
print("ready", flush=True)
while True:
    table.upsert(batch(number), label=f"batch-{number}")
    print(number, flush=True)
    if number % 2 == 0:
        change(store)
        store.schema_changes.wait()
    number += 1
"""


def batch(number: int) -> pa.Table:
    """Rows whose values are texts of numbers: each load converts them to the types that the table has."""
    keys = random.Random(number).sample(range(300), 120)
    deleted = pa.array([int(key % 7 == 0) for key in keys], pa.int8())
    texts = [str(key) for key in keys]
    return pa.table({"k": texts, "v": [str(number)] * len(keys), "__DELETE_SIGN__": deleted})


def change(store: Store) -> None:
    kind = str(store.table("db.t").schema.column("k").type)
    new = dict(TYPES)[kind]
    with Session(store, "db") as session:
        run(session, f"ALTER TABLE t MODIFY COLUMN k {new} KEY NOT NULL, MODIFY COLUMN v {new}")


def open_store(path: str) -> Store:
    sizes = Settings(inline_bytes_max=1_000, segment_rows=60, auto_compaction=0, catalog_bytes_max=2**28)
    return Store.open(path, settings=sizes)


def expected(batches: int) -> dict[str, str]:
    rows: dict[str, str] = {}
    for number in range(1, batches + 1):
        for key in batch(number).column("k").to_pylist():
            rows.pop(key, None)
            if int(key) % 7:
                rows[key] = str(number)
    return rows


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with open_store(str(path)) as store, Session(store) as session:
        run(session, "CREATE DATABASE db; USE db; CREATE TABLE t (k INT NOT NULL, v INT NULL) UNIQUE KEY(k)")
    # The child imports this module's functions under a plain name.
    (tmp_path / "tests_schema_change_kills.py").write_text(Path(__file__).read_text())
    return path


def assert_sound(directory: Path, acknowledged: int) -> int:
    """Compares every version with the batches it must show; returns how many the newest holds."""
    with open_store(str(directory)) as store:
        store.schema_changes.wait()
        jobs = store.schema_changes.jobs("db")
        assert [(job.state, job.message) for job in jobs.values()] == [("FINISHED", "")] * len(jobs)
        table = store.table("db.t")
        loads = {info.version: int(info.label.partition("-")[2]) for info in table.history() if info.label}
        held = max(loads.values(), default=0)
        assert held in (acknowledged, acknowledged + 1)
        for version in range(table.oldest_version, table.version + 1):
            batches = max((number for at, number in loads.items() if at <= version), default=0)
            found = {
                str(row["k"]): str(row["v"]) for row in table.scan(version=version).read_all().to_pylist()
            }
            assert found == expected(batches), version
        assert table.check() == []
        table.vacuum()
        assert files(directory) == named(store), "no file is there that no record names"
    return held


def files(directory: Path) -> set[str]:
    return {path.name.rpartition(".")[0] for path in directory.glob("tables/*/*")}


def named(store: Store) -> set[str]:
    with store.catalog.read() as tx:
        records: list[dict[str, Any]] = [record["meta"] for _, record in tx.records("segments")]
    return {meta["id"] for meta in records if meta["home"] != "inline"}


def run_child(directory: Path, first: int, *, failpoint: str = "", kill_after: int = 0) -> int:
    told = run_until_dead(CHILD, directory, first, failpoint=failpoint, kill_after=kill_after)
    return max([first - 1, *map(int, told)])


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_a_job_goes_on_after_a_kill_at_each_step(directory: Path, failpoint: str) -> None:
    acknowledged = run_child(directory, 1, failpoint=f"{failpoint}:2")
    assert acknowledged >= 2
    assert_sound(directory, acknowledged)


@pytest.mark.crash
def test_random_kills_lose_and_leave_nothing(directory: Path) -> None:
    seed = new_seed()
    print("seed", seed)
    chosen = random.Random(seed)
    held = 0
    for _ in range(by_form(2, 6)):
        acknowledged = run_child(directory, held + 1, kill_after=chosen.randint(1, 6))
        held = assert_sound(directory, max(acknowledged, held))
