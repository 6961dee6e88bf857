"""Schemas of Avro: what messages are decoded by, and the schema of Kafka Connect that they declare.

Rows of change streams keep the numbers of their logical types, and say the types: dates are days and decimals
bytes, as in Debezium's JSON, so one part of the program decodes both. All other rows have values of their
logical types.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from seqstore.loaders.avro.registry import SchemaRegistry
from seqstore.loaders.avro.value_bounds import ValueBounds
from seqstore.loaders.headers import Registry
from seqstore.store.errors import InvalidInputError, UnavailableError

_LOGICAL: Final = "seqstore.logical"  # where change streams keep the logical type
_CONNECT: Final = "org.apache.kafka.connect.data."
_DEBEZIUM: Final = "io.debezium."
_NAMES: Final = {
    "decimal": f"{_CONNECT}Decimal",
    "date": f"{_CONNECT}Date",
    "time-millis": f"{_CONNECT}Time",
    "time-micros": f"{_DEBEZIUM}time.MicroTime",
    "timestamp-millis": f"{_CONNECT}Timestamp",
    "timestamp-micros": f"{_DEBEZIUM}time.MicroTimestamp",
    "timestamp-nanos": f"{_DEBEZIUM}time.NanoTimestamp",
    "local-timestamp-millis": f"{_CONNECT}Timestamp",
    "local-timestamp-micros": f"{_DEBEZIUM}time.MicroTimestamp",
    "local-timestamp-nanos": f"{_DEBEZIUM}time.NanoTimestamp",
    "uuid": f"{_DEBEZIUM}data.Uuid",
}
_BASES: Final = {
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "enum": "string",
    "bytes": "bytes",
    "fixed": "bytes",
    "array": "array",
    "map": "map",
    "record": "struct",
}
_PARTS: Final = ("type", "items", "values")


@dataclass(frozen=True)
class WriterSchema:
    """One schema.

    Attributes:
        decoder: as fastavro decodes by it.
        bounds: of the memory of its values.
        connect: the schema of Kafka Connect of its rows, as JSON: of an envelope that of `after` alone.
    """

    decoder: Any = field(repr=False)
    bounds: ValueBounds = field(repr=False)
    connect: Mapping[str, Any]

    @property
    def text(self) -> str:
        """Returns `connect` as JSON."""
        return json.dumps(self.connect, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=4096)
def registered(registry: Registry, number: int, *, is_changes: bool) -> WriterSchema:
    """Returns the schema of an id; raises as `SchemaRegistry.schemas` and `parsed`."""
    return parsed(SchemaRegistry(registry).schemas(number), is_changes=is_changes)


def parsed(schemas: Sequence[Any], *, is_changes: bool) -> WriterSchema:
    """Returns the last of schemas, which may use the types of those before it.

    Args:
        schemas: parsed JSON.
        is_changes: values are as in the JSON of Debezium.

    Raises:
        InvalidInputError: it is no schema of Avro, or its values have no bound.
    """
    parse = avro_library().parse_schema
    named: dict[str, Any] = {}
    try:
        for each in schemas:
            decoder = parse(_plain(each) if is_changes else each, named_schemas=named)
        return WriterSchema(decoder, ValueBounds(decoder, named), _row_schema(decoder, named))
    except RecursionError as error:
        raise InvalidInputError("the schema is nested too deep", kind="schema") from error
    except InvalidInputError:
        raise
    except Exception as error:  # fastavro's have no common class
        raise InvalidInputError(f"it is no schema of Avro: {error}", kind="schema") from error


def avro_library() -> Any:
    """Returns fastavro.

    Raises:
        UnavailableError: it is not installed.
    """
    try:
        import fastavro
    except ImportError as error:
        raise UnavailableError(
            "formats avro and debezium_avro need the extra avro: pip install 'seqstore[avro]'", kind="no_avro"
        ) from error
    return fastavro


def _plain(node: Any) -> Any:
    """Returns a schema whose logical types are only noted."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    plain = {name: value for name, value in node.items() if name != "logicalType"}
    if "logicalType" in node:
        plain[_LOGICAL] = node["logicalType"]
    for name in _PARTS:
        if name in plain:
            plain[name] = _plain(plain[name])
    if isinstance(plain.get("fields"), list):
        plain["fields"] = [_plain(each) for each in plain["fields"]]
    return plain


def _row_schema(decoder: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of rows: that of the images of an envelope, or of the record itself."""
    top = _concrete(decoder, named)[0]
    fields = {each["name"]: each for each in top.get("fields", ())}
    for image in ("after", "before"):
        row = _concrete(fields[image]["type"], named)[0] if image in fields else {}
        if row.get("type") == "record":
            types = [_connect(each, named) for each in row["fields"]]
            return {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": types}]}
    return {"type": "struct", "fields": [_connect(each, named) for each in fields.values()]}


def _concrete(node: Any, named: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Returns the only type of a node beside null, none of a real union; and whether it may be null."""
    branches = node if isinstance(node, list) else [node]
    others = [each for each in branches if each != "null"]
    is_optional = len(others) < len(branches)
    if len(others) != 1:
        return {}, is_optional
    found = others[0]
    if isinstance(found, str):
        found = named.get(found, {"type": found})
    while isinstance(found, dict) and isinstance(found.get("type"), dict):
        found = {**found, **found["type"]}
    return (found if isinstance(found, dict) else {}), is_optional


def _connect(given: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a field of Kafka Connect."""
    kind, is_optional = _concrete(given["type"], named)
    base = _BASES.get(str(kind.get("type")), "string")
    logical = kind.get(_LOGICAL, kind.get("logicalType"))
    if logical == "decimal" or base == "string" or "connect.type" not in kind:
        made = base
    else:
        made = str(kind["connect.type"])
    parameters = {str(name): str(value) for name, value in (kind.get("connect.parameters") or {}).items()}
    if "scale" not in parameters and isinstance(kind.get("scale"), int):
        parameters["scale"] = str(kind["scale"])
    elif logical == "decimal":
        parameters.setdefault("scale", "0")
    field = {"field": given["name"], "type": made, "optional": is_optional}
    name = kind.get("connect.name") or _NAMES.get(str(logical), "")
    if name and (base != "struct" or str(name).startswith((_CONNECT, _DEBEZIUM))):
        field["name"] = name
    if parameters:
        field["parameters"] = parameters
    default = kind.get("connect.default", given.get("default"))
    if base == "bytes" and isinstance(default, str):
        default = base64.b64encode(default.encode("latin-1", "replace")).decode()
    if isinstance(default, (str, int, float)):
        field["default"] = default
    return field
