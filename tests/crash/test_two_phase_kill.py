"""A real process that pre-commits and commits is killed: a load is PRECOMMITTED or nothing, then VISIBLE.

The child pre-commits load i (a partial update with its delta in a file) under label `l<i>`, and commits load
i - 1 after it, so that every commit meets rows that another load wrote. It prints what is done. The parent
kills it at a failpoint or at a random moment, reopens the directory, asks the catalog for the status of every
load, ends what is left, and replays the history.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from seqstore import Column, InvalidInputError, LabelExistsError, Settings, Store, TableSchema, parse_type
from seqstore.store.catalog.prepared_records import prepared_files
from tests.seeds import new_seed
from tests.support.faults.dying_child import run_until_dead

KEYS = 400
POINTS = [
    "disk.written",
    "load.staged",
    "precommit.staged",
    "precommit.before_commit",
    "precommit.after_commit",
    "publish.before_commit",
    "publish.after_commit",
]

CHILD = """
import sys
from tests_crash_two_phase import commit, open_store, precommit
store = open_store(sys.argv[1])
number = int(sys.argv[2])
print("ready", flush=True)
while True:
    precommit(store, number)
    print("prepared", number, flush=True)
    commit(store, number - 1)
    print("committed", number - 1, flush=True)
    number += 1
"""


def open_store(path: str) -> Store:
    return Store.open(path, settings=Settings(inline_bytes_max=1, auto_compaction=0, catalog_bytes_max=2**28))


def update(number: int) -> pa.Table:
    keys = np.random.default_rng(number).choice(KEYS, 60, replace=False)
    return pa.table({"k": keys, "a" if number % 2 else "b": np.full(60, number)})


def precommit(store: Store, number: int) -> None:
    with store.table("db.t").begin_load(label=f"l{number}", mode="UPDATE_FIXED_COLUMNS") as load:
        load.write(update(number))
        load.precommit()


def commit(store: Store, number: int) -> None:
    if number:
        try:
            store.commit_transaction("db", label=f"l{number}")
        except InvalidInputError as error:  # the parent has ended it after the last kill
            if error.status != "VISIBLE":
                raise


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with open_store(str(path)) as store:
        store.create_database("db")
        columns = [Column("k", parse_type("bigint"), False), *(Column(n, parse_type("int")) for n in "abc")]
        table = store.create_table("db.t", TableSchema.create(columns, ["k"]))
        table.upsert(pa.table({"k": np.arange(KEYS // 2), "c": np.arange(KEYS // 2)}))
    # The child imports this module's functions under a plain name.
    (tmp_path / "tests_crash_two_phase.py").write_text(Path(__file__).read_text())
    return path


def status_of(store: Store, number: int) -> str:
    """PRECOMMITTED, VISIBLE, or nothing when the label is free."""
    try:
        store.table("db.t").begin_load(label=f"l{number}").abort("only asked")
    except LabelExistsError as error:
        return str(error.status)
    return ""


def assert_sound(directory: Path, told: list[str], first: int) -> int:
    """Checks what the child left, ends it, and compares the table; returns the number to go on with."""
    with open_store(str(directory)) as store:
        table = store.table("db.t")
        assert table.check() == []
        with store.catalog.read() as tx:
            known = prepared_files(tx, table.id)
        for live in table.state().segments.values():
            known |= {f"{live.segment.meta.id}.arrow", f"{live.segment.meta.id}.keys"}
        files = {path.name for path in directory.glob("tables/*/*")}
        assert files == known, "what nobody needs is swept, and nothing else"
        for line in told:
            what, told_number = line.split()
            if told_number != "0":
                wanted = ("VISIBLE",) if what == "committed" else ("VISIBLE", "PRECOMMITTED")
                assert status_of(store, int(told_number)) in wanted, line
        last = first + sum(line.startswith("prepared") for line in told)
        left = status_of(store, last)
        assert left in ("", "PRECOMMITTED")
        for number in range(max(first - 1, 1), last + 1):
            if status_of(store, number) == "PRECOMMITTED":
                store.commit_transaction("db", label=f"l{number}")
        expected = {k: {"k": k, "a": None, "b": None, "c": k} for k in range(KEYS // 2)}
        for info in table.history()[2:]:
            for row in update(int(info.label[1:])).to_pylist():
                expected.setdefault(row["k"], {"k": row["k"], "a": None, "b": None, "c": None}).update(row)
        assert sorted(table.scan().read_all().to_pylist(), key=str) == sorted(expected.values(), key=str)
        labels = [line.label for line in table.history()[2:]]
        assert len(set(labels)) == len(labels)
        assert table.check() == []
    return last + 1 if left else last


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", POINTS)
def test_kill_at_every_step_of_both_phases(directory: Path, failpoint: str) -> None:
    """PC1, C14: an answer is either given or not; what is answered stays."""
    number = 1
    for passes in (1, 3):
        told = run_until_dead(CHILD, directory, number, failpoint=f"{failpoint}:{passes}")
        number = assert_sound(directory, told, number)


@pytest.mark.crash
def test_kill_at_random_moments_of_both_phases(directory: Path) -> None:
    seed = new_seed()
    print("seed", seed)
    chosen = random.Random(seed)
    number = 1
    for _ in range(5):
        told = run_until_dead(CHILD, directory, number, kill_after=chosen.randint(0, 5))
        number = assert_sound(directory, told, number)
