"""Spark's `timestamp` as a DATETIME, which has no zone: every value as the session's time zone shows it.

A frame is cast by Spark (`without_zones`); rows that a task was handed already are turned here
(`local_times`). Both have the same times. Nested ones are found too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfoNotFoundError

import pyarrow as pa

from seqstore.store import InvalidInputError
from seqstore.store.types.time_zones import local_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")


def without_zones(df: DataFrame) -> DataFrame:
    """Returns the frame with every `timestamp` as a `timestamp_ntz`."""
    from pyspark.sql import functions

    kinds = [(field.name, field.dataType, _without_zone(field.dataType)) for field in df.schema]
    if all(kind == plain for _, kind, plain in kinds):
        return df
    quoted = [("`" + name.replace("`", "``") + "`", name, plain) for name, _, plain in kinds]
    return df.select([functions.col(column).cast(plain).alias(name) for column, name, plain in quoted])


def _without_zone(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType, TimestampNTZType, TimestampType

    if isinstance(kind, TimestampType):
        return TimestampNTZType()
    if isinstance(kind, ArrayType):
        return ArrayType(_without_zone(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_without_zone(kind.keyType), _without_zone(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, StructType):
        fields = [StructField(field.name, _without_zone(field.dataType), field.nullable) for field in kind]
        return StructType(fields)
    return kind


def local_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the batch with every time as its own zone shows it, which Spark sets to the session's.

    Raises:
        InvalidInputError: Arrow does not know the zone.
    """
    fields = [field.with_type(_local_type(field.type)) for field in batch.schema]
    if all(before.type == after.type for before, after in zip(batch.schema, fields, strict=True)):
        return batch
    columns = [_localized(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _local_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if pa.types.is_map(kind):
        return pa.map_(_local_field(kind.key_field), _local_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_local_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_local_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_local_field(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def _local_field(field: pa.Field) -> pa.Field:
    return field.with_type(_local_type(field.type))


def _localized(array: Any) -> pa.Array:
    kind, wanted = array.type, _local_type(array.type)
    if kind == wanted:
        return array
    if pa.types.is_timestamp(kind):
        return _local_time(array)
    if pa.types.is_struct(kind):
        parts = [_localized(array.field(i)) for i in range(kind.num_fields)]
        fields = [wanted.field(i) for i in range(kind.num_fields)]
        mask = array.is_null() if array.null_count else None  # the entries of a map must not have one
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    # Lists and maps keep their offsets: only what they point to changes.
    values, own = [_localized(array.values)], array.buffers()[:2]
    return pa.Array.from_buffers(wanted, len(array), own, array.null_count, array.offset, values)


def _local_time(array: pa.Array) -> pa.Array:
    zone = array.type.tz
    offset = _OFFSET.fullmatch(zone)
    if zone == "Z":
        zone = "UTC"
    elif offset is not None:  # Java has more ways to write one than Arrow
        sign, hours, minutes = offset.groups()
        zone = f"{sign}{int(hours):02}:{minutes or '00'}"
    try:
        return local_time(array, zone)
    except ZoneInfoNotFoundError as error:
        raise InvalidInputError(
            f"time zone {array.type.tz!r} is not known here ({error}); set spark.sql.session.timeZone to the "
            "name of a region or to an offset, or write timestamp_ntz",
            kind="bad_time_zone",
        ) from error
