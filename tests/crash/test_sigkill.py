"""A real process that loads is killed again and again: what it acknowledged is there, and nothing in part.

The child loads batch i under label `batch-<i>`: every row of it carries i as value and as sequence, keys
overlap between batches. It prints i after each commit. The parent kills it at a random moment or at a
failpoint, reopens the directory and compares the table with the batches up to the last one that counts.
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
from tests.weight import by_form

KEYS = 1_500
FAILPOINTS = ["disk.written", "load.staged", "publish.before_commit", "publish.after_commit"]

CHILD = """
import sys
from tests_crash_batches import batch, open_store
from seqstore import LabelExistsError
store = open_store(sys.argv[1])
table = store.table("db.t")
number = int(sys.argv[2])
print("ready", flush=True)
while True:
    table.upsert(batch(number), label=f"batch-{number}")
    print(number, flush=True)
    number += 1
"""


def batch(number: int) -> pa.Table:
    rows = 600 if number % 2 else 200  # files and catalog in turn, see `open_store`
    keys = np.random.default_rng(number).choice(KEYS, rows, replace=False)
    return pa.table({"k": keys, "v": np.full(rows, number), "text": [f"{number}:{k}" for k in keys]})


def open_store(path: str) -> Store:
    return Store.open(
        path, settings=Settings(inline_bytes_max=10_000, catalog_bytes_max=2**30, auto_compaction=0)
    )


def expected(batches: int) -> dict[int, tuple[int, str]]:
    rows: dict[int, tuple[int, str]] = {}
    for number in range(1, batches + 1):
        data = batch(number).to_pydict()
        rows |= {k: (v, text) for k, v, text in zip(data["k"], data["v"], data["text"], strict=True)}
    return rows


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with open_store(str(path)) as store:
        store.create_database("db")
        columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
        columns.append(Column("text", parse_type("varchar(40)")))
        schema = TableSchema.create(columns, ["k"], properties={"function_column.sequence_col": "v"})
        store.create_table("db.t", schema)
    # The child imports this module's functions under a plain name.
    (tmp_path / "tests_crash_batches.py").write_text(Path(__file__).read_text())
    return path


def run_child(directory: Path, first: int, *, failpoint: str = "", kill_after: int = 0) -> int:
    """Runs a loading child until it dies; returns the last batch it acknowledged (first - 1 if none)."""
    told = run_until_dead(CHILD, directory, first, failpoint=failpoint, kill_after=kill_after)
    return max([first - 1, *map(int, told)])


def assert_sound(directory: Path, acknowledged: int) -> int:
    """Compares the table with the model; returns how many batches it holds: the acknowledged or one more."""
    with open_store(str(directory)) as store:
        table = store.table("db.t")
        held = table.version - 1
        assert held in (acknowledged, acknowledged + 1)
        rows = table.scan().read_all().to_pydict()
        found = {k: (v, t) for k, v, t in zip(rows["k"], rows["v"], rows["text"], strict=True)}
        assert len(rows["k"]) == len(found)
        assert found == expected(held)
        assert table.check() == []
        files = {path.name.rpartition(".")[0] for path in directory.glob("tables/*/*")}
        known = {live.segment.meta.id for live in table.state().segments.values()}
        assert files <= known, "files of a dead process are swept at opening"
        labels = [info.label for info in table.history()[1:]]
        assert labels == [f"batch-{number}" for number in range(1, held + 1)]
    return held


@pytest.mark.crash
def test_kill_at_random_moments_loses_and_halves_nothing(directory: Path) -> None:
    seed = new_seed()
    print("seed", seed)
    chosen = random.Random(seed)
    held = 0
    for _ in range(by_form(8, 24)):
        acknowledged = run_child(directory, held + 1, kill_after=chosen.randint(0, 3))
        held = assert_sound(directory, max(acknowledged, held))


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_kill_at_every_step_of_a_commit_loses_and_halves_nothing(directory: Path, failpoint: str) -> None:
    held = 0
    for passes in (1, 2, 3, 5)[:: by_form(2, 1)]:
        acknowledged = run_child(directory, held + 1, failpoint=f"{failpoint}:{passes}")
        held = assert_sound(directory, max(acknowledged, held))
        if failpoint == "publish.after_commit":
            assert held == acknowledged + 1, "the last load was published before the kill"


@pytest.mark.crash
def test_a_label_of_a_killed_load_is_free_again(directory: Path) -> None:
    """X16: what a dead process had begun counts as aborted."""
    run_child(directory, 1, failpoint="publish.before_commit")
    with open_store(str(directory)) as store:
        assert store.table("db.t").upsert(batch(1), label="batch-1").version == 2


@pytest.mark.crash
def test_killing_one_of_two_writers_does_not_disturb_the_other(directory: Path) -> None:
    with open_store(str(directory)) as store:
        table = store.table("db.t")
        done, kills = 0, by_form(3, 6)
        for number in range(1, kills + 1):
            run_child(directory, 100 * number, kill_after=2)
            table.upsert(batch(number), label=f"mine-{number}")
            done += 1
        assert done == kills
        assert table.check() == []
        labels = [info.label for info in table.history()]
        assert [label for label in labels if label.startswith("mine-")] == [
            f"mine-{n}" for n in range(1, kills + 1)
        ]
        assert len(set(labels)) == len(labels)
