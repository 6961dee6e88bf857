"""A snapshot in pieces that any process can read, such as a Spark executor.

A `ScanTask` is a picklable value. It names some record batches of some segments with everything that their
reader needs (description, schema, hidden rows, the bytes of inline segments). Its reader opens files and
never the catalog. Planning, in the process that has the catalog:

1. Batches that the filter's zone maps rule out are skipped, as are segments without a live row.
2. The rest is cut, in the order of ids, into tasks of about `rows_per_task` rows. Small segments share a
   task, large ones fill several.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from seqstore.store.read.live_segment import LiveSegment, Projection
from seqstore.store.read.scan import LiveBatch, scan_batches, unpruned
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.delete_bitmap import DeleteVector, bitmap_of, positions_of
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.segment import Segment, SegmentMeta


@dataclass(frozen=True)
class SegmentSlice:
    """Some batches of one segment, detached from the catalog.

    Attributes:
        meta, written, payload: the segment's description, the revision that wrote it, its bytes when inline.
        created: the version that added it.
        hidden: hidden rows within the named batches, a serialised Roaring bitmap.
        batches: their numbers, ascending.
    """

    meta: SegmentMeta
    written: TableSchema
    payload: bytes | None
    created: int
    hidden: bytes
    batches: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows stored in the batches, hidden ones included."""
        meta = self.meta
        return sum(min(meta.batch_rows, meta.rows - number * meta.batch_rows) for number in self.batches)

    @classmethod
    def of(cls, live: LiveSegment) -> SegmentSlice:
        """Returns all batches of a segment."""
        segment = live.segment
        payload = bytes(segment.payload) if segment.payload is not None else None
        hidden = bitmap_of(live.deletes.hidden_positions()).serialize()
        return cls(segment.meta, segment.schema, payload, live.created, hidden, tuple(range(segment.batches)))

    @property
    def deletes(self) -> DeleteVector:
        """The rows that are hidden; valid for the named batches only."""
        return DeleteVector(self.meta.rows).hide(positions_of(BitMap.deserialize(self.hidden)))

    def segment(self, disk: Disk, directory: str) -> Segment:
        """Returns the segment."""
        return Segment(disk, directory, self.meta, self.written, self.payload)

    def open(self, disk: Disk, directory: str) -> LiveSegment:
        """Opens the segment at the version; valid for the named batches only."""
        return LiveSegment(0, self.segment(disk, directory), self.created, self.deletes)


@dataclass(frozen=True)
class ScanTask:
    """A share of the rows of one version; made by `plan_scan`.

    Attributes:
        disk, directory: the place of the segment files.
        projection, filter, deleted: as in `Snapshot.scan`.
        slices: the batches to read.
    """

    disk: Disk
    directory: str
    projection: Projection
    filter: pc.Expression | None
    deleted: bool
    slices: tuple[SegmentSlice, ...]

    @property
    def rows(self) -> int:
        """Rows stored in the share, hidden ones included."""
        return sum(piece.rows for piece in self.slices)

    def read(self) -> pa.RecordBatchReader:
        """Reads the rows of this share.

        Raises:
            CorruptionError: a file is missing or differs from the written bytes.
        """
        batches = [
            (live, number)
            for piece in self.slices
            for live in [piece.open(self.disk, self.directory)]
            for number in piece.batches
        ]
        return scan_batches(batches, self.projection, self.filter, deleted=self.deleted)


def plan_scan(
    state: TableState,
    disk: Disk,
    directory: str,
    projection: Projection,
    predicate: pc.Expression | None,
    *,
    deleted: bool,
    rows_per_task: int,
) -> list[ScanTask]:
    """Cuts a state into tasks; see the module. Together they return the rows of `scan`.

    A version is always cut in the same way, whichever versions the process has read before.
    """
    shares: list[list[SegmentSlice]] = []
    rows = 0
    for piece in _slices(_in_order(unpruned(state, predicate)), rows_per_task):
        if not shares or rows + piece.rows > rows_per_task:
            shares.append([])
            rows = 0
        shares[-1].append(piece)
        rows += piece.rows
    return [ScanTask(disk, directory, projection, predicate, deleted, tuple(share)) for share in shares]


def _in_order(batches: Sequence[LiveBatch]) -> list[LiveBatch]:
    """Orders batches by what never changes: slots are those of one process's way to the version."""
    return sorted(batches, key=lambda batch: (batch[0].segment.meta.id, batch[1]))


def _slices(batches: Sequence[LiveBatch], rows_per_task: int) -> Iterator[SegmentSlice]:
    """Groups neighbouring batches of a segment, as many as hold `rows_per_task` rows.

    A segment of exactly so many rows is one piece, and not one piece and a rest of a few rows.
    """
    for _, group in itertools.groupby(batches, key=lambda batch: batch[0].slot):
        asked = list(group)
        live, _ = asked[0]
        segment = live.segment
        most = -(-rows_per_task // max(segment.meta.batch_rows, 1))
        hidden = live.deletes.hidden_positions()
        for start in range(0, len(asked), most):
            numbers = tuple(number for _, number in asked[start : start + most])
            low = numbers[0] * segment.meta.batch_rows
            high = (numbers[-1] + 1) * segment.meta.batch_rows
            within = hidden[(hidden >= low) & (hidden < high)]
            payload = bytes(segment.payload) if segment.payload is not None else None
            marks = bitmap_of(within).serialize()
            yield SegmentSlice(segment.meta, segment.schema, payload, live.created, marks, numbers)
