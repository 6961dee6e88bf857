"""Merging a load into a table with column groups (SM4-SM6).

Each key has a register per group: its sequence, its cells, and whether it is there. A load's row proposes
registers, and the largest sequence wins, equal ones by version, then by arrival. Maxima can be taken in any
order and any grouping, so loads commute. Given a delta and a state:

1. Bring rows of one key together and look their history up. A key without one has no group, and every
   sequence of it is NULL.
2. Which groups does a row propose? Those of which it supplies the sequence (check.group_checker).
3. A group: compare proposals, NULL lowest, sequences of several columns from left to right. The largest, of
   equal ones the last, wins if it is not smaller than history's. Other groups do not matter.
4. A row with the delete sign proposes, with its sequences, that the groups are not there. One that supplies
   no sequence removes all groups as they stand, with the sequences they have (D8).
5. A row that proposes nothing and deletes nothing is a touch: groups that were never written, their
   sequence being NULL, are there from then on, with defaults.
6. A key none of whose groups is there is a tombstone. Its sequences stay, so that older rows stay away (D4).

Cells of a group that is not there hold defaults, as do those of keys that are new (P7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from seqstore.store.check.delta import Delta, Mask, flat
from seqstore.store.fill.delta_by_key import NONE, DeltaByKey, gathered, without_nulls
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.column import DELETE_SIGN, GROUPS_COL, Column
from seqstore.store.schema.column_groups import ColumnGroup
from seqstore.store.segment.checked_rows import CheckedRows
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.winner import NO_RANK, Ints, Rows, last_of, ranked, reaching, running_largest


def merge_groups(delta: Delta, state: TableState, options: FillOptions) -> tuple[CheckedRows, int, int]:
    """Applies the module's steps to at least one row.

    Returns:
        What `fill.partial.Filled` holds: whole rows, one per key; rows that left no cell because of later
        rows of their key; rows of which every proposal was smaller than history's.

    Raises:
        InvalidInputError: a new key where none may be (P10), or one that leaves a NOT NULL column without
            default unsupplied (P7).
    """
    merging = _Merging(delta, state, options)
    kept = merging.kept_keys()
    superseded, late = merging.rows_lost()
    if options.refuse_new_keys:
        merging.refuse(merging.new_keys(kept))
    if not len(kept):
        return CheckedRows(state.schema.arrow.empty_table()), superseded, late
    schema = state.schema
    columns = [merging.column(column, kept) for column in schema.columns]
    present = merging.present[kept]
    tombstones = present == 0
    signs = pa.array(tombstones.astype(np.int8)) if tombstones.any() else None
    visible = pa.Table.from_arrays(columns, schema=schema.arrow)
    return CheckedRows(visible, signs, groups=pa.array(present)), superseded, late


@dataclass(frozen=True)
class _Register:
    """The outcome of a load for one group: for each key a row of the delta, or -1 for history's.

    Attributes:
        winner: the row that decides.
        sequence: the row whose sequence the group gets.
        deleted: keys whose winner removes the group.
        is_null: keys whose final sequence is NULL.
    """

    winner: Rows
    sequence: Rows
    deleted: Mask
    is_null: Mask


class _Merging(DeltaByKey):
    """One run of `merge_groups`. Arrays are per key unless their name says per row or ordered."""

    def __init__(self, delta: Delta, state: TableState, options: FillOptions) -> None:
        super().__init__(delta, state, options)
        sequences = [name for group in self.schema.column_groups.values() for name in group.sequence]
        self.stored = state.take(self.matches, [DELETE_SIGN, GROUPS_COL, *sequences]).combine_chunks()
        self._read_signs()
        self.is_useful = np.zeros(len(self.order), dtype=np.bool_)  # ordered: left a cell, or would have
        self.is_used = np.zeros(len(self.order), dtype=np.bool_)  # ordered: left a cell
        self.registers = {number: self._settle(group) for number, group in self.schema.column_groups.items()}
        self.present = self._present()

    def _read_signs(self) -> None:
        """Steps 2, 4, 5: which ordered rows propose each group, remove all groups, or touch."""
        rows = len(self.order)
        signs = self.delta.signs
        self.deletes: Mask = np.zeros(rows, dtype=np.bool_) if signs is None else signs[self.order] == 1
        self.proposed = {
            number: self._proposals(group) for number, group in self.schema.column_groups.items()
        }
        nothing = ~np.logical_or.reduce(list(self.proposed.values()))
        self.takes_all: Mask = self.deletes & nothing
        self.touches: Mask = ~self.deletes & nothing

    def _proposals(self, group: ColumnGroup) -> Mask:
        given = [self.delta.supplies(name) for name in group.sequence]
        found: Mask = np.logical_and.reduce(given)[self.order]
        return found

    def _settle(self, group: ColumnGroup) -> _Register:
        """Performs step 3: finds the row that wins the group, for each key."""
        keys = len(self.starts)
        proposed = self.proposed[self.schema.groups.index(group)]
        if not proposed.any() and not self.takes_all.any():
            none = np.full(keys, NONE, dtype=np.intp)
            untouched = np.zeros(keys, dtype=np.bool_)
            lead_is_null = self._lead_is_null(group) if self.touches.any() else untouched
            return _Register(none, none, untouched, lead_is_null)
        ranks, start, null = self._ranks(group, proposed)
        value = np.where(proposed, ranks, NO_RANK)
        self.is_useful |= proposed & (value >= start[self.key_of])
        if self.takes_all.any():
            value = np.where(self.takes_all, running_largest(value, start, self.key_of), value)
        reaches, final = reaching(value, start, self.starts, self.key_of)
        winner = last_of(reaches, self.starts)
        sequence = last_of(reaches & proposed, self.starts)
        found = winner != NONE
        self.is_used[winner[found]] = True
        deleted = found & self.deletes[winner]
        is_null: Mask = final == null
        return _Register(winner, sequence, deleted, is_null)

    def _ranks(self, group: ColumnGroup, proposed: Mask) -> tuple[Ints, Ints, int]:
        """Ranks sequences densely: of ordered rows, of each key's history, of NULL."""
        null_tuple = self._tuples(group, {})
        own = null_tuple.take(np.zeros(len(self.order), dtype=np.intp))
        if proposed.any():
            own = self._tuples(group, self.cells).take(self.order)
        stored = {name: flat(self.stored.column(name)) for name in group.sequence}
        return ranked(own, self._tuples(group, stored), null_tuple, self.history)

    def _tuples(self, group: ColumnGroup, cells: Mapping[str, pa.Array]) -> SequenceVector:
        """Returns sequences of a group, several columns as one; without cells one row of NULLs."""
        kinds = [self.schema.column(name).type for name in group.sequence]
        parts = [
            SequenceVector.encode(cells[name] if cells else pa.nulls(1, kind.arrow), kind)
            for name, kind in zip(group.sequence, kinds, strict=True)
        ]
        return parts[0] if len(parts) == 1 else SequenceVector.side_by_side(parts, kinds)

    def _lead_is_null(self, group: ColumnGroup) -> Mask:
        nulls = np.ones(len(self.matches), dtype=np.bool_)
        for name in group.sequence:
            nulls &= np.asarray(flat(self.stored.column(name)).is_null())
        is_null: Mask = np.append(nulls, True)[self.history]
        return is_null

    def _present(self) -> Ints:
        """Steps 5 and 6: a bit for each group that is there."""
        stored = np.asarray(flat(self.stored.column(GROUPS_COL))).astype(np.int64)
        known = sum(1 << number for number in self.registers)  # not of groups that were dropped
        present = np.append(stored, 0)[self.history] & np.int64(known)
        touch = last_of(self.touches, self.starts)
        for number, register in self.registers.items():
            bit = np.int64(1) << np.int64(number)
            decided = register.winner != NONE
            there = np.where(decided, ~register.deleted, (present & bit) != 0)
            there |= register.is_null & (touch > register.winner)
            present = np.where(there, present | bit, present & ~bit)
        self.touched = touch != NONE
        self.is_used[touch[self.touched]] = True
        return present

    def kept_keys(self) -> Rows:
        """Returns the keys to write: those of which a row of the load decides something. When rows of them
        were staged before, all of them: the earlier rows must not stand."""
        if self.options.again:
            return np.arange(len(self.starts))
        decided = [register.winner != NONE for register in self.registers.values()]
        return np.flatnonzero(np.logical_or.reduce([*decided, self.touched]))

    def rows_lost(self) -> tuple[int, int]:
        """Returns the rows superseded and rows late."""
        reached = self.is_useful | self.takes_all | self.touches
        return int(np.count_nonzero(reached & ~self.is_used)), int(np.count_nonzero(~reached))

    def new_keys(self, kept: Rows) -> Rows:
        """Returns a row of each kept key without a live row, unless it becomes a tombstone (P10)."""
        signs = np.asarray(flat(self.stored.column(DELETE_SIGN)))
        is_live = np.append(signs == 0, False)[self.history]
        rows: Rows = self.order[self.starts[kept[~is_live[kept] & (self.present[kept] != 0)]]]
        return rows

    @cached_property
    def _group_of(self) -> dict[str, int]:
        groups = self.schema.column_groups.items()
        return {name: number for number, group in groups for name in group.columns}

    def column(self, column: Column, kept: Rows) -> pa.Array:
        """Builds one visible column of the kept keys."""
        if column.name in self.schema.key:
            return self.cells[column.name].take(pa.array(self.order[self.starts[kept]]))
        number = self._group_of[column.name]
        register = self.registers[number]
        is_sequence = column.name in self.schema.column_groups[number].sequence
        row = register.sequence[kept] if is_sequence else register.winner[kept]
        gone = np.zeros(len(kept), dtype=np.bool_) if is_sequence else register.deleted[kept]
        from_delta = (row != NONE) & ~gone
        history = self.history[kept]
        from_history = ~from_delta & ~gone & (history != NONE)
        sources: list[tuple[Mask, pa.Array, Any]] = []
        if from_delta.any():
            sources.append((from_delta, self.cells[column.name], self.order[row]))
        if from_history.any():
            if is_sequence:
                sources.append((from_history, flat(self.stored.column(column.name)), history))
            else:
                taken = self.state.take(self.matches.take(history[from_history]), [column.name])
                sources.append((from_history, flat(taken.column(0)), np.cumsum(from_history) - 1))
        rest = ~(from_delta | from_history)
        if rest.any():
            unsaid = rest & ~gone & (self.present[kept] != 0)
            # A sequence that was never given is NULL whatever its default, or else the outcome of a smaller
            # one would depend on the order of loads.
            value = self.default(column, must_have=bool(unsaid.any()), is_null=is_sequence)
            sources.append((rest, value, 0))
        return without_nulls(column, gathered(sources))
