"""Names of tables where columns stand: whole rows for DuckDB, unknown columns for Doris and MySQL."""

from __future__ import annotations

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime import cancellation
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.translate.scopes import Scopes


def refuse_whole_rows(tree: exp.Query, scopes: Scopes) -> None:
    """Refuses `SELECT t FROM t` where `t` has no column `t`.

    Raises:
        InvalidInputError: an unknown column.
    """
    for column in find_all(tree, exp.Column):
        cancellation.check()
        if not column.table and not isinstance(column.this, exp.Star) and _is_row(column, scopes):
            raise InvalidInputError(
                f"unknown column {column.name!r} in the query", kind="unknown_column", column=column.name
            )


def _is_row(column: exp.Column, scopes: Scopes) -> bool:
    name, is_table = column.name.lower(), False
    select = scopes.around(column)
    while select is not None:
        scope = scopes.of(select)
        if not scope.tables or scope.may_have(column) or name in _aliases(select, column):
            return False
        is_table = is_table or name in scope.tables
        select = scopes.around(select)
    return is_table


def _aliases(select: exp.Select, column: exp.Column) -> set[str]:
    """Returns the names that a SELECT gives to its items, without that of the item a column is part of."""
    own: exp.Expr = column
    above = column.parent
    while above is not None and above is not select:
        own, above = above, above.parent
    return {item.alias.lower() for item in select.expressions if item.alias and item is not own}
