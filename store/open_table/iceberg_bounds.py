"""Counts and bounds of the columns of a data file for Iceberg, from the zone maps of its segment.

Keys are field ids; a bound is a value in Iceberg's binary form. Bounds are those of all rows, hidden ones
included. A column has none where the zone maps do not know them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from seqstore.store.schema.column import Column
from seqstore.store.segment.segment import Segment

_FORMS: Final = {
    "TINYINT": "<i",
    "SMALLINT": "<i",
    "INT": "<i",
    "BIGINT": "<q",
    "FLOAT": "<f",
    "DOUBLE": "<d",
    "DATE": "<i",
    "DATETIME": "<q",
}


def column_metrics(segment: Segment) -> Mapping[str, dict[int, Any]]:
    """Returns the metrics of a data file by their names in a manifest."""
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    low: dict[int, bytes] = {}
    high: dict[int, bytes] = {}
    for column in segment.schema.columns:
        zones = segment.meta.zones.get(column.name)
        if not zones or any(zone is None for zone in zones):
            continue
        known = [zone for zone in zones if zone[0] is not None]
        if not any(zone[2] for zone in zones) or not known:
            values[column.id] = segment.meta.rows
            nulls[column.id] = 0 if known else segment.meta.rows
        if known:
            _put(low, column, [zone[0] for zone in known], is_upper=False)
            _put(high, column, [zone[1] for zone in known], is_upper=True)
    return {"value_counts": values, "null_value_counts": nulls, "lower_bounds": low, "upper_bounds": high}


def _put(bounds: dict[int, bytes], column: Column, values: list[Any], *, is_upper: bool) -> None:
    if any(value is None for value in values):
        return
    kind = column.type.name
    if kind == "DECIMAL":
        bounds[column.id] = _unscaled([Decimal(value) for value in values], column.type.params[1], is_upper)
        return
    value = max(values) if is_upper else min(values)
    if isinstance(value, float):
        if not math.isfinite(value):
            return
        if value == 0:  # readers order -0 before 0, and the zone maps do not
            value = math.copysign(0.0, 1 if is_upper else -1)
    bounds[column.id] = value.encode() if isinstance(value, str) else struct.pack(_FORMS[kind], value)


def _unscaled(values: list[Decimal], scale: int, is_upper: bool) -> bytes:
    """Returns a decimal's digits as the shortest big-endian number in two's complement."""
    sign, digits, exponent = (max(values) if is_upper else min(values)).as_tuple()
    number: int = int("".join(map(str, digits))) * 10 ** (scale + int(exponent)) * (-1 if sign else 1)
    bits = (number if number >= 0 else -number - 1).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)
