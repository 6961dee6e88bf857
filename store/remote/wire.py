"""The values that clients and servers of a store send each other: msgpack with a fixed list of types.

Plain values travel as msgpack has them. Everything else is an extension with a number of its own: Arrow
values as Arrow's IPC, values of the store by the name of their class (remote.values). A type that is not
listed here is refused by its sender and by its receiver: no bytes can name code to run.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError, StoreError
from seqstore.store.expressions.predicate import from_bytes, to_bytes
from seqstore.store.remote.values import from_fields, to_fields

PROTOCOL: Final = 1
"""The version of the requests; a server refuses others by their number."""

Encode = Callable[[Any], Any]
Decode = Callable[[Any], Any]
_TUPLE, _SET, _INTEGER, _DATETIME, _DATE, _TIME, _SPAN, _DECIMAL = range(1, 9)
_EXPRESSION, _SCALAR, _ARRAY, _ROWS, _SCHEMA, _VALUE, _MAPPING = range(16, 23)
_DEPTH_MAX: Final = 32


def packed(value: Any) -> bytes:
    """Returns a value as bytes.

    Raises:
        InvalidInputError: it has a part of a type that does not travel, such as a function.
    """
    try:
        data: bytes = msgpack.packb(value, default=_encoded, strict_types=True)
    except (ValueError, OverflowError, UnicodeEncodeError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"the value cannot be sent: {error}", kind="not_remote") from error
    return data


def unpacked(data: bytes) -> Any:
    """Restores a value of `packed`.

    Raises:
        InvalidInputError: the bytes are none.
    """
    return _unpacked(data, 0)


def _unpacked(data: bytes, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise _damaged("it is nested too deeply")

    def decoded(number: int, body: bytes) -> Any:
        found = _DECODE.get(number)
        if found is not None:
            return found(body)
        inner = _DECODE_INNER.get(number)
        if inner is None:
            raise _damaged(f"unknown type {number}; the other side may have a newer version")
        return inner(_unpacked(body, depth + 1))

    try:
        return msgpack.unpackb(data, ext_hook=decoded, strict_map_key=False, timestamp=0)
    except StoreError:
        raise
    except Exception as error:  # Arrow and msgpack have many
        raise _damaged(f"{type(error).__name__}: {error}") from error


def _damaged(reason: str) -> InvalidInputError:
    return InvalidInputError(f"the message cannot be read: {reason}", kind="bad_message")


def _encoded(value: Any) -> Any:
    for kinds, encode in _ENCODE:
        if isinstance(value, kinds):
            return encode(value)
    name, fields = to_fields(value)
    return msgpack.ExtType(_VALUE, packed([name, fields]))


def _extension(number: int, encode: Encode) -> Encode:
    def encoded(value: Any) -> msgpack.ExtType:
        return msgpack.ExtType(number, encode(value))

    return encoded


def _text(value: Any) -> bytes:
    return str(value).encode()


def _iso(value: Any) -> bytes:
    return bytes(value.isoformat(), "ascii")


def _span(value: dt.timedelta) -> bytes:
    return packed([value.days, value.seconds, value.microseconds])


def _array(value: pa.Array | pa.ChunkedArray) -> bytes:
    return _rows(pa.table({"": value}))


def _rows(value: pa.Table | pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as writer:
        writer.write(value)
    return bytes(memoryview(sink.getvalue()))


def _read_rows(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        rows = reader.read_all()
    rows.validate(full=True)
    return rows


def _read_array(body: bytes) -> pa.Array:
    column = _read_rows(body).column(0)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _expression(body: bytes) -> pc.Expression:
    with pa.ipc.open_file(pa.py_buffer(body)) as file:
        for number in range(file.num_record_batches):
            file.get_batch(number).validate(full=True)
    return from_bytes(body)


# In the order in which they are tried: a datetime is a date, a boolean of NumPy no integer.
_ENCODE: Final[tuple[tuple[Any, Encode], ...]] = (
    (tuple, _extension(_TUPLE, lambda value: packed(list(value)))),
    ((set, frozenset), _extension(_SET, lambda value: packed(list(value)))),
    (str, str.__str__),  # of an enumeration
    (bool, bool),
    (int, _extension(_INTEGER, lambda value: _text(int(value)))),
    (float, float),
    (np.generic, lambda value: value.item()),
    (np.ndarray, lambda value: _encoded(pa.array(value))),
    (dt.datetime, _extension(_DATETIME, _iso)),
    (dt.date, _extension(_DATE, _iso)),
    (dt.time, _extension(_TIME, _iso)),
    (dt.timedelta, _extension(_SPAN, _span)),
    (Decimal, _extension(_DECIMAL, _text)),
    (pc.Expression, _extension(_EXPRESSION, to_bytes)),
    (pa.Scalar, _extension(_SCALAR, lambda value: _array(pa.array([value], value.type)))),
    ((pa.Array, pa.ChunkedArray), _extension(_ARRAY, _array)),
    ((pa.Table, pa.RecordBatch), _extension(_ROWS, _rows)),
    (pa.Schema, _extension(_SCHEMA, lambda value: bytes(memoryview(value.serialize())))),
    (list, list),
    (dict, dict),
    (Mapping, _extension(_MAPPING, lambda value: packed(dict(value)))),
)
_DECODE: Final[dict[int, Decode]] = {
    _INTEGER: lambda body: int(body.decode()),
    _DATETIME: lambda body: dt.datetime.fromisoformat(body.decode()),
    _DATE: lambda body: dt.date.fromisoformat(body.decode()),
    _TIME: lambda body: dt.time.fromisoformat(body.decode()),
    _DECIMAL: lambda body: Decimal(body.decode()),
    _EXPRESSION: _expression,
    _SCALAR: lambda body: _read_array(body)[0],
    _ARRAY: _read_array,
    _ROWS: _read_rows,
    _SCHEMA: lambda body: pa.ipc.read_schema(pa.py_buffer(body)),
}
_DECODE_INNER: Final[dict[int, Decode]] = {
    _TUPLE: tuple,
    _SET: frozenset,
    _SPAN: lambda parts: dt.timedelta(*parts),
    _VALUE: lambda parts: from_fields(*parts),
    _MAPPING: dict,
}
