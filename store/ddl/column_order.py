"""ALTER TABLE's changes of the order of columns: ORDER BY, and FIRST or AFTER behind MODIFY COLUMN.

Files name their columns, so another order of value columns touches none (SC7). The key codes of a unique key
depend on the order of its columns, so another order there writes every row anew. The key of a duplicate table
only sorts rows that are written from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seqstore.store.ddl.alter import Altered, schema_change
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import Column
from seqstore.store.schema.table_schema import TableSchema


@dataclass(frozen=True)
class Place:
    """The place of a column: behind another one, or first where `after` is None."""

    after: str | None = None


@schema_change
def order_columns(schema: TableSchema, names: Sequence[str]) -> Altered:
    """Orders all columns anew, those of the key before the others."""
    columns: list[Column] = []
    for name in names:
        column = schema.column(name)
        if column in columns:
            raise _bad_order(f"Reduplicative column[{name}]")
        columns.append(column)
    missing = [column.name for column in schema.columns if column not in columns]
    if missing:
        raise _bad_order(f"Reorder stmt should contains all columns, missing: {', '.join(missing)}")
    return _ordered(schema, columns, "the order of columns")


@schema_change
def move_column(schema: TableSchema, name: str, place: Place) -> Altered:
    """Moves one column, within the key or behind it."""
    column = schema.column(name)
    others = [each for each in schema.columns if each.id != column.id]
    at = 0
    if place.after is not None:
        before = schema.column(place.after)
        if before.id == column.id:
            raise _bad_order(f"Column[{place.after}] modify position is invalid")
        at = others.index(before) + 1
    return _ordered(schema, [*others[:at], column, *others[at:]], f"column {column.name} (moved)")


def _ordered(schema: TableSchema, columns: Sequence[Column], change: str) -> Altered:
    key = tuple(column.name for column in columns[: len(schema.declared_key)])
    late = [name for name in schema.declared_key if name not in key]
    if late:
        raise _bad_order(f"Invalid column order. value should be after key. key column {late[0]!r}")
    if schema.is_duplicate:
        return Altered(replace(schema, columns=tuple(columns), duplicate_key=key), (change,))
    ordered = replace(schema, columns=tuple(columns), key=key)
    return Altered(ordered, (change,), rewrites=key != schema.key)


def _bad_order(message: str) -> InvalidInputError:
    return InvalidInputError(message, kind="bad_column")
