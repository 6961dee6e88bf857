"""Types of fields, as the schemas of Debezium's messages declare them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seqstore.store.errors import InvalidInputError


@dataclass(frozen=True)
class FieldType:
    """One field.

    Attributes:
        base: the type of Kafka Connect: int8 to int64, float, double, boolean, string, bytes, array,
            map or struct.
        name: the logical type, such as `io.debezium.time.Date`; empty without one.
        scale: of a decimal.
        length: of bits.
        is_optional: it may be null.
    """

    base: str
    name: str = ""
    scale: int = 0
    length: int = 0
    is_optional: bool = True


def row_types(schema: str) -> dict[str, FieldType]:
    """Returns the types of a row's fields from the schema of its message, an envelope or the row alone.

    Raises:
        InvalidInputError: the text is no schema of Kafka Connect.
    """
    return row_types_of(_parsed(schema))


def row_types_of(schema: Mapping[str, Any]) -> dict[str, FieldType]:
    """Returns the types of a row's fields from a parsed schema."""
    for image in ("after", "before"):
        for field in schema.get("fields") or ():
            if field.get("field") == image and field.get("type") == "struct":
                return _types(field)
    return _types(schema)


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        schema = json.loads(text)
        fields = schema["fields"]
        if all(isinstance(field, dict) for field in fields):
            return dict(schema)
    except (ValueError, RecursionError, TypeError, KeyError):
        pass
    raise InvalidInputError(
        f"the schema of a message is no schema of Kafka Connect with fields: {text[:200]}",
        kind="data_quality",
    )


def _types(struct: Mapping[str, Any]) -> dict[str, FieldType]:
    found: dict[str, FieldType] = {}
    for field in struct.get("fields") or ():
        parameters = field.get("parameters") or {}
        found[str(field.get("field"))] = FieldType(
            str(field.get("type", "")),
            str(field.get("name") or ""),
            _number(parameters.get("scale")),
            _number(parameters.get("length")),
            bool(field.get("optional")),
        )
    return found


def _number(text: Any) -> int:
    return int(text) if isinstance(text, (str, int)) and str(text).lstrip("-").isdecimal() else 0
