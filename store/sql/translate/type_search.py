"""The search for the types of values in a tree: of columns also through subqueries, CTEs and unions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Generic, TypeVar

from seqstore.store.sql.parse.sqlglot_adapter import Ancestors, exp
from seqstore.store.sql.translate.relations import Relation, cte_of
from seqstore.store.types.column_types import ColumnType

T = TypeVar("T")


@dataclass(eq=False)
class TypeSearch(ABC, Generic[T]):
    """Finds the types of nodes; each node is looked at once.

    Attributes:
        relations: the tables that the tree reads, by `id` of their node.
    """

    relations: Mapping[int, Relation]
    _found: dict[int, T | None] = field(default_factory=dict, init=False)
    _found_columns: dict[int, list[tuple[str, T | None]] | None] = field(default_factory=dict, init=False)
    _scopes: Ancestors = field(default_factory=lambda: Ancestors(exp.Lambda, exp.Select), init=False)

    def of(self, node: exp.Expr | None) -> T | None:
        """Returns the type of a value, None when it is not known."""
        if node is None:
            return None
        if id(node) not in self._found:
            self._found[id(node)] = None  # ends the search of a column that is computed from itself
            self._found[id(node)] = self.find(node)
        return self._found[id(node)]

    @abstractmethod
    def find(self, node: exp.Expr) -> T | None:
        """Finds the type of a node that was not looked at."""

    @abstractmethod
    def stored(self, kind: ColumnType) -> T | None:
        """Returns the type of a stored column."""

    @abstractmethod
    def common(self, kinds: Sequence[T | None]) -> T | None:
        """Returns the type of a column of a union of several queries."""

    def columns(self, query: exp.Expr) -> list[T | None]:
        """Returns the types of the columns of a query's result, none when `*` hides them."""
        return list(map(itemgetter(1), self._columns(query) or ()))

    def scalar_subquery(self, node: exp.Expr) -> T | None:
        """Returns the type of the one column of a subquery."""
        return self._of_place(node, 0, count=1)

    def column(self, column: exp.Expr) -> T | None:
        """Finds the type of a column in the innermost SELECT around it that has one of this name."""
        assert isinstance(column, exp.Column)
        scope = self._scopes.above(column)
        while isinstance(scope, exp.Lambda):
            if any(parameter.name == column.name for parameter in scope.expressions):
                return None
            scope = self._scopes.above(scope)
        select = scope
        while isinstance(select, exp.Select):
            for source in _sources(select):
                if not column.table or source.alias_or_name.lower() == column.table.lower():
                    found = self._of_source(source, column.name.lower())
                    if found is not None:
                        return found[0]
            if select.args.get("laterals"):  # their columns have no known type
                return None
            select = self._select_around(select)  # of a correlated subquery
        return None

    def _select_around(self, node: exp.Expr) -> exp.Expr | None:
        """Returns the SELECT that a node is part of, lambdas left aside."""
        scope = self._scopes.above(node)
        while isinstance(scope, exp.Lambda):
            scope = self._scopes.above(scope)
        return scope

    def _of_source(self, source: exp.Expr, name: str) -> tuple[T | None] | None:
        """Returns the type of the first column of that name in a source, None when it has none."""
        relation = self.relations.get(id(source))
        if relation is not None:
            known = relation.schema.types.get(name)
            return (self.stored(known[1]),) if known is not None else None
        query, renamed = _query_of(source)
        if query is not None and not renamed:
            return self._of_name(query, name)
        if query is not None and name in renamed:
            return (self._of_place(query, renamed.index(name)),)
        return None

    def _of_name(self, query: exp.Expr, name: str) -> tuple[T | None] | None:
        """Returns the type of the first column of that name in a query's result, None when it has none."""
        if isinstance(query, exp.Subquery):
            return self._of_name(query.this, name)
        if isinstance(query, exp.SetOperation):
            return next(((kind,) for known, kind in self._columns(query) or () if known == name), None)
        if not isinstance(query, exp.Select):
            return None
        for item in query.expressions:
            if _is_star(item):
                found = (self._of_source(source, name) for source in _sources(query))
                first = next((each for each in found if each is not None), None)
                if first is not None:
                    return first
            elif item.alias_or_name.lower() == name:
                return (self.of(item),)
        return None

    def _of_place(self, query: exp.Expr, place: int, count: int | None = None) -> T | None:
        """Returns the type of the column at a place of a query's result, which has `count` columns."""
        columns = self._columns(query) or []
        if place >= len(columns) or len(columns) != (count or len(columns)):
            return None
        return columns[place][1]

    def _columns(self, query: exp.Expr) -> list[tuple[str, T | None]] | None:
        """Returns name and type of each column of a query's result, None when `*` hides them."""
        if id(query) not in self._found_columns:
            self._found_columns[id(query)] = None  # ends the search in a query that reads itself
            self._found_columns[id(query)] = self._find_columns(query)
        return self._found_columns[id(query)]

    def _find_columns(self, query: exp.Expr) -> list[tuple[str, T | None]] | None:
        if isinstance(query, exp.Subquery):
            return self._columns(query.this)
        if isinstance(query, exp.SetOperation):
            left, right = self._columns(query.this), self._columns(query.expression)
            if left is None or right is None:
                return None
            pairs = zip(left, right, strict=False)
            return [(name, self.common([kind, other])) for (name, kind), (_, other) in pairs]
        if not isinstance(query, exp.Select):
            return None
        if not any(map(_is_star, query.expressions)):
            return [(item.alias_or_name.lower(), self.of(item)) for item in query.expressions]
        found: list[tuple[str, T | None]] = []
        for item in query.expressions:
            columns = self._of_star(query, item) if _is_star(item) else None
            if columns is None and _is_star(item):
                return None
            found += columns if columns is not None else [(item.alias_or_name.lower(), self.of(item))]
        return found

    def _of_star(self, select: exp.Select, star: exp.Expr) -> list[tuple[str, T | None]] | None:
        """Returns the columns of a `*` over one table or subquery, None for any other."""
        sources = _sources(select)
        if len(sources) != 1 or not isinstance(star, exp.Star) or any(star.args.values()):
            return None
        relation = self.relations.get(id(sources[0]))
        if relation is not None:
            stored = relation.schema.columns
            return [(column.name.lower(), self.stored(column.type)) for column in stored]
        query, renamed = _query_of(sources[0])
        return self._columns(query) if query is not None and not renamed else None


def _is_star(item: exp.Expr) -> bool:
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))


def _query_of(source: exp.Expr) -> tuple[exp.Expr | None, list[str]]:
    """Returns the query behind a source, and its column aliases."""
    named = source if isinstance(source, exp.Subquery) else cte_of(source)
    if named is None:
        return None, []
    alias = named.args.get("alias")
    columns = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    if isinstance(source, exp.Table) and isinstance(source.args.get("alias"), exp.TableAlias):
        columns = source.args["alias"].args.get("columns") or columns
    return named.this, [column.name.lower() for column in columns or []]


def _sources(select: exp.Select) -> list[exp.Expr]:
    source, joins = select.args.get("from_"), select.args.get("joins") or []
    if source is not None:
        joins = [source, *(source.this.args.get("joins") or []), *joins]
    return [each.this for each in joins]
