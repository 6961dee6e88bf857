"""The window of a transaction: the commits of others on a table since the version it reads.

`Window.extend` walks the versions up to a head, one state after the other:

1. A version record has the operation, the label and the commit info of the transaction that made it.
2. The rows a version applied are the live rows of the segments it added; the rows before them are what the
   state before has under the same keys.
3. Where the attempt has neither predicates nor the whole table, only keys it looked up or writes are taken.

All columns of rows are read where predicates test them, otherwise on first use. Walking stops being done in
detail when its time is used up: versions left over are marked unresolved, which is a conflict, never a silent
pass. A version whose record or files are gone counts the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.version_record import CommitInfo, VersionRecord, read_version_record
from seqstore.store.conflict.conflict import Changes, CommittedTransaction, Written
from seqstore.store.conflict.read_set import ALLOTTED_TIME_EXCEEDED, HISTORY_EXPIRED, NO_CODES, Mask, ReadLog
from seqstore.store.errors import CorruptionError, VersionExpiredError
from seqstore.store.read.lookup import find
from seqstore.store.read.table_state import StateLoader, TableState
from seqstore.store.schema.column import DELETE_SIGN
from seqstore.store.segment.dedupe import equal_keys
from seqstore.store.segment.key_codes import Codes, prove_keys
from seqstore.store.segment.key_index import Matches

_NO_PLACES: Final = np.empty(0, dtype=np.uint32)


class Window:
    """The committed transactions on one table, for one attempt.

    Args:
        base: the state the attempt reads.
        reads: its reads, which select the rows that are looked at.
        written: the keys it writes.
        seconds: how long rows may be looked at, all calls together.
    """

    def __init__(
        self,
        loader: StateLoader,
        base: TableState,
        reads: ReadLog,
        written: Sequence[Written],
        seconds: float,
    ) -> None:
        self._loader = loader
        self._base = base
        self._state = base
        self._reads = reads
        self._seconds = seconds
        self._wanted: Codes | None = None  # None means all keys
        if base.schema.row_level and not (reads.predicates or reads.whole_table or reads.fallback):
            self._wanted = np.concatenate([NO_CODES, *reads.keys, *(part.codes for part in written)])
        hidden = {name for predicate in reads.predicates for name in predicate.hidden}
        fields = base.schema.hidden_fields() if hidden else []
        self._tested = [*base.schema.names, *(field.name for field in fields if field.name in hidden)]
        self.committed: list[CommittedTransaction] = []

    def extend(self, tx: CatalogTransaction, head: int) -> list[CommittedTransaction]:
        """Walks up to a version; returns all committed transactions so far."""
        started = time.monotonic()
        for version in range(self._state.version + 1, head + 1):
            record = read_version_record(tx, self._base.table_id, version)
            before, found = self._state, {}
            try:
                self._state = self._loader.advance(tx, before, version, record)
                assert record is not None  # else the loader had no state of the version
                is_late = time.monotonic() - started >= self._seconds
                found = self._found(version, record, before, is_late=is_late)
            except (VersionExpiredError, CorruptionError):
                found = {"unresolved": HISTORY_EXPIRED}
            operation, label = (record.operation, record.label) if record is not None else ("", "")
            info = record.commit_info if record is not None else None
            info = info or CommitInfo(is_blind=False, read_version=version)
            self.committed.append(CommittedTransaction(version, operation, label, info, **found))
        self._seconds -= time.monotonic() - started
        return self.committed

    def _found(
        self, version: int, record: VersionRecord, before: TableState, *, is_late: bool
    ) -> dict[str, Any]:
        """Returns the fields of `CommittedTransaction` that tell the rows of a version."""
        after = self._state
        if after.replaced == version and record.removes_rows:
            return {"replaces_table": True}
        if not record.added or record.dropped:  # metadata, compaction
            return {}
        if is_late:
            return {"unresolved": ALLOTTED_TIME_EXCEEDED}
        if after.replaced == version:  # loaded as a whole: the records of versions before are gone
            return {"unresolved": HISTORY_EXPIRED}
        codes, slots, positions = _applied(after)
        if self._wanted is None:
            return {"changes": self._changes(before, codes, slots, positions), "all_codes": codes}
        keep = np.isin(codes, self._wanted)
        changes = self._changes(before, codes[keep], slots[keep], positions[keep])
        return {"changes": changes, "all_codes": codes}

    def _changes(self, before: TableState, codes: Codes, slots: Any, positions: Any) -> Changes:
        """Reads the applied rows and, behind them, those that the state before has under their keys.

        The state after has the segments of both, under the same slots.
        """
        after, count = self._state, len(codes)
        key, names = list(after.schema.key), after.schema.names
        has_tombstones = any(live.segment.meta.tombstones for live in after.segments.values())
        order = np.argsort(codes)
        old = before.probe(codes[order]) if count else Matches.none(with_sequence=False)
        entries = np.concatenate([np.arange(count), order[old.probe_keys]])
        both = Matches(
            entries,
            np.concatenate([slots, old.slots]),
            np.concatenate([positions, old.positions]),
            None,
        )
        read = [*dict.fromkeys([*self._tested, *key])] if self._reads.predicates else [*key]
        read += [DELETE_SIGN] if has_tombstones and DELETE_SIGN not in read else []
        taken = after.take(both, read)
        if not prove_keys(codes, after.schema.key_columns):
            keys = taken.select(key).columns
            same = equal_keys(keys, entries, keys, None)
            both, taken, entries = both.take(same), taken.filter(pa.array(same)), entries[same]
        alive = np.ones(len(entries), dtype=np.bool_)
        if has_tombstones:
            alive = np.asarray(taken.column(DELETE_SIGN).combine_chunks()) == 0
        was_live = np.zeros(count, dtype=np.bool_)
        was_live[entries[count:]] = alive[count:]
        keys = taken.select(key).slice(0, count)
        in_snapshot = was_live if before is self._base else self._in_snapshot(keys)

        @cache
        def rows() -> pa.Table:
            return taken.select(self._tested) if self._reads.predicates else after.take(both, names)

        return Changes(codes, was_live, alive[:count], in_snapshot, keys, rows, entries)

    def _in_snapshot(self, keys: pa.Table) -> Mask:
        found = np.zeros(len(keys), dtype=np.bool_)
        if len(keys):
            entries, matches = find(self._base, [column.combine_chunks() for column in keys.columns])
            signs = self._base.take(matches, [DELETE_SIGN]).column(0)
            found[entries[np.asarray(signs.combine_chunks()) == 0]] = True
        return found


def _applied(after: TableState) -> tuple[Codes, Any, Any]:
    """Returns the codes, slots and positions of the rows that a version applied."""
    codes: list[Codes] = [NO_CODES]
    slots, positions = [_NO_PLACES], [_NO_PLACES]
    for slot, live in after.segments.items():
        if live.created != after.version:
            continue
        index = live.segment.index
        rows = index.row_positions(slice(None))
        alive = live.deletes.is_live(rows)
        codes.append(index.codes[alive])
        positions.append(rows[alive])
        slots.append(np.full(len(positions[-1]), slot, dtype=np.uint32))
    return np.concatenate(codes), np.concatenate(slots), np.concatenate(positions)
