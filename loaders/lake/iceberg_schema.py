"""The schema of an Iceberg table: its columns, found by field id in files, with their types here."""

from __future__ import annotations

from typing import Any, Final

from seqstore.loaders.lake.field import LakeField
from seqstore.store.errors import InvalidInputError
from seqstore.store.types.column_types import ColumnType

_MOMENT: Final = "timestamptz"
_TYPES: Final = {
    "boolean": ColumnType("BOOLEAN"),
    "int": ColumnType("INT"),
    "long": ColumnType("BIGINT"),
    "float": ColumnType("FLOAT"),
    "double": ColumnType("DOUBLE"),
    "date": ColumnType("DATE"),
    "timestamp": ColumnType("DATETIME", (6,)),
    _MOMENT: ColumnType("DATETIME", (6,)),
    "string": ColumnType("STRING"),
}


def iceberg_fields(schema: Any) -> list[LakeField]:
    """Returns the columns of a schema of pyiceberg.

    Raises:
        InvalidInputError: a type has no column type.
    """
    return [_field(each, each.name) for each in schema.fields]


def _field(field: Any, path: str) -> LakeField:
    kind = field.field_type
    children: tuple[LakeField, ...] = ()
    if hasattr(kind, "fields"):
        children = tuple(_field(each, f"{path}.{each.name}") for each in kind.fields)
        names = tuple(each.name for each in children)
        own = ColumnType("STRUCT", children=tuple(each.type for each in children), names=names)
    elif hasattr(kind, "element_field"):
        children = (_field(kind.element_field, f"{path}.element"),)
        own = ColumnType("ARRAY", children=(children[0].type,))
    elif hasattr(kind, "key_field"):
        children = (_field(kind.key_field, f"{path}.key"), _field(kind.value_field, f"{path}.value"))
        own = ColumnType("MAP", children=tuple(each.type for each in children))
    else:
        own = _scalar(kind, path)
    return LakeField(
        field.name,
        field.name,
        field.field_id,
        own,
        nullable=not field.required,
        is_moment=str(kind) == _MOMENT,
        children=children,
    )


def _scalar(kind: Any, path: str) -> ColumnType:
    text = str(kind)
    if text.startswith("decimal("):
        return ColumnType("DECIMAL", (kind.precision, kind.scale))
    if text not in _TYPES:
        raise InvalidInputError(
            f"column {path} has the type {text} of Iceberg, for which there is no column type; expected "
            f"{', '.join(_TYPES)}, decimal, list, map or struct",
            kind="not_supported",
            column=path,
        )
    return _TYPES[text]
