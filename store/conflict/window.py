"""The window of a transaction: the commits of others on a table since the version it reads.

`Window.extend` walks the versions up to a head, one state after the other:

1. A version record has the operation, the label and the commit info of the transaction that made it.
2. The rows a version applied are the live rows of the segments it added; the rows before them are what the
   state before has under the same keys.
3. Where the attempt has neither predicates nor the whole table, only keys it looked up or writes are taken.

Rows are read on first use. Walking stops being done in detail when its time is used up: versions
left over are marked unresolved, which is a conflict, never a silent pass. A version whose record or files
are gone counts the same.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from seqstore.store.catalog import catalog
from seqstore.store.catalog.version_record import VersionRecord, read_version_record
from seqstore.store.conflict.conflict import Changes, CommittedTransaction, Lazy
from seqstore.store.conflict.read_set import (
    ALLOTTED_TIME_EXCEEDED,
    HISTORY_EXPIRED,
    NO_CODES,
    ReadLog,
    RecordedReads,
)
from seqstore.store.errors import CorruptionError, VersionExpiredError
from seqstore.store.read.lookup import find
from seqstore.store.read.table_state import StateLoader, TableState
from seqstore.store.schema.column import DELETE_SIGN
from seqstore.store.segment.key_codes import Codes
from seqstore.store.segment.key_index import Matches


class Window:
    """The committed transactions on one table, for one attempt.

    Args:
        base: the state the attempt reads.
        reads: its reads, which select the rows that are looked at.
        written: codes of the keys it writes.
        seconds: how long rows may be looked at, all calls together.
    """

    def __init__(
        self, loader: StateLoader, base: TableState, reads: ReadLog, written: Codes, seconds: float
    ) -> None:
        self._loader = loader
        self._base = base
        self._state = base
        self._reads = reads
        self._written = written
        self._seconds = seconds
        self.committed: list[CommittedTransaction] = []

    def extend(self, tx: catalog.CatalogTransaction, head: int) -> list[CommittedTransaction]:
        """Walks up to a version; returns all committed transactions so far."""
        started = time.monotonic()
        for version in range(self._state.version + 1, head + 1):
            record = read_version_record(tx, self._base.table_id, version)
            before = self._state
            try:
                self._state = self._loader.advance(tx, before, version)
                assert record is not None  # else the loader had no state of the version
                is_late = time.monotonic() - started >= self._seconds
                self.committed.append(self._committed(version, record, before, self._state, is_late=is_late))
            except (VersionExpiredError, CorruptionError):
                self.committed.append(_committed(version, record, unresolved=HISTORY_EXPIRED))
        self._seconds -= time.monotonic() - started
        return self.committed

    def _committed(
        self,
        version: int,
        record: VersionRecord,
        before: TableState,
        after: TableState,
        *,
        is_late: bool,
    ) -> CommittedTransaction:
        if record.removes_rows:
            return _committed(version, record, replaces_table=True)
        if not record.added or record.dropped:  # metadata, compaction
            return _committed(version, record)
        if is_late:
            return _committed(version, record, unresolved=ALLOTTED_TIME_EXCEEDED)
        changes, codes = self._changes(version, before, after)
        return _committed(version, record, changes=changes, all_codes=codes)

    def _changes(self, version: int, before: TableState, after: TableState) -> tuple[Changes, Codes]:
        codes, matches = _applied(version, after)
        chosen = matches
        wanted = codes
        if not self._reads.predicates and not self._reads.whole_table and not self._reads.fallback:
            keep = np.isin(codes, np.concatenate([self._reads.codes, self._written]))
            chosen, wanted = matches.take(keep), codes[keep]
        keys = after.take(chosen, after.schema.key)
        arrays = [column.combine_chunks() for column in keys.columns]
        is_live = _lives(after, chosen)
        entries, old = find(before, arrays) if len(chosen) else (np.empty(0, dtype=np.intp), chosen)
        was_live = np.zeros(len(chosen), dtype=np.bool_)
        was_live[entries] = _lives(before, old)
        in_snapshot = was_live
        if before.version != self._base.version and len(chosen):
            in_snapshot = np.zeros(len(chosen), dtype=np.bool_)
            places, first = find(self._base, arrays)
            in_snapshot[places] = _lives(self._base, first)
        images = (
            Lazy(lambda: (before.take(old, before.schema.names), entries)),
            Lazy(lambda: (after.take(chosen, after.schema.names), np.arange(len(chosen)))),
        )
        return Changes(
            wanted, was_live, is_live, in_snapshot, keys, lambda is_after: images[is_after].taken
        ), codes


def _committed(version: int, record: VersionRecord | None, **found: Any) -> CommittedTransaction:
    operation, label = (record.operation, record.label) if record is not None else ("", "")
    info = record.commit_info if record is not None else None
    if info is None:
        return CommittedTransaction(version, operation, label, False, version, **found)
    return CommittedTransaction(
        version,
        operation,
        label,
        info.is_blind,
        info.read_version,
        info.columns,
        RecordedReads.of(info.reads),
        tables=info.tables,
        **found,
    )


def _applied(version: int, after: TableState) -> tuple[Codes, Matches]:
    """Returns the codes and places of the rows a version applied."""
    codes: list[Codes] = []
    slots: list[Any] = []
    positions: list[Any] = []
    for slot, live in after.segments.items():
        if live.created != version:
            continue
        index = live.segment.index
        rows = index.row_positions(slice(None))
        alive = live.deletes.is_live(rows)
        codes.append(index.codes[alive])
        positions.append(rows[alive])
        slots.append(np.full(int(alive.sum()), slot, dtype=np.uint32))
    if not codes:
        return NO_CODES, Matches.none(False)
    places = np.concatenate(positions).astype(np.uint32)
    all_codes = np.concatenate(codes)
    return all_codes, Matches(np.arange(len(all_codes)), np.concatenate(slots), places, None)


def _lives(state: TableState, matches: Matches) -> Any:
    """Returns which matched rows are no tombstones."""
    used = {int(slot) for slot in np.unique(matches.slots)}
    if not any(state.segments[slot].segment.meta.tombstones for slot in used):
        return np.ones(len(matches), dtype=np.bool_)
    signs: pa.ChunkedArray = state.take(matches, [DELETE_SIGN]).column(0)
    return np.asarray(signs.combine_chunks()) == 0
