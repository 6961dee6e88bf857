"""The columns of a query's result. A column that is selected as it is keeps its declared type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from seqstore.store.schema.column import Column
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.relations import Relation
from seqstore.store.sql.translate.views import COLUMNS
from seqstore.store.types.column_types import ColumnType, parse_type, type_from_arrow

# Name, type, and whether it may be NULL.
_Declared = tuple[str, ColumnType, bool]


def result_columns(tree: exp.Query, relations: Sequence[Relation], schema: pa.Schema) -> list[Column]:
    """Returns the columns of a result with their types in SQL.

    Args:
        tree: with the relations, before it is translated.
        schema: of the rows.
    """
    declared = list(_items(tree, relations)) if isinstance(tree, exp.Select) else []
    known: list[_Declared | None] = [None] * len(schema)
    if len(declared) == len(schema):
        known = declared
    return [_column(field, found) for field, found in zip(schema, known, strict=True)]


def _column(field: pa.Field, declared: _Declared | None) -> Column:
    if declared is not None and declared[1].arrow == field.type:
        return Column(field.name, declared[1], nullable=declared[2])
    if pa.types.is_null(field.type):  # a bare NULL is TINYINT, as in Doris
        return Column(field.name, parse_type("TINYINT"), nullable=True)
    return Column(field.name, type_from_arrow(field.type), nullable=True)


def _items(tree: exp.Select, relations: Sequence[Relation]) -> Iterator[_Declared | None]:
    sources = _sources(tree, relations)
    for item in tree.expressions:
        column = item.unalias()
        is_star = isinstance(item, exp.Star) or (isinstance(column, exp.Column) and column.is_star)
        qualifier = column.table.lower() if isinstance(column, exp.Column) else ""
        chosen = [found for alias, found in sources if qualifier in ("", alias)]
        if is_star:
            for found in chosen:
                yield from found if found is not None else (None,)
            continue
        name = column.name.lower() if isinstance(column, exp.Column) else None
        named = [each for found in chosen for each in found or () if each[0].lower() == name]
        yield named[0] if len(named) == 1 and all(found is not None for found in chosen) else None


def _sources(tree: exp.Select, relations: Sequence[Relation]) -> list[tuple[str, list[_Declared] | None]]:
    """Returns alias and columns of each source of a SELECT, None for columns that are not known."""
    by_node = {id(relation.node): relation for relation in relations}
    joins = tree.args.get("joins") or []
    is_joined = bool(joins)  # an outer join makes NULL of what a table never holds
    source = tree.args.get("from_")
    nodes = [*([source.this] if source is not None else []), *(join.this for join in joins)]
    found: list[tuple[str, list[_Declared] | None]] = []
    for node in nodes:
        columns: list[_Declared] | None = None
        relation = by_node.get(id(node))
        if relation is not None:
            columns = [(c.name, c.type, c.nullable or is_joined) for c in relation.schema.columns]
        elif COLUMNS in node.meta:
            columns = [(c.name, parse_type(c.type), c.nullable or is_joined) for c in node.meta[COLUMNS]]
        found.append((node.alias_or_name.lower(), columns))
    return found
