"""Rows that a transaction deletes and changes afterwards.

Where its statements read the table as it was before all of them (X7), an UPDATE finds the row that a DELETE
before it deletes, and the change lies on a tombstone. A partial load starts from defaults there (P25). But a
change was computed from a whole row, so for such keys it supplies the whole row:

1. Find the keys of the delta that the transaction has made tombstones so far, and that have a row in the
   table beneath. That row is the one that was read, or its successor by compatible writes of others.
2. Every cell that the change does not assign is copied from it. Columns with the moment of a change are
   left to do so (U16).
3. So is the sequence (U11). Of the deletion and the change the larger sequence wins, as between any two rows:
   a deletion keeps the sequence of its row (D8), so the change wins unless either was given another one.
4. Of a table with column groups, the groups that are there return, each with its sequences.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.check.delta import Delta, Mask, flat
from seqstore.store.fill.delta_by_key import gathered
from seqstore.store.read.lookup import find
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.column import DELETE_SIGN, GROUPS_COL, SEQUENCE_COL
from seqstore.store.segment.key_index import Matches
from seqstore.store.segment.winner import Rows


def with_deleted_rows(delta: Delta, state: TableState, beneath: TableState) -> Delta:
    """Returns a change as it is to be filled on a state; see the module.

    Args:
        state: the table with all that the transaction wrote before.
        beneath: the table without it.
    """
    written = [live for slot, live in state.segments.items() if slot not in beneath.segments]
    if not any(live.segment.meta.tombstones for live in written):
        return delta
    rows, matches = _deleted_here(delta, state, beneath)
    return _RowsAgain(delta, rows, matches, beneath).delta() if len(rows) else delta


def _deleted_here(delta: Delta, state: TableState, beneath: TableState) -> tuple[Rows, Matches]:
    """Performs step 1: finds rows of the delta, and the stored row of each."""
    keys, _ = delta.keys(state.schema)
    rows, matches = find(state, keys)
    rows = rows[_signs(state, matches) == 1]
    chosen = pa.array(rows)
    places, matches = find(beneath, [key.take(chosen) for key in keys])
    lives = _signs(beneath, matches) == 0
    return rows[places[lives]], matches.take(lives)


def _signs(state: TableState, matches: Matches) -> npt.NDArray[np.int8]:
    signs: npt.NDArray[np.int8] = np.asarray(flat(state.take(matches, [DELETE_SIGN]).column(0)))
    return signs


class _RowsAgain:
    """Steps 2 to 4 for some rows of a delta."""

    def __init__(self, delta: Delta, rows: Rows, matches: Matches, beneath: TableState) -> None:
        self.before = delta
        self.schema = beneath.schema
        hidden = [SEQUENCE_COL] if self.schema.has_sequence else []
        hidden += [GROUPS_COL] if self.schema.groups else []
        names = [column.name for column in self.schema.value_columns]
        self.stored = beneath.take(matches, [*names, *hidden])
        self.is_deleted = np.zeros(len(delta), dtype=np.bool_)
        self.is_deleted[rows] = True
        self.place = np.zeros(len(delta), dtype=np.intp)
        self.place[rows] = np.arange(len(rows))

    def delta(self) -> Delta:
        """Returns the delta with whole rows."""
        delta = self.before
        cells = delta.cells()
        columns = {name: cells[name] for name in self.schema.key}
        supplied: dict[str, Mask] = {}
        for column in self.schema.value_columns:
            own = delta.supplies(column.name)
            added = self.is_deleted & ~own & self._is_there(column.name)
            if column.on_update_current_timestamp and not self.schema.groups:
                added[:] = False
            if not (own | added).any():
                continue
            columns[column.name] = self._cells(cells.get(column.name), column.name, added)
            if not (own | added).all():
                supplied[column.name] = own | added
        whole = replace(delta, rows=pa.table(columns), supplied=supplied)
        return self._with_sequence(whole) if self.schema.has_sequence else whole

    def _is_there(self, name: str) -> Mask:
        """Returns the rows whose stored row has the column's group."""
        numbers = [number for number, group in self.schema.column_groups.items() if name in group.columns]
        if not numbers:
            return np.ones(len(self.before), dtype=np.bool_)
        there = np.asarray(flat(self.stored.column(GROUPS_COL)))
        found: Mask = (there[self.place] & (np.int64(1) << np.int64(numbers[0]))) != 0
        return found

    def _cells(self, given: pa.Array | None, name: str, added: Mask) -> pa.Array:
        """Returns the cells of a column that were given, and for some rows the stored ones."""
        stored = flat(self.stored.column(name))
        own = pa.nulls(len(added), stored.type) if given is None else given
        if not added.any():
            return own
        return gathered([(~added, own, np.arange(len(own))), (added, stored, self.place)])

    def _with_sequence(self, delta: Delta) -> Delta:
        """Performs step 3: copies the sequence of the deleted row where a row supplies none."""
        own = delta.supplies_sequence()
        added = self.is_deleted & ~own
        sequence = self._cells(delta.sequence, SEQUENCE_COL, added)
        given = own | added
        return replace(delta, sequence=sequence, sequence_supplied=None if given.all() else given)
