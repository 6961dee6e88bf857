"""Casts values of any Arrow type to the exact Arrow type of a column and reports the rows that cannot be
cast.

outcome.py   the result, and the step from the fast cast to the row-wise one
numbers.py   integers, floats, decimals, booleans
times.py     DATE and DATETIME, zones
nested.py    JSON, ARRAY, MAP, STRUCT
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast.nested import evaluate, text_literal, to_json, to_nested, to_text
from seqstore.store.types.cast.numbers import decimal_texts, to_boolean, to_decimal, to_float, to_integer
from seqstore.store.types.cast.outcome import Cast, by_slices, is_ascii, is_valid, masked, outcome
from seqstore.store.types.cast.times import check_zone, in_calendar, to_date, to_datetime
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType
from seqstore.store.types.time_zones import local_time

__all__ = ["Cast", "check_zone", "decimal_texts", "evaluate", "text_literal", "try_cast"]

_TEXT = ("CHAR", "VARCHAR", "STRING")
_NUMERIC = {"FLOAT": to_float, "DOUBLE": to_float, "DECIMAL": to_decimal, "BOOLEAN": to_boolean}
_NUMERIC |= dict.fromkeys(INTEGER_RANGES, to_integer)


def try_cast(array: pa.Array | pa.ChunkedArray, to: ColumnType, *, zone: str = "UTC") -> Cast:
    """Converts values to the Arrow type of a column.

    Args:
        array: any Arrow type; dictionaries, views, large types and run-end encoding included.
        to: the type of the column. The cast ignores lengths of CHAR and VARCHAR; the engine checks them (Y5).
        zone: time zone into which values with a zone are converted (Y13); a name that `check_zone` returned.

    Returns:
        The values and the rows that lost theirs; see `Cast`. A column that is already of the right type is
        returned without a copy.

    Raises:
        InvalidInputError: no value of the array's type can become the column's type, such as a list for an
            INT.
    """
    source = _flat(array)
    is_done = source.type.equals(to.arrow) and _needs_no_check(to)
    if pa.types.is_string(source.type) and not (is_ascii(source) or is_valid(source)):
        source, is_done = source.view(pa.binary()), False
    if is_done:
        return Cast(source)
    if pa.types.is_null(source.type):
        return Cast(pa.nulls(len(source), to.arrow))
    if pa.types.is_binary(source.type):
        text = by_slices(source, [lambda piece: piece.cast(pa.string())], _decoded_rows)
        converted = try_cast(text.values, to, zone=zone)
        if text.failed is None:
            return converted
        return outcome(source, converted.values, converted.out_of_range)
    result = _dispatch(source, to, zone)
    if result is None:
        raise InvalidInputError(
            f"values of Arrow type {source.type} cannot become {to}; cast them first", kind="bad_type"
        )
    return result


def _needs_no_check(to: ColumnType) -> bool:
    """Returns whether every value of the type's Arrow type is a value of the type."""
    return to.name not in ("LARGEINT", "JSON", "DATE", "DATETIME") and not to.is_nested


def _dispatch(source: pa.Array, to: ColumnType, zone: str) -> Cast | None:
    if to.name in _NUMERIC:
        return _NUMERIC[to.name](source, to)
    if to.name == "DATE":
        return to_date(source, to, zone)
    if to.name == "DATETIME":
        return to_datetime(source, to, zone)
    if to.name == "JSON":
        return to_json(source, to)
    if to.is_nested:
        return to_nested(source, to, lambda child, child_type: try_cast(child, child_type, zone=zone))
    return _to_text(source, zone)


def _to_text(source: pa.Array, zone: str) -> Cast | None:
    kind = source.type
    if pa.types.is_string(kind):
        return Cast(source)
    if pa.types.is_boolean(kind):
        return Cast(pc.if_else(source, "1", "0"))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        source = local_time(source, zone)
    if pa.types.is_nested(kind):
        return to_text(source)
    if pa.types.is_decimal(kind):
        return Cast(decimal_texts(source))
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return outcome(source, in_calendar(source).cast(pa.string()))
    try:
        text = source.cast(pa.string())
    except pa.ArrowNotImplementedError:
        return None
    if not pa.types.is_temporal(kind):
        return Cast(text)
    beyond = pc.starts_with(text, "<value out of range")  # Arrow's text for times that it cannot format
    return outcome(source, masked(text, pc.invert(beyond))) if beyond.true_count else Cast(text)


def _flat(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns one plain array: no chunks, dictionaries, run-ends, extensions, views or 64-bit offsets."""
    if isinstance(array, pa.ChunkedArray):
        chunks = array.chunks or [pa.array([], array.type)]
        array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _flat(array.storage)
    if pa.types.is_dictionary(kind):
        return _flat(array.cast(kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        return _flat(pc.run_end_decode(array))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    return array


def _decoded_rows(source: pa.Array) -> Cast:
    """Decodes a slice with invalid UTF-8 value by value; Arrow has no such test."""
    valid = [v is not None and v == v.decode(errors="ignore").encode() for v in source.to_pylist()]
    return outcome(source, masked(source, pa.array(valid, pa.bool_())).cast(pa.string()))
