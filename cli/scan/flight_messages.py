"""The messages of Arrow Flight SQL that the server reads and writes: protocol buffers with fields of bytes.

A command is an `Any`, which names the message. Of a message only fields of bytes, texts and numbers are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from seqstore.store import InvalidInputError

PREFIX: Final = "type.googleapis.com/arrow.flight.protocol.sql."
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS: Final = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES_MAX: Final = 10


def command(data: bytes) -> tuple[str, dict[int, bytes | int]]:
    """Returns the name of a command, without package, and its fields by number; of a repeated one the last.

    Raises:
        InvalidInputError: the bytes are no command of Flight SQL.
    """
    kind, value = named(data)
    return kind, fields(value)


def named(data: bytes) -> tuple[str, bytes]:
    """Returns the name of a command, without package, and its message.

    Raises:
        InvalidInputError: the bytes are no command of Flight SQL.
    """
    wrapped = fields(data)
    name, value = wrapped.get(1, b""), wrapped.get(2, b"")
    if not isinstance(name, bytes) or not isinstance(value, bytes):
        raise _no_command()
    kind = name.decode(errors="replace")
    if not kind.startswith(PREFIX):
        raise _no_command()
    return kind.removeprefix(PREFIX), value


def message(name: str, values: dict[int, bytes | int]) -> bytes:
    """Returns a message of Flight SQL in an `Any`."""
    return encoded({1: f"{PREFIX}{name}".encode(), 2: encoded(values)})


def encoded(values: dict[int, bytes | int]) -> bytes:
    """Returns fields as bytes."""
    parts = []
    for number, value in values.items():
        if isinstance(value, int):
            parts.append(_varint(number << 3 | _VARINT) + _varint(value & (1 << 64) - 1))
        else:
            parts.append(_varint(number << 3 | _BYTES) + _varint(len(value)) + value)
    return b"".join(parts)


def fields(data: bytes) -> dict[int, bytes | int]:
    """Returns the fields of a message.

    Raises:
        InvalidInputError: the bytes are none.
    """
    return dict(_fields(data))


def listed(data: bytes) -> dict[int, list[bytes | int]]:
    """Returns the fields of a message with all their values.

    Raises:
        InvalidInputError: the bytes are none.
    """
    found: dict[int, list[bytes | int]] = {}
    for number, value in _fields(data):
        found.setdefault(number, []).append(value)
    return found


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    place = 0
    while place < len(data):
        tag, place = _number(data, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = _number(data, place)
            yield tag >> 3, value
            continue
        size = _WIDTHS.get(kind, 0)
        if kind == _BYTES:
            size, place = _number(data, place)
        elif not size:
            raise _no_command()
        if place + size > len(data):
            raise _no_command()
        yield tag >> 3, data[place : place + size]
        place += size


def numbers(data: bytes) -> list[int]:
    """Returns repeated numbers that are packed into one field.

    Raises:
        InvalidInputError: the bytes are none.
    """
    found, place = [], 0
    while place < len(data):
        value, place = _number(data, place)
        found.append(value)
    return found


def _number(data: bytes, place: int) -> tuple[int, int]:
    found = 0
    for count in range(_VARINT_BYTES_MAX):
        if place >= len(data):
            raise _no_command()
        found |= (data[place] & 0x7F) << 7 * count
        place += 1
        if data[place - 1] < 0x80:
            return found, place
    raise _no_command()


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _no_command() -> InvalidInputError:
    return InvalidInputError("expected a command of Arrow Flight SQL", kind="bad_command")
