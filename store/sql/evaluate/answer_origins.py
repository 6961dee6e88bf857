"""Where the columns of an answer come from: table, column, and whether it is a part of the key.

The MySQL server sends these origins with an answer. By them drivers name the columns of a join, and editors
find the row that they change.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.evaluate.table_functions import FunctionRows
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.parse.statement_values import Query
from seqstore.store.sql.translate.relations import Relation, cte_of
from seqstore.store.sql.translate.views import COLUMNS, VIEW_NAME

_KEY: Final = "origins"
_SUBTOTALS: Final = (exp.Rollup, exp.Cube, exp.GroupingSets)


@dataclass(frozen=True)
class Origin:
    """The origin of one column.

    Attributes:
        alias: what the query calls the table, or the subquery.
        database: of the table, empty for the current one.
        table: its name, empty for a subquery.
        column: its name there, empty for a column of a subquery.
        is_key: it is a column of the table's unique key.
        is_required: it holds no NULL, in the answer neither.
        is_generated: AUTO_INCREMENT fills it.
    """

    alias: str
    database: str = ""
    table: str = ""
    column: str = ""
    is_key: bool = False
    is_required: bool = False
    is_generated: bool = False


@dataclass(frozen=True)
class _Kept:
    """The origins of a query while its tables have some schemas."""

    schemas: list[TableSchema]
    show_hidden: bool
    origins: list[Origin | None]

    def fits(self, schemas: list[TableSchema], *, show_hidden: bool) -> bool:
        same = len(schemas) == len(self.schemas) and all(map(operator.is_, schemas, self.schemas))
        return same and show_hidden == self.show_hidden


@dataclass(frozen=True)
class _Source:
    """One table or subquery of FROM; `columns` is None where its columns are not known."""

    alias: str
    columns: dict[str, Origin] | None


def kept_origins(
    query: Query, tree: exp.Query, relations: Sequence[Relation], *, show_hidden: bool
) -> list[Origin | None]:
    """Returns the origins of a query without views, and keeps them with its shape or its text."""
    kept = query.shape if query.shape is not None else query.prepared
    schemas = [relation.schema for relation in relations]
    found: _Kept | None = kept.get(_KEY)
    if found is None or not found.fits(schemas, show_hidden=show_hidden):
        origins = answer_origins(tree, relations, show_hidden=show_hidden)
        kept[_KEY] = found = _Kept(schemas, show_hidden, origins)
    return found.origins


def answer_origins(
    tree: exp.Query, relations: Sequence[Relation], *, show_hidden: bool
) -> list[Origin | None]:
    """Returns the origin of each column of a query, None for one that is computed.

    The list is empty where the number of columns is not known: of UNION, and of `*` over a subquery.

    Args:
        tree: with the relations, before it is translated.
        show_hidden: `*` includes hidden columns.
    """
    select = tree.unnest()
    if not isinstance(select, exp.Select):
        return []
    sources = list(_sources(select, relations, show_hidden=show_hidden))
    found: list[Origin | None] = []
    for item in select.expressions:
        column = item.unalias()
        is_column = isinstance(column, exp.Column)
        qualifier = column.table.lower() if is_column else ""
        chosen = [source for source in sources if qualifier in ("", source.alias.lower())]
        if isinstance(item, exp.Star) or (is_column and column.is_star):
            star = item if isinstance(item, exp.Star) else column.this
            is_merged = star is item and _merges(select)
            is_changed = any(star.args.get(name) for name in ("except_", "except", "replace", "rename"))
            if is_changed or is_merged or any(source.columns is None for source in chosen):
                return []
            found += [origin for source in chosen for origin in (source.columns or {}).values()]
        else:
            found.append(_origin_of(column.name, chosen) if is_column else None)
    return found


def _origin_of(name: str, chosen: Sequence[_Source]) -> Origin | None:
    """Returns the origin of a named column, None if several sources have one."""
    if len(chosen) == 1 and chosen[0].columns is None:
        return Origin(chosen[0].alias)
    if any(source.columns is None for source in chosen):
        return None
    named = [origin for source in chosen if (origin := (source.columns or {}).get(name.lower())) is not None]
    return named[0] if len(named) == 1 else None


def _merges(tree: exp.Select) -> bool:
    """Returns whether `*` has one column for two of the sources, by USING or NATURAL."""
    return any(join.args.get("using") or join.method for join in tree.args.get("joins") or ())


def _sources(tree: exp.Select, relations: Sequence[Relation], *, show_hidden: bool) -> Iterator[_Source]:
    source, joins = tree.args.get("from_"), tree.args.get("joins") or []
    nodes = [*([source.this] if source is not None else []), *(join.this for join in joins)]
    group = tree.args.get("group")
    makes_null = bool(joins) or (group is not None and group.find(*_SUBTOTALS) is not None)
    by_node = {id(relation.node): relation for relation in relations}
    for node in nodes:
        relation = by_node.get(id(node))
        if relation is None and len(nodes) == len(relations) == 1 and _is_stored(node):
            relation = relations[0]  # of a kept plan, whose tree is another one
        alias = node.alias_or_name
        if relation is not None:
            columns = _columns(alias, relation, makes_null=makes_null, show_hidden=show_hidden)
            yield _Source(alias, columns)
        elif COLUMNS in node.meta:
            database, _, view = node.meta[VIEW_NAME].partition(".")
            names = [column.name for column in node.meta[COLUMNS]]
            yield _Source(alias, {name.lower(): Origin(alias, database, view, name) for name in names})
        else:
            yield _Source(alias, None)


def _is_stored(node: exp.Expr) -> bool:
    return isinstance(node, exp.Table) and cte_of(node) is None


def _columns(alias: str, relation: Relation, *, makes_null: bool, show_hidden: bool) -> dict[str, Origin]:
    """Returns the columns that `*` stands for.

    Args:
        makes_null: an outer join or a subtotal may make NULL of any.
    """
    schema: TableSchema = relation.schema
    table = relation.table
    # Rows of functions, of system tables and of earlier versions are no rows that an editor could change.
    is_live = not isinstance(relation.snapshot, FunctionRows) and not relation.node.args.get("version")
    key = {*schema.unique_key} if is_live else set()
    found: dict[str, Origin] = {}
    for name, _, heading in relation.all_columns(show_hidden=show_hidden):
        column = schema.find(name)
        found[name.lower()] = Origin(
            alias,
            table.database or "",
            table.name,
            heading,
            name in key,
            column is not None and not column.nullable and not makes_null,
            column is not None and column.auto_increment is not None,
        )
    return found
