"""Inline segments whose record is lost: their rows and the version that added them describe them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, combinations
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from seqstore.store.schema.column import DELETE_SIGN, ROW_ID_COL
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.segment import INLINE, SegmentMeta

# Versions whose rows may be those of other versions, which only the record of a segment tells.
_OF_OTHER_VERSIONS: Final = ("REPAIR", "RESTORE")


def described_payload(
    name: str, payload: bytes, version: Mapping[str, Any], schemas: Mapping[int, TableSchema]
) -> SegmentMeta | None:
    """Returns the description of an inline segment, None where its bytes do not prove one.

    A schema revision and a list of hidden columns fit if the rows read with them have the same bytes again.
    All that fit have to agree about the columns.

    Args:
        version: the record of the version that added the segment.
        schemas: the revisions that are known.
    """
    if version["operation"] in _OF_OTHER_VERSIONS:
        return None
    fitting = {
        (tuple((column.id, str(column.type)) for column in schema.columns), hidden): meta
        for schema in sorted(schemas.values(), key=lambda schema: schema.revision)
        if schema.revision <= version["revision"]
        for hidden in _hidden_columns(schema)
        if (meta := _meta(name, payload, schema, hidden)) is not None
    }
    return next(iter(fitting.values())) if len(fitting) == 1 else None


def _hidden_columns(schema: TableSchema) -> Iterator[tuple[str, ...]]:
    names = [field.name for field in schema.hidden_fields()]
    for hidden in chain.from_iterable(combinations(names, count) for count in range(len(names) + 1)):
        if (ROW_ID_COL in hidden) == schema.is_duplicate:
            yield hidden


def _meta(name: str, payload: bytes, schema: TableSchema, hidden: tuple[str, ...]) -> SegmentMeta | None:
    try:
        rows = ipc.read_record_batch(pa.py_buffer(payload), schema.stored_arrow(hidden))
        rows.validate(full=True)
        if rows.serialize().to_pybytes() != payload:
            return None
    except (pa.ArrowException, OSError, ValueError):
        return None
    count = rows.num_rows
    tombstones = pc.sum(rows.column(DELETE_SIGN), min_count=0).as_py() if DELETE_SIGN in hidden else 0
    return SegmentMeta(
        name, INLINE, "none", schema.revision, count, count, tombstones, hidden, data_bytes=len(payload)
    )
