"""Rows of one version that another version of the same table does not have.

A row is identified by its key and the version that wrote it. Live rows of a file that both versions use need
no look-up; rows of other files, such as a compaction's, are looked up by their keys.
"""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.lookup import find
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.column import DELETE_SIGN, VERSION_COL
from seqstore.store.segment.key_index import Matches


def rows_lost(now: TableState, then: TableState) -> int:
    """Counts the rows of `now` that `then` lacks, or has as another version of the row."""
    known = {live.segment.meta.file_id: live for live in then.segments.values()}
    return sum(
        _lost_of(now, then, live, known.get(live.segment.meta.file_id)) for live in now.segments.values()
    )


def _lost_of(now: TableState, then: TableState, live: LiveSegment, same: LiveSegment | None) -> int:
    positions = np.arange(live.segment.rows, dtype=np.uint32)
    positions = positions[live.deletes.is_live(positions)]
    if same is not None:
        positions = positions[~same.deletes.is_live(positions)]
    if not len(positions):
        return 0
    slots = np.full(len(positions), live.slot, dtype=np.uint32)
    rows = now.take(
        Matches(np.arange(len(positions)), slots, positions, None),
        [*now.schema.key, DELETE_SIGN, VERSION_COL],
    )
    rows = rows.filter(pc.equal(rows.column(DELETE_SIGN), 0))
    if not len(rows):
        return 0
    keys = [rows.column(name).combine_chunks() for name in now.schema.key]
    entries, matches = find(then, keys)
    found = then.take(matches, [DELETE_SIGN, VERSION_COL])
    is_same = (found.column(DELETE_SIGN).to_numpy() == 0) & (
        found.column(VERSION_COL).to_numpy() == rows.column(VERSION_COL).to_numpy()[entries]
    )
    return len(rows) - int(is_same.sum())
