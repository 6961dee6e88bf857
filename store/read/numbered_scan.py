"""Live rows with numbers, by which a holder of the rows of one version finds those of the next one.

A row's number names its segment and its place there. It stays the same as long as the segment has the row, so
a holder that knows which rows it has (`HeldRows`) needs only the rows that came and the numbers of those that
went. Rows that compaction has moved come again with other numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.read.live_segment import LiveSegment, Projection, project
from seqstore.store.read.read_ahead import read_ahead
from seqstore.store.read.scan import FEW_ROWS, LiveBatch
from seqstore.store.read.table_state import TableState
from seqstore.store.segment.delete_bitmap import DeleteVector

NUMBER: Final = "*number*"  # no name that a column may have
_PLACE_BITS: Final = 32

RowNumbers = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class HeldRows:
    """The live rows of a version.

    Attributes:
        segments: by file, the number of each segment and its delete vector.
        next_number: of a segment.
    """

    segments: Mapping[str, tuple[int, DeleteVector]] = field(default_factory=dict)
    next_number: int = 0


@dataclass(frozen=True)
class RowChanges:
    """What a holder of some rows has to do for those of a version.

    Attributes:
        gone: the ranges of numbers, the end excluded, of segments whose rows are held no more.
        hidden: the numbers of other rows that are live no more.
        added: the segments whose live rows come, with their numbers.
        held: the rows afterwards.
        rows: how many come and go.
    """

    gone: list[tuple[int, int]]
    hidden: RowNumbers
    added: list[tuple[int, LiveSegment]]
    held: HeldRows
    rows: int


def changes_since(held: HeldRows, state: TableState) -> RowChanges:
    """Compares the rows that are held with those of a version.

    A segment with a row that was hidden and is live again, as by RESTORE, goes and comes.
    """
    segments: dict[str, tuple[int, DeleteVector]] = {}
    hidden: list[RowNumbers] = []
    added: list[tuple[int, LiveSegment]] = []
    number = held.next_number
    for live in state.segments.values():
        file = live.segment.meta.file_id
        known = held.segments.get(file)
        if known is not None and not _has_again(known[1], live.deletes):
            segments[file] = known[0], live.deletes
            hidden.append(_numbers(known[0], live.deletes.hidden_since(known[1])))
        else:
            segments[file] = number, live.deletes
            added.append((number, live))
            number += 1
    kept = {each for each, _ in segments.values()}
    gone = [(each, vector) for each, vector in held.segments.values() if each not in kept]
    numbers = np.concatenate(hidden) if hidden else np.empty(0, dtype=np.uint64)
    rows = len(numbers) + sum(live.deletes.live_count for _, live in added)
    rows += sum(vector.live_count for _, vector in gone)
    ranges = [(_first(each), _first(each + 1)) for each, _ in gone]
    return RowChanges(ranges, numbers, added, HeldRows(segments, number), rows)


def added_rows(changes: RowChanges, projection: Projection) -> pa.RecordBatchReader:
    """Reads the rows that come, with their numbers in the last column, `NUMBER`."""
    schema = projection.arrow.append(pa.field(NUMBER, pa.uint64()))
    numbers = {live.slot: number for number, live in changes.added}

    def read(asked: LiveBatch) -> pa.RecordBatch:
        live, batch = asked
        rows = project(live, batch, projection)
        first = _first(numbers[live.slot]) + batch * live.segment.meta.batch_rows
        places = pa.array(np.arange(first, first + live.batch_rows(batch), dtype=np.uint64))
        numbered = pa.RecordBatch.from_arrays([*rows.columns, places], schema=schema)
        mask = live.live_rows(batch, deleted=False)
        return numbered if mask is None else numbered.filter(mask)

    def takes_work(asked: LiveBatch) -> bool:
        return asked[0].batch_rows(asked[1]) > FEW_ROWS

    batches = [
        (live, batch)
        for _, live in changes.added
        if live.deletes.live_count
        for batch in range(live.segment.batches)
    ]
    return pa.RecordBatchReader.from_batches(schema, read_ahead(batches, read, takes_work))


def _first(segment: int) -> int:
    return segment << _PLACE_BITS


def _numbers(segment: int, positions: npt.NDArray[np.uint32]) -> RowNumbers:
    return positions.astype(np.uint64) + np.uint64(_first(segment))


def _has_again(before: DeleteVector, now: DeleteVector) -> bool:
    """Returns whether a row is live that was hidden before."""
    if before.bits is None or before.bits is now.bits:
        return False
    if now.bits is None:
        return before.hidden > 0
    again = now.bits & ~before.bits
    return bool(again.any()) and bool(np.unpackbits(again, count=now.rows, bitorder="little").any())
