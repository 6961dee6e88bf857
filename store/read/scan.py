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

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.condition import Condition
from seqstore.store.expressions.predicate import check_predicate, columns_of, does_not_fit, filtered
from seqstore.store.read.column_source import column_source, constant_column
from seqstore.store.read.read_ahead import read_ahead
from seqstore.store.read.row_filter import rows_where
from seqstore.store.read.table_state import LiveSegment, TableState
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.column import DELETE_SIGN, GROUPS_COL, SEQUENCE_COL, hidden_name
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.segment import Segment

FEW_ROWS: Final = 4096  # up to so many rows, another thread costs more than it saves
LiveBatch = tuple[LiveSegment, int]  # a segment as one version sees it, and the number of a batch


@dataclass(frozen=True)
class Projection:
    """The columns that a reader wants, canonical names in the requested order."""

    schema: TableSchema
    names: tuple[str, ...]

    @classmethod
    def of(cls, schema: TableSchema, columns: Sequence[str] | None, *, hidden: bool) -> Projection:
        """Resolves names without regard to case, hidden ones in either spelling (T7).

        Raises:
            InvalidInputError: unknown column; the sequence of a table without one.
        """
        if columns is None:
            extra = [field.name for field in schema.hidden_fields()] if hidden else []
            return cls(schema, (*schema.names, *extra))
        return cls(schema, tuple(_canonical(schema, name) for name in columns))

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns as a schema."""
        return self.schema.arrow_of(self.names)


def _canonical(schema: TableSchema, name: str) -> str:
    hidden = hidden_name(name)
    if hidden is None:
        return schema.column(name).name
    if hidden == SEQUENCE_COL and not schema.has_sequence:
        raise InvalidInputError(
            "There is no sequence column in the table", kind="unknown_column", column=name
        )
    if hidden == GROUPS_COL and not schema.groups:
        raise InvalidInputError("There are no column groups in the table", kind="unknown_column", column=name)
    return hidden


def scan_state(
    state: TableState,
    projection: Projection,
    predicate: pc.Expression | None = None,
    conditions: Sequence[Condition] = (),
    *,
    deleted: bool = False,
) -> pa.RecordBatchReader:
    """Reads the rows of a state.

    Args:
        predicate: over visible and hidden columns; None keeps all rows.
        conditions: equivalent to the predicate; they are evaluated together with the delete mask, in one
            copy.
        deleted: tombstones that are their key's winner are returned too (T8).
    """
    batches = unpruned(state, predicate)
    if not conditions:
        return scan_batches(batches, projection, predicate, deleted=deleted)
    read = _read_all(batches, projection, conditions, deleted=deleted)
    return pa.RecordBatchReader.from_batches(projection.arrow, read)


def unpruned(state: TableState, predicate: pc.Expression | None) -> list[LiveBatch]:
    """Returns the batches of a state that may hold a row that counts and satisfies the predicate.

    Raises:
        InvalidInputError: the predicate does not fit the table.
    """
    if predicate is not None:
        check_predicate(predicate, pa.schema([*state.schema.arrow, *state.schema.hidden_fields()]))
    return [
        (live, number)
        for live in state.segments.values()
        if live.deletes.live_count
        for number in _unpruned(live.segment, state.schema, predicate)
    ]


def scan_batches(
    batches: Sequence[LiveBatch], projection: Projection, predicate: pc.Expression | None, *, deleted: bool
) -> pa.RecordBatchReader:
    """Reads the rows of some batches; arguments as in `scan_state`."""
    if predicate is None:
        read = _read_all(batches, projection, deleted=deleted)
        return pa.RecordBatchReader.from_batches(projection.arrow, read)
    schema = projection.schema
    everything = [*schema.names, *(field.name for field in schema.hidden_fields())]
    needed = columns_of(predicate, everything)
    names = everything if needed is None else dict.fromkeys([*projection.names, *needed])
    wide = Projection(schema, tuple(names))
    if sum(batch_rows(live, number) for live, number in batches) <= FEW_ROWS:
        few = _filtered_few(batches, wide, projection, predicate, deleted=deleted)
        return pa.RecordBatchReader.from_batches(projection.arrow, few)
    reader = pa.RecordBatchReader.from_batches(wide.arrow, _read_all(batches, wide, deleted=deleted))
    filtered = _filtered(reader, list(dict.fromkeys(projection.names)), predicate)
    return pa.RecordBatchReader.from_batches(
        projection.arrow, (_selected(batch, projection) for batch in filtered)
    )


def _filtered(
    reader: pa.RecordBatchReader, names: list[str], predicate: pc.Expression
) -> Iterator[pa.RecordBatch]:
    """Yields rows that satisfy the predicate; errors of the store's own pass through Arrow unchanged."""
    try:
        yield from ds.Scanner.from_batches(reader, columns=names, filter=predicate).to_reader()
    except pa.ArrowException as error:
        raise does_not_fit(predicate, error) from error


def _filtered_few(
    batches: Sequence[LiveBatch],
    wide: Projection,
    projection: Projection,
    predicate: pc.Expression,
    *,
    deleted: bool,
) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(_read_all(batches, wide, deleted=deleted), wide.arrow)
    try:
        found = filtered(rows, predicate)
    except pa.ArrowException as error:
        raise does_not_fit(predicate, error) from error
    for batch in found.to_batches():
        yield _selected(batch, projection)


def _selected(batch: pa.RecordBatch, projection: Projection) -> pa.RecordBatch:
    if not projection.names:
        return _no_columns(batch.num_rows)
    return batch.select(list(projection.names)).cast(projection.arrow)


def _no_columns(rows: int) -> pa.RecordBatch:
    """Builds a batch without columns that has a number of rows."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def _read_all(
    batches: Sequence[LiveBatch],
    projection: Projection,
    conditions: Sequence[Condition] = (),
    *,
    deleted: bool,
) -> Iterator[pa.RecordBatch]:
    def read(batch: LiveBatch) -> pa.RecordBatch:
        return read_batch(*batch, projection, conditions, deleted=deleted)

    def takes_work(batch: LiveBatch) -> bool:
        live, number = batch
        if batch_rows(live, number) <= FEW_ROWS:
            return False
        if conditions or not live.segment.is_at_hand(number):
            return True
        return _may_hide(live, number, deleted=deleted)

    return read_ahead(batches, read, takes_work)


def _unpruned(segment: Segment, schema: TableSchema, predicate: pc.Expression | None) -> Sequence[int]:
    if predicate is None or not segment.meta.zones:
        return range(segment.batches)
    return segment.pruner(schema).matching(predicate)


def read_batch(
    live: LiveSegment,
    number: int,
    projection: Projection,
    conditions: Sequence[Condition] = (),
    *,
    deleted: bool,
) -> pa.RecordBatch:
    """Returns the rows of one batch that count and satisfy all conditions, with the projection's columns."""
    mask = chosen_rows(live, number, projection.schema, conditions, deleted=deleted)
    batch = project(live, number, batch_rows(live, number), projection)
    return batch if mask is None else rows_where(batch, mask)


def batch_rows(live: LiveSegment, number: int) -> int:
    """Returns the number of rows of a batch, hidden ones included."""
    meta = live.segment.meta
    return min(meta.batch_rows, live.segment.rows - number * meta.batch_rows)


def live_rows(live: LiveSegment, number: int, *, deleted: bool) -> pa.BooleanArray | None:
    """Returns which rows of a batch count, None when all of them do."""
    segment = live.segment
    mask = live.deletes.live_mask(number * segment.meta.batch_rows, batch_rows(live, number))
    if segment.meta.tombstones and not deleted:
        signs = segment.batch(number, [DELETE_SIGN]).column(0)
        alive = pc.equal(signs, 0)
        mask = alive if mask is None else pc.and_(mask, alive)
    return mask


def chosen_rows(
    live: LiveSegment, number: int, schema: TableSchema, conditions: Sequence[Condition], *, deleted: bool
) -> pa.BooleanArray | None:
    """Returns which rows of a batch count and satisfy all conditions, None when all do; never NULL."""
    mask = live_rows(live, number, deleted=deleted)
    if not conditions or (mask is not None and not mask.true_count):
        return mask
    names = tuple(dict.fromkeys(condition.column for condition in conditions))
    rows = project(live, number, batch_rows(live, number), Projection(schema, names))
    for condition in conditions:
        holds = condition.holds(rows.column(condition.column))
        mask = holds if mask is None else pc.and_(mask, holds)
    assert mask is not None
    return mask.fill_null(False) if mask.null_count else mask


def _may_hide(live: LiveSegment, number: int, *, deleted: bool) -> bool:
    """Returns whether `live_rows` may remove rows, without reading any."""
    if live.segment.meta.tombstones and not deleted:
        return True
    return live.deletes.live_mask(number * live.segment.meta.batch_rows, batch_rows(live, number)) is not None


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
    masks = [live_rows(live, number, deleted=True) for live, number in batches]
    return ScanMetrics(
        segments=len(state.segments),
        segments_read=len({live.slot for live, _ in batches}),
        batches=sum(live.segment.batches for live in state.segments.values()),
        batches_read=len(batches),
        rows_read=sum(batch_rows(live, number) for live, number in batches),
        rows_hidden=sum(len(mask) - mask.true_count for mask in masks if mask is not None),
    )


def project(live: LiveSegment, number: int, rows: int, projection: Projection) -> pa.RecordBatch:
    """Returns the projection's columns of one batch, hidden rows included."""
    segment = live.segment
    sources = {name: column_source(projection.schema, segment, name) for name in projection.names}
    stored = list(dict.fromkeys(source for source in sources.values() if source is not None))
    batch = segment.batch(number, stored) if stored else None
    arrow = projection.arrow
    if batch is not None and batch.schema.equals(arrow):
        return batch
    arrays = []
    for field, name in zip(arrow, projection.names, strict=True):
        source = sources[name]
        if source is not None:
            assert batch is not None
            array = batch.column(source)
            arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
        else:
            arrays.append(constant_column(projection.schema, live.row_version, name, rows, field.type))
    if not arrays:
        return _no_columns(rows)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)
