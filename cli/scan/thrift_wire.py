"""Thrift's binary protocol, as far as Doris's scan service needs it: strict messages on a plain socket.

A value is a Python one: bool, int, float, bytes, list, dict, and a struct is a dict of field numbers. What is
written names its kind: `{1: (STRUCT, {...})}`.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, Final

STOP, BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = (
    0,
    2,
    3,
    4,
    6,
    8,
    10,
    11,
    12,
    13,
    14,
    15,
)
CALL, REPLY, EXCEPTION = 1, 2, 3
_VERSION: Final = 0x80010000
_NUMBERS: Final = {BYTE: struct.Struct(">b"), DOUBLE: struct.Struct(">d"), I16: struct.Struct(">h"),
                   I32: struct.Struct(">i"), I64: struct.Struct(">q")}  # fmt: skip
# Of one message, which anyone may send: the query of a plan, and the tablets of a table.
_BYTES_MAX: Final = 2 << 20
_VALUES_MAX: Final = 1 << 16
_DEPTH_MAX: Final = 16

Typed = tuple[int, Any]


class ThriftError(Exception):
    """The bytes are no message of the protocol."""


class Reader:
    """Reads messages; the bytes of one are bounded."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left = 0
        self._values_left = 0

    def message(self) -> tuple[str, int, dict[int, Any]] | None:
        """Reads a call: its name, its number and its arguments; None at the end of the stream.

        Raises:
            ThriftError: the bytes are none.
        """
        first = self._stream.read(4)
        if not first:
            return None
        self._left, self._values_left = _BYTES_MAX, _VALUES_MAX
        head = int.from_bytes(first, "big")
        if len(first) < 4 or head & 0xFFFF0000 != _VERSION or head & 0xFF != CALL:
            raise ThriftError(f"expected a call of Thrift's strict binary protocol, found {first!r}")
        name = self._value(STRING, 0)
        number = self._value(I32, 0)
        return name.decode(errors="replace"), number, self._value(STRUCT, 0)

    def _read(self, count: int) -> bytes:
        if not 0 <= count <= self._left:
            raise ThriftError(f"a message of more than {_BYTES_MAX} bytes")
        self._left -= count
        found = self._stream.read(count)
        if len(found) < count:
            raise ThriftError("the message is cut")
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise ThriftError("the message is nested too deeply")
        self._values_left -= 1
        if self._values_left < 0:
            raise ThriftError(f"a message of more than {_VALUES_MAX} values")
        number = _NUMBERS.get(kind)
        if number is not None:
            return number.unpack(self._read(number.size))[0]
        if kind == BOOL:
            return self._read(1) != b"\0"
        if kind == STRING:
            return self._read(self._value(I32, depth))
        if kind == STRUCT:
            return self._struct(depth)
        if kind in (LIST, SET):
            [inner] = self._read(1)
            return [self._value(inner, depth + 1) for _ in range(self._count())]
        if kind == MAP:
            keys, values = self._read(2)
            if keys in (STRUCT, MAP, SET, LIST):
                raise ThriftError("the keys of a map are no plain values")
            return {
                self._value(keys, depth + 1): self._value(values, depth + 1) for _ in range(self._count())
            }
        raise ThriftError(f"unknown kind {kind} of a value")

    def _struct(self, depth: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        while (kind := self._read(1)[0]) != STOP:
            field = self._value(I16, depth)
            found[field] = self._value(kind, depth + 1)
        return found

    def _count(self) -> int:
        count: int = self._value(I32, 0)
        if not 0 <= count <= self._values_left:
            raise ThriftError(f"a list of {count} items")
        return count


def reply(name: str, number: int, result: dict[int, Typed], *, kind: int = REPLY) -> bytes:
    """Returns the message that answers a call; `result` is the struct of the answer."""
    head = (_VERSION | kind).to_bytes(4, "big") + _encoded(STRING, name.encode()) + _encoded(I32, number)
    return head + _encoded(STRUCT, result if kind == EXCEPTION else {0: (STRUCT, result)})


def _encoded(kind: int, value: Any) -> bytes:
    number = _NUMBERS.get(kind)
    if number is not None:
        return bytes(number.pack(value))
    if kind == BOOL:
        return b"\1" if value else b"\0"
    if kind == STRING:
        return len(value).to_bytes(4, "big") + bytes(value)
    if kind == LIST:
        inner, items = value
        return bytes([inner]) + _encoded(I32, len(items)) + b"".join(_encoded(inner, item) for item in items)
    parts = [
        bytes([inner]) + _encoded(I16, field) + _encoded(inner, item)
        for field, (inner, item) in value.items()
    ]
    return b"".join(parts) + b"\0"
