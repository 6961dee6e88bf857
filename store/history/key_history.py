"""The history of one key: the loads that wrote it, their sequences, and the outcome of each write with its
reason.

A load also stores the rows that lose, hidden from the start. The history is therefore exact as far back as
versions can be read:

1. Find the key's rows in every segment of any version. A row that a compaction or a restore moved is the same
   row: its row version identifies it. The key is converted for segments with other key columns.
2. At each version that wrote the key (and at each restore) find the row that counts.
3. Report for every write whether it counted, until when, and the deciding rule: sequence, tie, delete, or
   lateness.

Losing rows that a compaction removed long ago are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.kept_versions import KeptVersions, whole_versions
from seqstore.store.catalog.version_record import read_hidden, read_version_record, version_records
from seqstore.store.errors import InvalidInputError
from seqstore.store.read.live_segment import LiveSegment, Projection
from seqstore.store.read.lookup import key_arrays
from seqstore.store.read.snapshot import as_table
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.html_table import html_table
from seqstore.store.schema.column import DELETE_SIGN, SEQUENCE_COL, VERSION_COL, initial_values
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.dedupe import equal_keys
from seqstore.store.segment.delete_bitmap import DeleteVector, chain
from seqstore.store.segment.key_codes import encode_keys, have_same_codes
from seqstore.store.segment.key_index import Run
from seqstore.store.segment.segment import Segment
from seqstore.store.types.type_changes import convert

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

LIVE: Final = "live"
REPLACED: Final = "replaced"
DELETED: Final = "deleted"
TOMBSTONE: Final = "tombstone"
LATE: Final = "late"
SUPERSEDED: Final = "superseded"
TOO_LATE: Final = "too late"


@dataclass(frozen=True)
class KeyEvent:
    """One write of a key.

    Attributes:
        version, timestamp (UTC), operation, label, txn_id: the load that wrote it; no time if its record is
        gone.
        sequence: of the row, None without one.
        outcome: `live`; `replaced` or `deleted` by a later write; `tombstone` (it deleted the key); `late` (a
            stored row had a larger sequence); `superseded` (another row of its load was later); `too late`
            (below the tombstone watermark).
        until: the version that ended it, None while it counts or if it never did.
        explanation: the same in a sentence.
        row: its visible columns, those of a tombstone only by key.
    """

    version: int
    timestamp: datetime | None
    operation: str
    label: str
    txn_id: int
    sequence: Any
    outcome: str
    until: int | None
    explanation: str
    row: Mapping[str, Any]


class KeyHistory(list[KeyEvent]):
    """The writes of a key, oldest first; a notebook shows them as a table."""

    def _repr_html_(self) -> str:
        headings = [
            "version",
            "time (UTC)",
            "outcome",
            "explanation",
            "sequence",
            "operation",
            "label",
            "row",
        ]
        rows = (
            (
                str(each.version),
                f"{each.timestamp:%Y-%m-%d %H:%M:%S}" if each.timestamp is not None else None,
                each.outcome,
                each.explanation,
                None if each.sequence is None else str(each.sequence),
                each.operation,
                each.label,
                dict(each.row),
            )
            for each in self
        )
        return html_table("history of the key", headings, rows)


@dataclass(frozen=True)
class _Place:
    """The place of a row: a segment, the versions that have it, and the position."""

    segment: str
    created: int
    dropped: int
    position: int


@dataclass
class _Write:
    """One written row."""

    version: int
    sequence: Any
    sign: int
    row: dict[str, Any]
    places: list[_Place]


def key_history(table: VersionedTable, key: Mapping[str, Any]) -> KeyHistory:
    """Returns the outcome of every write of a key, oldest first; see the module."""
    state, lease = table.hold()
    arrays = key_arrays(state, as_table({name: [value] for name, value in key.items()}))
    with table.catalog.read() as tx:
        whole = whole_versions(tx, table.id)
        writes = _writes(table, tx, state, arrays)
        moments = {whole.first, state.version, *(write.version for write in writes)}
        moments |= {number for number, record in version_records(tx, table.id) if record.is_restore}
        kept = {whole.following(version) for version in moments}  # of others the delete bitmaps are gone
        outcomes = _Outcomes(table, tx, writes, whole, sorted(kept))
        events = KeyHistory(outcomes.event(write) for write in writes)
    lease.release()
    return events


def _writes(
    table: VersionedTable, tx: CatalogTransaction, state: TableState, arrays: list[pa.Array]
) -> list[_Write]:
    """Runs step 1."""
    originals: list[_Write] = []
    moved: dict[int, list[tuple[_Write, _Place]]] = {}
    code = encode_keys(arrays, exact=state.schema.has_exact_key)
    for stored_key, record in tx.records("segments", catalog.table_key(table.id)):
        segment = table.loader.segment(tx, stored_key[8:].decode(), record)
        for position in _positions(state.schema, segment, code, arrays):
            place = _Place(segment.meta.id, record["created"], record["dropped"], position)
            write = _read(
                state, LiveSegment(0, segment, record["created"], DeleteVector(segment.rows)), place
            )
            if write.version == record["created"] and not segment.meta.file:
                originals.append(write)
            else:
                moved.setdefault(write.version, []).append((write, place))
    for version, copies in moved.items():
        # A moved row was a winner: it is the last of several rows of its version.
        same = [w for w in originals if w.version == version and w.sequence == copies[0][0].sequence]
        if same:
            same[-1].places += [place for _, place in copies]
        else:
            copies[0][0].places += [place for _, place in copies[1:]]
            originals.append(copies[0][0])
    return sorted(originals, key=lambda write: (write.version, write.places[0].segment))


def _positions(schema: TableSchema, segment: Segment, code: Any, arrays: list[pa.Array]) -> list[int]:
    """Returns the places of the key in a segment: at most one, apart from hash collisions."""
    if not have_same_codes(segment.schema.key_columns, schema.key_columns):
        return _converted_positions(schema, segment, arrays)
    found = Run(segment.index, 0).probe(code)
    if found is None:
        return []
    names = [column.name for column in segment.schema.key_columns]
    stored = segment.take(found.positions, names)
    same = equal_keys(arrays, found.probe_keys, stored.columns, None)
    return [int(position) for position in found.positions[same]]


def _converted_positions(schema: TableSchema, segment: Segment, arrays: list[pa.Array]) -> list[int]:
    """Returns the places of the key in a segment with other key columns, whose index has other codes."""
    known = {column.id: column for column in segment.schema.columns}
    found = []
    for number in range(segment.batches):
        batch = segment.batch(number)
        same = pa.repeat(True, batch.num_rows)
        for column, wanted in zip(schema.key_columns, arrays, strict=True):
            old = known.get(column.id)
            if old is None:
                values = initial_values(column, batch.num_rows)
            else:
                cast = convert(batch.column(old.name), old.type, column.type)
                values = cast.values
                same = same if cast.failed is None else pc.and_not(same, cast.failed)
            equal = pc.equal(values, wanted[0]) if wanted[0].is_valid else pc.is_null(values)
            same = pc.and_(same, pc.fill_null(equal, False))
        found += (np.flatnonzero(np.asarray(same)) + number * segment.meta.batch_rows).tolist()
    return found


def _read(state: TableState, live: LiveSegment, place: _Place) -> _Write:
    """Reads one row; by the columns that it was written with where its values do not fit today's."""
    try:
        return _read_as(state.schema, live, place)
    except InvalidInputError:
        return _read_as(live.segment.schema, live, place)


def _read_as(schema: TableSchema, live: LiveSegment, place: _Place) -> _Write:
    names = [*schema.names, DELETE_SIGN, VERSION_COL]
    names += [SEQUENCE_COL] if schema.has_sequence else []
    positions = np.array([place.position], dtype=np.uint32)
    row = live.take(positions, Projection(schema, tuple(names))).to_pylist()[0]
    sign, version, sequence = row.pop(DELETE_SIGN), row.pop(VERSION_COL), row.pop(SEQUENCE_COL, None)
    visible = {name: row[name] for name in (schema.key if sign else schema.names)}
    return _Write(version, sequence, sign, visible, [place])


class _Outcomes:
    """Runs steps 2 and 3."""

    def __init__(
        self,
        table: VersionedTable,
        tx: CatalogTransaction,
        writes: list[_Write],
        whole: KeptVersions,
        moments: list[int],
    ) -> None:
        self._table = table
        self._tx = tx
        self._moments = moments
        self._whole = whole
        self._winners = {
            version: next((write for write in writes if self._counts(write, version)), None)
            for version in self._moments
        }

    def _counts(self, write: _Write, version: int) -> bool:
        return any(
            place.created <= version
            and not 0 < place.dropped <= version
            and not self._is_hidden(place, version)
            for place in write.places
        )

    def _is_hidden(self, place: _Place, version: int) -> bool:
        for number in chain(version):
            rows = read_hidden(self._tx, self._table.id, number).get(place.segment)
            if rows is not None and place.position in rows:
                return True
        return False

    def event(self, write: _Write) -> KeyEvent:
        record = read_version_record(self._tx, self._table.id, write.version)
        time, operation, label, txn_id = None, "", "", 0
        if record is not None:
            time = datetime.fromtimestamp(record.time_ms / 1000, UTC)
            operation, label, txn_id = record.operation, record.label, record.txn_id
        outcome = self._outcome(write)
        return KeyEvent(write.version, time, operation, label, txn_id, write.sequence, *outcome, write.row)

    def _outcome(self, write: _Write) -> tuple[str, int | None, str]:
        first = next((v for v in self._moments if v >= write.version), None)
        counted = [v for v in self._moments if self._winners[v] is write]
        if not counted and write.version in self._whole and first is not None:
            return self._lost(write, self._winners[first])
        end = next((v for v in self._moments if counted and v > counted[-1]), None)
        if not counted and first is not None and first > self._whole.first:
            return REPLACED, None, f"replaced before version {first}; those in between were thinned out"
        if not counted:
            return REPLACED, None, "replaced before the oldest version that can be read"
        if end is None:
            if write.sign:
                return TOMBSTONE, None, "deleted the key; nothing newer came since"
            return LIVE, None, "counts"
        return self._ended(write, end)

    def _lost(self, write: _Write, winner: _Write | None) -> tuple[str, int | None, str]:
        mine = _sequence_text(write.sequence)
        if winner is None:
            why = f"too late: sequence {mine} is older than what is remembered of deleted keys"
            return TOO_LATE, None, why
        theirs = _sequence_text(winner.sequence)
        if winner.version == write.version:
            if winner.sequence == write.sequence:
                return SUPERSEDED, None, f"a later row of the same load has the same sequence {theirs}"
            return SUPERSEDED, None, f"another row of the same load has sequence {theirs}"
        what = "deleted the key" if winner.sign else "is stored"
        why = f"late: sequence {mine} is smaller than {theirs}, which {what} since version {winner.version}"
        return LATE, None, why

    def _ended(self, write: _Write, end: int) -> tuple[str, int | None, str]:
        winner = self._winners[end]
        if winner is None:
            return DELETED, end, f"gone with version {end}, which removed rows as a whole"
        if winner.version < end and self._whole.following(winner.version) == end:
            end = winner.version  # it was thinned out
        if winner.version != end:
            return REPLACED, end, f"version {end} restored the row of version {winner.version}"
        why = f"sequence {_sequence_text(winner.sequence)}"
        if winner.sequence == write.sequence:
            why = "later version" if winner.sequence is None else f"same {why}, later version"
        if winner.sign:
            return DELETED, end, f"deleted by version {end} ({why})"
        return REPLACED, end, f"replaced by version {end} ({why})"


def _sequence_text(sequence: Any) -> str:
    return "NULL" if sequence is None else str(sequence)
