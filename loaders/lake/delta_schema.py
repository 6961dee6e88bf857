"""The schema of a Delta table: columns with their types here, and how files name them (column mapping)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from seqstore.loaders.lake.field import LakeField
from seqstore.store.errors import InvalidInputError
from seqstore.store.types.column_types import ColumnType

_ID: Final = "delta.columnMapping.id"
_NAME: Final = "delta.columnMapping.physicalName"
_MODE: Final = "delta.columnMapping.mode"
_MODES: Final = ("none", "name", "id")
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_MOMENT: Final = "timestamp"
_TYPES: Final = {
    "boolean": ColumnType("BOOLEAN"),
    "byte": ColumnType("TINYINT"),
    "short": ColumnType("SMALLINT"),
    "integer": ColumnType("INT"),
    "long": ColumnType("BIGINT"),
    "float": ColumnType("FLOAT"),
    "double": ColumnType("DOUBLE"),
    "date": ColumnType("DATE"),
    "string": ColumnType("STRING"),
    _MOMENT: ColumnType("DATETIME", (6,)),
    "timestamp_ntz": ColumnType("DATETIME", (6,)),
}


def delta_fields(metadata: Mapping[str, Any]) -> list[LakeField]:
    """Returns the columns that a `metaData` action declares.

    Raises:
        InvalidInputError: a type has no column type, or the declaration cannot be read.
    """
    mode = (metadata.get("configuration") or {}).get(_MODE, "none").lower()
    if mode not in _MODES:
        raise InvalidInputError(f"{_MODE} is {mode!r}; expected {', '.join(_MODES)}", kind="not_supported")
    try:
        declared = json.loads(metadata["schemaString"])["fields"]
        return [_field(each, mode, each["name"]) for each in declared]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"the Delta log has no readable schema: {error!r}", kind="bad_delta"
        ) from error


def _field(declared: Mapping[str, Any], mode: str, path: str) -> LakeField:
    metadata = declared.get("metadata") or {}
    return _typed(
        declared["name"],
        declared["type"],
        mode,
        path,
        stored_name=metadata[_NAME] if mode != "none" else declared["name"],
        number=int(metadata[_ID]) if mode == "id" else None,
        nullable=bool(declared.get("nullable", True)),
    )


def _typed(name: str, declared: Any, mode: str, path: str, **stored: Any) -> LakeField:
    """Returns a field of a declared type."""
    stored = {"stored_name": name, "number": None, **stored}
    if isinstance(declared, str):
        kind = _scalar(declared, path)
        return LakeField(name, type=kind, is_moment=declared == _MOMENT, **stored)
    if declared["type"] == "struct":
        children = tuple(_field(each, mode, f"{path}.{each['name']}") for each in declared["fields"])
        names = tuple(each.name for each in children)
        kind = ColumnType("STRUCT", children=tuple(each.type for each in children), names=names)
    elif declared["type"] == "array":
        children = (_typed("element", declared["elementType"], mode, f"{path}.element"),)
        kind = ColumnType("ARRAY", children=(children[0].type,))
    elif declared["type"] == "map":
        children = (
            _typed("key", declared["keyType"], mode, f"{path}.key"),
            _typed("value", declared["valueType"], mode, f"{path}.value"),
        )
        kind = ColumnType("MAP", children=tuple(each.type for each in children))
    else:
        raise _unknown(declared["type"], path)
    return LakeField(name, type=kind, children=children, **stored)


def _scalar(text: str, path: str) -> ColumnType:
    match = _DECIMAL.fullmatch(text)
    if match is not None:
        return ColumnType("DECIMAL", (int(match[1]), int(match[2])))
    if text == "decimal":
        return ColumnType("DECIMAL", (10, 0))
    if text not in _TYPES:
        raise _unknown(text, path)
    return _TYPES[text]


def _unknown(kind: Any, path: str) -> InvalidInputError:
    return InvalidInputError(
        f"column {path} has the type {kind} of Delta, for which there is no column type; expected "
        f"{', '.join(_TYPES)}, decimal, array, map or struct",
        kind="not_supported",
        column=path,
    )
