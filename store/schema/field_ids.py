"""Names and field ids of columns in the Parquet files of open tables.

Readers of other formats find a column by its field id, or by a name that never changes. So a file names
column `n` as `col_<n>`, whatever its name in the table is, and no later column has that name. Without column
mapping a file has the names of the table, and is written anew after a rename. Elements of lists and maps and
fields of structs have ids of their own, from `column id * 65536 + 1` on. Hidden columns have ids beyond those
of all others: pyiceberg reads no file with a column that has none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import HIDDEN_COLUMNS, Column
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.types.column_types import ColumnType

FIELD_ID: Final = b"PARQUET:field_id"
_DECIMAL_DIGITS_MAX: Final = 38
_NESTED_IDS: Final = 1 << 16  # ids for the nested fields of one column
_HIDDEN_IDS: Final = {name: 2147480001 + n for n, name in enumerate(HIDDEN_COLUMNS)}  # below Iceberg's own


def require_open_types(schema: TableSchema) -> None:
    """Checks that the other formats have a type for each column of an open table.

    Raises:
        InvalidInputError: names the column.
    """
    for column in schema.columns if schema.open_formats else ():
        found = _wide_type(column.type)
        if found is not None:
            raise InvalidInputError(
                f"column {column.name!r} is {column.type.sql}, and versions cannot appear as "
                f"{schema.open_formats[0]}: expected at most {_DECIMAL_DIGITS_MAX} digits, found {found}; "
                "drop the column, change its type, or leave the table closed",
                kind="not_supported",
                column=column.name,
            )


def _wide_type(kind: ColumnType) -> str | None:
    if kind.name == "LARGEINT" or (kind.name == "DECIMAL" and kind.params[0] > _DECIMAL_DIGITS_MAX):
        return kind.sql
    return next((found for child in kind.children if (found := _wide_type(child))), None)


def file_column(schema: TableSchema, column: Column) -> str:
    """Returns the name of a column in the files of a schema."""
    return f"col_{column.id}" if schema.maps_columns else column.name


def nested_ids(column: Column) -> Iterator[int]:
    """Yields the ids of the fields inside a column, children before the field that has them."""
    return itertools.count(column.id * _NESTED_IDS + 1)


def parquet_schema(schema: TableSchema, hidden: tuple[str, ...]) -> pa.Schema:
    """Returns the columns of a Parquet file of an open table, hidden ones last."""
    visible = [
        with_id(file_column(schema, each), numbered_type(each.type, nested_ids(each)), each.id, each.nullable)
        for each in schema.columns
    ]
    others = [
        with_id(each.name, each.type, _HIDDEN_IDS[each.name], each.nullable)
        for each in schema.arrow_of(list(hidden))
    ]
    return pa.schema([*visible, *others])


def with_id(name: str, kind: pa.DataType, number: int, nullable: bool = True) -> pa.Field:
    """Returns a field with its id, which Parquet files store."""
    return pa.field(name, kind, nullable, {FIELD_ID: str(number).encode()})


def _own(kind: ColumnType) -> pa.DataType:
    return kind.arrow


def numbered_type(
    kind: ColumnType, ids: Iterator[int], plain: Callable[[ColumnType], pa.DataType] = _own
) -> pa.DataType:
    """Returns the Arrow type of a column whose nested fields have ids.

    Args:
        plain: returns the type of a column that is not nested.
    """
    if kind.name == "ARRAY":
        return pa.list_(with_id("element", numbered_type(kind.children[0], ids, plain), next(ids)))
    if kind.name == "MAP":
        key, value = (numbered_type(child, ids, plain) for child in kind.children)
        return pa.map_(with_id("key", key, next(ids), False), with_id("value", value, next(ids)))
    if kind.name == "STRUCT":
        named = zip(kind.names, kind.children, strict=True)
        return pa.struct(
            [with_id(name, numbered_type(child, ids, plain), next(ids)) for name, child in named]
        )
    return plain(kind)
