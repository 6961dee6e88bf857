"""The source of a reader's column in a segment: by column id, by hidden name, or one value for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.schema.column import (
    DELETE_SIGN,
    GROUPS_COL,
    SEQUENCE_COL,
    VERSION_COL,
    default_scalar,
    hidden_name,
)
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.segment import Segment


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


def constant_column(schema: TableSchema, created: int, name: str, rows: int, arrow: pa.DataType) -> pa.Array:
    """Builds a column that a segment does not store: row version, sign 0, no sequence, or a younger column's
    default.
    """
    if name == VERSION_COL:
        return pa.array(np.full(rows, created, dtype=np.int64))
    if name == DELETE_SIGN:
        return pa.array(np.zeros(rows, dtype=np.int8))
    if name == SEQUENCE_COL:
        return pa.nulls(rows, arrow)
    if name == GROUPS_COL:
        return pa.array(np.zeros(rows, dtype=np.int64))
    column = schema.column(name)
    value = default_scalar(replace(column, default=column.initial or column.default), datetime.now())
    return pa.repeat(value, rows) if value.is_valid else pa.nulls(rows, arrow)


def take_columns(
    schema: TableSchema,
    segment: Segment,
    created: int,
    positions: npt.NDArray[np.uint32],
    names: Sequence[str],
    arrow: pa.Schema,
) -> pa.Table:
    """Returns some rows of a segment with a reader's columns.

    Args:
        created: the version that added the segment.
        names: canonical names, in the order of `arrow`.
        arrow: the reader's types.
    """
    sources = [column_source(schema, segment, name) for name in names]
    stored = list(dict.fromkeys(source for source in sources if source is not None))
    taken = segment.take(positions, stored) if stored else None
    if taken is not None and len(stored) == len(sources) and taken.schema.equals(arrow):
        return taken
    columns = []
    for field, name, source in zip(arrow, names, sources, strict=True):
        if source is not None and taken is not None:
            column = taken.column(source)
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        else:
            columns.append(
                constant_column(schema, segment.meta.written or created, name, len(positions), field.type)
            )
    return pa.Table.from_arrays(columns, schema=arrow)
