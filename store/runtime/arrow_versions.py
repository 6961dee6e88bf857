"""Arrow from 18 on: the calls that differ between its supported versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

# Since 25 each sort key places its own NULLs, and an option for all keys raises a warning.
_KEYS_PLACE_NULLS: Final = int(pa.__version__.partition(".")[0]) >= 25


def sorted_nulls_first(table: pa.Table, names: Sequence[str]) -> pa.UInt64Array:
    """Returns the order of the rows by these columns, ascending."""
    if _KEYS_PLACE_NULLS:
        return pc.sort_indices(table, sort_keys=[(name, "ascending", "at_start") for name in names])
    return pc.sort_indices(
        table, sort_keys=[(name, "ascending") for name in names], null_placement="at_start"
    )


def sort_order(table: pa.Table, names: Sequence[str], *, is_descending: bool = False) -> pa.UInt64Array:
    """Returns the order of the rows by these columns: ascending with NULL first, or the reverse."""
    if not is_descending:
        return sorted_nulls_first(table, names)
    if _KEYS_PLACE_NULLS:
        return pc.sort_indices(table, sort_keys=[(name, "descending", "at_end") for name in names])
    return pc.sort_indices(table, sort_keys=[(name, "descending") for name in names])


def dense_ranks_nulls_first(column: pa.Array) -> pa.UInt64Array:
    """Ranks the values from 1, equal ones alike and without gaps."""
    if _KEYS_PLACE_NULLS:
        return pc.rank(column, sort_keys=[("", "ascending", "at_start")], tiebreaker="dense")
    return pc.rank(column, sort_keys="ascending", null_placement="at_start", tiebreaker="dense")


def batch_bytes(batch: pa.RecordBatch | pa.Table) -> int:
    """Counts the bytes of the values.

    Arrow before 22 cannot measure a string view; there the buffers around the values count.
    """
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        return int(batch.get_total_buffer_size())


def python_rows(data: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Returns a dict for each row, by column; `to_pylist` has pairs for maps before pyarrow 20.

    Raises:
        ValueError: a map has a key twice.
    """
    rows: list[dict[str, Any]] = data.to_pylist()
    nested = [field for field in data.schema if pa.types.is_nested(field.type)]
    for row in rows:
        for field in nested:
            row[field.name] = _value(row[field.name], field.type)
    return rows


def _value(found: Any, kind: pa.DataType) -> Any:
    if found is None or not pa.types.is_nested(kind):
        return found
    if pa.types.is_map(kind):
        named = {key: _value(item, kind.item_type) for key, item in found}
        if len(named) < len(found):
            raise ValueError(f"a map has a key twice: {[key for key, _ in found]}")
        return named
    if pa.types.is_struct(kind):
        return {field.name: _value(found[field.name], field.type) for field in kind}
    return [_value(item, kind.value_type) for item in found]
