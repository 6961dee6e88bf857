"""The schema of a table as Iceberg has it: types, field ids, the key as identifier fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from seqstore.store.schema.field_ids import nested_ids
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.types.column_types import ColumnType

_TYPES: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DATE": "date",
    "DATETIME": "timestamp",
}


def iceberg_schema(schema: TableSchema, number: int) -> dict[str, Any]:
    """Returns the schema as table metadata has it.

    The unique key is the identifier, unless a column of it may be NULL, which Iceberg has not.

    Args:
        number: the id of the schema.
    """
    fields = []
    for column in schema.columns:
        kind = _type(column.type, nested_ids(column))
        field = {"id": column.id, "name": column.name, "required": not column.nullable, "type": kind}
        fields.append({**field, "doc": column.comment} if column.comment else field)
    found: dict[str, Any] = {"type": "struct", "schema-id": number, "fields": fields}
    key = [schema.column(name) for name in schema.unique_key]
    if key and not any(column.nullable for column in key):
        found["identifier-field-ids"] = [column.id for column in key]
    return found


def largest_id(schema: Any) -> int:
    """Returns the largest field id of a schema, nested ones included."""
    if isinstance(schema, list):
        return max(map(largest_id, schema), default=0)
    if not isinstance(schema, dict):
        return 0
    own = [schema.get(name, 0) for name in ("id", "element-id", "key-id", "value-id")]
    nested = [largest_id(each) for each in schema.values() if isinstance(each, (dict, list))]
    return int(max([*own, *nested]))


def _type(kind: ColumnType, ids: Iterator[int]) -> Any:
    """Returns a type; ids are taken in the order of `field_ids.numbered_type`."""
    if kind.name == "ARRAY":
        element = _type(kind.children[0], ids)
        return {"type": "list", "element-id": next(ids), "element": element, "element-required": False}
    if kind.name == "MAP":
        key, value = [_type(child, ids) for child in kind.children]
        named = {"type": "map", "key-id": next(ids), "key": key, "value-id": next(ids), "value": value}
        return {**named, "value-required": False}
    if kind.name == "STRUCT":
        fields = []
        for name, child in zip(kind.names, kind.children, strict=True):
            inner = _type(child, ids)
            fields.append({"id": next(ids), "name": name, "required": False, "type": inner})
        return {"type": "struct", "fields": fields}
    if kind.name == "DECIMAL":
        return f"decimal({kind.params[0]}, {kind.params[1]})"
    return _TYPES.get(kind.name, "string")
