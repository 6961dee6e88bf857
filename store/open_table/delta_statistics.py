"""Statistics of a file for Delta, from the zone maps of its segment.

Bounds are those of all rows, deleted ones included: `tightBounds` is false where a deletion vector hides
some. A column has no entry where the zone maps do not know it, or where JSON cannot state the value exactly.
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from seqstore.store.open_table.appearance import OpenFile
from seqstore.store.schema.column import Column
from seqstore.store.schema.field_ids import file_column

_EPOCH: Final = datetime(1970, 1, 1)
_EXACT_DIGITS: Final = 15  # of decimals that a double states exactly


def statistics(file: OpenFile) -> str:
    """Returns the statistics as the log stores them."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    segment = file.segment
    for column in segment.schema.columns:
        zones = segment.meta.zones.get(column.name)
        if not zones or any(zone is None for zone in zones):
            continue
        name = file_column(segment.schema, column)
        known = [zone for zone in zones if zone[0] is not None]
        if not any(zone[2] for zone in zones):
            nulls[name] = 0
        elif not known:
            nulls[name] = file.rows
        if known:
            _put(low, name, _value(column, [zone[0] for zone in known], largest=False))
            _put(high, name, _value(column, [zone[1] for zone in known], largest=True))
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": low,
            "maxValues": high,
            "nullCount": nulls,
            "tightBounds": not file.hidden,
        }
    )


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        values[name] = value


def _value(column: Column, values: list[Any], *, largest: bool) -> Any:
    """Returns a bound as JSON has it, None where there is none."""
    if any(value is None for value in values):
        return None
    kind = column.type.name
    if kind == "DECIMAL":
        numbers = [Decimal(value) for value in values]
        text = repr(float(max(numbers) if largest else min(numbers)))
        return float(text) if column.type.params[0] <= _EXACT_DIGITS and "e" not in text else None
    value = max(values) if largest else min(values)
    try:
        if kind == "DATE":
            return (_EPOCH + timedelta(days=value)).date().isoformat()
        if kind == "DATETIME":
            return (_EPOCH + timedelta(microseconds=value)).isoformat(timespec="microseconds")
    except OverflowError:  # Python has no dates before the year 1
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, date) else value
