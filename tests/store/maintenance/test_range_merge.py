"""Merges by ranges of key codes, which other processes run, and merges here: K1, K2, K5, scenario 40."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from seqstore import ClosedError, ConflictError, InvalidInputError, Settings, Store, Table, TableSchema
from seqstore.store.maintenance import compaction
from seqstore.store.maintenance.range_merge import MergeShare, RangeMerge
from seqstore.store.segment.load_marker import StagingId
from tests.seeds import new_seed
from tests.support.equal_codes import keep_bits
from tests.support.rows import MakeTable, rows_of, schema_of
from tests.weight import by_form

KEYS = 40
OFF = {"disable_auto_compaction": "true"}
TIMES = [None, *(datetime(2024, 1, day) for day in range(1, 9))]
KINDS = ["INT", "VARCHAR(9)", "colliding", "duplicate"]
SMALL = Settings(inline_bytes_max=1, segment_rows=9, tombstone_retention_seconds=0)
Between = Callable[[], object]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Keys with exact codes, with hashed ones, with hashed ones of which many are equal; row ids."""
    if request.param == "colliding":
        keep_bits(monkeypatch, 3)
    return str(request.param)


def new_table(store: Store, kind: str, sequence: str, name: str) -> Table:
    properties = {**OFF, "sequence_col": sequence} if sequence else OFF
    key = f"k {'INT' if kind in ('INT', 'duplicate') else 'VARCHAR(9)'} NOT NULL"
    schema = schema_of(key, "s DATETIME", "v INT", **({} if kind == "duplicate" else properties))
    if kind == "duplicate":
        schema = TableSchema.create(schema.columns, (), duplicate_key=["k"], properties=OFF)
    return store.create_table(name, schema)


def drawn(random_of: random.Random, kind: str) -> pa.Table:
    keys = random_of.choices(range(KEYS), k=random_of.randint(1, KEYS))
    texts = pa.array([f"key {key}" for key in keys]) if kind in ("VARCHAR(9)", "colliding") else None
    columns = {
        "k": pa.array(keys, pa.int32()) if texts is None else texts,
        "s": pa.array([random_of.choice(TIMES) for _ in keys], pa.timestamp("us")),
        "v": pa.array([random_of.randint(0, 9) for _ in keys], pa.int32()),
    }
    if kind != "duplicate":
        signs = [int(random_of.random() < 0.3) for _ in keys]
        columns["__DELETE_SIGN__"] = pa.array(signs, pa.int8())
    return pa.table(columns)


def elsewhere(between: Between = lambda: None, repeats: bool = False) -> Callable[[RangeMerge], Any]:
    """Runs each range on what another process has of the merge, in any order; some twice if they may."""

    def run(merge: RangeMerge) -> list[MergeShare]:
        numbers = [*range(len(merge.ranges))] * (2 if repeats else 1)
        random.Random(len(numbers)).shuffle(numbers)
        there = [pickle.loads(pickle.dumps(merge)) for _ in range(2)]
        shares = [pickle.loads(pickle.dumps(there[number % 2].run(number))) for number in numbers]
        between()
        return shares

    return run


def both(tables: Sequence[Table], rows: pa.Table) -> None:
    for table in tables:
        table.upsert(rows)


def everything(table: Table, version: int | None = None) -> list[Any]:
    return rows_of(table, version=version, hidden=True)


def files(table: Table) -> set[str]:
    disk, directory = table.loader.disk, table.loader.directory
    return {name for name in disk.list(directory) if not name.startswith("_")}


def named_files(table: Table) -> set[str]:
    """The data files and key indexes of all segments that any version has."""
    ids = {
        live.segment.meta.file_id
        for version in range(1, table.version + 1)
        for live in table.state(version).segments.values()
    }
    return {name for name in files(table) if name.rpartition(".")[0] in ids}


@pytest.mark.family(3)
@pytest.mark.settings(SMALL)
@pytest.mark.parametrize("sequence", ["", "s"], ids=["by arrival", "by sequence"])
def test_ranges_elsewhere_make_the_table_that_a_merge_here_makes(
    store: Store, kind: str, sequence: str
) -> None:
    """With loads between the merge and the commit."""
    for number in range(by_form(4, 60)):
        seed = new_seed()
        random_of = random.Random(seed)
        here, there = (new_table(store, kind, sequence, f"db.{name}{number}") for name in ("here", "there"))
        for _ in range(random_of.randint(1, 4)):
            both((here, there), drawn(random_of, kind))
        later = [drawn(random_of, kind) for _ in range(random_of.randint(0, 2))]
        order, was_disturbed = random_of.choice([(), ("v",)]), bool(later)

        def disturb(there: Table = there, later: list[pa.Table] = later) -> None:
            for rows in later:
                there.upsert(rows)
            later.clear()

        for rows in later:
            here.upsert(rows)
        before = {version: everything(here, version) for version in range(1, here.version + 1)}
        merging = elsewhere(disturb, random_of.random() < 0.5)
        assert compaction.optimize(there, full=True, zorder_by=order, elsewhere=merging).made_version
        for version, expected in before.items():
            assert everything(there, version) == expected, f"seed {seed}, version {version}"
        assert rows_of(there) == rows_of(here), f"seed {seed}"
        assert there.check() == [], f"seed {seed}"
        if not was_disturbed:  # else they have removed other tombstones
            here.optimize(full=True, zorder_by=order)
            both((here, there), drawn(random_of, kind))
            assert rows_of(there) == rows_of(here), f"seed {seed}"
        assert files(there) == named_files(there), f"seed {seed}"


@pytest.mark.settings(SMALL)
def test_old_tombstones_leave_as_they_do_here(store: Store) -> None:
    """K3, K4: by their sequences' time, with a watermark that refuses what comes too late."""
    tables = [new_table(store, "INT", "s", f"db.t{number}") for number in range(2)]
    made = datetime(2024, 1, 5)
    keys = list(range(30))
    both(tables, pa.table({"k": pa.array(keys, pa.int32()), "s": [made] * 30, "v": keys}))
    gone = {"k": pa.array(keys[:20], pa.int32()), "s": [datetime(2024, 1, 6)] * 20, "v": [0] * 20}
    both(tables, pa.table({**gone, "__DELETE_SIGN__": [1] * 20}))
    results = [
        tables[0].optimize(full=True),
        compaction.optimize(tables[1], full=True, elsewhere=elsewhere()),
    ]
    assert results[0].tombstones_removed == results[1].tombstones_removed == 20
    assert results[0].rows_removed == results[1].rows_removed
    late = pa.table({"k": pa.array([3], pa.int32()), "s": [made], "v": [9]})
    for table in tables:
        assert table.upsert(late).rows_too_late == 1
    assert rows_of(tables[0]) == rows_of(tables[1])


@pytest.mark.settings(SMALL)
def test_a_tombstone_that_leaves_is_replaced_during_its_merge(store: Store) -> None:
    """The merge has no output at all, and no place for what was hidden meanwhile."""
    table = new_table(store, "INT", "", "db.t")
    row = pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([2], pa.int32())})
    table.upsert(row)
    table.delete({"k": [1]})
    result = compaction.optimize(table, full=True, elsewhere=elsewhere(lambda: table.upsert(row)))
    assert (result.made_version, result.tombstones_removed) == (True, 1)
    assert rows_of(table) == [(1, None, 2)]
    assert table.check() == []


@pytest.mark.settings(SMALL)
def test_inputs_that_another_compaction_took_are_merged_without_it(make_table: MakeTable) -> None:
    """Scenario 40: nothing is left of the ranges that were merged in vain."""
    table = make_table("k INT NOT NULL", "v INT", **OFF)
    for number in range(4):
        keys = range(number * 10, number * 10 + 10)
        table.upsert(pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(keys, pa.int32())}))
    expected, runs = rows_of(table), []

    def overtake() -> None:
        runs.append(table.version)
        if len(runs) == 1:
            table.optimize(full=True)

    result = compaction.optimize(table, full=True, elsewhere=elsewhere(overtake))
    assert (result.made_version, result.segments_lost, table.version) == (False, 4, 6)
    assert rows_of(table) == expected
    assert files(table) == named_files(table)


@pytest.mark.settings(SMALL)
def test_a_z_order_elsewhere_gives_up_when_an_input_is_dropped(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "v INT", **OFF)
    for number in range(2):
        table.upsert(pa.table({"k": pa.array([number], pa.int32()), "v": pa.array([1], pa.int32())}))
    with pytest.raises(ConflictError, match=r"ZORDER BY \(v\)"):
        compaction.optimize(table, zorder_by=["v"], elsewhere=elsewhere(lambda: table.optimize(full=True)))
    assert files(table) == named_files(table)


@pytest.mark.settings(SMALL)
def test_a_failed_range_leaves_the_table_and_no_file(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "v INT", **OFF)
    table.upsert(pa.table({"k": pa.array(range(30), pa.int32()), "v": pa.array(range(30), pa.int32())}))
    kept = files(table)

    def fail() -> None:
        assert files(table) > kept  # of ranges that have ended
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compaction.optimize(table, full=True, elsewhere=elsewhere(fail))
    assert files(table) == kept
    assert table.version == 2


@pytest.mark.settings(SMALL)
def test_a_range_without_a_share_is_refused(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "v INT", **OFF)
    table.upsert(pa.table({"k": pa.array(range(30), pa.int32()), "v": pa.array(range(30), pa.int32())}))
    kept = files(table)
    with pytest.raises(InvalidInputError, match=r"shares of \d ranges of a merge, found \d"):
        compaction.optimize(table, full=True, elsewhere=lambda merge: [merge.run(0)])
    assert files(table) == kept


@pytest.mark.settings(SMALL)
def test_a_task_that_outlasts_the_compaction_writes_nothing(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "v INT", **OFF)
    table.upsert(pa.table({"k": pa.array(range(30), pa.int32()), "v": pa.array(range(30), pa.int32())}))
    merges: list[RangeMerge] = []
    run = elsewhere()

    def seen(merge: RangeMerge) -> Any:
        merges.append(merge)
        return run(merge)

    compaction.optimize(table, full=True, elsewhere=seen)
    kept = files(table)
    with pytest.raises(ClosedError):
        merges[0].run(0)
    with pytest.raises(ClosedError):
        replace(merges[0], load=StagingId.of((1, 1))).run(0)
    assert files(table) == kept
