"""Messages in the framing of a Confluent schema registry, as lines of JSON (AV3).

A message is the byte 0, the id of its schema (four bytes, big end first) and one value. Of a change stream
the line has the message's key, a tab, and its value with the schema, as Kafka Connect's JsonConverter writes
them.

A message that cannot be decoded becomes a line that no reader takes for a row: the reason and the bytes in
base64. So it is a bad row like any other, counted, logged and kept as a dead letter.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from seqstore.loaders.avro.registry import SETTING, UnknownSchemaError
from seqstore.loaders.avro.value_bounds import ValueBoundsError
from seqstore.loaders.avro.writer_schema import WriterSchema, avro_library, registered
from seqstore.loaders.headers import AvroOptions
from seqstore.loaders.source import unreadable
from seqstore.store.errors import InvalidInputError

MAGIC: Final = b"\x00"
HEAD_BYTES: Final = 5


class UndecodableError(InvalidInputError):
    """A message is none of its schema, or there is no such schema."""


class AvroMessages:
    """Decodes messages; asks the registry for a schema at its first message.

    Args:
        options: of the load, with the registry.

    Raises:
        UnavailableError: fastavro is not installed.
    """

    def __init__(self, options: AvroOptions) -> None:
        self._options = options
        self._read: Callable[[Any, Any], Any] = avro_library().schemaless_reader
        self._known: dict[int, WriterSchema | str] = {}  # the schema, or why there is none
        self._texts: dict[int, bytes] = {}

    def lines(self, keys: pa.Array, values: pa.Array) -> pa.Array:
        """Returns messages as lines, without line ends; empty where a row has no value.

        Raises:
            UnavailableError: the registry does not answer.
            InvalidInputError: there is no registry.
        """
        # A schema that was missing before may be there now.
        self._known = {number: each for number, each in self._known.items() if not isinstance(each, str)}
        if self._options.is_changes:
            found = list(map(self._change, keys.to_pylist(), values.to_pylist()))
        else:
            found = [self._row(each) if each else b"" for each in values.to_pylist()]
        return pa.array(found, pa.large_binary())

    def value_line(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Returns the message at a position as a line, and the position behind it.

        Raises:
            UndecodableError: it cannot be decoded, so nor can what follows it.
        """
        schema, number = self._headed(data, at)
        stream = io.BytesIO(data)
        stream.seek(at + HEAD_BYTES)
        return self.line_of(schema, self.value(schema, data, stream), number), stream.tell()

    def value(self, schema: WriterSchema, data: bytes, stream: io.BytesIO) -> Any:
        """Returns the next value of a stream.

        Args:
            data: all bytes of the stream.

        Raises:
            UndecodableError: the bytes are none of the schema.
            ValueBoundsError: the value takes too much memory, or is nested too deep.
        """
        if not schema.bounds.is_safe(len(data) - stream.tell()):
            decode(partial(schema.bounds.check, data, stream.tell()))
        return decode(partial(self._read, stream, schema.decoder))

    def line_of(self, schema: WriterSchema, value: Any, number: int) -> bytes:
        """Returns a decoded value as a line."""
        text = json_of(value)
        return self._with_schema(schema, number, text) if self._options.is_changes else text

    def _change(self, key: bytes | None, value: bytes | None) -> bytes:
        try:
            left = b"" if not key else self._key(key)
            if not value:
                return left + b"\tnull" if left else b"null"
            schema, number, text = self._decoded(value)
        except UndecodableError as error:
            return unreadable(error.message, value or key or b"")
        line = self._with_schema(schema, number, text)
        return left + b"\t" + line if left else line

    def _row(self, value: bytes) -> bytes:
        try:
            return self._decoded(value)[2]
        except UndecodableError as error:
            return unreadable(error.message, value)

    def _key(self, key: bytes) -> bytes:
        """Returns a key as JSON; one of another converter is left out unless it is JSON."""
        return (
            self._decoded(key)[2] if key.startswith(MAGIC) else key.replace(b"\n", b" ").replace(b"\t", b" ")
        )

    def _with_schema(self, schema: WriterSchema, number: int, text: bytes) -> bytes:
        head = self._texts.get(number)
        if head is None:
            head = self._texts[number] = b'{"schema":' + schema.text.encode() + b',"payload":'
        return head + text + b"}"

    def _decoded(self, data: bytes) -> tuple[WriterSchema, int, bytes]:
        schema, number = self._headed(data, 0)
        stream = io.BytesIO(data)
        stream.seek(HEAD_BYTES)
        try:
            value = self.value(schema, data, stream)
        except ValueBoundsError as error:
            raise _undecodable(error.message) from error
        if stream.tell() != len(data):
            raise _undecodable(f"{len(data) - stream.tell()} bytes are behind the value of schema {number}")
        return schema, number, json_of(value)

    def _headed(self, data: bytes, at: int) -> tuple[WriterSchema, int]:
        """Returns the schema that a message begins with, and its id."""
        head = data[at : at + HEAD_BYTES]
        if len(head) < HEAD_BYTES or not head.startswith(MAGIC):
            raise _undecodable(f"expected the byte 0 and the id of a schema, found {head.hex(' ')}")
        number = int.from_bytes(head[1:], "big")
        return self.schema(number), number

    def schema(self, number: int) -> WriterSchema:
        """Returns the schema of an id.

        Raises:
            UndecodableError: there is none, or none of Avro.
            UnavailableError: the registry does not answer.
            InvalidInputError: there is no registry.
        """
        found = self._known.get(number)
        if found is None:
            registry = self._options.registry
            if registry is None:
                raise InvalidInputError(
                    f"format {self._options.format}: messages need a schema registry; name one of the "
                    f"setting {SETTING} by schema_registry",
                    kind="schema_registry",
                )
            try:
                found = registered(registry, number, is_changes=self._options.is_changes)
            except (UnknownSchemaError, InvalidInputError) as error:
                if error.kind != "schema":
                    raise
                found = error.message
            self._known[number] = found
        if isinstance(found, str):
            raise _undecodable(f"schema {number}: {found}")
        return found


def decode(read: Callable[[], Any]) -> Any:
    """Returns what fastavro reads.

    Raises:
        UndecodableError: the bytes are none of the schema.
        ValueBoundsError: the value takes too much memory.
    """
    try:
        return read()
    except (ValueBoundsError, UndecodableError):
        raise
    except (EOFError, IndexError) as error:
        raise _undecodable("the bytes end before the value does") from error
    except Exception as error:  # fastavro's have no common class
        reason = str(error)
        raise _undecodable(f"{type(error).__name__}: {reason[:200]}") from error


def json_of(value: Any) -> bytes:
    """Returns a decoded value as JSON: bytes in base64, decimals and times as text.

    Raises:
        UndecodableError: it is nested too deep.
    """
    try:
        return _ENCODER.encode(value).encode()
    except ValueError:  # JSON has no infinity
        return _ENCODER.encode(_finite(value)).encode()
    except RecursionError as error:
        raise _undecodable("the value is nested too deep") from error


def _text(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"a value of {type(value).__name__} has no JSON")


_ENCODER: Final = json.JSONEncoder(
    default=_text, ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value


def _undecodable(reason: str) -> UndecodableError:
    return UndecodableError(reason, kind="data_quality")
