"""The zero value of a type, which the NOT NULL cells of a tombstone hold (D10)."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc


def fill_zero_values(values: pa.Array, where: pa.BooleanArray) -> pa.Array:
    """Sets some cells to the zero value of their type.

    Zero values are 0, false, the epoch, an empty string, list or map, and a struct of NULLs.
    """
    return pc.if_else(where, zero_value(values.type), values)


def zero_value(arrow: pa.DataType) -> pa.Scalar:
    """Returns the zero value of an Arrow type."""
    if pa.types.is_nested(arrow):
        return pa.scalar({} if pa.types.is_struct(arrow) else [], arrow)
    if pa.types.is_string(arrow):
        return pa.scalar("")
    if pa.types.is_decimal(arrow):
        return pa.scalar(Decimal(0), arrow)
    return pa.scalar(0, pa.int64() if pa.types.is_timestamp(arrow) else pa.int32()).cast(arrow)


def empty_values(field: pa.Field, rows: int) -> pa.Array:
    """Returns cells without meaning: NULL, or the zero value where the column is NOT NULL."""
    return pa.nulls(rows, field.type) if field.nullable else pa.repeat(zero_value(field.type), rows)
