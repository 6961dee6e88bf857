"""The real store against a dictionary per version, driven by random operations.

Each example is one table: its shape, format, codec, sizes and the number of hash bits kept are drawn, then
loads, deletes, aborts, interleaved commits and reopenings follow; after every one of them the table must
agree with `tests.support.model` at the newest version and at an older one, and at the end at all of them.
Tables are kept until the end of their test class and then read once more by a fresh process.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from seqstore import LabelExistsError, Load, LoadResult, Settings, Store, Table
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.read.table_state import TableState
from tests.support.children import MODULES
from tests.support.compare import Seen, assert_version, expected_rows, key_table
from tests.support.equal_codes import hash_bits
from tests.support.forks.pools import forked_context
from tests.support.model import Model, ModelResult, ModelRow
from tests.support.shapes import EXACT_SHAPES, HASHED_SHAPES, Shape
from tests.weight import by_form, torture_minutes

TABLES_PER_STORE = 20  # opening a store looks at every table's files
ROOT = Path(__file__).parents[2]
Rows = list[tuple[int, int, bool]]

ROWS = st.lists(
    st.tuples(st.integers(0, 15), st.integers(0, 15), st.sampled_from([False, False, False, True])),
    max_size=20,
)
SIZES = st.builds(
    Settings,
    catalog_bytes_max=st.just(2**28),
    auto_compaction=st.just(0),  # versions are counted
    inline_bytes_max=st.sampled_from([1, 1, 700, 2**18]),
    segment_rows=st.sampled_from([4, 8, 1_000_000]),
    segment_bytes_max=st.sampled_from([500, 2**28, 2**28]),
    batch_rows_max=st.sampled_from([1, 4, 65_536]),
    clustered_rows_min=st.sampled_from([2, 6, 262_144]),
)
FORMATS = st.sampled_from(
    [
        ("arrow", "none"),
        ("arrow", "none"),
        ("arrow", "lz4"),
        ("arrow", "zstd"),
        ("parquet", "zstd"),
        ("parquet", "none"),
    ]
)


class TableMachine(RuleBasedStateMachine):
    """One table and its model. Subclasses say which shapes and how many hash bits."""

    shapes: ClassVar[Sequence[Shape]] = EXACT_SHAPES
    bits: ClassVar[Sequence[int]] = (64,)
    root: ClassVar[Path]
    made: ClassVar[int] = 0
    record: ClassVar[list[tuple[str, str, int, Seen]]]

    @initialize(data=st.data(), sizes=SIZES, layout=FORMATS)
    def make_table(self, data: st.DataObject, sizes: Settings, layout: tuple[str, str]) -> None:
        self.shape: Shape = data.draw(st.sampled_from(list(self.shapes)), label="shape")
        self.kept_bits = data.draw(st.sampled_from(list(self.bits)), label="bits")
        self.patch = hash_bits(self.kept_bits)
        self.patch.__enter__()
        self.sizes = sizes
        number = type(self).made = type(self).made + 1
        self.path = self.root / f"store{number // TABLES_PER_STORE}"
        self.name = f"db.t{number}"
        self.store = Store.open(self.path, settings=sizes)
        self.store.create_database("db", if_not_exists=True)
        self.table = self.store.create_table(self.name, self.shape.schema(*layout))
        self.model = Model(self.shape.key_names, self.shape.has_sequence)
        self.keys = self.shape.keys()
        self.sequences = self.shape.sequences()
        self.serial = 0
        self.open_loads: list[tuple[Load, list[ModelRow]]] = []
        self.free_labels: list[str] = []
        self.used_labels: list[str] = []

    # making rows

    def rows(self, drawn: Rows, *, all_deleted: bool = False) -> list[ModelRow]:
        made = []
        for key_number, sequence_number, sign in drawn:
            self.serial += 1
            values = dict(zip(self.shape.key_names, self.keys[key_number % len(self.keys)], strict=True))
            values |= {"v": self.serial, "w": "w" * (self.serial % 40)}
            sequence = self.sequences[sequence_number % len(self.sequences)]
            if self.shape.is_mapped:
                values["s"] = sequence
            made.append(ModelRow(values, sequence, int(sign or all_deleted)))
        return made

    def arrow(
        self, rows: list[ModelRow], *, source: str = "__SEQUENCE_COL__", signs: bool = True
    ) -> pa.Table:
        schema = self.table.schema
        columns = {c.name: pa.array([r.values[c.name] for r in rows], c.type.arrow) for c in schema.columns}
        if self.shape.hidden:
            assert schema.sequence_type is not None
            columns[source] = pa.array([r.sequence for r in rows], schema.sequence_type.arrow)
        if signs:
            columns["__DELETE_SIGN__"] = pa.array([r.sign for r in rows], pa.int8())
        table = pa.table(columns)
        half = len(rows) // 2
        return pa.concat_tables([table.slice(0, half), table.slice(half)])  # two chunks with offsets

    def label(self) -> str:
        self.serial += 1
        return f"{self.name}-{self.serial}"

    # rules

    @rule(drawn=ROWS, source=st.sampled_from(["__SEQUENCE_COL__", "__doris_sequence_col__", "ts"]))
    def load(self, drawn: Rows, source: str) -> None:
        rows = self.rows(drawn)
        sequence = "ts" if self.shape.hidden and source == "ts" else None
        signs = any(row.sign for row in rows)
        result = self.table.upsert(self.arrow(rows, source=source, signs=signs), sequence=sequence)
        self.expect(result, self.model.load(rows))
        self.agree()

    @rule(drawn=ROWS)
    def load_of_tombstones(self, drawn: Rows) -> None:
        rows = self.rows(drawn, all_deleted=True)
        result = self.table.upsert(self.arrow(rows, signs=False), merge_type="DELETE")
        self.expect(result, self.model.load(rows))
        self.agree()

    @rule(numbers=st.lists(st.integers(0, 15), max_size=6))
    def delete(self, numbers: list[int]) -> None:
        chosen = [self.keys[number % len(self.keys)] for number in numbers]
        seen = self.model.live(self.model.version)
        result = self.table.delete(key_table(self.table.schema, chosen))
        assert result.version == self.model.delete(chosen)
        assert result.rows_deleted == len(seen.keys() & set(chosen))
        self.agree()

    @rule(writes=st.lists(ROWS, min_size=2, max_size=4))
    def load_of_several_writes(self, writes: list[Rows]) -> None:
        with self.table.begin_load(label=self.label()) as load:
            rows = [self.write(load, drawn) for drawn in writes]
            self.expect(load.commit(), self.model.load([row for part in rows for row in part]))
        self.used_labels.append(load.label)
        self.agree()

    @precondition(lambda self: len(self.open_loads) < 4)
    @rule(drawn=ROWS, own_handle=st.booleans())
    def begin(self, drawn: Rows, own_handle: bool) -> None:
        """Another handle is what another process has: its own states, its own numbers for segments."""
        table = Store.open(self.path, settings=self.sizes).table(self.name) if own_handle else self.table
        self.open_load(table, drawn)

    @precondition(lambda self: self.open_loads)
    @rule(data=st.data(), drawn=ROWS)
    def write_more(self, data: st.DataObject, drawn: Rows) -> None:
        load, rows = data.draw(st.sampled_from(self.open_loads))
        rows += self.write(load, drawn)

    @precondition(lambda self: self.open_loads)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        load, rows = self.take_load(data)
        self.expect(load.commit(), self.model.load(rows))
        self.used_labels.append(load.label)
        self.agree()

    @rule(
        data=st.data(),
        drawn=ROWS,
        between=st.lists(st.lists(ROWS, min_size=1, max_size=3), min_size=1, max_size=3),
    )
    def commit_overtaken(self, data: st.DataObject, drawn: Rows, between: list[list[Rows]]) -> None:
        """C1: others commit between this load's plan and its commit point, once or before each of its tries;
        when its turn has come it is brought up to date beside the lock or under it."""
        if not self.open_loads:
            self.open_load(self.table, drawn)
        load, rows = self.take_load(data)
        load.prepare()
        self.overtake(between[0])
        if self.open_loads:
            other, other_rows = self.take_load(data)
            self.expect(other.commit(), self.model.load(other_rows))
            self.used_labels.append(other.label)
        later = iter(between[1:])
        align, catch_up = load._writer.align, load._writer.catch_up
        catches_up = data.draw(st.booleans(), "catches up beside the lock")
        is_next = False

        def overtaken(now: TableState, tx: CatalogTransaction | None = None) -> None:
            align(now, tx)
            # When its turn has come other threads wait for it, and under the writer lock everybody.
            wave = next(later, None) if tx is None and not is_next else None
            if wave is not None:
                self.overtake(wave)

        def turn_has_come() -> None:
            nonlocal is_next
            is_next = True
            if catches_up:
                catch_up()

        at_once = data.draw(st.booleans(), "goes under the lock at once")
        with (
            mock.patch.object(load._writer, "align", overtaken),
            mock.patch.object(load._writer, "catch_up", turn_has_come),
            mock.patch.object(TableWriter, "is_small", return_value=at_once),
        ):
            result = load.commit()
        self.expect(result, self.model.load(rows))
        self.used_labels.append(load.label)
        self.agree()

    def overtake(self, loads: list[Rows]) -> None:
        table = Store.open(self.path, settings=self.sizes).table(self.name)
        for drawn in loads:
            rows = self.rows(drawn)
            self.expect(table.upsert(self.arrow(rows)), self.model.load(rows))

    @precondition(lambda self: self.open_loads)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        load, _ = self.take_load(data)
        load.abort("no longer wanted")
        self.free_labels.append(load.label)
        self.agree()

    @precondition(lambda self: self.free_labels)
    @rule(drawn=ROWS)
    def label_of_an_aborted_load_is_free(self, drawn: Rows) -> None:
        """X16."""
        label = self.free_labels.pop()
        rows = self.rows(drawn)
        self.expect(self.table.upsert(self.arrow(rows), label=label), self.model.load(rows))
        self.used_labels.append(label)
        self.agree()

    @precondition(lambda self: self.used_labels)
    @rule(drawn=ROWS)
    def label_of_a_finished_load_is_taken(self, drawn: Rows) -> None:
        with pytest.raises(LabelExistsError) as caught:
            self.table.upsert(self.arrow(self.rows(drawn)), label=self.used_labels[-1])
        assert caught.value.status == "VISIBLE"

    @precondition(lambda self: self.open_loads)
    @rule(data=st.data())
    def label_of_a_running_load_is_taken(self, data: st.DataObject) -> None:
        load, _ = data.draw(st.sampled_from(self.open_loads))
        with pytest.raises(LabelExistsError) as caught:
            self.table.begin_load(label=load.label)
        assert (caught.value.status, caught.value.txn_id) == ("PREPARE", load.txn_id)

    @rule(sizes=SIZES)
    def reopen(self, sizes: Settings) -> None:
        self.store.close()
        self.sizes = sizes
        self.store = Store.open(self.path, create=False, settings=sizes)
        self.table = self.store.table(self.name)
        self.agree()

    @rule(number=st.integers(0, 15), fields=st.sampled_from(["v", "key"]))
    def filtered_scan(self, number: int, fields: str) -> None:
        """SO12: a filter returns what filtering a full scan does."""
        if fields == "v":
            limit = max(self.serial - number, 0)
            found = self.table.scan(["v"], pc.field("v") >= limit).read_all().column("v").to_pylist()
            wanted = [row.values["v"] for row in self.live() if row.values["v"] >= limit]
        else:
            name, value = self.shape.key_names[0], self.keys[number % len(self.keys)][0]
            arrow = self.table.schema.arrow.field(name).type
            test = pc.field(name).is_null() if value is None else pc.field(name) <= pa.scalar(value, arrow)
            found = self.table.scan(["v"], test).read_all().column("v").to_pylist()
            wanted = [row.values["v"] for row in self.live() if _at_most(row.values[name], value)]
        assert sorted(found) == sorted(wanted)

    # checks

    def live(self) -> list[ModelRow]:
        return list(self.model.live(self.model.version).values())

    def open_load(self, table: Table, drawn: Rows) -> None:
        load = table.begin_load(label=self.label())
        self.open_loads.append((load, self.write(load, drawn)))

    def write(self, load: Load, drawn: Rows) -> list[ModelRow]:
        rows = self.rows(drawn)
        written = load.write(self.arrow(rows))
        assert (written.rows, written.rejected) == (len(rows), [])
        return rows

    def take_load(self, data: st.DataObject) -> tuple[Load, list[ModelRow]]:
        return self.open_loads.pop(data.draw(st.integers(0, len(self.open_loads) - 1), label="which load"))

    def expect(self, result: LoadResult, wanted: ModelResult) -> None:
        assert result.version == wanted.version
        assert (result.rows_total, result.rows_filtered) == (wanted.rows_loaded, 0)
        assert result.rows_loaded == wanted.rows_loaded
        lost = result.rows_superseded + result.rows_late
        assert lost == wanted.rows_superseded + wanted.rows_late, "rows that lost"
        assert (result.rows_replaced, result.rows_deleted) == (wanted.rows_replaced, wanted.rows_deleted)

    def agree(self) -> None:
        newest = self.model.version
        assert self.table.version == newest
        assert_version(self.table, self.model, newest, self.keys)
        older = 1 + self.serial % newest
        if older != newest:
            assert_version(self.table, self.model, older)
        assert self.table.check() == []

    def teardown(self) -> None:
        if not hasattr(self, "patch"):
            return
        try:
            for load, _ in self.open_loads:
                load.abort("end of the test")
            with self.store, Store.open(self.path, create=False) as store:
                fresh = store.table(self.name)
                assert [line.version for line in fresh.history()] == list(range(1, self.model.version + 1))
                self.check_all_versions(fresh)
                assert fresh.check() == []
            rows = expected_rows(self.model, self.model.version, deleted=True)
            self.record.append((str(self.path), self.name, self.kept_bits, rows))
        finally:
            self.patch.__exit__(None, None, None)

    def check_all_versions(self, fresh: Table) -> None:
        for version in range(1, self.model.version + 1):
            assert_version(fresh, self.model, version, self.keys)


def _at_most(value: Any, limit: Any) -> bool:
    return value is None if limit is None else value is not None and bool(value <= limit)


class ExactKeys(TableMachine):
    """Keys whose code proves them."""


class HashedKeys(TableMachine):
    """Keys that are hashed and compared."""

    shapes = HASHED_SHAPES


class CollidingKeys(TableMachine):
    """Hashed keys of which two or three bits are left."""

    shapes = HASHED_SHAPES
    bits = (2, 3)


VERIFY = """
import pickle, sys
from seqstore import Store
from tests.support.equal_codes import hash_bits
from tests.support.compare import seen_rows
for path, name, bits, rows in pickle.load(sys.stdin.buffer):
    with hash_bits(bits), Store.open(path, create=False) as store:
        table = store.table(name)
        seen = seen_rows(table.scan(hidden=True, deleted=True).read_all(), table.schema)
        if seen != rows or table.check():
            print(path, name, "expected", rows, "found", seen, table.check())
            break
"""


def run_machine(machine: type[TableMachine], examples: int, steps: int) -> None:
    """Runs the machine in a directory of its own, then lets a fresh process read all it left."""
    machine.root = Path(tempfile.mkdtemp(prefix="seqstore-machine-"))
    machine.made, machine.record = 0, []
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=chosen)
        fresh = subprocess.run(
            [sys.executable, "-c", VERIFY],
            input=pickle.dumps(machine.record),
            capture_output=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": MODULES},
            check=False,
        )
        assert (fresh.returncode, fresh.stdout) == (0, b""), (fresh.stdout + fresh.stderr).decode()
        assert len(machine.record) >= examples // 2
    finally:
        shutil.rmtree(machine.root, ignore_errors=True)


MACHINES = (HashedKeys, CollidingKeys, ExactKeys)
RUNS = by_form(1, 2)  # of each machine, side by side
# Many steps for few tables: what goes wrong needs several operations on one table.
EXAMPLES, STEPS = by_form(3, 40), 20


@pytest.mark.timeout(1200)  # a busy machine takes its time
def test_tables_agree_with_a_dictionary_per_version() -> None:
    """T1, T3, X3, X4, SO1-SO12, D1-D9, C1."""
    with ProcessPoolExecutor(2, forked_context()) as pool:
        runs = [pool.submit(run_machine, machine, EXAMPLES, STEPS) for machine in MACHINES * RUNS]
        for run in runs:
            run.result()  # of a failure: its history, and how to repeat it


@pytest.mark.torture
@pytest.mark.parametrize("machine", MACHINES)
def test_table_agrees_with_a_dictionary_per_version_at_length(machine: type[TableMachine]) -> None:
    run_machine(machine, examples=int(torture_minutes() * 60), steps=40)
