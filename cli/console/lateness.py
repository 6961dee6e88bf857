"""How late rows arrive: the time of their load minus the date or time in their sequence column.

Rows that lost are stored beside those that won, so both are counted, as far back as the newest segments go
that no compaction has merged. The sequence column must be mapped, and be a DATE or DATETIME; its values are
taken as UTC.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog.version_record import read_version_record
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime import cancellation
from seqstore.store.schema.column import VERSION_COL
from seqstore.store.table import Table

_ROWS_MAX: Final = 200_000
# Upper ends of the bars in seconds, and what they are called.
_BARS: Final = (
    (0, "early"),
    (1, "< 1 s"),
    (10, "< 10 s"),
    (60, "< 1 min"),
    (600, "< 10 min"),
    (3_600, "< 1 h"),
    (21_600, "< 6 h"),
    (86_400, "< 1 d"),
    (604_800, "< 7 d"),
    (2_592_000, "< 30 d"),
)
_LAST: Final = "30 d or more"


def lateness(table: Table) -> dict[str, Any]:
    """Returns rows by lateness, those that count and those that lost, or why it is unknown."""
    state, lease = table.hold()  # no clean-up removes its files meanwhile
    try:
        return _lateness(table, state)
    finally:
        lease.release()


def _lateness(table: Table, state: TableState) -> dict[str, Any]:
    schema = state.schema
    name = schema.sequence_column
    column = schema.find(name) if name else None
    if column is None:
        return {"reason": "the table has no sequence column that is one of its columns"}
    if not pa.types.is_temporal(column.type.arrow):
        return {"reason": f"the sequence column {column.name} is {column.type.sql}, no DATE or DATETIME"}
    names = [label for _, label in _BARS] + [_LAST]
    counted = np.zeros((2, len(names)), dtype=np.int64)
    ends = np.array([seconds for seconds, _ in _BARS], dtype=np.float64)
    rows = 0
    newest = sorted(state.segments.values(), key=lambda live: -live.created)
    with table.catalog.read() as tx:
        for live in newest:
            meta = live.segment.meta
            record = read_version_record(tx, table.id, live.created)
            is_original = VERSION_COL not in meta.hidden and not meta.written and not meta.file
            if record is None or not record.has_data_change or not is_original:
                continue
            if column.name not in live.segment.schema.names or rows >= _ROWS_MAX:
                continue
            rows += _count(live, column.name, record.time_ms, ends, counted)
    return {
        "column": column.name,
        "rows": rows,
        "bars": names,
        "counted": counted[0].tolist(),
        "lost": counted[1].tolist(),
        "is_cut": rows >= _ROWS_MAX,
    }


def _count(
    live: LiveSegment, name: str, time_ms: int, ends: np.ndarray[Any, Any], counted: np.ndarray[Any, Any]
) -> int:
    """Adds the rows of a segment to the bars; returns their number."""
    rows = 0
    for number in range(live.segment.batches):
        cancellation.check()
        values = live.segment.batch(number, [name]).column(0)
        if not pa.types.is_temporal(values.type):
            return rows  # before a change of its type
        stamps = values.cast(pa.timestamp("ms"), safe=False)
        known = np.asarray(pc.is_valid(stamps))
        late = (time_ms - np.asarray(pc.fill_null(stamps.cast(pa.int64()), 0))) / 1000
        mask = live.live_rows(number, deleted=True)
        wins = np.ones(len(known), dtype=bool) if mask is None else np.asarray(mask)
        bars = np.searchsorted(ends, late, side="right")
        for line, chosen in enumerate((known & wins, known & ~wins)):
            counted[line] += np.bincount(bars[chosen], minlength=counted.shape[1])
        rows += int(known.sum())
    return rows
