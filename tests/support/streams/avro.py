"""Messages of Debezium in Avro, as Confluent's converter writes them."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import fastavro
import pyarrow as pa

Schema = dict[str, Any]


def framed(number: int, schema: Any, value: Any) -> bytes:
    """Returns a message: the byte 0, the id of its schema and the value."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\x00" + number.to_bytes(4, "big") + out.getvalue()


def container(schema: Any, values: Sequence[Any], codec: str = "null") -> bytes:
    """Returns an object container file."""
    out = io.BytesIO()
    fastavro.writer(out, schema, values, codec=codec)
    return out.getvalue()


def optional(kind: Any, default: Any = None) -> Schema:
    """Returns the part of a field that may be null."""
    return {"type": ["null", kind], "default": default}


def connect(base: str, name: str, **more: Any) -> Schema:
    """Returns a logical type of Kafka Connect."""
    return {"type": base, "connect.version": 1, "connect.name": name, **more}


def decimal(scale: int) -> Schema:
    """Returns a decimal of Kafka Connect."""
    given = {"scale": str(scale), "connect.decimal.precision": "10"}
    more = {"scale": scale, "precision": 10, "connect.parameters": given, "logicalType": "decimal"}
    return connect("bytes", "org.apache.kafka.connect.data.Decimal", **more)


def envelope_schema(fields: Sequence[Schema], table: str = "t", version: int = 0) -> Schema:
    """Returns the schema of messages about rows with the fields."""
    space = f"shop.public.{table}"
    row = {"type": "record", "name": "Value", "fields": list(fields), "connect.version": version}
    block = [
        {"name": "connector", "type": "string"},
        {"name": "snapshot", **optional("string")},
        {"name": "db", "type": "string"},
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "lsn", **optional("long")},
        {"name": "ts_ms", "type": "long"},
    ]
    source = {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.postgresql",
        "fields": block,
    }
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": space,
        "connect.name": f"{space}.Envelope",
        "fields": [
            {"name": "before", **optional(row)},
            {"name": "after", **optional("Value")},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", **optional("long")},
        ],
    }


def key_schema(fields: Sequence[Schema], table: str = "t") -> Schema:
    """Returns the schema of messages' keys."""
    return {"type": "record", "name": "Key", "namespace": f"shop.public.{table}", "fields": list(fields)}


def change(
    op: str, lsn: int, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, table: str = "t"
) -> Schema:
    """Returns the value of a message."""
    source = {
        "connector": "postgresql",
        "snapshot": "true" if op == "r" else "false",
        "db": "shop",
        "schema": "public",
        "table": table,
        "lsn": lsn,
        "ts_ms": 1_700_000_000_000,
    }
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_001}


def varint(number: int) -> bytes:
    """A number as Avro writes it."""
    rest = ((number << 1) ^ (number >> 63)) & (2**64 - 1)
    found = bytearray()
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def block_container(
    schema: Any,
    values: Sequence[Any],
    codec: str,
    *,
    count: int | None = None,
    data: bytes = b"",
    cut: int = 0,
) -> bytes:
    """A container of one block, which may lie.

    Args:
        schema: or its text.
        count: the values that the block claims.
        data: the block as it is stored, instead of the values.
        cut: bytes that the block lacks at its end.
    """
    out = io.BytesIO()
    for value in values:
        fastavro.schemaless_writer(out, schema, value)
    block = data or _FOLD[codec](out.getvalue())
    block = block[: len(block) - cut]
    text = schema if isinstance(schema, str) else json.dumps(schema)
    head = {"avro.schema": text.encode(), "avro.codec": codec.encode()}
    made = b"Obj\x01" + varint(len(head))
    for name, value in head.items():
        made += varint(len(name)) + name.encode() + varint(len(value)) + value
    made += varint(0) + b"S" * 16
    return made + varint(len(values) if count is None else count) + varint(len(block)) + block + b"S" * 16


def deflated(data: bytes) -> bytes:
    """Bytes as the codec deflate stores them."""
    folding = zlib.compressobj(9, zlib.DEFLATED, -15)
    return folding.compress(data) + folding.flush()


def _snappy(data: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(data, asbytes=True)) + zlib.crc32(data).to_bytes(4, "big")


def _lz4(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + bytes(pa.Codec("lz4_raw").compress(data, asbytes=True))


_FOLD: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": deflated,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "snappy": _snappy,
    "zstandard": lambda data: bytes(pa.Codec("zstd").compress(data, asbytes=True)),
    "lz4": _lz4,
}
