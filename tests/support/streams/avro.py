"""Messages of Debezium in Avro, as Confluent's converter writes them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro

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
