"""Scanning: the rows of one version, as record batches.

For each live segment, batch by batch (64 Ki rows):

1. Skip batches whose zone maps rule the filter out.
2. Read the requested columns, by column id; columns younger than the segment have their default. Buffers of
   plain Arrow segments are used in place.
3. Remove hidden rows (one mask per batch, in place from the delete vector) and tombstones. A batch without
   either passes through untouched.
4. Apply the filter to the rest, in Arrow's own scanner.

Rows are delivered segment by segment; no order is promised. A few threads prepare batches that must be copied
or decoded ahead of the consumer (read.read_ahead).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from seqstore.store.expressions.condition import Condition
from seqstore.store.expressions.predicate import check_predicate, columns_of, does_not_fit, filtered
from seqstore.store.read.live_segment import (
    LiveSegment,
    Projection,
    chosen_rows,
    no_columns,
    project,
    tested_columns,
)
from seqstore.store.read.read_ahead import read_ahead
from seqstore.store.read.row_filter import rows_where
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.call_room import RoomyIterator

FEW_ROWS: Final = 4096  # up to so many rows, another thread costs more than it saves
LiveBatch = tuple[LiveSegment, int]  # a segment as one version sees it, and the number of a batch


def unpruned(state: TableState, predicate: pc.Expression | None) -> list[LiveBatch]:
    """Returns the batches of a state that may hold a row that counts and satisfies the predicate.

    Raises:
        InvalidInputError: the predicate does not fit the table.
    """
    if predicate is not None:
        check_predicate(predicate, pa.schema(list(state.schema.fields.values())))
    return [
        (live, number)
        for live in state.segments.values()
        if live.deletes.live_count
        for number in live.segment.matching(predicate, state.schema)
    ]


def scan_batches(
    batches: Sequence[LiveBatch],
    projection: Projection,
    predicate: pc.Expression | None,
    conditions: Sequence[Condition] = (),
    *,
    deleted: bool,
) -> pa.RecordBatchReader:
    """Reads the rows of some batches.

    Args:
        predicate: over visible and hidden columns; None keeps all rows.
        conditions: equivalent to the predicate; they are evaluated together with the delete mask, in one
            copy.
        deleted: tombstones that are their key's winner are returned too (T8).
    """
    if predicate is None or conditions:
        read = _read_all(batches, projection, conditions, deleted=deleted)
        return pa.RecordBatchReader.from_batches(projection.arrow, read)
    schema = projection.schema
    everything = [*schema.names, *(field.name for field in schema.hidden_fields())]
    needed = columns_of(predicate, everything)
    names = everything if needed is None else dict.fromkeys([*projection.names, *needed])
    wide = Projection(schema, tuple(names))
    few = sum(live.batch_rows(number) for live, number in batches) <= FEW_ROWS
    rows = _read_all(batches, wide, deleted=deleted)
    return pa.RecordBatchReader.from_batches(
        projection.arrow, _filtered(rows, wide, projection, predicate, few=few)
    )


def _filtered(
    rows: Iterator[pa.RecordBatch],
    wide: Projection,
    projection: Projection,
    predicate: pc.Expression,
    *,
    few: bool,
) -> Iterator[pa.RecordBatch]:
    """Yields rows that satisfy the predicate; errors of the store's own pass through Arrow unchanged."""
    whole = pa.Table.from_batches(rows, wide.arrow) if few else None
    try:
        if whole is not None:  # starting Arrow's scanner costs more
            found = filtered(whole, predicate).to_batches()
        else:
            reader = pa.RecordBatchReader.from_batches(wide.arrow, RoomyIterator(rows))  # of Arrow's threads
            names = list(dict.fromkeys(projection.names))
            found = ds.Scanner.from_batches(reader, columns=names, filter=predicate).to_reader()
        for batch in found:
            yield _selected(batch, projection)
    except pa.ArrowException as error:
        raise does_not_fit(predicate, error) from error


def _selected(batch: pa.RecordBatch, projection: Projection) -> pa.RecordBatch:
    if not projection.names:
        return no_columns(batch.num_rows)
    return batch.select(list(projection.names)).cast(projection.arrow)


def _read_all(
    batches: Sequence[LiveBatch],
    projection: Projection,
    conditions: Sequence[Condition] = (),
    *,
    deleted: bool,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of batches that count and satisfy all conditions, with the projection's columns."""
    tested = tested_columns(projection.schema, conditions)

    def read(asked: LiveBatch) -> pa.RecordBatch:
        mask = chosen_rows(*asked, tested, conditions, deleted=deleted)
        batch = project(*asked, projection)
        return batch if mask is None else rows_where(batch, mask)

    def takes_work(asked: LiveBatch) -> bool:
        live, number = asked
        if live.segment.meta.rows <= FEW_ROWS:
            return False
        if conditions or not live.segment.is_at_hand(number):
            return True
        if live.segment.meta.tombstones and not deleted:
            return True
        return live.live_rows(number, deleted=True) is not None

    return read_ahead(batches, read, takes_work)


@dataclass(frozen=True)
class ScanMetrics:
    """The amount of data that a scan with some filter will read.

    Attributes:
        segments, batches: their numbers in the version; `*_read` those that zone maps do not rule out.
        rows_read: in those batches, hidden rows included.
        rows_hidden: of `rows_read`, replaced or deleted rows; tombstones are not among them.
    """

    segments: int
    segments_read: int
    batches: int
    batches_read: int
    rows_read: int
    rows_hidden: int


def scan_metrics(state: TableState, predicate: pc.Expression | None) -> ScanMetrics:
    """Predicts the amount of data that a scan will read, without reading rows."""
    batches = unpruned(state, predicate)
    masks = [live.live_rows(number, deleted=True) for live, number in batches]
    return ScanMetrics(
        segments=len(state.segments),
        segments_read=len({live.slot for live, _ in batches}),
        batches=sum(live.segment.batches for live in state.segments.values()),
        batches_read=len(batches),
        rows_read=sum(live.batch_rows(number) for live, number in batches),
        rows_hidden=sum(len(mask) - mask.true_count for mask in masks if mask is not None),
    )
