"""The schema of a table as Delta has it: types, column ids, physical names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from seqstore.store.schema.column import Column
from seqstore.store.schema.field_ids import file_column, nested_ids
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.types.column_types import ColumnType

_ID: Final = "delta.columnMapping.id"
_NAME: Final = "delta.columnMapping.physicalName"
_TYPES: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DATE": "date",
    "DATETIME": "timestamp_ntz",
}


def schema_string(schema: TableSchema) -> str:
    """Returns the schema as the log stores it; mapped columns have their ids and their names in files."""
    return json.dumps({"type": "struct", "fields": [_field(schema, column) for column in schema.columns]})


def largest_id(schema: TableSchema) -> int:
    """Returns the largest column id, nested ones included."""
    fields: list[Any] = [_field(schema, column) for column in schema.columns]
    found = 0
    while fields:
        each = fields.pop()
        if isinstance(each, dict):
            found = max(found, int(each.get("metadata", {}).get(_ID, 0)))
            fields += each.values()
        elif isinstance(each, list):
            fields += each
    return found


def _field(schema: TableSchema, column: Column) -> dict[str, Any]:
    metadata = _mapped(schema, column.id, file_column(schema, column))
    if column.comment:
        metadata["comment"] = column.comment
    return {
        "name": column.name,
        "type": _type(schema, column.type, nested_ids(column)),
        "nullable": column.nullable,
        "metadata": metadata,
    }


def _mapped(schema: TableSchema, number: int, name: str) -> dict[str, Any]:
    return {_ID: number, _NAME: name} if schema.maps_columns else {}


def _type(schema: TableSchema, kind: ColumnType, ids: Iterator[int]) -> Any:
    """Returns a type; ids are taken in the order of `field_ids.numbered_type`."""
    if kind.name == "ARRAY":
        element = _type(schema, kind.children[0], ids)
        next(ids)
        return {"type": "array", "elementType": element, "containsNull": True}
    if kind.name == "MAP":
        key, value = [_type(schema, child, ids) for child in kind.children]
        next(ids)
        next(ids)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if kind.name == "STRUCT":
        fields = []
        for name, child in zip(kind.names, kind.children, strict=True):
            inner = _type(schema, child, ids)
            metadata = _mapped(schema, next(ids), name)
            fields.append({"name": name, "type": inner, "nullable": True, "metadata": metadata})
        return {"type": "struct", "fields": fields}
    if kind.name == "DECIMAL":
        return f"decimal({kind.params[0]},{kind.params[1]})"
    return _TYPES.get(kind.name, "string")
