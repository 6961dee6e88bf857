"""Plans of scans and look-ups, kept for queries that differ in their literals alone.

Programs read rows by statements of one shape (sql.parse.statement_templates). Where the scan-only plan
answers one of them,

1. the table, the columns and the order are those of the others, as long as the schema is the same, and
2. so are the conditions and bounds, but for the values of their literals, which are converted as before.

A plan is kept only if every literal is one side of a comparison, an item of a list, a bound of BETWEEN, or a
number of LIMIT. A query with a literal that does not have the type of its column is planned by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.condition import Condition
from seqstore.store.read.first_rows import FIRST_ROWS_MAX, KeyOrder
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.sql.evaluate.scan_only import Bounds, Item, bounds_of, items_of, projected
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all, walk
from seqstore.store.sql.parse.statement_templates import LITERAL
from seqstore.store.sql.parse.statement_values import Query, TableName
from seqstore.store.sql.translate.predicates import conjuncts, literal_value
from seqstore.store.sql.translate.relations import Readable, Relation, Version, rows_bound
from seqstore.store.types.column_types import ColumnType

_KEPT_MAX: Final = 8  # plans of one shape: tables of several databases have one name
_TRIED_MAX: Final = 12  # queries of a shape that are looked at for one
# Nodes of a condition that has its literals as they are.
_OF_A_CONDITION: Final = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between, exp.Is,
                          exp.Not, exp.Null, exp.Column, exp.Identifier, exp.Literal)  # fmt: skip

OpenSnapshot = Callable[[TableName, Version, str], Readable]


@dataclass(frozen=True)
class _Place:
    """The place of a literal in the statement, and the type of its value."""

    number: int
    kind: ColumnType
    is_string: bool


@dataclass(frozen=True)
class _Plan:
    """What queries of one shape share.

    Attributes:
        node: of the first query.
        conditions: of the first query, each with the places of its values.
        offset, limit: numbers of literals.
        order: of the first rows that the query needs, None for any order.
    """

    schema: TableSchema
    node: exp.Table
    table: TableName
    alias: str
    columns: list[str]
    items: list[Item]
    conditions: list[tuple[Condition, list[_Place]]]
    offset: int | None
    limit: int | None
    order: KeyOrder | None

    def relation(self, query: Query, snapshot: Snapshot) -> Relation | None:
        """Returns the table as a query reads it; None if a literal does not fit."""
        conditions = []
        for first, places in self.conditions:
            values = [
                literal_value(query.literals[place.number], place.kind, is_string=place.is_string)
                for place in places
            ]
            known = tuple([value for value in values if value is not None])
            if len(known) < len(places):
                return None
            conditions.append(Condition(first.column, first.operator, known) if places else first)
        relation = Relation(self.node, self.table, self.alias, snapshot, columns=self.columns)
        relation.conditions, relation.is_where_decided = conditions, True
        return relation

    def bounds(self, query: Query) -> Bounds:
        offset = 0 if self.offset is None else rows_bound(query.literals[self.offset])
        return offset, None if self.limit is None else rows_bound(query.literals[self.limit])


@dataclass
class _Kept:
    """The plans of one shape, the newest first, and how many queries were looked at for another one."""

    plans: list[_Plan] = field(default_factory=list)
    tried: int = 0


def kept_plan(
    query: Query, open_snapshot: OpenSnapshot, *, show_hidden: bool, deleted: bool
) -> tuple[Relation, pa.RecordBatchReader] | None:
    """Returns the table and the result of a query by the plan of another one; None where none was kept.

    Raises:
        NotFoundError: no such table.
    """
    kept = query.shape.get(_key(show_hidden=show_hidden, deleted=deleted)) if query.shape else None
    if kept is None or not kept.plans:
        return None
    try:
        snapshot = open_snapshot(kept.plans[0].table, None, "")
    except InvalidInputError:  # a view has the name by now
        return None
    if not isinstance(snapshot, Snapshot):
        return None
    plan = next((each for each in kept.plans if each.schema is snapshot.schema), None)
    if plan is None:
        return None
    relation, bounds = plan.relation(query, snapshot), plan.bounds(query)
    if relation is None:
        return None
    if plan.order is not None:
        rows = bounds[0] + (bounds[1] or 0)
        if rows > FIRST_ROWS_MAX:
            return None
        relation.first = (plan.order, rows)
    return relation, projected(relation, plan.items, bounds, deleted=deleted)


def keep_plan(
    query: Query, tree: exp.Query, relations: list[Relation], *, show_hidden: bool, deleted: bool
) -> None:
    """Keeps the scan-only plan of a query for others of its shape.

    Args:
        tree: as it was planned.
        relations: as they were planned.
    """
    if query.shape is None:
        return
    kept: _Kept = query.shape.setdefault(_key(show_hidden=show_hidden, deleted=deleted), _Kept())
    is_known = any(plan.schema is relation.schema for plan in kept.plans for relation in relations)
    if kept.tried < _TRIED_MAX and not is_known:
        kept.tried += 1
        plan = _planned(tree, relations, show_hidden=show_hidden)
        if plan is not None:
            kept.plans = [plan, *kept.plans[: _KEPT_MAX - 1]]
            kept.tried = 0


def _key(*, show_hidden: bool, deleted: bool) -> Hashable:
    return "scan", show_hidden, deleted


def _planned(tree: exp.Query, relations: list[Relation], *, show_hidden: bool) -> _Plan | None:
    if len(relations) != 1 or not isinstance(tree, exp.Select) or bounds_of(tree) is None:
        return None
    [relation] = relations
    items = items_of(tree, relation, show_hidden=show_hidden)
    if items is None or relation.partitions or not isinstance(relation.snapshot, Snapshot):
        return None
    conditions = _placed_conditions(tree, relation)
    if conditions is None:
        return None
    bounds = [tree.args.get(clause) for clause in ("offset", "limit")]
    offset, limit = [None if node is None else _number(node.expression) for node in bounds]
    placed = [place.number for _, places in conditions for place in places]
    placed += [number for number in (offset, limit) if number is not None]
    if sorted(placed) != list(range(len(list(find_all(tree, exp.Literal))))):
        return None
    return _Plan(
        relation.schema,
        relation.node,
        relation.table,
        relation.alias,
        relation.columns,
        items,
        conditions,
        offset,
        limit,
        relation.first[0] if relation.first is not None else None,
    )


def _placed_conditions(tree: exp.Select, relation: Relation) -> list[tuple[Condition, list[_Place]]] | None:
    """Returns the conditions of a query with the places of their values, None if one has no plain values."""
    where = tree.args.get("where")
    literals: list[exp.Literal] = []
    for part in conjuncts(where.this if where is not None else None):
        nodes = list(walk(part))
        if not all(isinstance(node, _OF_A_CONDITION) for node in nodes):
            return None
        literals += [node for node in nodes if isinstance(node, exp.Literal)]
    if len(literals) != sum(len(condition.values) for condition in relation.conditions):
        return None
    left = iter(literals)
    found = []
    for condition in relation.conditions:
        kind = relation.schema.types[condition.column.lower()][1]
        places = _places(zip(condition.values, left, strict=False), kind)
        if places is None:
            return None
        found.append((condition, places))
    return found


def _places(values: Iterable[tuple[pa.Scalar, exp.Literal]], kind: ColumnType) -> list[_Place] | None:
    """Returns the places of literals, None where one of them is not its value."""
    places = []
    for value, node in values:
        number, is_string = _number(node), bool(node.is_string)
        if number is None or literal_value(str(node.this), kind, is_string=is_string) != value:
            return None
        places.append(_Place(number, kind, is_string))
    return places


def _number(node: exp.Expr) -> int | None:
    found = node.meta.get(LITERAL)
    return found if isinstance(found, int) else None
