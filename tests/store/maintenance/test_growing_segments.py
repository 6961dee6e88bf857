"""Segments grow with their table: a merge of many rows writes few segments, and holds few rows in memory."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Settings, Store, Table, TableSchema
from seqstore.store.maintenance import large_part, live_entries, segment_merge
from seqstore.store.maintenance.compaction import Compaction, optimize
from seqstore.store.maintenance.compaction_policy import growth_of
from seqstore.store.maintenance.live_entries import Entries
from seqstore.store.maintenance.scheduler import maintain
from seqstore.store.maintenance.segment_merge import MergeCancelled, Merged
from seqstore.store.read.live_segment import LiveSegment, Projection
from seqstore.store.read.table_state import TableState
from tests.seeds import new_seed
from tests.store.maintenance.test_range_merge import elsewhere, everything, files, named_files
from tests.support.equal_codes import keep_bits
from tests.support.rows import MakeTable, rows_of, schema_of
from tests.weight import by_form

OFF = {"disable_auto_compaction": "true"}
ROWS = 100  # of a load's segment
SMALL = Settings(
    inline_bytes_max=0,
    segment_rows=ROWS,
    batch_rows_max=10,
    clustered_rows_min=20,
    tombstone_retention_seconds=0,
    auto_compaction=0,
)
# A table of 200 rows and more is one of 50 segments; what is merged is written in pieces of a row or two.
TINY = replace(SMALL, segment_rows=4, batch_rows_max=2, clustered_rows_min=6, segment_growth=40)
LAYOUTS = {
    "arrow": {},
    "zstd": {"compression": "zstd"},
    "parquet": {"storage_format": "parquet"},
    "clustered": {"cluster_by": "v"},
}
KINDS = ["INT", "VARCHAR(9)", "colliding", "two columns", "duplicate"]


def load(table: Table, keys: Sequence[int], value: int = 0) -> None:
    table.upsert(pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array([value] * len(keys), pa.int32())}))


def load_all(table: Table, loads: int = 32) -> None:
    """Loads as many segments, with every key once; each has keys of the whole range."""
    for number in range(loads):
        load(table, range(number, loads * ROWS, loads))


def sizes_of(table: Table) -> list[int]:
    return sorted(live.segment.rows for live in table.state().segments.values())


def rest(table: Table) -> None:
    for _ in range(30):
        if not maintain(table):
            return
    raise AssertionError("maintenance goes on")


@pytest.mark.maintenance
@pytest.mark.settings(SMALL)
@pytest.mark.parametrize("segments", [4, 20, 60])
def test_a_table_has_few_segments_however_many_rows_it_has(make_table: MakeTable, segments: int) -> None:
    table = make_table("k INT NOT NULL", "v INT")
    for number in range(segments):
        load(table, range(number, segments * ROWS, segments), number)
    rest(table)
    assert len(sizes_of(table)) <= 16 + 5, "whole ones, and some that are small"
    assert max(sizes_of(table)) <= 1.5 * ROWS * max(segments / 8, 1)
    written = [done.metrics.rows_total for done in table.history() if done.operation == "OPTIMIZE"]
    assert max(written, default=0) <= ROWS * max(8, 2 * segments / 8), "at a time"
    assert sum(written) <= 2 * segments * ROWS, "each row once or twice"
    assert sorted(rows_of(table)) == [(key, key % segments) for key in range(segments * ROWS)]
    assert table.check() == []


@pytest.mark.maintenance
@pytest.mark.settings(replace(SMALL, segment_growth=2))
def test_the_setting_bounds_the_size(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "v INT")
    load_all(table, 40)
    assert growth_of(table.state(), table.settings) == 2
    rest(table)
    table.optimize(full=True)
    assert max(sizes_of(table)) <= 1.5 * 2 * ROWS
    assert len(sizes_of(table)) == 20


@pytest.mark.maintenance
@pytest.mark.settings(replace(SMALL, segment_growth=1))
def test_without_growth_whole_segments_stay_as_they_were_loaded(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "v INT")
    load_all(table, 12)
    assert maintain(table) == []
    assert sizes_of(table) == [ROWS] * 12


@pytest.mark.settings(SMALL)
def test_a_grown_segment_is_ordered_by_key_from_its_begin_to_its_end(make_table: MakeTable) -> None:
    """So that a range of keys is in few batches of each segment, as it is in those of loads."""
    table = make_table("k INT NOT NULL", "v INT")
    load_all(table)
    table.optimize(full=True)
    for live in table.state().segments.values():
        assert live.segment.rows > 2 * ROWS
        keys = [key for i in range(live.segment.batches) for key in live.segment.batch(i)["k"].to_pylist()]
        assert keys == sorted(keys)
        zones = live.segment.meta.zones["k"]
        assert all(low[1] < high[0] for low, high in itertools.pairwise(zones))


@pytest.mark.settings(SMALL)
def test_a_grown_segment_without_a_unique_key_is_ordered_by_its_declared_one(store: Store) -> None:
    columns = schema_of("k INT NOT NULL", "v INT").columns
    table = store.create_table("db.t", TableSchema.create(columns, (), duplicate_key=["k"], properties=OFF))
    load_all(table)
    table.optimize(full=True)
    for live in table.state().segments.values():
        assert live.segment.rows > 2 * ROWS
        keys = [key for i in range(live.segment.batches) for key in live.segment.batch(i)["k"].to_pylist()]
        assert keys == sorted(keys)


@pytest.mark.settings(SMALL)
def test_rows_of_a_large_part_are_never_in_memory_together(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table("k INT NOT NULL", "v INT")
    load_all(table)
    collected: list[int] = []
    collect = live_entries.collect

    def noted(inputs: Sequence[LiveSegment], entries: Entries, projection: Projection) -> pa.Table:
        if "v" in projection.names:
            collected.append(len(entries))
        return collect(inputs, entries, projection)

    for module in (large_part, segment_merge):
        monkeypatch.setattr(module, "collect", noted)
    table.optimize(full=True)
    assert sum(collected) >= 32 * ROWS
    assert max(collected) <= max(ROWS // 4, 64), "a piece, or the rows that are measured first"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "colliding":
        keep_bits(monkeypatch, 5)
    return str(request.param)


def new_table(store: Store, name: str, kind: str, layout: str, sequence: str, seconds: int = 0) -> Table:
    """A table that remembers tombstones for some seconds."""
    properties = {**OFF, **LAYOUTS[layout], "tombstone_retention_seconds": str(seconds)}
    text = kind in ("VARCHAR(9)", "colliding")
    key = ["k", "k2"] if kind == "two columns" else ["k"]
    names = [f"k {'VARCHAR(9)' if text else 'INT'} NOT NULL", *(["k2 VARCHAR(5)"] if len(key) > 1 else [])]
    columns = [*names, f"s {sequence or 'BIGINT'}", "v INT", "t STRING"]
    if kind == "duplicate":
        plain = schema_of(*columns)
        return store.create_table(
            name, TableSchema.create(plain.columns, (), duplicate_key=["k"], properties=properties)
        )
    if sequence:
        properties["sequence_col"] = "s"
    return store.create_table(name, schema_of(*columns, key=key, **properties))


def drawn(random_of: random.Random, table: Table, kind: str) -> pa.Table:
    keys = random_of.choices(range(400), k=random_of.randint(1, 120))
    rows: dict[str, Any] = {"k": pa.array(keys, pa.int32())}
    if kind in ("VARCHAR(9)", "colliding"):
        rows["k"] = pa.array([f"key {key}" for key in keys])
    if kind == "two columns":
        rows["k2"] = pa.array([random_of.choice([None, "a", "b"]) for _ in keys], pa.string())
    sequences = [random_of.choice([None, -(2**63), *range(1, 20)]) for _ in keys]
    if table.schema.column("s").type.name == "LARGEINT":
        large = [None if each is None else Decimal(each) * 2**20 for each in sequences]
        rows["s"] = pa.array(large, table.schema.column("s").type.arrow)
    else:
        rows["s"] = pa.array(sequences, pa.int64())
    rows["v"] = pa.array([random_of.randint(0, 9) for _ in keys], pa.int32())
    rows["t"] = pa.array([random_of.choice([None, "", "é" * random_of.randint(0, 30)]) for _ in keys])
    if kind != "duplicate":
        rows["__DELETE_SIGN__"] = pa.array([int(random_of.random() < 0.2) for _ in keys], pa.int8())
    return pa.table(rows)


def look_ups(table: Table, kind: str) -> list[Any]:
    if kind in ("duplicate", "two columns"):
        return []
    made = list(range(400)) if kind == "INT" else [f"key {key}" for key in range(0, 400, 20)]
    found: list[Any] = table.get(pa.table({"k": made})).to_pylist()
    return found


@pytest.mark.family(1)
@pytest.mark.settings(TINY)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_merge_in_pieces_changes_no_result(store: Store, kind: str, layout: str) -> None:
    """Neither here nor elsewhere, in any order of rows, at any version, nor what loads do afterwards."""
    for number in range(by_form(1, 6)):
        seed = new_seed()
        random_of = random.Random(seed)
        sequence, seconds = random_of.choice(["", "BIGINT", "LARGEINT"]), random_of.choice([0, 1_000])
        names = ("plain", "here", "there")
        tables = [new_table(store, f"db.{name}{number}", kind, layout, sequence, seconds) for name in names]
        plain, here, there = tables
        for _ in range(random_of.randint(2, 6)):
            rows = drawn(random_of, plain, kind)
            for table in tables:
                table.upsert(rows)
        before = {version: everything(plain, version) for version in range(1, plain.version + 1)}
        by = random_of.choice([(), ("v",), ("v", "t")])
        optimize(here, full=True, zorder_by=by)
        optimize(there, full=True, zorder_by=by, elsewhere=elsewhere())
        for table in (here, there):
            for version, expected in before.items():
                assert everything(table, version) == expected, f"seed {seed}, version {version}"
            assert table.check() == [], f"seed {seed}"
            assert files(table) == named_files(table), f"seed {seed}"
        assert rows_of(here) == rows_of(there) == rows_of(plain), f"seed {seed}"
        optimize(plain, full=True)  # it removes the same tombstones
        for _ in range(2):
            rows = drawn(random_of, plain, kind)
            for table in tables:
                table.upsert(rows)
            assert rows_of(here) == rows_of(there) == rows_of(plain), f"seed {seed}"
            assert look_ups(here, kind) == look_ups(there, kind) == look_ups(plain, kind), f"seed {seed}"


@pytest.mark.settings(SMALL)
def test_rows_replaced_during_a_large_merge_stay_replaced(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table("k INT NOT NULL", "v INT")
    load_all(table)
    merge = Compaction.merge

    def disturbed(self: Compaction, *arguments: Any) -> Merged:
        merged = merge(self, *arguments)
        load(table, range(0, 3200, 3), 1)
        table.delete(pa.table({"k": pa.array(range(0, 3200, 5), pa.int32())}))
        return merged

    monkeypatch.setattr(Compaction, "merge", disturbed)
    assert table.optimize(full=True).segments_after < 16
    expected = [(key, int(key % 3 == 0)) for key in range(3200) if key % 5]
    assert sorted(rows_of(table)) == expected
    assert table.check() == []


@pytest.mark.settings(SMALL)
def test_a_large_merge_that_is_cancelled_leaves_no_file(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pieces of its only part."""
    monkeypatch.setattr("seqstore.store.maintenance.compaction.growth_of", lambda state, settings: 40)
    table = make_table("k INT NOT NULL", "v INT")
    load_all(table)
    kept, asked = files(table), []

    def is_cancelled() -> bool:
        asked.append(len(files(table) - kept))
        return len(asked) == 3

    def every(state: TableState) -> list[LiveSegment]:
        return list(state.segments.values())

    with pytest.raises(MergeCancelled):
        Compaction(table, "OPTIMIZE", every, is_cancelled=is_cancelled).run()
    assert len(asked) == 3
    assert files(table) == kept
    assert sorted(rows_of(table)) == [(key, 0) for key in range(32 * ROWS)]


@pytest.mark.settings(SMALL)
@pytest.mark.parametrize("kind", ["INT", "VARCHAR(9)"])
def test_texts_beyond_the_limit_of_their_type_are_ordered(
    store: Store, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_entries, "_STRING_BYTES_MAX", 1)
    table = new_table(store, "db.t", kind, "arrow", "")
    random_of = random.Random(1)
    for _ in range(10):
        table.upsert(drawn(random_of, table, kind))
    plain = rows_of(table)
    monkeypatch.setattr("seqstore.store.maintenance.compaction.growth_of", lambda state, settings: 8)
    for columns in ((), ("t",)):
        optimize(table, full=True, zorder_by=columns)
        assert rows_of(table) == plain
        assert table.check() == []


@pytest.mark.maintenance
@pytest.mark.settings(SMALL)
def test_a_z_order_of_a_large_table_is_left_as_it_is(make_table: MakeTable) -> None:
    """Its segments are as large as those that compaction would merge them to."""
    table = make_table("k INT NOT NULL", "v INT")
    for number in range(32):
        load(table, range(number, 32 * ROWS, 32), number)
    table.optimize(zorder_by=["v"])
    ordered = [live.segment.batch(0)["v"].to_pylist() for live in table.state().segments.values()]
    assert all(values == sorted(values) for values in ordered)
    assert maintain(table) == []


@pytest.mark.maintenance
@pytest.mark.settings(SMALL)
def test_a_small_merge_in_a_large_table_reads_each_row_once(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiny loads are merged in memory, whatever the table holds."""
    table = make_table("k INT NOT NULL", "v INT")
    load_all(table)
    table.optimize(full=True)
    in_pieces: list[object] = []
    write: Callable[..., Any] = large_part.write_large_part

    def noted(*arguments: Any) -> Any:
        in_pieces.append(arguments)
        return write(*arguments)

    monkeypatch.setattr(segment_merge, "write_large_part", noted)
    for number in range(30):
        load(table, [number], 1)
    assert maintain(table)
    assert in_pieces == []


@pytest.mark.settings(replace(SMALL, segment_bytes_max=200_000))
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_pieces_of_wide_rows_are_small_wherever_these_are(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """Not only where the first rows are wide, which are measured."""
    table = make_table("k INT NOT NULL", "v STRING", compression=compression)
    for number in range(24):
        keys = range(number * 80, number * 80 + 80)
        width = 10 if number < 12 else 2_000
        texts = [f"{key * 2654435761 % 2**32:010}" * (width // 10) for key in keys]
        table.upsert(pa.table({"k": pa.array(keys, pa.int32()), "v": texts}))
    sizes: list[tuple[int, int]] = []
    collect = live_entries.collect

    def noted(inputs: Sequence[LiveSegment], entries: Entries, projection: Projection) -> pa.Table:
        found = collect(inputs, entries, projection)
        if "v" in projection.names:
            sizes.append((found.num_rows, found.nbytes))
        return found

    monkeypatch.setattr(large_part, "collect", noted)
    monkeypatch.setattr("seqstore.store.maintenance.compaction.growth_of", lambda state, settings: 40)
    before = rows_of(table)
    table.optimize(full=True)
    assert len(sizes) > 20, "it was merged in pieces"
    assert max(size for _, size in sizes) <= 200_000
    assert rows_of(table) == before
    assert table.check() == []


@pytest.mark.settings(SMALL)
def test_keys_of_one_code_are_found_in_a_grown_segment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index says that codes are equal; few segments are probed as their files have them."""
    keep_bits(monkeypatch, 5)
    monkeypatch.setattr("seqstore.store.maintenance.compaction.growth_of", lambda state, settings: 40)
    table = store.create_table("db.t", schema_of("k VARCHAR(9) NOT NULL", "v INT", **OFF))
    keys = [f"key {number}" for number in range(400)]
    for part in (keys[0::2], keys[1::2]):
        table.upsert(pa.table({"k": part, "v": pa.array([1] * 200, pa.int32())}))
    table.optimize(full=True)
    assert sizes_of(table) == [400]
    with Store.open(store.path, settings=SMALL) as other:
        found = other.table("db.t").get(pa.table({"k": keys}))
        assert found["k"].to_pylist() == keys
        assert other.table("db.t").upsert(pa.table({"k": keys, "v": [2] * 400})).version
        assert other.table("db.t").count() == 400
