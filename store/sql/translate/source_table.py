"""The tables of DuckDB that hold the rows of a query's relations.

`place_source` replaces each table of a tree by one of them, so that a query reads only stored tables:
a source that `sql.evaluate.duck` registers, or a copy of columns (sql.evaluate.column_copies).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from seqstore.store.read.marked_scan import LIVE
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.relations import Relation


@dataclass(frozen=True)
class SourceTable:
    """A table of DuckDB that holds the rows of a relation.

    Attributes:
        columns: of the relation, under their names in the table.
        largeint: columns to read as HUGEINT.
        catalog: the database of the table.
        is_marked: only rows that the table marks as live count.
        has_more: the table has other columns, too.
    """

    name: str
    columns: Sequence[str]
    largeint: Set[str]
    catalog: str = "temp"
    is_marked: bool = False
    has_more: bool = False


def place_source(relation: Relation, nodes: Sequence[exp.Table], table: SourceTable) -> None:
    """Replaces a relation's tables in the tree by a table of DuckDB.

    Args:
        nodes: the relation's tables: those of `nodes_by_relation`.
    """
    for node in nodes:
        alias = exp.TableAlias(this=exp.to_identifier(relation.alias, quoted=True))
        source = exp.Table(
            this=exp.to_identifier(table.name, quoted=True),
            db=exp.to_identifier("main"),
            catalog=exp.to_identifier(table.catalog),
        )
        replacement: exp.Expr = source
        if table.largeint or table.is_marked or table.has_more:
            items = (_source_item(name, is_largeint=name in table.largeint) for name in table.columns)
            inner = exp.select(*items, copy=False).from_(source, copy=False)
            if table.is_marked:
                inner = inner.where(exp.column(LIVE, quoted=True), copy=False)
            replacement = inner.subquery(alias=alias, copy=False)
        else:
            source.set("alias", alias)
        for argument in ("joins", "laterals"):
            if node.args.get(argument):
                replacement.set(argument, node.args[argument])
        node.replace(replacement)


def _source_item(name: str, *, is_largeint: bool) -> exp.Expr:
    column = exp.column(name, quoted=True)
    return exp.alias_(exp.cast(column, "INT128"), name, quoted=True) if is_largeint else column


def source_name(number: int) -> str:
    return f"__source_{number}"
