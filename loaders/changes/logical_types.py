"""Debezium's logical types: from the JSON text of a value to the text that a column's cast reads.

| logical type | JSON | for a column of dates, times or text | for another column |
| --- | --- | --- | --- |
| Date | days since 1970 | `2024-05-01` | the number |
| Timestamp, MicroTimestamp, NanoTimestamp | ms, us, ns since 1970 | `2024-05-01 08:00:00.123` | the number |
| Time, MicroTime, NanoTime | ms, us, ns since midnight | `08:00:00.123456` in a text | the number |
| ZonedTimestamp, ZonedTime | text | the text | the text |
| IsoDate, IsoTime, IsoTimestamp | text | the text without its zone | the text |
| Decimal | base64 of the unscaled value; the scale is in the schema | the decimal | the decimal |
| VariableScaleDecimal | an object of scale and base64 | the decimal | the decimal |
| Bits | base64, the lowest byte first | bits as text | the number |

All other types come as they are: Enum, EnumSet, Json, Xml, Uuid, Ltree, Interval, MicroDuration, Year, bytes
(base64). Objects, among them geometries, and arrays are their JSON text, which only columns of text, JSON and
nested types accept. Without a schema, integers for DATE are days, and integers for DATETIME have the unit of
`change_time_unit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.changes.field_type import FieldType
from seqstore.loaders.json.fields import extract, one_array
from seqstore.store.types.cast import decimal_texts, evaluate, try_cast
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType

_TIMES: Final = ("DATE", "DATETIME")
_TEXTS: Final = ("CHAR", "VARCHAR", "STRING")
_NUMBERS: Final = (*INTEGER_RANGES, "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")
_PER_SECOND: Final = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_CONNECT: Final = "org.apache.kafka.connect.data."
_DEBEZIUM: Final = "io.debezium."
_DATES: Final = (f"{_DEBEZIUM}time.Date", f"{_CONNECT}Date")
_MOMENTS: Final = {
    f"{_DEBEZIUM}time.Timestamp": "ms",
    f"{_CONNECT}Timestamp": "ms",
    f"{_DEBEZIUM}time.MicroTimestamp": "us",
    f"{_DEBEZIUM}time.NanoTimestamp": "ns",
}
_CLOCKS: Final = {
    f"{_DEBEZIUM}time.Time": "ms",
    f"{_CONNECT}Time": "ms",
    f"{_DEBEZIUM}time.MicroTime": "us",
    f"{_DEBEZIUM}time.NanoTime": "ns",
}
_ISO: Final = (f"{_DEBEZIUM}time.IsoDate", f"{_DEBEZIUM}time.IsoTimestamp", f"{_DEBEZIUM}time.IsoTime")
_DECIMAL: Final = f"{_CONNECT}Decimal"
_VARIABLE: Final = f"{_DEBEZIUM}data.VariableScaleDecimal"
_BITS: Final = f"{_DEBEZIUM}data.Bits"
_BIGINT: Final = ColumnType("BIGINT")
_TEXT: Final = ColumnType("STRING")
# Without a unit: below the first bound milliseconds, below the second microseconds. Milliseconds reach the
# year 5138 there, and microseconds begin in March 1973.
_UNIT_BOUNDS: Final = (10**14, 10**17)
_DECIMAL_BYTES: Final = 32
_SCALE: Final = re.compile(r"-?[0-9]{1,4}")

Octets = npt.NDArray[np.uint8]
Whole = npt.NDArray[np.int64]


def decoded(values: pa.Array, field: FieldType | None, column: ColumnType | None, unit: str) -> pa.Array:
    """Returns values as texts that the cast to the column's type reads.

    Args:
        values: JSON texts of scalars, NULL for null.
        field: the declared type, None without a schema.
        column: the type of the column, None for a field that only expressions use.
        unit: of integers for DATETIME without a schema: `auto`, `ms`, `us` or `ns`.

    Returns:
        Texts; a value that is none of its declared type stays as it is, so its cast refuses it.
    """
    target = column or _TEXT
    if field is None:
        return _guessed(values, target, unit)
    name = field.name
    if name in _DATES and target.name in (*_TIMES, *_TEXTS):
        return _of_integers(values, _dates)
    if name in _MOMENTS and target.name in (*_TIMES, *_TEXTS):
        return _of_integers(values, lambda numbers: _moments(numbers, _MOMENTS[name]))
    if name in _CLOCKS and target.name in _TEXTS:
        return _of_integers(values, lambda numbers: _clocks(numbers, _CLOCKS[name]))
    if name in _ISO and target.name in (*_TIMES, *_TEXTS):
        return pc.replace_substring_regex(values, "Z$", "")
    if name == _DECIMAL and field.base == "bytes":
        return _decimals(values, field.scale)
    if name == _VARIABLE:
        return _variable_decimals(values)
    if name == _BITS:
        return _bits(values, field.length, as_text=target.name in _TEXTS)
    return values


def _guessed(values: pa.Array, target: ColumnType, unit: str) -> pa.Array:
    """Converts values without a declared type by the type of their column."""
    if target.name == "DATE":
        return _of_integers(values, _dates)
    if target.name == "DATETIME":
        return _of_integers(values, lambda numbers: _moments_of_unit(numbers, unit))
    if target.name in _NUMBERS:
        return _variable_decimals(values)
    return values


def _of_integers(values: pa.Array, convert: Callable[[Whole], pa.Array]) -> pa.Array:
    """Converts the texts that are integers; others stay."""
    is_whole = pc.fill_null(pc.match_substring_regex(values, "^-?[0-9]{1,19}$"), False)
    if not is_whole.true_count:
        return values
    numbers = try_cast(pc.if_else(is_whole, values, "0"), _BIGINT).values
    fits = pc.and_(is_whole, numbers.is_valid())
    converted = convert(np.asarray(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)))
    return pc.if_else(fits, converted, values)


def _dates(days: Whole) -> pa.Array:
    fits = np.abs(days) < 3_000_000  # the years 9999 and 0 are nearer
    dates = pa.array(np.where(fits, days, 0).astype(np.int32)).cast(pa.date32()).cast(pa.string())
    return pc.if_else(pa.array(fits), dates, pa.array(days).cast(pa.string()))


def _moments(numbers: Whole, unit: str) -> pa.Array:
    """Returns moments as text, in microseconds at most; later digits are cut off."""
    per = _PER_SECOND[unit]
    micros = numbers // 1000 if unit == "ns" else numbers
    seconds = numbers // per
    fits = np.abs(seconds) < 260_000_000_000  # the years 9999 and 0 are nearer
    micros = np.where(fits, micros, 0) * (1000 if unit == "ms" else 1)
    text = pa.array(micros).cast(pa.timestamp("us")).cast(pa.string())
    return pc.if_else(pa.array(fits), text, pa.array(numbers).cast(pa.string()))


def _moments_of_unit(numbers: Whole, unit: str) -> pa.Array:
    if unit != "auto":
        return _moments(numbers, unit)
    size = np.abs(numbers.astype(np.float64))
    first, second = _UNIT_BOUNDS
    masks = [(size < first, "ms"), ((size >= first) & (size < second), "us"), (size >= second, "ns")]
    result = _moments(np.where(masks[0][0], numbers, 0), "ms")
    for mask, name in masks[1:]:
        if mask.any():
            result = pc.if_else(pa.array(mask), _moments(np.where(mask, numbers, 0), name), result)
    return result


def _clocks(numbers: Whole, unit: str) -> pa.Array:
    """Returns times of a day, and durations of MySQL's TIME, which may be negative or beyond a day."""
    micros = np.abs(numbers) // 1000 if unit == "ns" else np.abs(numbers) * (1000 if unit == "ms" else 1)
    seconds, fraction = np.divmod(micros, 10**6)
    parts = [seconds // 3600, seconds // 60 % 60, seconds % 60]
    texts = [pc.utf8_lpad(pa.array(part).cast(pa.string()), 2, "0") for part in parts]
    text = pc.binary_join_element_wise(*texts, ":")
    if fraction.any():
        digits = pc.utf8_lpad(pa.array(fraction).cast(pa.string()), 6, "0")
        text = pc.binary_join_element_wise(text, digits, ".")
    return pc.if_else(pa.array(numbers < 0), pc.binary_join_element_wise("-", text, ""), text)


# ----------------------------------------------------------------------------------------------- base64


def _decimals(values: pa.Array, scale: int) -> pa.Array:
    """Converts the base64 of big-endian integers with a scale."""
    octets, valid = _octets(values)
    if not valid.any() or not -76 <= scale <= 76:
        return values
    numbers = pa.Array.from_buffers(
        pa.decimal256(76, max(scale, 0)), len(values), [None, pa.py_buffer(octets.tobytes())]
    )
    texts = decimal_texts(numbers)
    if scale < 0:
        texts = pc.binary_join_element_wise(texts, "0" * -scale, "")
    return pc.if_else(pa.array(valid), texts, values)


def _variable_decimals(values: pa.Array) -> pa.Array:
    """Converts objects of a scale and a base64 text; other values stay."""
    is_object = pc.fill_null(pc.match_substring(values, '"scale"'), False)
    if not is_object.true_count:
        return values
    places = np.flatnonzero(is_object.to_numpy(zero_copy_only=False))
    result = values.take(pa.array(places))
    scales, unscaled = extract(result, [["$.scale"], ["$.value"]])
    for scale in pc.unique(scales).to_pylist():
        if scale is not None and _SCALE.fullmatch(scale):
            converted = _decimals(unscaled, int(scale))
            result = pc.if_else(pc.fill_null(pc.equal(scales, scale), False), converted, result)
    return pc.replace_with_mask(values, is_object, one_array(result))


def _bits(values: pa.Array, length: int, *, as_text: bool) -> pa.Array:
    """Converts the base64 of little-endian bits."""
    octets, valid = _octets(values, is_little=True)
    if not valid.any():
        return values
    if as_text:
        bits = np.unpackbits(octets, axis=1, bitorder="little")[:, : max(length, 1)][:, ::-1]
        digits = np.ascontiguousarray(bits + ord("0")).tobytes()
        texts = pa.Array.from_buffers(pa.binary(bits.shape[1]), len(values), [None, pa.py_buffer(digits)])
        converted = texts.cast(pa.binary()).cast(pa.string())
    else:
        buffer = pa.py_buffer(octets.tobytes())
        numbers = pa.Array.from_buffers(pa.decimal256(76, 0), len(values), [None, buffer])
        converted = numbers.cast(pa.string())
    return pc.if_else(pa.array(valid), converted, values)


def _octets(values: pa.Array, *, is_little: bool = False) -> tuple[Octets, npt.NDArray[np.bool_]]:
    """Returns base64 texts as little-endian integers of 32 bytes, and which of them are such texts."""
    form = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
    is_base64 = pc.fill_null(pc.match_substring_regex(values, form), False)
    raw = evaluate(pc.if_else(is_base64, values, ""), "from_base64(c)").cast(pa.binary())
    lengths = np.asarray(pc.binary_length(raw).to_numpy(zero_copy_only=False))
    valid = is_base64.to_numpy(zero_copy_only=False) & (lengths > 0) & (lengths <= _DECIMAL_BYTES)
    octets = np.zeros((len(values), _DECIMAL_BYTES), np.uint8)
    for length in np.unique(lengths[valid]).tolist():
        rows = np.flatnonzero(valid & (lengths == length))
        taken = raw.take(pa.array(rows)).cast(pa.binary(length))
        own = np.frombuffer(taken.buffers()[1], np.uint8)[: len(rows) * length].reshape(-1, length)
        if not is_little:
            own = own[:, ::-1]
            octets[rows[own[:, -1] >= 0x80]] = 0xFF  # the sign
        octets[rows[:, None], np.arange(length)] = own
    return octets, valid
