"""Partial updates and column groups against plain dictionaries, driven by random operations.

Each example is one table: without a sequence, with a mapped or a hidden one, or with column groups. Whole
rows, fixed and flexible updates, "NULL means keep" and deletes follow, in loads of one or several writes, of
which some stay open or prepared while others commit. After every step the table must be what the models make
of the loads in the order of their versions.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
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

from seqstore import Load, Settings, Store, Table, TableSchema
from tests.support.groups.group_events import EXACT, HASHED, GroupShape, assert_agrees
from tests.support.groups.group_model import GroupModel
from tests.support.partial_model import (
    DELETE_SIGN,
    FIXED,
    FLEXIBLE,
    ROWS,
    SEQUENCE_COL,
    PartialModel,
    assert_partial,
)
from tests.support.rows import column
from tests.weight import by_form, torture_minutes

Row = dict[str, Any]
KEEP = "keep nulls"  # a fixed update in which NULL means keep
SIZES = st.builds(
    Settings,
    catalog_bytes_max=st.just(2**28),
    inline_bytes_max=st.sampled_from([1, 2**18]),
    segment_rows=st.sampled_from([3, 1_000_000]),
    batch_rows_max=st.sampled_from([2, 65_536]),
    clustered_rows_min=st.sampled_from([2, 262_144]),
)
# key, which columns (bits), sequences and values (numbers), deletes
ROW = st.tuples(
    st.integers(0, 3), st.integers(0, 63), st.integers(0, 10**6), st.sampled_from([False] * 5 + [True])
)
DRAWN = st.lists(ROW, min_size=1, max_size=6)
MODES = st.sampled_from([ROWS, FIXED, FIXED, FLEXIBLE, FLEXIBLE, KEEP])
SKIP = {"enable_unique_key_skip_bitmap_column": "true"}


@dataclass
class OpenLoad:
    """A load that has not been committed, and the rows it brings."""

    load: Load
    mode: str
    rows: list[Row] = field(default_factory=list)
    is_precommitted: bool = False

    def commit(self, path: Path) -> None:
        """A second phase is done by whoever comes by."""
        if self.is_precommitted:
            Store.open(path).commit_transaction("db", txn_id=self.load.txn_id)
        else:
            self.load.commit()

    def abort(self, path: Path) -> None:
        if self.is_precommitted:
            Store.open(path).abort_transaction("db", txn_id=self.load.txn_id)
        else:
            self.load.abort("not wanted")


class UpdateMachine(RuleBasedStateMachine):
    """One table and its model; subclasses say what a row is."""

    root: ClassVar[Path]
    made: ClassVar[int] = 0

    def make(self, data: st.DataObject, properties: Mapping[str, str]) -> TableSchema:
        raise NotImplementedError

    def row(self, mode: str, drawn: tuple[int, int, int, bool]) -> Row:
        raise NotImplementedError

    def apply(self, rows: Sequence[Row], mode: str) -> None:
        raise NotImplementedError

    def compare(self, table: Table) -> None:
        raise NotImplementedError

    @initialize(data=st.data(), sizes=SIZES, storage_format=st.sampled_from(["arrow", "parquet"]))
    def make_table(self, data: st.DataObject, sizes: Settings, storage_format: str) -> None:
        number = type(self).made = type(self).made + 1
        self.sizes = sizes
        self.path = self.root / f"store{number // 50}"
        self.name = f"db.t{number}"
        self.store = Store.open(self.path, settings=sizes)
        self.store.create_database("db", if_not_exists=True)
        schema = self.make(data, SKIP | {"storage_format": storage_format})
        self.table = self.store.create_table(self.name, schema)
        self.serial = 0
        self.open_loads: list[OpenLoad] = []

    # rules

    @rule(mode=MODES, writes=st.lists(DRAWN, min_size=1, max_size=3))
    def load(self, mode: str, writes: list[list[Any]]) -> None:
        opened = self.begin_load(self.table, mode)
        for drawn in writes:
            self.write(opened, drawn)
        self.finish(opened)

    @rule(keys=st.lists(st.integers(0, 3), min_size=1, max_size=3))
    def delete_by_key(self, keys: list[int]) -> None:
        rows = [{**self.key(number), DELETE_SIGN: 1} for number in keys]
        self.table.delete(pa.Table.from_pylist([self.key(number) for number in keys], self.key_schema()))
        self.apply(rows, FIXED)
        self.agree()

    @precondition(lambda self: len(self.open_loads) < 4)
    @rule(mode=MODES, drawn=DRAWN, own_handle=st.booleans())
    def begin(self, mode: str, drawn: list[Any], own_handle: bool) -> None:
        """Another handle is what another process has."""
        table = Store.open(self.path, settings=self.sizes).table(self.name) if own_handle else self.table
        opened = self.begin_load(table, mode)
        self.write(opened, drawn)
        self.open_loads.append(opened)

    @precondition(lambda self: self.unprepared)
    @rule(data=st.data(), drawn=DRAWN)
    def write_more(self, data: st.DataObject, drawn: list[Any]) -> None:
        self.write(data.draw(st.sampled_from(self.unprepared)), drawn)

    @precondition(lambda self: self.unprepared)
    @rule(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        """Filled as of now, whatever is committed before it."""
        data.draw(st.sampled_from(self.unprepared)).load.prepare()

    @precondition(lambda self: self.unprepared)
    @rule(data=st.data())
    def precommit(self, data: st.DataObject) -> None:
        """PC1, C18: the first phase."""
        opened = data.draw(st.sampled_from(self.unprepared))
        opened.load.precommit()
        opened.is_precommitted = True
        self.agree()

    @precondition(lambda self: self.open_loads)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.finish(self.open_loads.pop(data.draw(st.integers(0, len(self.open_loads) - 1))))

    @precondition(lambda self: self.open_loads)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.open_loads.pop(data.draw(st.integers(0, len(self.open_loads) - 1))).abort(self.path)
        self.agree()

    @rule()
    def optimize(self) -> None:
        """K1, K5: no answer changes, nor what comes of loads that were prepared before."""
        self.table.optimize(full=True)
        self.agree()

    @rule(sizes=SIZES)
    def reopen(self, sizes: Settings) -> None:
        self.store.close()
        self.sizes = sizes
        self.store = Store.open(self.path, create=False, settings=sizes)
        self.table = self.store.table(self.name)
        self.agree()

    # steps of rules

    @property
    def unprepared(self) -> list[OpenLoad]:
        return [opened for opened in self.open_loads if not opened.is_precommitted]

    def key(self, number: int) -> Row:
        keys: list[Row] = self.keys
        return keys[number % len(keys)]

    keys: list[Row]

    def key_schema(self) -> pa.Schema:
        return pa.schema([c.arrow for c in self.table.schema.key_columns])

    def begin_load(self, table: Table, mode: str) -> OpenLoad:
        chosen = FIXED if mode == KEEP else mode
        return OpenLoad(table.begin_load(mode=chosen, ignore_null=mode == KEEP), mode)

    def write(self, opened: OpenLoad, drawn: list[Any]) -> None:
        """Rows that supply different columns need a write each, unless the load says it row by row."""
        rows = []
        for item in drawn:
            self.serial += 1
            rows.append(self.row(opened.mode, item))
        batches = [rows] if opened.mode == FLEXIBLE else _runs(rows)
        for batch in batches:
            data, supplied = self.arrow(batch)
            written = opened.load.write(data, supplied=supplied if opened.mode == FLEXIBLE else None)
            assert written.rejected == []
            opened.rows += batch

    def arrow(self, rows: Sequence[Row]) -> tuple[pa.Table, dict[str, np.ndarray]]:
        schema = self.table.schema
        kinds = {column.name: column.type.arrow for column in schema.columns} | {DELETE_SIGN: pa.int8()}
        if schema.sequence_type is not None:
            kinds[SEQUENCE_COL] = schema.sequence_type.arrow
        names = [name for name in kinds if any(name in row for row in rows)]
        data = pa.table({name: pa.array([row.get(name) for row in rows], kinds[name]) for name in names})
        masks = {
            name: np.array([name in row for row in rows])
            for name in names
            if name not in (*schema.key, DELETE_SIGN)
        }
        return data, masks

    def finish(self, opened: OpenLoad) -> None:
        opened.commit(self.path)
        rows, mode = opened.rows, opened.mode
        if mode == KEEP:
            rows, mode = [self.without_nulls(row) for row in rows], FIXED
        self.apply(rows, mode)
        self.agree()

    def without_nulls(self, row: Row) -> Row:
        key = self.table.schema.key
        return {name: value for name, value in row.items() if name in key or value is not None}

    def agree(self) -> None:
        self.compare(self.table)

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        for opened in self.open_loads:
            opened.abort(self.path)
        self.compare(Store.open(self.path, create=False).table(self.name))


def _runs(rows: Sequence[Row]) -> list[list[Row]]:
    """Neighbours that have the same columns and delete alike."""
    runs: list[list[Row]] = []
    for row in rows:
        if runs and runs[-1][-1].keys() == row.keys():
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


class Updates(UpdateMachine):
    """Tables without column groups."""

    columns = ("a", "b", "c", "d")
    sequences = (None, -1, 0, 1, 2, 3)

    def make(self, data: st.DataObject, properties: Mapping[str, str]) -> TableSchema:
        self.sequence = data.draw(st.sampled_from([None, "d", SEQUENCE_COL]), label="sequence")
        default = data.draw(st.sampled_from([None, 1]), label="default")
        self.model = PartialModel(["k"], self.columns, self.sequence, {"a": 7})
        self.keys = [{"k": number} for number in (0, 1, 2)]
        made = [column(text) for text in ("k int NOT NULL", "a int DEFAULT 7", "b int", "c int")]
        if self.sequence == "d" and default is not None:
            made.append(column(f"d int DEFAULT {default}"))
            self.model = PartialModel(["k"], self.columns, "d", {"a": 7, "d": default})
        else:
            made.append(column("d int"))
        own = {
            "d": {"function_column.sequence_col": "d"},
            SEQUENCE_COL: {"function_column.sequence_type": "int"},
        }
        return TableSchema.create(made, ["k"], properties={**properties, **own.get(self.sequence or "", {})})

    def row(self, mode: str, drawn: tuple[int, int, int, bool]) -> Row:
        key, bits, number, deletes = drawn
        row = dict(self.key(key))
        for i, name in enumerate(self.columns):
            if mode in (ROWS, KEEP) or bits >> i & 1:
                row[name] = None if number >> i & 7 == 0 else self.serial
        if self.sequence in row or (self.sequence == SEQUENCE_COL and (mode in (ROWS, KEEP) or bits & 16)):
            row[self.sequence] = self.sequences[number % len(self.sequences)]
        if deletes:
            row[DELETE_SIGN] = 1
        return row

    def apply(self, rows: Sequence[Row], mode: str) -> None:
        self.model.apply(rows, mode)

    def compare(self, table: Table) -> None:
        assert_partial(table, self.model)


class GroupUpdates(UpdateMachine):
    """Tables with column groups: whole groups, their sequences alone, keys alone."""

    pools: ClassVar[Mapping[str, Sequence[Any]]] = {"VARCHAR(20)": ["x", "y"], "VARCHAR(9)": ["x", "y"]}

    def make(self, data: st.DataObject, properties: Mapping[str, str]) -> TableSchema:
        self.shape: GroupShape = data.draw(st.sampled_from([EXACT, HASHED]), label="shape")
        self.model: GroupModel = self.shape.model()
        self.kinds = dict(self.shape.columns)
        self.keys = [dict(zip(self.shape.key_names, key, strict=True)) for key in self.shape.keys]
        return self.shape.schema(**properties)

    def row(self, mode: str, drawn: tuple[int, int, int, bool]) -> Row:
        key, bits, number, deletes = drawn
        row = dict(self.key(key))
        for i, group in enumerate(self.shape.groups):
            if mode != KEEP and not bits >> i & 1:
                continue
            for j, name in enumerate(group.columns):
                if deletes and mode in (FIXED, FLEXIBLE) and name in group.cells and bits & 32:
                    continue  # a delete needs no cells
                row[name] = self.value(name, number >> (3 * i + j))
        if deletes:
            row[DELETE_SIGN] = 1
        return row

    def value(self, name: str, number: int) -> Any:
        if number % 4 == 0:
            return None
        kind = self.kinds[name]
        if kind == "DATE":
            return date(2024, 1, 1 + number % 4)
        if kind in self.pools:
            return f"{number % 2}{self.serial}"
        return number % 4 if name in _sequences(self.shape) else self.serial

    def without_nulls(self, row: Row) -> Row:
        """NULL means keep: a group is given when its sequence is, NULLs included."""
        kept = {name: value for name, value in row.items() if name in (*self.shape.key_names, DELETE_SIGN)}
        for group in self.shape.groups:
            if any(row[name] is not None for name in group.sequence):
                kept |= {name: row[name] for name in group.columns}
        return kept

    def apply(self, rows: Sequence[Row], mode: str) -> None:
        self.model.apply(rows, whole_rows=mode == ROWS)

    def compare(self, table: Table) -> None:
        assert_agrees(table, self.model)


def _sequences(shape: GroupShape) -> set[str]:
    return {name for group in shape.groups for name in group.sequence}


def run_machine(machine: type[UpdateMachine], examples: int, steps: int) -> None:
    machine.root = Path(tempfile.mkdtemp(prefix="seqstore-updates-"))
    machine.made = 0
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=chosen)
    finally:
        shutil.rmtree(machine.root, ignore_errors=True)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", [Updates, GroupUpdates])
def test_updates_agree_with_dictionaries(machine: type[UpdateMachine]) -> None:
    """P5-P7, P19-P28, F9-F23, C1-C18, SM4-SM6."""
    run_machine(machine, examples=by_form(9, 80), steps=12)


@pytest.mark.torture
@pytest.mark.parametrize("machine", [Updates, GroupUpdates])
def test_updates_agree_with_dictionaries_at_length(machine: type[UpdateMachine]) -> None:
    run_machine(machine, examples=int(torture_minutes() * 60), steps=40)
