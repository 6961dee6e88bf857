"""Types of fields, as the schemas of Debezium's messages declare them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from seqstore.store.errors import InvalidInputError

_TIMES: Final = (
    "io.debezium.time.",
    "org.apache.kafka.connect.data.Time",
    "org.apache.kafka.connect.data.Date",
)
_INTEGER: Final = re.compile(r"-?[0-9]{1,9}")
_COMPUTED_UUID: Final = "76019d1a-ad2e-4b22-96e9-1a6d6543c818"


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
        default: the text of a constant; None where there is none, or where the source computes it.
    """

    base: str
    name: str = ""
    scale: int = 0
    length: int = 0
    is_optional: bool = True
    default: str | None = field(default=None, compare=False)


def row_types(schema: str) -> dict[str, FieldType]:
    """Returns the types of a row's fields from the schema of its message, an envelope or the row alone.

    Raises:
        InvalidInputError: the text is no schema of Kafka Connect.
    """
    try:
        parsed = json.loads(schema)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict) or "fields" not in parsed:
        raise _no_schema(schema)
    return row_types_of(parsed)


def row_types_of(schema: Mapping[str, Any]) -> dict[str, FieldType]:
    """Returns the types of a row's fields from a parsed schema.

    Raises:
        InvalidInputError: it is none of Kafka Connect.
    """
    for image in ("after", "before"):
        for given in _fields(schema):
            if given.get("field") == image and given.get("type") == "struct":
                return _types(given)
    return _types(schema)


def _fields(struct: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = struct.get("fields") or ()
    if isinstance(found, (list, tuple)) and all(isinstance(each, Mapping) for each in found):
        return found
    raise _no_schema(str(struct))


def _no_schema(text: str) -> InvalidInputError:
    return InvalidInputError(
        f"the schema of a message is no schema of Kafka Connect with fields: {text[:200]}",
        kind="data_quality",
    )


def _types(struct: Mapping[str, Any]) -> dict[str, FieldType]:
    found: dict[str, FieldType] = {}
    for given in _fields(struct):
        parameters = given.get("parameters") or {}
        if not isinstance(parameters, Mapping):
            raise _no_schema(str(struct))
        found[str(given.get("field"))] = FieldType(
            str(given.get("type", "")),
            str(given.get("name") or ""),
            _number(parameters.get("scale")),
            _number(parameters.get("length")),
            bool(given.get("optional")),
            _constant(given),
        )
    return found


def _constant(given: Mapping[str, Any]) -> str | None:
    """Returns the default of a field.

    Debezium tells computed defaults, such as now(), as the moment 0 or as one UUID that is always the same.
    """
    value, name = given.get("default"), str(given.get("name") or "")
    if isinstance(value, bool):
        return str(int(value))
    if value == _COMPUTED_UUID or not isinstance(value, (str, int, float)):
        return None
    is_time = name.startswith(_TIMES)
    if is_time and (value == 0 or str(value).startswith("1970-01-01T00:00:00")):
        return None
    return value if isinstance(value, str) else json.dumps(value)


def _number(text: Any) -> int:
    """Returns the number of a parameter, 0 where it is none or has more digits than any type takes."""
    found = isinstance(text, (str, int)) and _INTEGER.fullmatch(str(text))
    return int(text) if found else 0
