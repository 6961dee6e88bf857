"""The text for DuckDB of a query, kept with the query for the next time that it runs.

Programs repeat queries, and the parser gives equal texts one `Query`. Its translation depends on

1. the schemas of its tables, the columns that are read of each, and where DuckDB finds them,
2. the database and the session's choice of rows and hidden columns, and
3. for some queries the moment, the user or a variable; these and queries of views are translated each time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.parse.statement_values import Query
from seqstore.store.sql.translate.calls import EvaluationContext
from seqstore.store.sql.translate.decimal_arithmetic import note_decimals, widen_products
from seqstore.store.sql.translate.macros.unchosen import settle
from seqstore.store.sql.translate.plan_limits import refuse_long_plans
from seqstore.store.sql.translate.relations import Relation, nodes_by_relation
from seqstore.store.sql.translate.scopes import Scopes
from seqstore.store.sql.translate.source_table import SourceTable, place_source
from seqstore.store.sql.translate.translate import Variables, name_columns, render, translate
from seqstore.store.sql.translate.whole_rows import refuse_whole_rows

_BIGINT_DIGITS: Final = 19
_FIRST_ROWS: Final = 5_000  # up to so many, DuckDB keeps the first rows of an order without sorting all
_KEPT_MAX: Final = 8  # texts of one query


@dataclass(frozen=True)
class PreparedText:
    """What DuckDB runs for a query.

    Attributes:
        kinds: the types of the answer's columns, None where one is not known.
        has_largeint: LARGEINT values take part.
        needs_counts: DuckDB's plan depends on the numbers of rows of the sources.
        schemas: of the tables. They stay, as the key of the text has their identities (`id`).
    """

    text: str
    kinds: Sequence[str | None]
    has_largeint: bool
    needs_counts: bool
    schemas: Sequence[TableSchema]


@dataclass(frozen=True)
class SessionValues:
    """What the translation of a query reads of its session."""

    evaluation: EvaluationContext
    variables: Variables
    show_hidden: bool
    reads_deleted: bool


def translated(tree: exp.Query, relations: list[Relation], session: SessionValues) -> list[str | None]:
    """Translates a tree in place; returns the types of the answer's columns."""
    scopes = Scopes(relations)
    refuse_whole_rows(tree, scopes)
    refuse_long_plans(tree, scopes)
    note_decimals(tree, relations)
    name_columns(tree, relations, show_hidden=session.show_hidden)
    return translate(tree, session.evaluation, session.variables, relations)


class Preparation:
    """Prepares the text of one run of a query.

    Args:
        tree: a copy of that of the query, which becomes another.
        tables: of DuckDB, one for each relation.
        may_keep: equal runs of the query have an equal tree.
    """

    def __init__(
        self,
        query: Query,
        tree: exp.Query,
        relations: list[Relation],
        tables: Sequence[SourceTable],
        session: SessionValues,
        *,
        may_keep: bool,
    ) -> None:
        self._query = query
        self._tree = tree
        self._relations = relations
        self._tables = tables
        self._session = session
        self._may_keep = may_keep
        self._kinds: Sequence[str | None] | None = None
        self._has_largeint = False
        self._key = (
            session.evaluation.database,
            session.show_hidden,
            session.reads_deleted,
            tuple(map(_identity, relations, tables)),
        )

    def text(self) -> PreparedText:
        """Returns the text that was kept, else translates the tree."""
        found: PreparedText | None = self._query.prepared.get(self._key) if self._may_keep else None
        return found if found is not None else self._made()

    def settled_text(self) -> PreparedText:
        """Returns a text without macros of several bodies, of which DuckDB could not choose one."""
        return self._made(is_settled=True)

    def wide_text(self) -> PreparedText:
        """Returns a text whose products of decimals have room for all digits, after one had none."""
        return self._made(is_wide=True)

    def _made(self, *, is_settled: bool = False, is_wide: bool = False) -> PreparedText:
        kinds = self._translated()
        if is_settled:
            settle(self._tree, all_calls=True)
        if is_wide:
            widen_products(self._tree)
        needs_counts = len(self._relations) > 1 or _is_limited_order(self._tree)
        schemas = [relation.schema for relation in self._relations]
        made = PreparedText(render(self._tree), kinds, self._has_largeint, needs_counts, schemas)
        if self._may_keep:
            if len(self._query.prepared) >= _KEPT_MAX:
                self._query.prepared.clear()
            self._query.prepared[self._key] = made
        return made

    def _translated(self) -> Sequence[str | None]:
        if self._kinds is not None:
            return self._kinds
        tree, session = self._tree, self._session
        evaluation, variables = _Watched(session.evaluation), _Watched(session.variables)
        watched: Any = {"evaluation": evaluation, "variables": variables}
        self._kinds = translated(tree, self._relations, replace(session, **watched))
        self._may_keep = self._may_keep and not (evaluation.was_read or variables.was_read)
        self._has_largeint = _names_largeint(tree) or any(table.largeint for table in self._tables)
        nodes = nodes_by_relation(tree, len(self._relations))
        for number, relation in enumerate(self._relations):
            place_source(relation, nodes[number], self._tables[number])
        return self._kinds


def _identity(relation: Relation, table: SourceTable) -> Hashable:
    """Returns what the text says of a relation."""
    source = (table.name, table.catalog, table.is_marked, table.has_more)
    columns = (tuple(relation.columns), tuple(table.columns), frozenset(table.largeint))
    ways = (relation.is_unfiltered, relation.is_decided_once, relation.first is not None)
    return id(relation.schema), columns, source, ways


class _Watched:
    """A value of the session that notes whether something of it was read."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.was_read = False

    def __getattr__(self, name: str) -> Any:
        self.was_read = True
        return getattr(self._value, name)

    def __call__(self, *arguments: Any) -> Any:
        self.was_read = True
        return self._value(*arguments)


def _is_limited_order(tree: exp.Query) -> bool:
    """Returns whether a query wants the first rows of an order, and so many that DuckDB may sort all rows."""
    for limit in find_all(tree, exp.Limit):
        wanted = limit.expression.name
        ordered = limit.parent is not None and limit.parent.args.get("order") is not None
        if ordered and wanted.isdigit() and int(wanted) > _FIRST_ROWS:
            return True
    return False


def _names_largeint(tree: exp.Query) -> bool:
    """Returns whether a query names the type LARGEINT, or holds a number that only it can represent."""
    if any(kind.this is exp.DataType.Type.INT128 for kind in find_all(tree, exp.DataType)):
        return True
    numbers = (node.name for node in find_all(tree, exp.Literal) if not node.is_string)
    return any(len(number) > _BIGINT_DIGITS and number.isdigit() for number in numbers)
