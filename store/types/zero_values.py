"""The zero of a type: what a tombstone's NOT NULL cells hold (D10)."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc


def fill_zero(values: pa.Array, where: pa.BooleanArray) -> pa.Array:
    """Some cells set to 0, false, the epoch, the empty string, list, map or a struct of NULLs."""
    return pc.if_else(where, zero_of(values.type), values)


def zero_of(arrow: pa.DataType) -> pa.Scalar:
    """The zero of an Arrow type."""
    if pa.types.is_nested(arrow):
        return pa.scalar({} if pa.types.is_struct(arrow) else [], arrow)
    if pa.types.is_string(arrow):
        return pa.scalar("")
    if pa.types.is_decimal(arrow):
        return pa.scalar(Decimal(0), arrow)
    return pa.scalar(0, pa.int64() if pa.types.is_timestamp(arrow) else pa.int32()).cast(arrow)


def empty_values(field: pa.Field, rows: int) -> pa.Array:
    """Cells that mean nothing: NULL, or the zero of the type where NULL may not be."""
    return pa.nulls(rows, field.type) if field.nullable else pa.repeat(zero_of(field.type), rows)
