"""The state of a table at one version, as one immutable value in memory.

Readers and writers work on a `TableState`: the segments that are live at the version, their hidden rows, and
the runs that keys are probed in. It is loaded from the catalog, or advanced from an earlier state by the
versions committed since:

1. Segments that a version dropped leave the state; those that it added join it. Each has a slot, a small
   number that matches refer to.
2. Rows that a version hid are hidden in the delete vectors of their segments (vectors are copied, never
   changed).
3. Runs are built at the first probe: each new segment adds one, and small ones are merged. After a version
   that dropped segments all runs are rebuilt.

A state that is far behind is loaded anew instead, for less than reading each version in between.

One short transaction reads the catalog; segment files are opened later, when rows are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import lost_record
from seqstore.store.catalog.horizon import read_watermark
from seqstore.store.catalog.kept_versions import all_whole_from, whole_versions
from seqstore.store.catalog.version_chain import require_newest
from seqstore.store.catalog.version_record import (
    VersionRecord,
    read_hidden,
    read_version_record,
    require_segments,
)
from seqstore.store.errors import CorruptionError, VersionExpiredError
from seqstore.store.read.live_segment import LiveSegment, Projection
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.runtime.workers import pool
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.delete_bitmap import (
    DeleteVector,
    HiddenRows,
    are_live,
    chain,
    positions_of,
    unite,
)
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.key_codes import Codes
from seqstore.store.segment.key_index import Matches, Positions, Rows, Run, merge_runs, places_in, probe_runs
from seqstore.store.segment.segment import INLINE, Segment, SegmentMeta
from seqstore.store.segment.sequence import SequenceVector

_PARALLEL_ROWS: Final = 10_000
_AHEAD_ROWS_MIN: Final = 10_000
_AHEAD_BYTES_MAX: Final = 64 << 20  # of a segment: one of a load, or of a few
_TASK_ROWS: Final = 1_000  # a thread costs more than it saves for fewer rows of a segment
_STEPS_MAX: Final = 1_000  # versions read one by one, unless the catalog has many more segments than those
_SEGMENTS_A_STEP: Final = 8  # the records of so many segments are read in the time of one version


class StateIdentity(NamedTuple):
    """What tells the rows of a state from all others in this process.

    Attributes:
        table: its directory and number; None for a state without rows.
        rows: the version, the revision of the schema, and segments with the number of their live rows.
    """

    table: object
    rows: tuple[int, int, tuple[tuple[str, int], ...]]

    @property
    def live_rows(self) -> int:
        """The number of live rows, tombstones included."""
        return sum(count for _, count in self.rows[2])


@dataclass(frozen=True)
class TableState:
    """A table at one version. Compare `version` only between states of one table.

    Attributes:
        replaced: the last known version that removed rows other than by newer rows (TRUNCATE, RESTORE); row
            versions do not show the changes since an earlier version.
        watermark: the tombstone watermark: rows below it whose key is not stored are too late
            (publish.tombstones).
    """

    table_id: int
    version: int
    schema: TableSchema
    segments: Mapping[int, LiveSegment]
    prior_runs: tuple[Run, ...]
    fresh: tuple[int, ...]
    next_slot: int
    replaced: int = 0
    watermark: int | None = None

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The runs to probe: those of an earlier state and those of the slots since, merged.

        Runs without a live row are omitted. Opens key indexes.
        """
        prior = [run for run in self.prior_runs if any(map(self._has_live, run.members))]
        fresh = [self._run(slot) for slot in self.fresh if self._has_live(slot)]
        return merge_runs((*prior, *fresh), self.is_live)

    def _has_live(self, slot: int) -> bool:
        live = self.segments.get(slot)
        return live is not None and live.deletes.live_count > 0

    def _run(self, slot: int) -> Run:
        """Returns the run of a segment; one older than the sequence has NULL for every row (SD10, SD11)."""
        index = self.segments[slot].segment.index
        if self.schema.has_sequence and index.sequence is None:
            index = replace(index, sequence=SequenceVector.nulls(len(index)))
        return Run(index, slot)

    @cached_property
    def has_tombstones(self) -> bool:
        """Whether a segment holds tombstones, live or not."""
        return any(live.segment.meta.tombstones for live in self.segments.values())

    @cached_property
    def slot_of(self) -> dict[str, int]:
        return {live.segment.meta.id: slot for slot, live in self.segments.items()}

    @cached_property
    def identity(self) -> StateIdentity:
        """What tells these rows from all others in this process."""
        lives = [live for live in self.segments.values() if live.deletes.live_count]
        table = (*lives[0].segment.place, self.table_id) if lives else None
        segments = tuple([(live.segment.meta.file_id, live.deletes.live_count) for live in lives])
        return StateIdentity(table, (self.version, self.schema.revision, segments))

    @property
    def row_count(self) -> int:
        """The number of rows that readers see."""
        return sum(live.deletes.live_count - live.live_tombstones for live in self.segments.values())

    def is_live(self, slots: npt.NDArray[np.uint32], positions: Positions) -> npt.NDArray[np.bool_]:
        """Returns which rows, given by slot and position, count at this version; tombstones do."""
        if len(self.segments) == 1 or not len(slots):
            only = next(iter(self.segments.values()), None)
            return only.deletes.is_live(positions) if only else np.zeros(len(slots), dtype=np.bool_)
        if len(slots) == 1:
            one = self.segments.get(int(slots[0]))
            return one.deletes.is_live(positions) if one else np.zeros(1, dtype=np.bool_)
        found, bounds, order = grouped_by_slot(slots)
        segments = [self.segments.get(slot) for slot in found]
        vectors = [None if live is None else live.deletes for live in segments]
        if order is None:
            return are_live(vectors, bounds, positions)
        result = np.empty(len(slots), dtype=np.bool_)
        result[order] = are_live(vectors, bounds, positions[order])
        return result

    def probe(self, codes: Codes, *, with_sequence: bool = True) -> Matches:
        """Returns live rows, tombstones included, whose key code is among some ascending codes.

        Equal codes of hashed keys are candidates only; compare the keys.

        Args:
            with_sequence: the matches have the rows' sequences, in tables with one.
        """
        found = probe_runs(self.runs, codes, with_sequence=with_sequence and self.schema.has_sequence)
        if not len(found):
            return found
        live = self.is_live(found.slots, found.positions)
        return found if live.all() else found.take(live)

    def since(self, before: TableState) -> TableState:
        """Returns this version with only those segments that an earlier state does not have.

        States that were loaded apart give one segment different slots, so ids are compared.
        """
        slots = [slot for slot, live in self.segments.items() if live.segment.meta.id not in before.slot_of]
        return self.with_only(slots)

    def has_all_of(self, before: TableState) -> bool:
        """Returns whether no segment of an earlier state has left."""
        return before.slot_of.keys() <= self.slot_of.keys()

    def with_schema(self, schema: TableSchema) -> TableState:
        """Returns this version as of a revision that leaves its rows as they are."""
        slots = self.slot_of
        return _grown(self, self.version, schema, self.segments, slots, self.next_slot, self.replaced)

    def arrived_after(self, version: int) -> TableState:
        """Returns this version with only those segments that were added after an earlier one."""
        return self.with_only([slot for slot, live in self.segments.items() if live.created > version])

    def with_only(self, slots: Sequence[int]) -> TableState:
        """Returns this version with only some of its segments."""
        segments = {slot: self.segments[slot] for slot in slots}
        return replace(self, segments=segments, prior_runs=(), fresh=tuple(slots))

    def after_load(
        self, version: int, staged: Sequence[Segment], hidden: Mapping[str, Positions]
    ) -> TableState:
        """Returns the state after a load, without access to the catalog.

        Args:
            hidden: rows that the load hides, all of them live before it.
        """
        segments = dict(self.segments)
        slot_of = dict(self.slot_of)
        for slot, segment in enumerate(staged, self.next_slot):
            segments[slot] = LiveSegment(slot, segment, version, DeleteVector(segment.rows))
            slot_of[segment.meta.id] = slot
        for segment_id, positions in hidden.items():
            slot = slot_of[segment_id]
            live = segments[slot]
            deletes = live.deletes.hide(positions, all_live=True)
            segments[slot] = LiveSegment(slot, live.segment, live.created, deletes)
        next_slot = self.next_slot + len(staged)
        return _grown(self, version, self.schema, segments, slot_of, next_slot, self.replaced)

    def will_take(self, count: int) -> None:
        """Has the system read those segments ahead of which `take` of so many rows needs most pages."""
        if count < _AHEAD_ROWS_MIN:
            return
        for live in self.segments.values():
            if live.deletes.live_count:
                live.segment.will_read(_AHEAD_BYTES_MAX)

    def take(self, matches: Matches, names: Sequence[str]) -> pa.Table:
        """Returns columns of matched rows, hidden ones too, by this state's names; see `rows`."""
        return self.rows(matches, Projection(self.schema, tuple(names)))

    def rows(self, matches: Matches, projection: Projection, order_by: Rows | None = None) -> pa.Table:
        """Returns the projection's columns of matched rows.

        Args:
            order_by: a number for each match, by which rows are ordered; None for the order of the matches.
        """
        groups = rows_by_slot(matches.slots)
        if not groups:
            return projection.arrow.empty_table()
        if len(groups) == 1:
            taken, order = self.segments[groups[0][0]].take(matches.positions, projection), groups[0][1]
        else:  # ascending positions are read batch by batch; the order is restored once, at the end
            groups = [(slot, rows[np.argsort(matches.positions[rows])]) for slot, rows in groups]
            order = np.concatenate([rows for _, rows in groups])
            segments = [self.segments[slot] for slot, _ in groups]
            positions = [matches.positions[rows] for _, rows in groups]
            shared = len(order) - max(map(len, positions))  # beside the largest group
            is_large = shared >= max(_PARALLEL_ROWS // 2, _TASK_ROWS * (len(groups) - 1))
            in_turn = pool().map if is_large else map
            parts = in_turn(LiveSegment.take, segments, positions, repeat(projection))
            taken = pa.concat_tables(list(parts)).combine_chunks()
        wanted = order if order_by is None else order_by[order]
        if (wanted[1:] >= wanted[:-1]).all():
            return taken
        back = places_in(order) if order_by is None else np.argsort(wanted, kind="stable")
        return taken.take(pa.array(back))


def _grown(
    state: TableState,
    version: int,
    schema: TableSchema,
    segments: Mapping[int, LiveSegment],
    slot_of: dict[str, int],
    next_slot: int,
    replaced: int,
) -> TableState:
    """Returns a later state with all the segments of an earlier one and some more; existing runs are kept."""
    added = range(state.next_slot, next_slot)
    prior, fresh = state.prior_runs, (*state.fresh, *added)
    if "runs" in state.__dict__:
        prior, fresh = state.runs, tuple(added)
    grown = TableState(
        state.table_id, version, schema, segments, prior, fresh, next_slot, replaced, state.watermark
    )
    grown.__dict__["slot_of"] = slot_of  # already known, and costs a walk over the segments
    return grown


def _hide(segments: dict[int, LiveSegment], slot_of: Mapping[str, int], hidden: HiddenRows) -> None:
    """Hides rows in the delete vectors of those segments that are there."""
    for segment_id, rows in hidden.items():
        slot = slot_of.get(segment_id)
        if slot is not None:
            live = segments[slot]
            segments[slot] = replace(live, deletes=live.deletes.hide(positions_of(rows)))


def _unknown_segment(table_id: int, version: int, segment_id: str) -> CorruptionError:
    key = catalog.version_key(table_id, version)
    return lost_record("versions", key, f"drops segment {segment_id}, which the version before does not have")


def grouped_by_slot(slots: npt.NDArray[np.uint32]) -> tuple[list[int], list[int], Rows | None]:
    """Groups rows by slot.

    Returns:
        The slots, the bounds of the rows of each, one more than slots, and the rows in this order, ascending
        within each slot; None for the order as it is.
    """
    order = None
    if not (slots[1:] >= slots[:-1]).all():
        # NumPy sorts integers of 16 bits by radix, several times as fast as longer ones.
        order = np.argsort(slots.astype(np.uint16) if slots.max() < 2**16 else slots, kind="stable")
        slots = slots[order]
    starts = (slots[1:] != slots[:-1]).nonzero()[0] + 1
    bounds = [0, *starts.tolist(), len(slots)] if len(slots) else [0]
    return slots[bounds[:-1]].tolist(), bounds, order


def rows_by_slot(slots: npt.NDArray[np.uint32]) -> list[tuple[int, Rows]]:
    """Groups row numbers by slot: (slot, rows in ascending order)."""
    found, bounds, order = grouped_by_slot(slots)
    rows = np.arange(len(slots)) if order is None else order
    # Slices take less time than `np.split`.
    return [(slot, rows[first:end]) for slot, first, end in zip(found, bounds, bounds[1:], strict=False)]


class StateLoader:
    """Loads and advances states of one table, whose segments are in a directory of a disk."""

    def __init__(self, table_id: int, directory: str, disk: Disk) -> None:
        self.table_id = table_id
        self.directory = directory
        self.disk = disk
        self._segments: dict[str, Segment] = {}
        self._schemas: dict[int, TableSchema] = {}

    def adopt(self, segment: Segment) -> None:
        """Keeps a segment that this process has just written, which saves a read of its index."""
        self._segments[segment.meta.id] = segment

    def schema(self, tx: catalog.CatalogTransaction, revision: int) -> TableSchema:
        """Returns a schema revision of the table."""
        known = self._schemas.get(revision)
        if known is None:
            record = tx.require("schemas", catalog.schema_key(self.table_id, revision))
            known = TableSchema.from_record(record)
            if not tx.is_shared:  # else it may never be committed
                self._schemas[revision] = known
        return known

    def load(self, tx: catalog.CatalogTransaction, version: int) -> TableState:
        """Loads the state at a version from the catalog.

        Raises:
            VersionExpiredError: no such version, or it is not kept any more.
        """
        record = self._version_record(tx, version)
        if version not in whole_versions(tx, self.table_id):
            raise VersionExpiredError(f"version {version} is not kept any more", kind="version_expired")
        head, _ = catalog.head(tx, self.table_id, self.directory)
        require_newest(tx, self.table_id, head)
        segments: dict[int, LiveSegment] = {}
        slot_of: dict[str, int] = {}
        for key, stored in tx.records("segments", catalog.table_key(self.table_id)):
            if stored["created"] <= version and not 0 < stored["dropped"] <= version:
                segment = self.segment(tx, key[8:].decode(), stored)
                slot = slot_of[segment.meta.id] = len(segments)
                segments[slot] = LiveSegment(slot, segment, stored["created"], DeleteVector(segment.rows))
        require_segments(record.state, slot_of, self.table_id, version)
        _hide(segments, slot_of, unite([read_hidden(tx, self.table_id, n) for n in chain(version)]))
        schema = self.schema(tx, record.revision)
        watermark = read_watermark(tx, self.table_id, schema)
        slots = tuple(segments)
        return TableState(self.table_id, version, schema, segments, (), slots, len(slots), version, watermark)

    def advance(
        self,
        tx: catalog.CatalogTransaction,
        state: TableState,
        version: int,
        known: VersionRecord | None = None,
    ) -> TableState:
        """Returns the state at a later version, from an earlier one; the caller may know its record."""
        is_gone = state.version + 1 < all_whole_from(tx, self.table_id)
        if is_gone or self._is_far(tx, version - state.version):
            return self._reload(tx, state, version)
        segments, next_slot = dict(state.segments), state.next_slot
        slot_of = dict(state.slot_of)
        hidden: list[HiddenRows] = []
        dropped = False
        rows_gone = state.replaced
        revision, stated = state.schema.revision, None
        for number in range(state.version + 1, version + 1):
            record = known if known and number == version else self._version_record(tx, number)
            if record.is_restore:
                return self._reload(tx, state, version)
            hidden.append(read_hidden(tx, self.table_id, number))
            revision, stated = record.revision, record.state
            rows_gone = number if record.removes_rows else rows_gone
            for segment_id in record.dropped:
                dropped = True
                if segment_id not in slot_of:
                    raise _unknown_segment(self.table_id, number, segment_id)
                segments.pop(slot_of.pop(segment_id))
                self._segments.pop(segment_id, None)
            for segment_id in record.added:
                stored = tx.require("segments", catalog.segment_key(self.table_id, segment_id))
                segment = self.segment(tx, segment_id, stored)
                segments[next_slot] = LiveSegment(next_slot, segment, number, DeleteVector(segment.rows))
                slot_of[segment_id] = next_slot
                next_slot += 1
        _hide(segments, slot_of, unite(hidden))  # once a segment, however many versions
        require_segments(stated, slot_of, self.table_id, version)
        schema = self.schema(tx, revision)
        grown = _grown(state, version, schema, segments, slot_of, next_slot, rows_gone)
        if not dropped and schema.has_sequence == state.schema.has_sequence:
            return grown
        watermark = read_watermark(tx, self.table_id, schema)
        return replace(grown, prior_runs=(), fresh=tuple(segments), watermark=watermark)

    def _is_far(self, tx: catalog.CatalogTransaction, steps: int) -> bool:
        """Returns whether so many versions cost more than the records of all segments, dropped ones too."""
        if steps <= _STEPS_MAX:
            return False
        limit = steps * _SEGMENTS_A_STEP
        stored = tx.items("segments", catalog.table_key(self.table_id))
        return sum(1 for _ in islice(stored, limit)) < limit

    def _reload(self, tx: catalog.CatalogTransaction, state: TableState, version: int) -> TableState:
        """Loads a later version, and closes the segments of an earlier state that it has dropped."""
        loaded = self.load(tx, version)
        for segment_id in state.slot_of.keys() - loaded.slot_of.keys():
            self._segments.pop(segment_id, None)
        return loaded

    def _version_record(self, tx: catalog.CatalogTransaction, version: int) -> VersionRecord:
        record = read_version_record(tx, self.table_id, version)
        if record is None:
            newest, _ = catalog.head(tx, self.table_id, self.directory)
            if catalog.oldest_readable(tx, self.table_id) <= version <= newest:
                raise lost_record("versions", catalog.version_key(self.table_id, version), "is missing")
            raise VersionExpiredError(
                f"version {version} cannot be read: the table has versions 1 to {newest}",
                kind="no_such_version",
                oldest=1,
                latest=newest,
            )
        return record

    def segment(self, tx: catalog.CatalogTransaction, segment_id: str, stored: dict[str, Any]) -> Segment:
        """Returns a segment by its record; those of the newest version are kept open."""
        known = self._segments.get(segment_id)
        if known is None:
            meta = SegmentMeta.from_record(stored["meta"])
            payload = None
            if meta.home == INLINE:
                payload = tx.require("inline", catalog.segment_key(self.table_id, segment_id))
            known = Segment(self.disk, self.directory, meta, self.schema(tx, meta.revision), payload)
            if not stored["dropped"]:
                self._segments[segment_id] = known
        return known
