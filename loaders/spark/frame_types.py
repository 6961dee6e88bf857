"""Column types between the store and Spark.

Spark has no integer of 128 bits and no decimal of more than 38 digits: LARGEINT and wider DECIMALs are read
as strings, which hold every value exactly, and are written from strings or decimals. DATETIME has no time
zone and is `timestamp_ntz`. CHAR, VARCHAR and JSON are strings. Everything else has its namesake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from seqstore.store import InvalidInputError, TableSchema
from seqstore.store.types.cast import decimal_texts

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_DECIMAL_DIGITS_MAX: Final = 38


def frame_schema(schema: TableSchema, names: Sequence[str]) -> StructType:
    """Returns columns of a table, hidden ones too, as Spark declares them.

    Args:
        names: canonical names, in the order of the result.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = [pa.field(f.name, _spark_readable(f.type), f.nullable) for f in schema.arrow_of(names)]
    return from_arrow_schema(pa.schema(fields))


def frame_rows(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Returns rows of the store in the types that Spark expects; wide decimals become texts.

    Args:
        wanted: the types of the batch's columns, from `arrow_schema`.
    """
    if batch.schema.equals(wanted):
        return batch
    columns = [
        decimal_texts(column)
        if pa.types.is_decimal(column.type) and not pa.types.is_decimal(field.type)
        else column
        for column, field in zip(batch.columns, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=wanted.names).cast(wanted)


def arrow_schema(frame: StructType) -> pa.Schema:
    """Returns the Arrow schema in which Spark expects rows of a frame.

    Raises:
        InvalidInputError: a `timestamp` with a zone, which no column of a table is.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    schema: pa.Schema = to_arrow_schema(frame, timezone="UTC")
    for field in schema:
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            raise InvalidInputError(
                f"column {field.name!r} was asked for as timestamp; a DATETIME has no time zone: declare it "
                "timestamp_ntz",
                kind="bad_type",
            )
    return schema


def written_schema(frame: StructType, table: TableSchema) -> pa.Schema:
    """Returns the Arrow schema in which Spark hands out rows of a frame that is to be written.

    Raises:
        InvalidInputError: a VARIANT, or a struct with a field that the table's column does not have.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    for column in frame:
        if _has_variant(column.dataType):
            raise InvalidInputError(
                f"column {column.name!r} is or holds a VARIANT, which no column of a table is; write "
                f"to_json({column.name}) into a JSON column",
                kind="bad_type",
                column=column.name,
            )
    schema: pa.Schema = to_arrow_schema(frame, timezone="UTC")
    for field in schema:
        stored = table.find(field.name)
        if stored is not None:
            _refuse_unknown_fields(field.name, field.type, stored.type.arrow)
    return schema


def _has_variant(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(kind, ArrayType):
        return _has_variant(kind.elementType)
    if isinstance(kind, MapType):
        return _has_variant(kind.keyType) or _has_variant(kind.valueType)
    if isinstance(kind, StructType):
        return any(_has_variant(field.dataType) for field in kind)
    return isinstance(kind, VariantType)


def _refuse_unknown_fields(path: str, given: pa.DataType, stored: pa.DataType) -> None:
    """Refuses fields that the stored struct lacks, as columns are refused; Arrow would drop them silently."""
    if _is_list(given) and _is_list(stored):
        _refuse_unknown_fields(path, given.value_type, stored.value_type)
    elif pa.types.is_map(given) and pa.types.is_map(stored):
        _refuse_unknown_fields(path, given.key_type, stored.key_type)
        _refuse_unknown_fields(path, given.item_type, stored.item_type)
    elif pa.types.is_struct(given) and pa.types.is_struct(stored):
        known = {stored.field(i).name.lower(): stored.field(i).type for i in range(stored.num_fields)}
        for field in (given.field(i) for i in range(given.num_fields)):
            if field.name.lower() not in known:
                raise InvalidInputError(
                    f"unknown field {field.name!r} of {path!r}; the table has {', '.join(known)}",
                    kind="unknown_column",
                    column=path,
                )
            _refuse_unknown_fields(f"{path}.{field.name}", field.type, known[field.name.lower()])


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def is_kept(kind: pa.DataType) -> bool:
    """Returns whether Spark has the type a column is stored in."""
    return bool(_spark_readable(kind) == kind)


def _spark_readable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(kind) and kind.precision > _DECIMAL_DIGITS_MAX:
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_spark_readable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_spark_readable(kind.key_type), _spark_readable(kind.item_type))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([pa.field(field.name, _spark_readable(field.type)) for field in fields])
    return kind
