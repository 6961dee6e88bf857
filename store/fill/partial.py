"""Partial updates: rows that supply some of their cells, filled from history.

A `Delta` holds such rows in arrival order: key columns, the columns supplied, and for per-row column sets a
mask a column. `fill` turns it into whole rows against a state of the table, one per key:

1. Bring rows of one key together and look their history up: the key's live row, which may be a tombstone.
2. Sequence, if the table has one. The running value of a key starts at its history's; a new key's at the
   default of the mapped column if its first row supplies none. A row that supplies a smaller value is
   dropped, alone; one that supplies a larger moves the running value; one that supplies none is applied
   (P20-P23, F15-F19).
3. A row with the delete sign discards what stood before it in the load; rows after it start from defaults
   (F12, F13). If it is the last, the key becomes a tombstone that keeps the running sequence (D8, F23,
   P28).
4. Of the rows left each cell takes the last value supplied (F11, P19). A cell without a supplied value is
   read from history; from the column's default where there is no history or it is a tombstone (P6, P7, P25),
   except that the hidden sequence is still read from the tombstone, and by flexible updates the mapped column
   too (P26, F22).

Tables with column groups go another way (fill.group_merge). Filling is a pure function of delta and
state. When other versions are published meanwhile, the rows of the keys that they touched are filled again
(load.load), so a cell that this load does not supply is never older than the row it lies on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.check.delta import Delta, Mask, flat
from seqstore.store.fill.delta_by_key import NONE, DeltaByKey, gathered, without_nulls
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.fill.group_merge import merge_groups
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.column import DELETE_SIGN, ROW_ID, SEQUENCE_COL, Column, default_scalar
from seqstore.store.segment.checked_rows import CheckedRows
from seqstore.store.segment.dedupe import equal_keys
from seqstore.store.segment.key_index import Matches
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.winner import NO_RANK, Ints, Rows, last_of, ranked, reaching, running_largest


@dataclass(frozen=True)
class Filled:
    """Whole rows, one per key in ascending order of codes.

    Attributes:
        rows: what to stage.
        superseded: rows of the delta that left no cell because of later rows of their key.
        late: rows that were dropped for a smaller sequence than history's.
        matches: the stored rows of the keys, whose probe keys are rows of `rows`; None where there are none
            at hand.
    """

    rows: CheckedRows
    superseded: int
    late: int
    matches: Matches | None = None


def fill(delta: Delta, state: TableState, options: FillOptions) -> Filled:
    """Fills a delta of at least one row; see the module.

    Raises:
        InvalidInputError: a new key where none may be (P10), or one that leaves a NOT NULL column without
            default unsupplied (P7).
    """
    if state.schema.groups:
        return Filled(*merge_groups(delta, state, options))
    filling = _Filling(delta, state, options)
    if options.refuse_new_keys:
        filling.refuse(filling.new_keys())
    schema = state.schema
    if not len(filling.history):  # every row was dropped
        return Filled(CheckedRows(schema.arrow.empty_table()), filling.superseded, filling.late)
    columns = [filling.column(column) for column in schema.columns]
    visible = pa.Table.from_arrays(columns, schema=schema.arrow)
    signs = pa.array(filling.is_tombstone.astype(np.int8)) if filling.is_tombstone.any() else None
    row_ids = filling.column(ROW_ID) if schema.is_duplicate else None
    rows = CheckedRows(visible, signs, filling.hidden_sequence(visible), row_ids=row_ids)
    return Filled(rows, filling.superseded, filling.late, filling.matches_of_left())


class _Filling(DeltaByKey):
    """One run of `fill`. `_drop_and_delete` leaves out keys of which every row was dropped."""

    def __init__(self, delta: Delta, state: TableState, options: FillOptions) -> None:
        super().__init__(delta, state, options)
        self.late = 0
        self.has_row = self.history != NONE
        if any(live.segment.meta.tombstones for live in state.segments.values()):
            signs = np.asarray(flat(state.take(self.matches, [DELETE_SIGN]).column(0)))
            self.has_row[self.matches.probe_keys] = signs == 0
        self._drop_and_delete()

    def _drop_and_delete(self) -> None:
        """Runs steps 2 and 3: which ordered rows count, and the outcome of each key."""
        kept = self._kept_rows()
        numbers = np.arange(len(self.order))
        self.last_kept = last_of(kept, self.starts)
        signs = np.zeros(len(self.order), dtype=np.bool_)
        if self.delta.signs is not None:
            signs = self.delta.signs[self.order] == 1
        last_delete = last_of(kept & signs, self.starts)
        self.is_tombstone = (last_delete != NONE) & (last_delete == self.last_kept)
        # A tombstone still carries what its own row lists (P28).
        begin = np.where(self.is_tombstone, last_delete, last_delete + 1)
        self.counts = kept & (numbers >= begin[self.key_of])
        self.starts_fresh = (last_delete != NONE) & ~self.is_tombstone
        left = self.last_kept != NONE
        self.superseded = len(self.order) - int(np.count_nonzero(left)) - self.late
        self.left: Mask | slice = slice(None) if left.all() else left
        for name in ("history", "has_row", "last_kept", "is_tombstone", "starts_fresh", "sequence_row"):
            setattr(self, name, getattr(self, name)[self.left])

    def _kept_rows(self) -> Mask:
        """Performs step 2 and returns one flag per ordered row.

        It also determines the source of each key's final sequence.
        """
        rows = len(self.order)
        self.sequence_row = np.full(len(self.starts), NONE, dtype=np.intp)
        if self.delta.sequence is None:
            return np.ones(rows, dtype=np.bool_)
        given = self.delta.supplies_sequence()[self.order]
        ranks, start = self._ranks(self.delta.sequence)
        # A new key does not start from the default when its first row has a sequence.
        start = np.where((self.history == NONE) & given[self.starts], NO_RANK, start)
        value = np.where(given, ranks, NO_RANK)
        kept: Mask = ~given | (value == running_largest(value, start, self.key_of))
        self.late = int(np.count_nonzero(given & (value < start[self.key_of])))
        reaches, _ = reaching(value, start, self.starts, self.key_of)
        self.sequence_row = last_of(reaches, self.starts)
        return kept

    def _ranks(self, sequence: pa.Array) -> tuple[Ints, Ints]:
        """Returns the ranks of the sequences of ordered rows, and the rank from which each key starts."""
        sequence_type = self.schema.sequence_type
        assert sequence_type is not None
        own = SequenceVector.encode(sequence, sequence_type).take(self.order)
        stored = self.matches.sequence or SequenceVector.nulls(0)
        default = SequenceVector.encode(self._default_sequence(), sequence_type)
        ranks, start, _ = ranked(own, stored, default, self.history)
        return ranks, start

    def _default_sequence(self) -> pa.Array:
        """Returns the sequence of new keys that no row supplies, as an array of one: the mapped column's
        default, else NULL (P22)."""
        assert self.schema.sequence_type is not None
        mapped = self.schema.sequence_column
        arrow = self.schema.sequence_type.arrow
        if mapped is None:
            return pa.nulls(1, arrow)
        value = default_scalar(self.schema.column(mapped), self.options.now)
        return pa.repeat(value, 1) if value.is_valid else pa.nulls(1, arrow)

    def matches_of_left(self) -> Matches:
        """Returns the matches of the keys that are left, counted among those."""
        if isinstance(self.left, slice):
            return self.matches
        number = np.cumsum(self.left) - 1
        matches = self.matches.take(self.left[self.matches.probe_keys])
        return replace(matches, probe_keys=number[matches.probe_keys])

    def new_keys(self) -> Rows:
        """Returns a row of each key without a live row, unless it becomes a tombstone (P10)."""
        rows: Rows = self.order[self.last_kept[~self.has_row & ~self.is_tombstone]]
        return rows

    @cached_property
    def _stored(self) -> dict[str, pa.Array]:
        """History's cells of the columns that may be needed, a row per match."""
        names = [
            column.name
            for column in self.schema.value_columns
            if column.name not in self.cells or column.name in self.delta.supplied
        ]
        taken = self.state.take(self.matches, [*names, *([SEQUENCE_COL] if self.schema.has_sequence else [])])
        return {name: flat(taken.column(name)) for name in taken.schema.names}

    def column(self, column: Column) -> pa.Array:
        """Performs step 4 for one visible column."""
        name = column.name
        if name in self.schema.key:
            return _take(self.cells[name], self.order[self.last_kept])
        source = self._supplying_rows(name)
        missing = source == NONE
        if not missing.any():
            return _take(self.cells[name], source)
        use_history = missing & self._keeps_history(column)
        if use_history.all():
            return _take(self._stored_cells(column), self.history)
        use_default = missing & ~use_history
        sources: list[tuple[Mask, pa.Array, Any]] = []
        if not missing.all():
            sources.append((~missing, self.cells[name], source))
        if use_history.any():
            sources.append((use_history, self._stored_cells(column), self.history))
        if use_default.any() and column.auto_increment is not None:
            sources.append((use_default, self.delta.ids, self.order[self.last_kept]))
        elif use_default.any():
            must_have = bool((use_default & ~self.is_tombstone).any())
            sources.append((use_default, self.default(column, must_have=must_have), 0))
        return without_nulls(column, gathered(sources))

    def _supplying_rows(self, name: str) -> Rows:
        """Returns the row of the delta whose cell each key gets, -1 where none supplies the column."""
        if name not in self.cells:
            return np.full(len(self.history), NONE, dtype=np.intp)
        if name == self.schema.sequence_column and self.options.flexible:
            # A delete within the load discards the cells before it, not the sequence (F13).
            last = self.sequence_row
        else:
            mask = self.delta.supplied.get(name)
            counts = self.counts if mask is None else self.counts & mask[self.order]
            last = last_of(counts, self.starts)[self.left]
        return np.where(last == NONE, NONE, self.order[last])

    def _keeps_history(self, column: Column) -> Mask:
        """Returns the keys whose unsupplied cell is read from history."""
        if column.on_update_current_timestamp:
            return np.zeros(len(self.history), dtype=np.bool_)
        if column.name == self.schema.sequence_column and self.options.flexible:
            return np.not_equal(self.history, NONE)  # F22: from a tombstone too
        keeps: Mask = self.has_row & ~self.starts_fresh
        return keeps

    def _stored_cells(self, column: Column) -> pa.Array:
        """Returns history's cells, one per match.

        A mapped column behind a tombstone is read from the hidden sequence (F22). A tombstone has that
        sequence whatever its cells hold.
        """
        cells = self._stored[column.name]
        if column.name != self.schema.sequence_column:
            return cells
        found = self.history != NONE
        behind = np.zeros(len(cells), dtype=np.bool_)
        behind[self.history[found]] = (~self.has_row | self.starts_fresh)[found]
        return pc.if_else(pa.array(behind), self._stored[SEQUENCE_COL], cells)

    def hidden_sequence(self, visible: pa.Table) -> pa.Array | None:
        """Returns each key's final sequence, None where it is the mapped column itself."""
        if not self.schema.has_sequence:
            return None
        found: Mask = self.history != NONE
        sources: list[tuple[Mask, pa.Array, Any]] = []
        if not found.all():
            sources.append((~found, self._default_sequence(), 0))
        if found.any():
            sources.append((found, self._stored[SEQUENCE_COL], self.history))
        if self.delta.sequence is not None:
            supplied = self.sequence_row != NONE
            sources.append((supplied, self.delta.sequence, self.order[self.sequence_row]))
        sequence = gathered(sources)
        mapped = self.schema.sequence_column
        if mapped is None:
            return sequence
        same = equal_keys([sequence], None, [flat(visible.column(mapped))], None)
        return None if same.all() else sequence


def _take(cells: pa.Array, rows: Rows) -> pa.Array:
    if len(rows) == len(cells) and bool((rows == np.arange(len(rows))).all()):
        return cells
    return cells.take(pa.array(rows))
