"""The SELECTs of a tree, and the names of tables and columns that what stands in them may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seqstore.store.sql.parse.sqlglot_adapter import Ancestors, exp
from seqstore.store.sql.translate.relations import Relation


@dataclass(frozen=True)
class Scope:
    """The names of a SELECT, in lower case.

    Attributes:
        tables: their aliases, or names.
        columns: None where not all are known.
    """

    tables: frozenset[str]
    columns: frozenset[str] | None

    def may_have(self, column: exp.Column) -> bool:
        """Returns whether a column may be one of its tables."""
        if column.table:
            return column.table.lower() in self.tables
        return self.columns is None or column.name.lower() in self.columns


class Scopes:
    """The scopes of a tree, whose nodes stay where they are; each is looked at once."""

    def __init__(self, relations: Sequence[Relation]) -> None:
        self._relations = {id(relation.node): relation for relation in relations}
        self._selects = Ancestors(exp.Select)
        self._known: dict[int, Scope] = {}

    def around(self, node: exp.Expr) -> exp.Select | None:
        """Returns the SELECT that a node stands in."""
        found = self._selects.above(node)
        assert found is None or isinstance(found, exp.Select)
        return found

    def of(self, select: exp.Select) -> Scope:
        """Returns the names of a SELECT."""
        known = self._known.get(id(select))
        if known is None:
            known = self._known[id(select)] = self._found(select)
        return known

    def _found(self, select: exp.Select) -> Scope:
        first = select.args.get("from_") or select.args.get("from")
        joins = select.args.get("joins") or ()
        sources = [] if first is None else [first.this, *[join.this for join in joins]]
        tables = frozenset([self._name_of(source) for source in sources])
        columns: set[str] | None = None if select.args.get("laterals") else set()
        for source in sources:
            of_source = self._columns_of(source)
            columns = None if columns is None or of_source is None else columns | of_source
        return Scope(tables, None if columns is None else frozenset(columns))

    def _name_of(self, source: exp.Expr) -> str:
        relation = self._relations.get(id(source))
        return (relation.alias if relation is not None else source.alias_or_name).lower()

    def _columns_of(self, source: exp.Expr) -> set[str] | None:
        """Returns the columns of a table or subquery, None where not all are known."""
        if source.args.get("pivots") or source.args.get("laterals"):
            return None
        relation = self._relations.get(id(source))
        if relation is not None:
            return {each.name.lower() for each in relation.schema.columns}
        if (
            isinstance(source, exp.Subquery)
            and isinstance(source.this, exp.Select)
            and not source.this.is_star
        ):
            return {each.lower() for each in source.this.named_selects}
        return None
