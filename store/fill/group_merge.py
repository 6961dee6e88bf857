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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.fill.new_keys import new_key_refused, unmentioned_column
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.column import DELETE_SIGN, GROUPS_COL, Column, default_scalar
from seqstore.store.schema.column_groups import ColumnGroup
from seqstore.store.segment.checked_rows import CheckedRows
from seqstore.store.segment.dedupe import equal_keys, group_rows
from seqstore.store.segment.key_codes import encode_keys, is_exact
from seqstore.store.segment.key_index import Matches
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.winner import NO_RANK, Rows, last_of, ranked, reaching, running_largest
from seqstore.store.types.column_types import fill_zero_values

if TYPE_CHECKING:
    from seqstore.store.check.delta import Delta
    from seqstore.store.fill.fill_options import FillOptions

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
_NONE: Final = -1


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
        merging.refuse_new_keys(kept)
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


class _Merging:
    """One run of `merge_groups`. Arrays are per key unless their name says per row or ordered; ordered rows
    stand by key, then by arrival."""

    def __init__(self, delta: Delta, state: TableState, options: FillOptions) -> None:
        self.delta = delta
        self.state = state
        self.schema = state.schema
        self.options = options
        keys = [_flat(delta.rows.column(name)) for name in self.schema.key]
        codes = encode_keys(keys, self.schema.key_columns)
        by_key = group_rows(codes, keys, exact=is_exact(self.schema.key_columns))
        self.order, self.key_of, self.starts = by_key.order, by_key.group, by_key.starts
        self._look_up(keys, codes[self.order[self.starts]])
        self._read_signs()
        self.is_useful = np.zeros(len(self.order), dtype=np.bool_)  # ordered: left a cell, or would have
        self.is_used = np.zeros(len(self.order), dtype=np.bool_)  # ordered: left a cell
        self.registers = {number: self._settle(group) for number, group in self.schema.column_groups.items()}
        self.present = self._present()

    def _look_up(self, keys: list[pa.Array], codes: npt.NDArray[np.uint64]) -> None:
        """Performs step 1: `history` becomes the index into `matches` of each key's row, or -1."""
        first = self.order[self.starts]
        matches = self.state.probe(codes)
        if len(matches) and not is_exact(self.schema.key_columns):
            stored = self.state.take(matches, list(self.schema.key))
            matches = matches.take(equal_keys(keys, first[matches.probe_keys], stored.columns, None))
        self.matches: Matches = matches
        self.history = np.full(len(first), _NONE, dtype=np.intp)
        self.history[matches.probe_keys] = np.arange(len(matches))
        sequences = [name for group in self.schema.column_groups.values() for name in group.sequence]
        self.stored = self.state.take(matches, [DELETE_SIGN, GROUPS_COL, *sequences]).combine_chunks()

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
        rows = len(self.order)
        names = self.delta.rows.schema.names
        if any(name not in names for name in group.sequence):
            return np.zeros(rows, dtype=np.bool_)
        given = np.ones(rows, dtype=np.bool_)
        for name in group.sequence:
            mask = self.delta.supplied.get(name)
            if mask is not None:
                given &= mask[self.order]
        return given

    def _settle(self, group: ColumnGroup) -> _Register:
        """Performs step 3: finds the row that wins the group, for each key."""
        keys = len(self.starts)
        proposed = self.proposed[self._number(group)]
        if not proposed.any() and not self.takes_all.any():
            none = np.full(keys, _NONE, dtype=np.intp)
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
        found = winner != _NONE
        self.is_used[winner[found]] = True
        deleted = found & self.deletes[winner]
        is_null: Mask = final == null
        return _Register(winner, sequence, deleted, is_null)

    def _number(self, group: ColumnGroup) -> int:
        return self.schema.groups.index(group)

    def _ranks(self, group: ColumnGroup, proposed: Mask) -> tuple[Ints, Ints, int]:
        """Ranks sequences densely: of ordered rows, of each key's history, of NULL."""
        null_tuple = self._tuples(group, None)
        own = null_tuple.take(np.zeros(len(self.order), dtype=np.intp))
        if proposed.any():
            own = self._tuples(group, self.delta.rows).take(self.order)
        stored = self._tuples(group, self.stored)
        return ranked(own, stored, null_tuple, self.history)

    def _tuples(self, group: ColumnGroup, rows: pa.Table | None) -> SequenceVector:
        """Sequences of a group, several columns as one; None stands for one row of NULLs."""
        kinds = [self.schema.column(name).type for name in group.sequence]
        parts = [
            SequenceVector.encode(pa.nulls(1, kind.arrow) if rows is None else _flat(rows.column(name)), kind)
            for name, kind in zip(group.sequence, kinds, strict=True)
        ]
        return parts[0] if len(parts) == 1 else SequenceVector.side_by_side(parts, kinds)

    def _lead_is_null(self, group: ColumnGroup) -> Mask:
        nulls = np.ones(len(self.matches), dtype=np.bool_)
        for name in group.sequence:
            nulls &= np.asarray(_flat(self.stored.column(name)).is_null())
        is_null: Mask = np.append(nulls, True)[self.history]
        return is_null

    def _present(self) -> Ints:
        """Steps 5 and 6: a bit for each group that is there."""
        stored = np.asarray(_flat(self.stored.column(GROUPS_COL))).astype(np.int64)
        known = sum(1 << number for number in self.registers)  # not of groups that were dropped
        present = np.append(stored, 0)[self.history] & np.int64(known)
        touch = last_of(self.touches, self.starts)
        for number, register in self.registers.items():
            bit = np.int64(1) << np.int64(number)
            decided = register.winner != _NONE
            there = np.where(decided, ~register.deleted, (present & bit) != 0)
            there |= register.is_null & (touch > register.winner)
            present = np.where(there, present | bit, present & ~bit)
        self.touched = touch != _NONE
        self.is_used[touch[self.touched]] = True
        return present

    def kept_keys(self) -> Rows:
        """Returns the keys to write: those of which a row of the load decides something. When rows of them
        were staged before, all of them: the earlier rows must not stand."""
        if self.options.again:
            return np.arange(len(self.starts))
        decided = [register.winner != _NONE for register in self.registers.values()]
        return np.flatnonzero(np.logical_or.reduce([*decided, self.touched]))

    def rows_lost(self) -> tuple[int, int]:
        """Returns the rows superseded and rows late."""
        reached = self.is_useful | self.takes_all | self.touches
        return int(np.count_nonzero(reached & ~self.is_used)), int(np.count_nonzero(~reached))

    def refuse_new_keys(self, kept: Rows) -> None:
        """Raises for keys without a live row, unless they become tombstones (P10)."""
        signs = np.asarray(_flat(self.stored.column(DELETE_SIGN)))
        is_live = np.append(signs == 0, False)[self.history]
        new = kept[~is_live[kept] & (self.present[kept] != 0)]
        if len(new):
            raise new_key_refused(self.delta.rows, int(self.order[self.starts[new[0]]]), self.schema)

    @cached_property
    def _group_of(self) -> dict[str, int]:
        groups = self.schema.column_groups.items()
        return {name: number for number, group in groups for name in group.columns}

    def column(self, column: Column, kept: Rows) -> pa.Array:
        """Builds one visible column of the kept keys."""
        if column.name in self.schema.key:
            return _flat(self.delta.rows.column(column.name)).take(pa.array(self.order[self.starts[kept]]))
        number = self._group_of[column.name]
        register = self.registers[number]
        is_sequence = column.name in self.schema.column_groups[number].sequence
        row = register.sequence[kept] if is_sequence else register.winner[kept]
        gone = np.zeros(len(kept), dtype=np.bool_) if is_sequence else register.deleted[kept]
        from_delta = (row != _NONE) & ~gone
        history = self.history[kept]
        from_history = ~from_delta & ~gone & (history != _NONE)
        pieces: list[pa.Array] = []
        gather = np.zeros(len(kept), dtype=np.int64)
        offset = 0
        if from_delta.any():
            pieces.append(_flat(self.delta.rows.column(column.name)))
            gather = np.where(from_delta, self.order[row], gather)
            offset += len(pieces[-1])
        if from_history.any():
            pieces.append(self._from_history(column, history[from_history], is_sequence=is_sequence))
            gather[from_history] = np.arange(offset, offset + len(pieces[-1]))
            offset += len(pieces[-1])
        if not (from_delta | from_history).all():
            unsaid = ~(from_delta | from_history | gone) & (self.present[kept] != 0)
            pieces.append(self._default(column, is_sequence=is_sequence, must_have=bool(unsaid.any())))
            gather = np.where(from_delta | from_history, gather, offset)
        chosen = pa.concat_arrays(pieces).take(pa.array(gather))
        if not column.nullable and chosen.null_count:
            chosen = fill_zero_values(chosen, pa.array(np.asarray(chosen.is_null())))  # absent groups
        return chosen

    def _from_history(self, column: Column, history: Rows, *, is_sequence: bool) -> pa.Array:
        if is_sequence:
            return _flat(self.stored.column(column.name)).take(pa.array(history))
        return _flat(self.state.take(self.matches.take(history), [column.name]).column(0))

    def _default(self, column: Column, *, is_sequence: bool, must_have: bool) -> pa.Array:
        """Returns the default as an array of one. A sequence that was never given is NULL whatever its
        default, or else the outcome of a smaller one would depend on the order of loads."""
        value = default_scalar(column, self.options.now)
        if is_sequence:
            value = pa.scalar(None, column.type.arrow)
        if not value.is_valid and not column.nullable and must_have:
            raise unmentioned_column(column, flexible=self.options.flexible)
        return pa.array([value.as_py()], column.type.arrow)


def _flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
