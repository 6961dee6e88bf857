"""The figures of a table that overviews show: what it holds, and what arrived in the last minute."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog.version_record import newest_version_records

if TYPE_CHECKING:
    from seqstore.store.table import Table

_RECENT_MS: Final = 60_000
_RECENT_MAX: Final = 1_000
_CREATION: Final = 1  # the version of CREATE TABLE


@dataclass(frozen=True)
class RecentLoads:
    """The versions of the last minute that changed data; at most the newest thousand are counted.

    Attributes:
        loads: their number.
        rows: rows that they loaded, late ones included.
        late: rows that lost against a larger sequence.
        filtered: rows that were rejected.
        changed_ms: the time of the newest version, however old, in milliseconds since 1970.
    """

    loads: int = 0
    rows: int = 0
    late: int = 0
    filtered: int = 0
    changed_ms: int = 0


@dataclass(frozen=True)
class TableFigures:
    """One table at its newest version; sizes in bytes on the disk."""

    rows: int
    data_bytes: int
    segments: int
    version: int
    oldest_version: int
    is_duplicate: bool
    recent: RecentLoads


def table_figures(table: Table) -> TableFigures:
    """Returns the figures of a table.

    Raises:
        NotFoundError: it was dropped meanwhile.
    """
    state = table.state()
    segments = state.segments.values()
    return TableFigures(
        rows=state.row_count,
        data_bytes=sum(live.segment.meta.data_bytes + live.segment.meta.keys_bytes for live in segments),
        segments=len(segments),
        version=state.version,
        oldest_version=table.oldest_version,
        is_duplicate=state.schema.is_duplicate,
        recent=_recent_loads(table),
    )


def _recent_loads(table: Table) -> RecentLoads:
    since = time.time_ns() // 1_000_000 - _RECENT_MS
    loads = rows = late = filtered = changed_ms = 0
    with table.catalog.read() as tx:
        for version, record in islice(newest_version_records(tx, table.id), _RECENT_MAX):
            changed_ms = changed_ms or record.time_ms
            if record.time_ms < since:
                break
            if version == _CREATION or not record.has_data_change:
                continue
            metrics = record.metrics
            loads += 1
            rows += metrics.rows_loaded
            late += metrics.rows_late + metrics.rows_too_late
            filtered += metrics.rows_filtered
    return RecentLoads(loads, rows, late, filtered, changed_ms)
