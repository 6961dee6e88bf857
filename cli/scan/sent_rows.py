"""Rows as Doris sends them in Arrow: only types that its connectors read.

LARGEINT                             text
DATETIME                             text with six digits, or a timestamp in microseconds
DECIMAL of more than 38 digits       text
ARRAY, MAP, STRUCT                   of such values

The connectors guess the unit of a timestamp by its size, and so misread the years before 1970 and the first
months of that year. They read text exactly, so what they read by TABLET has no timestamps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import ColumnType, parse_type
from seqstore.store.types.fraction_digits import datetime_texts

_STRING: Final = parse_type("STRING")
_LARGEINT: Final = parse_type("LARGEINT").arrow
_DECIMAL128_DIGITS: Final = 38
_DATETIME_DIGITS: Final = 6


def primitive_type(kind: ColumnType) -> str:
    """Returns the name that `_schema` has for a column's type."""
    if kind.name == "DECIMAL":
        digits = kind.params[0]
        return next(
            (f"DECIMAL{bits}" for most, bits in ((9, 32), (18, 64), (38, 128)) if digits <= most),
            "DECIMAL256",
        )
    return {"DATE": "DATEV2", "DATETIME": "DATETIMEV2", "JSON": "JSONB"}.get(kind.name, kind.name)


def sent_type(kind: pa.DataType, *, has_timestamps: bool) -> pa.DataType:
    """Returns the type that the values of a column are sent in."""
    if pa.types.is_dictionary(kind):
        return sent_type(kind.value_type, has_timestamps=has_timestamps)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(sent_type(kind.value_type, has_timestamps=has_timestamps))
    if pa.types.is_map(kind):
        key, item = (
            sent_type(each, has_timestamps=has_timestamps) for each in (kind.key_type, kind.item_type)
        )
        return pa.map_(key, item)
    if pa.types.is_struct(kind):
        fields = (kind.field(place) for place in range(kind.num_fields))
        return pa.struct(
            [(each.name, sent_type(each.type, has_timestamps=has_timestamps)) for each in fields]
        )
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us") if has_timestamps else pa.string()
    is_wide = pa.types.is_decimal256(kind) and (kind == _LARGEINT or kind.precision > _DECIMAL128_DIGITS)
    if is_wide or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_decimal256(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return _WIDER.get(kind, kind)


# Of functions of DuckDB; Doris has no unsigned integers.
_WIDER: Final[dict[pa.DataType, pa.DataType]] = {
    pa.null(): pa.bool_(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.string(),
}


def sent_schema(schema: pa.Schema, *, has_timestamps: bool) -> pa.Schema:
    """Returns the columns that are sent for those of a query."""
    return pa.schema([(field.name, sent_type(field.type, has_timestamps=has_timestamps)) for field in schema])


def sent_batches(
    rows: pa.RecordBatchReader, schema: pa.Schema, rows_max: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a query in the types of `sent_schema`, in batches of at most `rows_max` rows."""
    for batch in rows:
        columns = [_sent(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
        sent = pa.RecordBatch.from_arrays(columns, schema=schema)
        step = rows_max or max(sent.num_rows, 1)
        for start in range(0, sent.num_rows, step):
            yield sent.slice(start, step)


def sent_table(rows: pa.Table) -> pa.Table:
    """Returns rows in the types that are sent; timestamps stay."""
    schema = sent_schema(rows.schema, has_timestamps=True)
    return pa.Table.from_batches(list(sent_batches(rows.to_reader(), schema)), schema)


def _sent(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        return _sent(column.dictionary_decode(), kind)
    if pa.types.is_timestamp(column.type) and pa.types.is_string(kind):
        return datetime_texts(column, _DATETIME_DIGITS)
    if pa.types.is_map(kind):
        offsets, keys, items = (
            column.offsets,
            _sent(column.keys, kind.key_type),
            _sent(column.items, kind.item_type),
        )
        return pa.MapArray.from_arrays(_with_nulls(offsets, column), keys, items).cast(kind)
    if pa.types.is_list(kind):
        values = _sent(column.values, kind.value_type)
        return type(column).from_arrays(_with_nulls(column.offsets, column), values).cast(kind)
    if pa.types.is_struct(kind):
        parts = [_sent(part, field.type) for part, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_decimal(column.type) and pa.types.is_string(kind):
        return try_cast(column, _STRING).values.cast(kind)
    return column.cast(kind)


def _with_nulls(offsets: pa.Array, column: pa.Array) -> pa.Array:
    """Marks the rows of a list that are NULL, where `from_arrays` looks for them."""
    if not column.null_count:
        return offsets
    is_null = pa.concat_arrays([column.is_null(), pa.array([False])])
    return pa.compute.if_else(is_null, pa.scalar(None, offsets.type), offsets)
