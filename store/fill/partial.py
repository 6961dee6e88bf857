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
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.check.delta import Delta, Mask, flat
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.fill.group_merge import merge_groups
from seqstore.store.fill.new_keys import new_key_refused, unmentioned_column
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.column import DELETE_SIGN, SEQUENCE_COL, Column, default_scalar
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.checked_rows import CheckedRows
from seqstore.store.segment.dedupe import Groups, equal_keys, group_rows
from seqstore.store.segment.key_codes import Codes, encode_keys, is_exact
from seqstore.store.segment.key_index import Matches
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.winner import NO_RANK, last_of, ranked, reaching, running_largest
from seqstore.store.types.column_types import fill_zero_values

_NONE: Final = -1


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
        filling.refuse_new_keys()
    schema = state.schema
    if not len(filling.history):  # every row was dropped
        return Filled(CheckedRows(schema.arrow.empty_table()), filling.superseded, filling.late)
    columns = [filling.column(column) for column in schema.columns]
    visible = pa.Table.from_arrays(columns, schema=schema.arrow)
    signs = pa.array(filling.is_tombstone.astype(np.int8)) if filling.is_tombstone.any() else None
    rows = CheckedRows(visible, signs, filling.hidden_sequence(visible))
    return Filled(rows, filling.superseded, filling.late, filling.matches_of_left())


def keys_of(delta: Delta, schema: TableSchema) -> tuple[list[pa.Array], Codes]:
    """Returns key columns and codes of a delta's rows."""
    keys = [delta.rows.column(column.name).chunk(0) for column in schema.key_columns]
    return keys, encode_keys(keys, schema.key_columns)


class _Filling:
    """One run of `fill`. Arrays are per group (key) unless their name says per row; rows are ordered by
    group."""

    def __init__(self, delta: Delta, state: TableState, options: FillOptions) -> None:
        self.delta = delta
        self.state = state
        self.schema = state.schema
        self.options = options
        keys, codes = keys_of(delta, self.schema)
        self.late = 0
        self.groups: Groups = group_rows(codes, keys, exact=is_exact(self.schema.key_columns))
        self.order = self.groups.order
        self.starts = self.groups.starts
        self._look_up(keys, codes)
        self._drop_and_delete()

    def _look_up(self, keys: list[pa.Array], codes: Codes) -> None:
        """Performs step 1: `history` becomes the index into `matches` of each group's row, or -1."""
        first = self.order[self.starts]
        matches = self.state.probe(codes[first])
        if len(matches) and not is_exact(self.schema.key_columns):
            names = [column.name for column in self.schema.key_columns]
            stored = self.state.take(matches, names)
            matches = matches.take(equal_keys(keys, first[matches.probe_keys], stored.columns, None))
        # By key, as everything here: where every key has a row, history's columns need no gathering.
        matches = matches.take(np.argsort(matches.probe_keys, kind="stable"))
        self.matches: Matches = matches
        self.history = np.full(len(first), _NONE, dtype=np.intp)
        self.history[matches.probe_keys] = np.arange(len(matches))
        self.has_row = self.history != _NONE
        if any(live.segment.meta.tombstones for live in self.state.segments.values()):
            signs = np.asarray(self.state.take(matches, [DELETE_SIGN]).column(0).combine_chunks())
            self.has_row[matches.probe_keys] = signs == 0

    def _drop_and_delete(self) -> None:
        """Runs steps 2 and 3: which ordered rows count, and the outcome of each key."""
        kept = self._kept_rows()
        numbers = np.arange(len(self.order))
        self.last_kept = last_of(kept, self.starts)
        signs = np.zeros(len(self.order), dtype=np.bool_)
        if self.delta.signs is not None:
            signs = self.delta.signs[self.order] == 1
        last_delete = last_of(kept & signs, self.starts)
        self.is_tombstone = (last_delete != _NONE) & (last_delete == self.last_kept)
        # A tombstone still carries what its own row lists (P28).
        begin = np.where(self.is_tombstone, last_delete, last_delete + 1)
        self.counts = kept & (numbers >= begin[self.groups.group])
        self.starts_fresh = (last_delete != _NONE) & ~self.is_tombstone
        self.is_lost = self.last_kept == _NONE
        left = int(np.count_nonzero(~self.is_lost))
        self.superseded = len(self.order) - left - self.late
        if self.is_lost.any():
            self._forget_lost()

    def _kept_rows(self) -> Mask:
        """Performs step 2 and returns one flag per ordered row.

        It also determines the source of each key's final sequence.
        """
        rows = len(self.order)
        if not self.schema.has_sequence:
            return np.ones(rows, dtype=np.bool_)
        if self.delta.sequence is None:
            self.sequence_row = np.full(len(self.starts), _NONE, dtype=np.intp)
            return np.ones(rows, dtype=np.bool_)
        given = self._sequence_given()[self.order]
        ranks, start = self._ranks()
        # A new key does not start from the default when its first row has a sequence.
        start = np.where((self.history == _NONE) & given[self.starts], NO_RANK, start)
        value = np.where(given, ranks, NO_RANK)
        group = self.groups.group
        kept: Mask = ~given | (value == running_largest(value, start, group))
        self.late = int(np.count_nonzero(given & (value < start[group])))
        reaches, _ = reaching(value, start, self.starts, group)
        self.sequence_row = last_of(reaches, self.starts)
        return kept

    def _sequence_given(self) -> Mask:
        if self.delta.sequence is None:
            return np.zeros(len(self.delta), dtype=np.bool_)
        if self.delta.sequence_supplied is None:
            return np.ones(len(self.delta), dtype=np.bool_)
        return self.delta.sequence_supplied

    def _ranks(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Returns the ranks of the sequences of ordered rows, and the rank from which each group starts."""
        sequence_type = self.schema.sequence_type
        assert sequence_type is not None
        own = SequenceVector.nulls(len(self.order))
        if self.delta.sequence is not None:
            own = SequenceVector.encode(self.delta.sequence, sequence_type).take(self.order)
        stored = self.matches.sequence or SequenceVector.nulls(0)
        default = SequenceVector.encode(self._default_sequence(1), sequence_type)
        ranks, start, _ = ranked(own, stored, default, self.history)
        return ranks, start

    def _default_sequence(self, rows: int) -> pa.Array:
        """Returns the sequence of new keys that no row supplies: the mapped column's default, else NULL
        (P22)."""
        assert self.schema.sequence_type is not None
        mapped = self.schema.sequence_column
        arrow = self.schema.sequence_type.arrow
        if mapped is None:
            return pa.nulls(rows, arrow)
        value = default_scalar(self.schema.column(mapped), self.options.now)
        return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, arrow)

    def _forget_lost(self) -> None:
        """Leaves out keys of which every row was dropped."""
        left = ~self.is_lost
        self.left = left
        for name in ("history", "has_row", "last_kept", "is_tombstone", "starts_fresh"):
            setattr(self, name, getattr(self, name)[left])
        if self.schema.has_sequence:
            self.sequence_row = self.sequence_row[left]

    def matches_of_left(self) -> Matches:
        """Returns the matches of the keys that are left, counted among those."""
        if not self.is_lost.any():
            return self.matches
        number = np.cumsum(self.left) - 1
        matches = self.matches.take(self.left[self.matches.probe_keys])
        return replace(matches, probe_keys=number[matches.probe_keys])

    def _of_left(self, per_group: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        return per_group[~self.is_lost] if self.is_lost.any() else per_group

    def refuse_new_keys(self) -> None:
        """Raises for keys without a live row, unless they become tombstones (P10)."""
        new = np.flatnonzero(~self.has_row & ~self.is_tombstone)
        if not len(new):
            return
        row = int(self.order[self.last_kept[new[0]]])
        raise new_key_refused(self.delta.rows, row, self.schema)

    @cached_property
    def _unsupplied(self) -> list[str]:
        """Columns that may have to come from history, the mapped column first to be known."""
        every = set(self.delta.rows.schema.names) - set(self.delta.supplied)
        return [column.name for column in self.schema.value_columns if column.name not in every]

    @cached_property
    def _stored(self) -> pa.Table:
        """History's cells of the columns that may be needed, a row per match."""
        hidden = [SEQUENCE_COL] if self.schema.has_sequence else []
        return self.state.take(self.matches, [*self._unsupplied, *hidden])

    def column(self, column: Column) -> pa.Array:
        """Performs step 4 for one visible column."""
        name = column.name
        if name in self.schema.key:
            return _take(self.delta.rows.column(name), self.order[self.last_kept])
        source = self._supplying_rows(name)
        missing = source == _NONE
        if not missing.any():
            return _take(self.delta.rows.column(name), source)
        use_history = missing & self._keeps_history(column)
        use_default = missing & ~use_history
        return self._choose(column, source, use_history, use_default)

    def _supplying_rows(self, name: str) -> npt.NDArray[np.intp]:
        """Returns the row of the delta whose cell each key gets, -1 where none supplies the column."""
        if name not in self.delta.rows.schema.names:
            return np.full(len(self.history), _NONE, dtype=np.intp)
        if name == self.schema.sequence_column and self.options.flexible:
            # A delete within the load discards the cells before it, not the sequence (F13).
            return np.where(self.sequence_row == _NONE, _NONE, self.order[self.sequence_row])
        counts = self.counts
        mask = self.delta.supplied.get(name)
        if mask is not None:
            counts = counts & mask[self.order]
        last = self._of_left(last_of(counts, self.starts))
        return np.where(last == _NONE, _NONE, self.order[last])

    def _keeps_history(self, column: Column) -> Mask:
        """Returns the keys whose unsupplied cell is read from history."""
        if column.on_update_current_timestamp:
            return np.zeros(len(self.history), dtype=np.bool_)
        is_mapped = column.name == self.schema.sequence_column
        if is_mapped and self.options.flexible:
            found: Mask = self.history != _NONE  # F22: from a tombstone too
            return found
        keeps: Mask = self.has_row & ~self.starts_fresh
        return keeps

    def _choose(
        self, column: Column, source: npt.NDArray[np.intp], use_history: Mask, use_default: Mask
    ) -> pa.Array:
        """Returns cells from the delta, from history and from the default, by one gather over the three side
        by side."""
        if use_history.all():
            return _take(pa.chunked_array([self._stored_cells(column)]), self.history)
        pieces: list[pa.Array] = []
        gather = np.zeros(len(source), dtype=np.int64)
        offset = 0
        if (source != _NONE).any():
            pieces.append(flat(self.delta.rows.column(column.name)))
            gather = np.where(source != _NONE, source, gather)
            offset += len(pieces[-1])
        if use_history.any():
            pieces.append(self._stored_cells(column))
            gather = np.where(use_history, self.history + offset, gather)
            offset += len(pieces[-1])
        if use_default.any() and column.auto_increment is not None:
            pieces.append(self.delta.ids)
            gather = np.where(use_default, self.order[self.last_kept] + offset, gather)
        elif use_default.any():
            pieces.append(self._default(column, use_default))
            gather = np.where(use_default, offset, gather)
        chosen = pa.concat_arrays(pieces).take(pa.array(gather))
        if not column.nullable and chosen.null_count:
            chosen = fill_zero_values(chosen, pa.array(np.asarray(chosen.is_null())))  # tombstones
        return chosen

    def _stored_cells(self, column: Column) -> pa.Array:
        """Returns history's cells, one per match.

        A mapped column behind a tombstone is read from the hidden sequence (F22). A tombstone has that
        sequence whatever its cells hold.
        """
        cells = flat(self._stored.column(column.name))
        if column.name != self.schema.sequence_column:
            return cells
        found = self.history != _NONE
        behind = np.zeros(len(cells), dtype=np.bool_)
        behind[self.history[found]] = (~self.has_row | self.starts_fresh)[found]
        return pc.if_else(pa.array(behind), flat(self._stored.column(SEQUENCE_COL)), cells)

    def _default(self, column: Column, where: Mask) -> pa.Array:
        """Returns the default as an array of one; refuses keys for which there is none (P7-P9, F25)."""
        if column.on_update_current_timestamp:
            current = default_scalar(column, self.options.now)
            return pa.array([current.as_py()], column.type.arrow)
        value = default_scalar(column, self.options.now)
        if not value.is_valid and not column.nullable and bool((where & ~self.is_tombstone).any()):
            raise unmentioned_column(column, flexible=self.options.flexible)
        return pa.array([value.as_py()], column.type.arrow)

    def hidden_sequence(self, visible: pa.Table) -> pa.Array | None:
        """Returns each key's final sequence, None where it is the mapped column itself."""
        sequence_type = self.schema.sequence_type
        if sequence_type is None:
            return None
        pieces = [self._default_sequence(1)]
        gather = np.zeros(len(self.history), dtype=np.int64)
        if len(self.matches):
            pieces.append(flat(self._stored.column(SEQUENCE_COL)))
            gather = np.where(self.history != _NONE, self.history + 1, gather)
        if self.delta.sequence is not None:
            offset = sum(len(piece) for piece in pieces)
            pieces.append(self.delta.sequence)
            supplied = self.sequence_row != _NONE
            gather = np.where(supplied, self.order[self.sequence_row] + offset, gather)
        sequence = pa.concat_arrays(pieces).take(pa.array(gather))
        mapped = self.schema.sequence_column
        if mapped is None:
            return sequence
        same = equal_keys([sequence], None, [visible.column(mapped).combine_chunks()], None)
        return None if same.all() else sequence


def _take(column: pa.ChunkedArray, rows: npt.NDArray[np.intp]) -> pa.Array:
    cells = flat(column)
    if len(rows) == len(cells) and bool((rows == np.arange(len(rows))).all()):
        return cells
    return cells.take(pa.array(rows))
