"""The winner test by ranges of key codes against the test of all keys, and plans brought up to date by the
keys that moved."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import CorruptionError, InvalidInputError, Load, Settings, Store, Table
from seqstore.store.publish.moved_keys import plan_moved
from seqstore.store.publish.range_test import PlanShare, RangeTest, joined
from seqstore.store.publish.tested_write import HeldTest, begin_test, end_test
from seqstore.store.publish.winner_test import Plan, make_plan
from tests.seeds import new_seed
from tests.support.equal_codes import keep_bits
from tests.support.model import Model, ModelRow
from tests.support.rows import MakeTable, rows_of, schema_of
from tests.weight import by_form

KEYS = 24
Drawn = list[tuple[int, int | None, int]]
IN_FILES = Settings(inline_bytes_max=1)
KINDS = ["INT", "VARCHAR(9)", "colliding"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Keys with exact codes, with hashed ones, and with hashed ones of which many are equal."""
    if request.param == "colliding":
        keep_bits(monkeypatch, 3)
    return str(request.param)


def new_table(make_table: MakeTable, kind: str, sequence: str, number: int = 0) -> Table:
    properties = {"sequence_col": sequence} if sequence else {}
    key = f"k {'INT' if kind == 'INT' else 'VARCHAR(9)'} NOT NULL"
    return make_table(key, "s INT", name=f"db.t{number}", **properties)


def batch(rows: Drawn, table: Table) -> pa.Table:
    """Rows as (key, sequence, delete sign)."""
    is_text = str(table.schema.column("k").type).startswith("VARCHAR")
    keys = [f"key {row[0]}" if is_text else row[0] for row in rows]
    return pa.table(
        {
            "k": pa.array(keys, pa.string() if is_text else pa.int32()),
            "s": pa.array([row[1] for row in rows], pa.int32()),
            "__DELETE_SIGN__": pa.array([row[2] for row in rows], pa.int8()),
        }
    )


def draw(random_of: random.Random, least: int = 1) -> Drawn:
    keys = random_of.choices(range(KEYS), k=random_of.randint(least, KEYS))
    return [(key, random_of.choice([None, 1, 2, 3, 4, 5]), int(random_of.random() < 0.3)) for key in keys]


def written(table: Table, parts: list[Drawn]) -> Load:
    """A load with a segment or more for each part."""
    load = table.begin_load()
    for rows in parts:
        load.write(batch(rows, table))
    return load


def shares_of(test: RangeTest) -> list[PlanShare]:
    """The shares of all ranges, each run by what another process has of the test."""
    return [
        pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(test)).run(number)))
        for number in range(test.ranges)
    ]


def begun(load: Load, ranges: int) -> HeldTest:
    held = begin_test(load.writers[0], ranges)
    assert held is not None
    return held


def facts(plan: Plan) -> tuple[Any, ...]:
    """Everything that a plan says, in an order that does not depend on how it was made."""
    hidden = {name: sorted(positions.tolist()) for name, positions in plan.positions().items()}
    return plan.version, hidden, plan.effects(), plan.rows_late, plan.rows_too_late


def model_rows(rows: Drawn, table: Table, sequence: str) -> list[ModelRow]:
    given = batch(rows, table).to_pylist()
    return [
        ModelRow({"k": row["k"], "s": row["s"]}, row["s"] if sequence else None, row["__DELETE_SIGN__"])
        for row in given
    ]


@pytest.mark.settings(IN_FILES)
@pytest.mark.parametrize("sequence", ["", "s"], ids=["by arrival", "by sequence"])
def test_shares_of_ranges_are_the_plan_of_all_keys(make_table: MakeTable, kind: str, sequence: str) -> None:
    for number in range(by_form(3, 30)):
        seed = new_seed()
        random_of = random.Random(seed)
        table = new_table(make_table, kind, sequence, number)
        for _ in range(random_of.randint(0, 4)):
            table.upsert(batch(draw(random_of), table))
        load = written(table, [draw(random_of) for _ in range(random_of.randint(1, 5))])
        held = begun(load, random_of.randint(1, 7))
        expected = make_plan(held.state, load.writers[0].segments)
        plan = joined(shares_of(held.test))
        assert facts(plan) == facts(expected), f"seed {seed}"
        load.abort("the plan was all that mattered")


@pytest.mark.settings(IN_FILES)
def test_shares_of_ranges_count_the_rows_below_the_watermark_together(make_table: MakeTable) -> None:
    """K3: their tombstones are forgotten."""
    properties = {"sequence_col": "s", "tombstone_retention_seconds": "0"}
    table = make_table("k INT NOT NULL", "s DATETIME", **properties)
    keys = pa.array(range(40), pa.int32())
    table.upsert(pa.table({"k": keys, "s": pa.repeat(datetime(2020, 1, 5), 40)}))
    table.delete({"k": keys})
    table.purge()
    load = table.begin_load()
    load.write(pa.table({"k": keys, "s": pa.repeat(datetime(2020, 1, 1), 40)}))
    held = begun(load, 4)
    plan = joined(shares_of(held.test))
    assert plan.rows_too_late == 40
    assert facts(plan) == facts(make_plan(held.state, load.writers[0].segments))
    load.abort("the plan was all that mattered")


@pytest.mark.settings(IN_FILES)
@pytest.mark.parametrize("sequence", ["", "s"], ids=["by arrival", "by sequence"])
def test_a_load_tested_by_ranges_ends_as_the_model_says(
    make_table: MakeTable, kind: str, sequence: str
) -> None:
    """Other loads, and compactions, are published between the test and the commit (K5, C18)."""
    for number in range(by_form(3, 30)):
        seed = new_seed()
        random_of = random.Random(seed)
        table, model = new_table(make_table, kind, sequence, number), Model(["k"], bool(sequence))

        def load_both(table: Table = table, model: Model = model, of: random.Random = random_of) -> None:
            rows = draw(of)
            table.upsert(batch(rows, table))
            model.load(model_rows(rows, table, sequence))

        for _ in range(random_of.randint(0, 3)):
            load_both()
        parts = [draw(random_of) for _ in range(random_of.randint(1, 4))]
        load = written(table, parts)
        held = begun(load, random_of.randint(1, 4))
        for _ in range(random_of.randint(0, 2)):
            load_both()
            if random_of.random() < 0.4:
                table.optimize()
        end_test(load.writers[0], held, shares_of(held.test))
        for _ in range(random_of.randint(0, 2)):
            load_both()
        done = load.commit()
        expected = model.load([row for part in parts for row in model_rows(part, table, sequence)])
        assert done.rows_loaded == expected.rows_loaded, f"seed {seed}"
        # Which of the two a row is that lost to both depends on the batch that it came with.
        lost = done.rows_superseded + done.rows_late
        assert lost == expected.rows_superseded + expected.rows_late, f"seed {seed}"
        changed = (done.rows_replaced, done.rows_deleted)
        assert changed == (expected.rows_replaced, expected.rows_deleted), f"seed {seed}"
        live = model.live(model.version).values()
        assert rows_of(table) == sorted([tuple(row.values.values()) for row in live], key=repr), (
            f"seed {seed}"
        )
        assert table.check() == [], f"seed {seed}"


@pytest.mark.settings(IN_FILES)
@pytest.mark.parametrize("sequence", ["", "s"], ids=["by arrival", "by sequence"])
def test_a_plan_brought_up_by_moved_keys_is_the_plan_of_the_later_version(
    make_table: MakeTable, kind: str, sequence: str
) -> None:
    made = 0
    for number in range(by_form(3, 30)):
        seed = new_seed()
        random_of = random.Random(seed)
        table = new_table(make_table, kind, sequence, number)
        for _ in range(random_of.randint(0, 3)):
            table.upsert(batch(draw(random_of), table))
        load = written(table, [draw(random_of, KEYS) for _ in range(random_of.randint(2, 5))])
        load.prepare()
        prepared, segments = load.writers[0].prepared, load.writers[0].segments
        for _ in range(random_of.randint(1, 2)):
            table.upsert(batch(draw(random_of)[:4], table))
        lease = table.lease(table.state().version)
        if number and random_of.random() < 0.3:
            table.optimize()
        now = table.state()
        moved = plan_moved(prepared.plan, prepared.state, now, segments, is_held=True)
        if moved is not None:
            made += 1
            assert facts(moved) == facts(make_plan(now, segments)), f"seed {seed}"
        lease.release()
        load.abort("the plan was all that mattered")
    assert made


@pytest.mark.settings(IN_FILES)
def test_a_plan_without_a_lease_reads_no_segment_that_was_dropped(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "s INT")
    for key in range(2):
        table.upsert(batch([(key, 1, 0)], table))
    load = written(table, [[(key, 2, 0) for key in range(20)], [(key, 3, 0) for key in range(10, 30)]])
    load.prepare()
    dropped = [live.segment for live in load.writers[0].prepared.state.segments.values()]
    table.optimize()
    assert table.vacuum(retention_seconds=0).files
    for segment in dropped:
        segment.forget_index()  # as another process, or this one later, has it
    assert load.commit().rows_replaced == 2
    assert rows_of(table) == sorted([(key, 2 if key < 10 else 3) for key in range(30)], key=repr)


@pytest.mark.settings(IN_FILES)
@pytest.mark.parametrize("ranges", [1, 3])
def test_a_changed_key_index_is_an_error_of_a_range(make_table: MakeTable, ranges: int) -> None:
    table = make_table("k INT NOT NULL", "s INT")
    table.upsert(batch([(key, 1, 0) for key in range(100)], table))
    load = written(table, [[(key, 2, 0) for key in range(50)]])
    held = begun(load, ranges)
    (stored,) = held.test.stored
    path = table.loader.disk.path(f"{table.loader.directory}/{stored.meta.id}.keys")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match="does not match its checksum"):
        shares_of(held.test)


def test_each_host_compares_its_copies_of_key_indexes(tmp_path: Path) -> None:
    """The range that a file falls to is run by one host, and another host may have a damaged copy."""
    with Store.open(tmp_path / "data", settings=IN_FILES, segments=f"file://{tmp_path}/objects") as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of("k INT NOT NULL", "s INT"))
        table.upsert(batch([(key, 1, 0) for key in range(100)], table))
        held = begun(written(table, [[(key, 2, 0) for key in range(50)]]), 3)
        (stored,) = held.test.stored
        path = table.loader.disk.path(f"{table.loader.directory}/{stored.meta.id}.keys")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.chmod(0o600)
        path.write_bytes(content)
        for number in range(3):
            with pytest.raises(CorruptionError, match="does not match its checksum"):
                pickle.loads(pickle.dumps(held.test)).run(number)


def test_a_write_needs_the_shares_of_all_ranges(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "s INT")
    load = written(table, [[(1, 1, 0)]])
    held = begun(load, 3)
    shares = shares_of(held.test)
    with pytest.raises(InvalidInputError, match=r"expected the 3 shares .* found 2"):
        end_test(load.writers[0], held, shares[1:])
    other_versions = [replace(share, version=share.version + 1) for share in shares]
    with pytest.raises(InvalidInputError, match=r"expected the 3 shares .* found 0"):
        end_test(load.writers[0], held, other_versions)
    end_test(load.writers[0], held, [*shares, *shares])  # tasks that ran twice
    assert load.commit().rows_loaded == 1


def test_rows_written_after_the_test_began_are_not_left_out(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "s INT")
    load = written(table, [[(1, 1, 0)]])
    held = begun(load, 1)
    load.write(batch([(2, 1, 0)], table))
    with pytest.raises(InvalidInputError, match="begin another test"):
        end_test(load.writers[0], held, shares_of(held.test))


@pytest.mark.parametrize("what", ["an overwrite", "a partial update", "nothing"])
def test_a_write_that_needs_more_than_the_test_is_prepared_here(make_table: MakeTable, what: str) -> None:
    table = make_table("k INT NOT NULL", "s INT")
    load = table.begin_load(mode="UPDATE_FIXED_COLUMNS" if what == "a partial update" else "UPSERT")
    if what != "nothing":
        load.write(batch([(1, 1, 0)], table))
    if what == "an overwrite":
        load.clear()
    assert begin_test(load.writers[0], 2) is None


def test_ranges_are_fair_shares_of_skewed_keys(make_table: MakeTable) -> None:
    """Keys may lie as they like: their codes are spread evenly (segment.key_codes)."""
    table = make_table("k BIGINT NOT NULL")
    keys = np.concatenate([np.arange(40_000), 2**40 + np.arange(0, 2**30, 2**16)])
    load = table.begin_load()
    load.write(pa.table({"k": keys}))
    (segment,) = load.writers[0].segments
    step = 2**64 // 8
    sizes = [len(segment.index.within(number * step, (number + 1) * step)) for number in range(8)]
    assert sum(sizes) == len(keys)
    assert max(sizes) < 1.1 * len(keys) / 8
