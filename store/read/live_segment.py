"""A segment as one version sees it: the rows that count, and the columns that a reader wants of them.

The source of a reader's column in a segment is found by column id or by hidden name. Otherwise all rows share
one value: the version that added the segment, sign 0, no sequence, or a younger column's default.

The segments of a version have the types of its schema, or narrower ones. Only readers of several versions,
such as the change feed, find columns that had another type: their values are converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.condition import Condition
from seqstore.store.runtime.format_value import format_value
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.column import (
    DELETE_SIGN,
    GROUPS_COL,
    ROW_ID_COL,
    SEQUENCE_COL,
    VERSION_COL,
    Column,
    hidden_name,
    initial_values,
)
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.delete_bitmap import DeleteVector
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.segment import Segment
from seqstore.store.types.column_types import fill_zero_values, is_wider
from seqstore.store.types.type_changes import convert


@dataclass(frozen=True)
class Projection:
    """The columns that a reader wants, canonical names in the requested order.

    Attributes:
        schema: the reader's revision.
        arrow: the columns as a schema.
    """

    schema: TableSchema
    names: tuple[str, ...]
    arrow: pa.Schema = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schema, names = self.schema, self.names
        is_whole = list(names) == schema.names
        arrow = schema.arrow if is_whole else pa.schema([schema.fields[name] for name in names])
        object.__setattr__(self, "arrow", arrow)

    @classmethod
    def of(cls, schema: TableSchema, columns: Sequence[str] | None, *, hidden: bool) -> Projection:
        """Resolves names without regard to case, hidden ones in either spelling (T7).

        Raises:
            InvalidInputError: unknown column; the sequence of a table without one.
        """
        if columns is None:
            extra = [field.name for field in schema.hidden_fields()] if hidden else []
            return cls(schema, (*schema.names, *extra))
        known = frozenset(schema.names)
        return cls(schema, tuple([name if name in known else _canonical(schema, name) for name in columns]))


def tested_columns(schema: TableSchema, conditions: Sequence[Condition]) -> Projection:
    """Returns the columns that conditions compare."""
    return Projection(schema, tuple(dict.fromkeys([condition.column for condition in conditions])))


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
    if hidden == ROW_ID_COL and not schema.is_duplicate:
        raise InvalidInputError("There are no row ids in the table", kind="unknown_column", column=name)
    return hidden


@dataclass(frozen=True)
class LiveSegment:
    """A segment as one version sees it.

    Attributes:
        slot: its number within the state; matches refer to segments by it.
        created: the version that added it.
    """

    slot: int
    segment: Segment
    created: int
    deletes: DeleteVector

    @property
    def row_version(self) -> int:
        """The version of its rows, where they do not store their own."""
        return self.segment.meta.written or self.created

    @cached_property
    def live_tombstones(self) -> int:
        """The number of live tombstones."""
        if not self.segment.meta.tombstones:
            return 0
        masks = (self.live_rows(number, deleted=False) for number in range(self.segment.batches))
        rows: int = sum(mask.true_count for mask in masks if mask is not None)
        return self.deletes.live_count - rows

    def batch_rows(self, number: int) -> int:
        """Returns the number of rows of a batch, hidden ones included."""
        batch_rows = self.segment.meta.batch_rows
        return min(batch_rows, self.segment.rows - number * batch_rows)

    def live_rows(self, number: int, *, deleted: bool) -> pa.BooleanArray | None:
        """Returns which rows of a batch count, None when all of them do."""
        segment = self.segment
        mask = None
        if self.deletes.hidden:
            mask = self.deletes.live_mask(number * segment.meta.batch_rows, self.batch_rows(number))
        if segment.meta.tombstones and not deleted:
            alive = pc.equal(segment.batch(number, [DELETE_SIGN]).column(0), 0)
            mask = alive if mask is None else pc.and_(mask, alive)
        return mask

    def take(self, positions: Positions, projection: Projection) -> pa.Table:
        """Returns the projection's columns of some rows, in the order of the positions."""
        sources, stored = _sources(self.segment, projection)
        retyped = _retyped(self, projection)
        taken = self.segment.take(positions, stored) if stored else None
        if taken is not None and not retyped and taken.schema.equals(projection.arrow):
            return taken
        columns = _columns(self, projection, sources, retyped, taken, len(positions))
        return pa.Table.from_arrays(columns, schema=projection.arrow)


def project(live: LiveSegment, number: int, projection: Projection) -> pa.RecordBatch:
    """Returns the projection's columns of one batch, hidden rows included."""
    sources, stored = _sources(live.segment, projection)
    retyped = _retyped(live, projection)
    batch = live.segment.batch(number, stored) if stored else None
    if batch is not None and not retyped and batch.schema.equals(projection.arrow):
        return batch
    rows = live.batch_rows(number)
    if not projection.names:
        return no_columns(rows)
    columns = _columns(live, projection, sources, retyped, batch, rows)
    return pa.RecordBatch.from_arrays(columns, schema=projection.arrow)


def chosen_rows(
    live: LiveSegment, number: int, tested: Projection, conditions: Sequence[Condition], *, deleted: bool
) -> pa.BooleanArray | None:
    """Returns which rows of a batch count and satisfy all conditions, None when all do; never NULL.

    Args:
        tested: the columns of the conditions.
    """
    mask = live.live_rows(number, deleted=deleted)
    if not conditions or (mask is not None and not mask.true_count):
        return mask
    rows = project(live, number, tested)
    for condition in conditions:
        holds = condition.holds(rows.column(condition.column))
        mask = holds if mask is None else pc.and_(mask, holds)
    assert mask is not None
    return mask.fill_null(False) if mask.null_count else mask


def no_columns(rows: int) -> pa.RecordBatch:
    """Builds a batch without columns that has a number of rows."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def column_source(schema: TableSchema, segment: Segment, name: str) -> str | None:
    """Returns the stored column that holds a reader's column, None when all rows share one value.

    Args:
        schema: the reader's revision.
        name: a visible or canonical hidden column.
    """
    if hidden_name(name):
        if name in segment.meta.hidden:
            return name
        return segment.schema.sequence_column if name == SEQUENCE_COL else None
    if schema.revision == segment.schema.revision:
        return name
    wanted = schema.column(name).id
    return next((column.name for column in segment.schema.columns if column.id == wanted), None)


def _sources(segment: Segment, projection: Projection) -> tuple[list[str | None], list[str]]:
    """Returns the source of each column, and the stored columns to read, each once."""
    sources = [column_source(projection.schema, segment, name) for name in projection.names]
    return sources, [source for source in dict.fromkeys(sources) if source is not None]


def _columns(
    live: LiveSegment,
    projection: Projection,
    sources: Sequence[str | None],
    retyped: Mapping[str, tuple[Column, Column]],
    stored: Any,
    rows: int,
) -> list[Any]:
    """Returns the projection's columns in its types, from a batch or table of the stored ones."""
    columns = []
    for wanted, source in zip(projection.arrow, sources, strict=True):
        if source is None:
            columns.append(_constant_column(projection.schema, live.row_version, wanted, rows))
            continue
        column = stored.column(source)
        if wanted.name in retyped:
            columns.append(converted(column, *retyped[wanted.name], _deleted(stored)))
        else:
            columns.append(column if column.type.equals(wanted.type) else column.cast(wanted.type))
    return columns


def _deleted(stored: Any) -> pa.BooleanArray | None:
    """Returns which rows are tombstones, None where the delete signs are not read."""
    if DELETE_SIGN not in stored.schema.names:
        return None
    signs = stored.column(DELETE_SIGN)
    return pc.equal(signs.combine_chunks() if isinstance(signs, pa.ChunkedArray) else signs, 1)


def _retyped(live: LiveSegment, projection: Projection) -> dict[str, tuple[Column, Column]]:
    """Returns the columns whose type in the segment is none that the reader's type is wider than: as the
    segment and as the reader has them."""
    schema = live.segment.schema
    if schema.revision == projection.schema.revision:
        return {}
    return {
        column.name: (before, column)
        for before, column in retyped_columns(schema, projection.schema)
        if column.name in projection.names
    }


def retyped_columns(before: TableSchema, after: TableSchema) -> list[tuple[Column, Column]]:
    """Returns the columns of two revisions whose values must be converted, as both have them."""
    known = {column.id: column for column in before.columns}
    pairs = [(known[column.id], column) for column in after.columns if column.id in known]
    return [(old, new) for old, new in pairs if old.type != new.type and not is_wider(old.type, new.type)]


def converted(column: Any, before: Column, after: Column, deleted: pa.BooleanArray | None = None) -> pa.Array:
    """Returns the values of a column under a later or earlier revision.

    Args:
        deleted: which rows are tombstones, whose values have no meaning.

    Raises:
        InvalidInputError: a value does not fit.
    """
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    cast = convert(values, before.type, after.type)
    if cast.failed is None:
        return cast.values
    wrong = cast.failed if deleted is None else pc.and_not(cast.failed, deleted)
    if wrong.true_count:
        value = format_value(values.filter(wrong)[0])
        raise InvalidInputError(
            f"column {after.name!r} was {before.type} in some versions, and its value {value!r} there is no "
            f"{after.type}; read the versions before and after the change of its type apart",
            kind="bad_value",
            column=after.name,
        )
    return cast.values if after.nullable else fill_zero_values(cast.values, cast.failed)


def _constant_column(schema: TableSchema, version: int, wanted: pa.Field, rows: int) -> pa.Array:
    if wanted.name == SEQUENCE_COL:
        return pa.nulls(rows, wanted.type)
    if wanted.name in (VERSION_COL, DELETE_SIGN, GROUPS_COL):
        value = version if wanted.name == VERSION_COL else 0
        return pa.repeat(pa.scalar(value, wanted.type), rows)
    return initial_values(schema.column(wanted.name), rows)
