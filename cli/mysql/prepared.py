"""Prepared statements: a text with `?`, whose values follow in the binary protocol.

Values are put into the text as literals at the places of the `?` tokens, so the parser sees the same text as
from any client.
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from seqstore.cli.mysql.wire import Payload, ProtocolError
from seqstore.store.errors import InvalidInputError, StoreError
from seqstore.store.sql.parse.sqlglot_adapter import TokenType
from seqstore.store.sql.parse.tokens import split_statements

_UNSIGNED: Final = 0x80
_INTEGERS: Final = {0x01: 1, 0x02: 2, 0x03: 4, 0x08: 8, 0x09: 4, 0x0D: 2}
_DATES: Final = frozenset([0x07, 0x0A, 0x0C])
_BLOBS: Final = frozenset([0xF9, 0xFA, 0xFB, 0xFC])
_DECIMAL: Final = re.compile(rb"[+-]?(?:[0-9]{1,80}(?:\.[0-9]{0,80})?|\.[0-9]{1,80})(?:[eE][+-]?[0-9]{1,4})?")
_STATEMENT_BYTES: Final = 1 << 10
_PLACE_BYTES: Final = 80  # an offset and a type
_ESCAPES: Final = (("\\", "\\\\"), ("'", "\\'"), ("\0", "\\0"))


@dataclass
class Prepared:
    """One prepared statement.

    Attributes:
        places: offsets of its `?` in the text.
        types: of the parameters, as the client last sent them.
        long_values: data of COM_STMT_SEND_LONG_DATA, by parameter.
        refused: the error by which such data was not kept; the next execution fails with it.
    """

    text: str
    places: tuple[int, ...]
    types: list[int] = field(default_factory=list)
    long_values: dict[int, bytearray] = field(default_factory=dict)
    refused: StoreError | None = None

    @classmethod
    def of(cls, text: str) -> Prepared:
        """Raises InvalidInputError where the text cannot be read."""
        tokens = [token for stream in split_statements(text) for token in stream.tokens]
        places = (token.start for token in tokens if token.token_type is TokenType.PLACEHOLDER)
        return cls(text, tuple(place for place in places if text[place] == "?"))

    def forget_long_values(self) -> None:
        self.long_values.clear()
        self.refused = None

    @property
    def long_bytes(self) -> int:
        """The size of the long values."""
        return sum(map(len, self.long_values.values()))

    @property
    def held_bytes(self) -> int:
        """The memory of the statement without its long values."""
        return sys.getsizeof(self.text) + _STATEMENT_BYTES + _PLACE_BYTES * len(self.places)

    def filled(self, payload: Payload) -> str:
        """Returns the text with the values of an execution.

        Args:
            payload: of the execution, read up to and with the iteration count.
        """
        if self.refused is not None:
            raise self.refused
        return self.filled_by(self._literals(payload) if self.places else [])

    def filled_with(self, literal: str) -> str:
        """Returns the text with the same value at every place."""
        return self.filled_by([literal] * len(self.places))

    def filled_by(self, literals: Sequence[str]) -> str:
        """Returns the text with a literal at each place."""
        parts, end = [], 0
        for place, literal in zip(self.places, literals, strict=True):
            parts += [self.text[end:place], literal]
            end = place + 1
        return "".join([*parts, self.text[end:]])

    def _literals(self, payload: Payload) -> Sequence[str]:
        count = len(self.places)
        nulls = payload.take((count + 7) // 8)
        if payload.integer(1):
            self.types = [payload.integer(2) for _ in range(count)]
        if len(self.types) != count:
            raise ProtocolError("parameters without types")
        found = []
        for i, kind in enumerate(self.types):
            if i in self.long_values:
                found.append(text_literal(self.long_values[i]))
            elif nulls[i // 8] >> (i % 8) & 1 or kind & 0xFF == 0x06:
                found.append("NULL")
            else:
                found.append(_literal(payload, kind & 0xFF, is_unsigned=bool(kind >> 8 & _UNSIGNED)))
        return found


def _literal(payload: Payload, kind: int, *, is_unsigned: bool) -> str:
    width = _INTEGERS.get(kind)
    if width is not None:
        return str(int.from_bytes(payload.take(width), "little", signed=not is_unsigned))
    if kind == 0x04:
        return float_literal(struct.unpack("<f", payload.take(4))[0])
    if kind == 0x05:
        return float_literal(struct.unpack("<d", payload.take(8))[0])
    if kind in _DATES:
        return _moment(payload.take(payload.integer(1)), is_date=kind == 0x0A)
    if kind == 0x0B:
        return _time(payload.take(payload.integer(1)))
    value = payload.lenenc_bytes()
    if kind in (0x00, 0xF6):  # a decimal, as text
        return _decimal(value)
    return text_literal(value)


def float_literal(value: float) -> str:
    """Returns a number as a literal of SQL.

    Raises:
        InvalidInputError: it is none, or infinite.
    """
    if not math.isfinite(value):
        raise InvalidInputError(f"a parameter is {value}, which no literal of SQL is", kind="bad_data")
    return repr(value)


def _decimal(value: bytes | bytearray) -> str:
    """Returns a number; another text would become a part of the statement."""
    if not _DECIMAL.fullmatch(value):
        raise InvalidInputError(f"a parameter is no decimal number: {value[:80]!r}", kind="bad_data")
    return value.decode()


def text_literal(value: bytes | bytearray) -> str:
    """Returns a text in UTF-8 as a literal of SQL.

    Raises:
        InvalidInputError: it is another text.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"a parameter is not UTF-8 text: {error.reason} at byte {error.start}", kind="bad_data"
        ) from error
    for character, escape in _ESCAPES:  # `translate` holds the interpreter's lock for seconds of a long text
        text = text.replace(character, escape)
    return f"'{text}'"


def _moment(value: bytes, *, is_date: bool) -> str:
    if len(value) not in (0, 4, 7, 11):
        raise ProtocolError(f"a date of {len(value)} bytes")
    year, month, day = struct.unpack("<HBB", value[:4]) if value else (0, 0, 0)
    text = f"{year:04}-{month:02}-{day:02}"
    if is_date:
        return f"'{text}'"
    hour, minute, second = value[4:7] if len(value) >= 7 else (0, 0, 0)
    text += f" {hour:02}:{minute:02}:{second:02}"
    if len(value) >= 11:
        text += f".{int.from_bytes(value[7:11], 'little'):06}"
    return f"'{text}'"


def _time(value: bytes) -> str:
    if not value:
        return "'00:00:00'"
    if len(value) not in (8, 12):
        raise ProtocolError(f"a time of {len(value)} bytes")
    sign = "-" if value[0] else ""
    hours = int.from_bytes(value[1:5], "little") * 24 + value[5]
    text = f"{sign}{hours:02}:{value[6]:02}:{value[7]:02}"
    if len(value) >= 12:
        text += f".{int.from_bytes(value[8:12], 'little'):06}"
    return f"'{text}'"
