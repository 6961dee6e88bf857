"""Names of tables where columns stand: whole rows for DuckDB, unknown columns for Doris and MySQL."""

from __future__ import annotations

from collections.abc import Sequence

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime import cancellation
from seqstore.store.sql.parse.sqlglot_adapter import Ancestors, exp, find_all
from seqstore.store.sql.translate.relations import Relation

_Names = tuple[set[str], set[str]]  # of the tables of a SELECT, and of its columns


def refuse_whole_rows(tree: exp.Query, relations: Sequence[Relation]) -> None:
    """Refuses `SELECT t FROM t` where `t` has no column `t`.

    Raises:
        InvalidInputError: an unknown column.
    """
    tables = {id(relation.node): relation for relation in relations}
    scopes: dict[int, _Names | None] = {}
    selects = Ancestors(exp.Select)
    for column in find_all(tree, exp.Column):
        cancellation.check()
        if column.table or isinstance(column.this, exp.Star):
            continue
        if _is_row(column, tables, scopes, selects):
            raise InvalidInputError(
                f"unknown column {column.name!r} in the query", kind="unknown_column", column=column.name
            )


def _is_row(
    column: exp.Column, tables: dict[int, Relation], scopes: dict[int, _Names | None], selects: Ancestors
) -> bool:
    name, is_table = column.name.lower(), False
    scope = selects.above(column)
    while isinstance(scope, exp.Select):
        if id(scope) not in scopes:
            scopes[id(scope)] = _names(scope, tables)
        names = scopes[id(scope)]
        if names is None or name in names[1] or name in _aliases(scope, column):
            return False
        is_table = is_table or name in names[0]
        scope = selects.above(scope)
    return is_table


def _aliases(scope: exp.Select, column: exp.Column) -> set[str]:
    """Returns the names that a SELECT gives to its items, without that of the item a column is part of."""
    own: exp.Expr = column
    above = column.parent
    while above is not None and above is not scope:
        own, above = above, above.parent
    return {item.alias.lower() for item in scope.expressions if item.alias and item is not own}


def _names(scope: exp.Select, tables: dict[int, Relation]) -> _Names | None:
    """Returns the names of a SELECT's tables and columns, None where not all columns are known."""
    first = scope.args.get("from_") or scope.args.get("from")
    if first is None or scope.args.get("laterals"):
        return None
    found: set[str] = set()
    columns: set[str] = set()
    for source in [first.this, *(join.this for join in scope.args.get("joins") or ())]:
        relation = tables.get(id(source))
        if relation is not None:
            columns.update(each.name.lower() for each in relation.schema.columns)
        elif isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
            if source.this.is_star:
                return None
            columns.update(each.lower() for each in source.this.named_selects)
        else:
            return None
        if source.args.get("pivots") or source.args.get("laterals"):
            return None
        found.add((relation.alias if relation is not None else source.alias_or_name).lower())
    return found, columns
