"""Compaction: K1, K2, K5, ISO18, scenarios 39 to 41."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import Column, ConflictError, Settings, Store, Table, TableSchema, parse_type
from seqstore.store.catalog.version_record import read_hidden
from seqstore.store.maintenance.compaction import OPTIMIZE, Compaction, purge_rule
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState
from tests.support.children import MODULES


def make(store: Store, name: str = "db.t", **properties: str) -> Table:
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("int"))]
    columns.append(Column("w", parse_type("varchar(20)")))
    return store.create_table(name, TableSchema.create(columns, ["k"], properties=properties))


def rows(keys: range, value: int) -> pa.Table:
    return pa.table({"k": list(keys), "v": [value] * len(keys), "w": [f"w{k}" for k in keys]})


def content(table: Table, version: int | None = None) -> pa.Table:
    return table.scan(version=version, hidden=True).read_all().sort_by("k")


def everything(state: TableState) -> list[LiveSegment]:
    return list(state.segments.values())


def homes(table: Table) -> list[str]:
    return [live.segment.meta.home for live in table.state().segments.values()]


def test_optimize_merges_segments_writes_inline_ones_out_and_changes_no_version(store: Store) -> None:
    """K1: rows keep their own row version."""
    table = make(store)
    for number in range(6):
        table.upsert(rows(range(number, number + 50), number))
    before = {version: content(table, version) for version in range(1, 8)}
    result = table.optimize()
    assert (result.version, result.segments_before, result.segments_after) == (8, 6, 1)
    assert homes(table) == ["arrow"]
    assert result.rows_removed == 5 * 49
    for version, expected in before.items():
        assert content(table, version).equals(expected)
    assert content(table).equals(before[7])
    assert table.check() == []
    assert [info.operation for info in table.history()][-1] == "OPTIMIZE"


def test_optimize_of_an_optimal_table_makes_no_version(store: Store) -> None:
    table = make(store)
    assert not table.optimize().made_version
    table.upsert(rows(range(50), 1))
    assert table.optimize().made_version
    assert not table.optimize().made_version
    assert table.version == 3


@pytest.mark.parametrize("full", [False, True])
def test_dml_during_a_compaction_is_carried_over(store: Store, full: bool) -> None:
    """Scenario 39, K5: upsert, delete and partial update commit between the merge and the commit point."""
    table, plain = make(store), make(store, "db.plain")

    def disturb(target: Table) -> None:
        target.upsert(rows(range(5, 10), 100))
        target.delete({"k": [0, 1, 200]})
        target.upsert(pa.table({"k": [2, 3], "v": [7, 8]}), mode="UPDATE_FIXED_COLUMNS")

    for target in (table, plain):
        for number in range(4):
            target.upsert(rows(range(number * 10, number * 10 + 20), number))
    compaction = Compaction(table, OPTIMIZE, everything)
    state = table.state()
    with_rule = purge_rule(table, state)
    merged = compaction.merge(state, everything(state), with_rule)
    disturb(table)
    disturb(plain)
    result = compaction.publish(state, merged, with_rule)
    assert result.version == 9
    visible = ["k", "v", "w"]
    assert table.scan(visible).read_all().sort_by("k").equals(plain.scan(visible).read_all().sort_by("k"))
    for version in range(1, 9):
        assert content(table, version).equals(content(plain, version))
    if full:  # compaction first, DML second
        disturb(table)
        disturb(plain)
        table.optimize(full=True)
        assert table.scan(visible).read_all().sort_by("k").equals(plain.scan(visible).read_all().sort_by("k"))
    assert table.check() == []


def test_loads_planned_before_a_compaction_get_through(store: Store) -> None:
    """Blind loads and partial updates, whole-row and partial, planned against segments that are gone."""
    table = make(store)
    for number in range(3):
        table.upsert(rows(range(100), number))
    whole, part = table.begin_load(), table.begin_load(mode="UPDATE_FIXED_COLUMNS")
    whole.write(rows(range(50, 60), 9))
    part.write(pa.table({"k": [1, 55, 300], "v": [11, 12, 13]}))
    whole.prepare()
    part.prepare()
    table.optimize()
    assert whole.commit().rows_replaced == 10
    table.optimize(full=True)
    assert part.commit().version == 8
    found = table.get({"k": [1, 55, 300]}, ["v", "w"]).to_pylist()
    assert found == [{"v": 11, "w": "w1"}, {"v": 12, "w": "w55"}, {"v": 13, "w": None}]
    assert table.check() == []


def test_a_partial_update_is_not_filled_again_because_of_a_compaction(store: Store) -> None:
    table = make(store)
    table.upsert(rows(range(100), 1))
    table.upsert(rows(range(100, 200), 1))
    load = table.begin_load(mode="UPDATE_FIXED_COLUMNS")
    load.write(pa.table({"k": list(range(150)), "v": [5] * 150}))
    load.prepare()
    staged = len(load._writer.filled)
    table.optimize()
    load.commit()
    assert len(load._writer.filled) == staged
    assert pc.sum(table.scan(["v"]).read_all().column("v")).as_py() == 150 * 5 + 50
    assert table.check() == []


def test_40_inputs_dropped_by_a_rival_are_left_out(store: Store) -> None:
    """Scenario 40: the second rewrites the rest and reports two dropped."""
    table = make(store)
    for number in range(4):
        table.upsert(rows(range(number * 10, number * 10 + 10), number))
    expected = table.scan().read_all().sort_by("k")
    first = Compaction(table, OPTIMIZE, lambda state: everything(state)[:2])
    second = Compaction(table, OPTIMIZE, everything)
    publish = Compaction.publish

    def overtaken(self: Compaction, *arguments: object) -> object:
        if self is second and first is not None and table.version == 5:
            first.run()
        return publish(self, *arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compaction, "publish", overtaken)
        result = second.run()
    assert (result.segments_lost, result.segments_before, result.version) == (2, 2, 7)
    assert table.scan().read_all().sort_by("k").equals(expected)
    assert table.check() == []


def test_a_compaction_without_inputs_left_commits_nothing(store: Store) -> None:
    table = make(store)
    for number in range(2):
        table.upsert(rows(range(10), number))
    second = Compaction(table, OPTIMIZE, everything)
    merge = Compaction.merge

    def overtaken(self: Compaction, *arguments: object) -> object:
        merged = merge(self, *arguments)  # type: ignore[arg-type]
        if self is second and table.version == 3:
            Compaction(table, OPTIMIZE, everything).run()
        return merged

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compaction, "merge", overtaken)
        result = second.run()
    assert (result.made_version, result.segments_lost, result.version) == (False, 2, 4)
    assert table.version == 4


def test_40_a_z_order_gives_up_when_an_input_is_dropped(store: Store) -> None:
    """Scenario 40, second half: DD."""
    table = make(store)
    for number in range(4):
        table.upsert(rows(range(number * 10, number * 10 + 10), number))
    second = Compaction(table, OPTIMIZE, everything, order_by=["v"])
    merge = Compaction.merge

    def overtaken(self: Compaction, *arguments: object) -> object:
        merged = merge(self, *arguments)  # type: ignore[arg-type]
        if self is second:
            Compaction(table, OPTIMIZE, lambda state: everything(state)[:2]).run()
        return merged

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compaction, "merge", overtaken)
        with pytest.raises(ConflictError) as caught:
            second.run()
    assert "ZORDER BY (v)" in caught.value.message
    assert table.version == 6


def test_41_purge_twice_makes_one_version(store: Store) -> None:
    """Scenario 41."""
    table = make(store)
    table.upsert(rows(range(100), 1))
    table.upsert(rows(range(50), 2))
    before = content(table, 2)
    assert table.purge().made_version
    assert not table.purge().made_version
    assert content(table, 2).equals(before)


def test_z_order_brings_neighbours_together(store: Store) -> None:
    """Zone maps of two value columns prune after ZORDER BY, and hardly before."""
    columns = [Column(name, parse_type("int"), name != "k") for name in ("k", "a", "b")]
    with Store.open(store.path, settings=Settings(batch_rows_max=256, inline_bytes_max=1)) as small:
        table = small.create_table("db.z", TableSchema.create(columns, ["k"]))
        rng = np.random.default_rng(3)
        data = {name: pa.array(rng.integers(0, 1000, 16_384), pa.int32()) for name in ("a", "b")}
        table.upsert(pa.table({"k": pa.array(range(16_384), pa.int32()), **data}))
        expected = table.scan().read_all().sort_by("k")

        def batches(test: pc.Expression) -> int:
            live = next(iter(table.state().segments.values()))
            return len(live.segment.pruner(table.schema).matching(test))

        low_a, low_b = pc.field("a") < 50, pc.field("b") < 50
        assert min(batches(low_a), batches(low_b)) > 60
        table.optimize(zorder_by=["a", "b"])
        assert max(batches(low_a), batches(low_b)) < 24
        assert table.scan().read_all().sort_by("k").equals(expected)
        assert table.check() == []


def test_optimize_where_takes_only_segments_that_may_match(store: Store) -> None:
    table = make(store)
    with Store.open(store.path, settings=Settings(inline_bytes_max=1)) as files:
        same = files.table("db.t")
        for number in range(4):
            same.upsert(rows(range(number * 100, number * 100 + 100), number))
    result = table.optimize(pc.field("k") < 150)
    assert result.segments_before == 2
    assert len(table.state().segments) == 3


def test_large_compactions_are_cut_into_segments_of_the_target_size(store: Store) -> None:
    with Store.open(store.path, settings=Settings(segment_rows=1000, inline_bytes_max=1)) as small:
        table = make(small)
        table.upsert(rows(range(900), 1))
        table.upsert(rows(range(900, 4000), 2))
        result = table.optimize(full=True)
        sizes = [live.segment.rows for live in table.state().segments.values()]
        assert result.segments_after == 4
        assert sum(sizes) == 4000
        assert max(sizes) < 1200
        assert table.check() == []


def test_a_new_process_reads_what_a_compaction_made_and_earlier_versions_as_they_were(store: Store) -> None:
    """K7: hidden rows are durable, so files that were replaced are read with theirs, and only at earlier
    versions."""
    table = make(store)
    for number in range(6):
        table.upsert(rows(range(number * 10, number * 10 + 30), number))
    table.delete({"k": list(range(12))})
    before = {version: content(table, version) for version in range(1, 9)}
    inputs = {live.segment.meta.id for live in table.state().segments.values()}
    assert table.optimize(full=True).version == 9
    code = (
        "import sys, pickle; from seqstore import Store; table = Store.open(sys.argv[1]).table('db.t');"
        "now = [live.segment.meta.id for live in table.state().segments.values()];"
        "rows = {v: table.scan(version=v, hidden=True).read_all().sort_by('k') for v in range(1, 10)};"
        "sys.stdout.buffer.write(pickle.dumps((now, rows)))"
    )
    environment = {**os.environ, "PYTHONPATH": MODULES}
    told = subprocess.run(
        [sys.executable, "-c", code, str(store.path)], stdout=subprocess.PIPE, env=environment, check=True
    )
    now, found = pickle.loads(told.stdout)
    assert not inputs & set(now)
    assert found == {**before, 9: before[8]}


def test_a_full_compaction_hides_rows_of_its_own_outputs_only(store: Store) -> None:
    """K8: with a sequence column, and a load that hides rows of inputs while it runs and brings late ones."""
    table = make(store, **{"function_column.sequence_col": "v"})
    for number in range(3):  # the version after six has a bitmap record of its own only
        table.upsert(rows(range(number * 10, number * 10 + 20), number + 10))
    compaction = Compaction(table, OPTIMIZE, everything)
    state = table.state()
    rule = purge_rule(table, state)
    merged = compaction.merge(state, everything(state), rule)
    table.upsert(rows(range(5, 15), 99))
    table.upsert(rows(range(20, 40), 1))
    before = {live.segment.meta.id: live.deletes.hidden for live in table.state().segments.values()}
    compaction.publish(state, merged, rule)
    after = {live.segment.meta.id: live.deletes.hidden for live in table.state().segments.values()}
    outputs = {segment.meta.id for segment in merged.outputs}
    assert {name: after[name] for name in after.keys() - outputs} == {
        name: before[name] for name in before.keys() - merged.inputs.keys()
    }
    assert sum(after[name] for name in outputs) == 10
    with store.catalog.read() as tx:
        assert read_hidden(tx, table.id, table.version).keys() == outputs
    assert table.check() == []
