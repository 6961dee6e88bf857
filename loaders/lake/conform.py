"""Columns of files in the types of the table: names of nested fields, wider types, times without a zone."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from seqstore.loaders.lake.field import LakeField
from seqstore.store.types.time_zones import local_time

_FIELD_ID: Final = b"PARQUET:field_id"
_MICROSECONDS: Final = pa.timestamp("us")


def in_zone(moments: pa.Array, zone: str) -> pa.Array:
    """Returns times in UTC, with or without their zone, as the clock of a zone shows them."""
    utc = moments.cast(_MICROSECONDS, safe=False).cast(pa.timestamp("us", "UTC"))
    return local_time(utc, zone)


def conformed(values: pa.Array, field: LakeField, zone: str) -> pa.Array:
    """Returns values of a file in the type of a column.

    Raises:
        pa.ArrowException: they have no such values.
    """
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if field.type.name == "STRUCT":
        return _struct(values, field, zone)
    if field.type.name == "ARRAY":
        if pa.types.is_large_list(values.type):
            values = values.cast(pa.list_(values.type.value_field))
        element = conformed(values.values, field.children[0], zone)
        return pa.ListArray.from_arrays(
            _offsets(values), element, type=pa.list_(element.type), mask=_nulls(values)
        )
    if field.type.name == "MAP":
        key, value = field.children
        keys, items = conformed(values.keys, key, zone), conformed(values.items, value, zone)
        kind = pa.map_(keys.type, items.type)
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=kind, mask=_nulls(values))
    if field.is_moment:
        return in_zone(values, zone)
    is_time = pa.types.is_timestamp(values.type)
    return values.cast(field.type.arrow, safe=not is_time)


def _struct(values: pa.StructArray, field: LakeField, zone: str) -> pa.Array:
    columns = []
    for child in field.children:
        at = _place(values.type, child)
        columns.append(
            pa.nulls(len(values), child.type.arrow)
            if at is None
            else conformed(values.field(at), child, zone)
        )
    fields = [
        pa.field(child.name, column.type) for child, column in zip(field.children, columns, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=_nulls(values))


def _place(kind: pa.StructType, child: LakeField) -> int | None:
    for at in range(kind.num_fields):
        field = kind.field(at)
        number = (field.metadata or {}).get(_FIELD_ID)
        if child.number is not None:
            if number is not None and int(number) == child.number:
                return at
        elif field.name == child.stored_name:
            return at
    return None


def _nulls(values: pa.Array) -> pa.Array:
    return values.is_null()


def _offsets(values: pa.ListArray | pa.MapArray) -> pa.Array:
    """Returns the offsets as an array of their own: with a mask, Arrow takes no slice."""
    return pa.array(np.array(values.offsets), pa.int32())
