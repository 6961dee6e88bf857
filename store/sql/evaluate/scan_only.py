"""The scan-only plan: queries that a scan or look-up of one table answers without DuckDB.

Such a query selects columns of one table, under conditions that the scan decides, with a LIMIT at most. Its
values stay as they are stored, it stops reading at its limit, and a complete key reads only rows of that key.
Zone maps answer `count(*)`, `count(1)`, `count(c)`, `min(c)` and `max(c)` under such conditions. Extremes of
floats are excluded: SQL orders NaN among them, Arrow does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from seqstore.store.expressions.condition import Condition
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.relations import Relation
from seqstore.store.types.column_types import INTEGER_RANGES, ColumnType
from seqstore.store.types.fraction_digits import with_fraction_digits

_ORDERED: Final = frozenset([*INTEGER_RANGES, "DECIMAL", "DATE", "DATETIME", "CHAR", "VARCHAR", "STRING"])
_CLAUSES: Final = frozenset(["expressions", "from_", "where", "limit", "offset"])

# Offset, and limit if there is one.
_Bounds = tuple[int, int | None]
_ALL_ROWS: Final[_Bounds] = (0, None)
# Canonical name, type and heading of a column of the result.
_Item = tuple[str, ColumnType, str]


def scan_only_plan(
    tree: exp.Query, relations: list[Relation], *, show_hidden: bool, deleted: bool
) -> pa.RecordBatchReader | None:
    """Returns the result of a query that needs no evaluation, read on demand; None for any other query."""
    if not isinstance(tree, exp.Select) or len(relations) != 1:
        return None
    relation, bounds = relations[0], _bounds(tree)
    if bounds is None or not relation.is_where_decided or not _is_simple(tree, relation):
        return None
    if bounds == _ALL_ROWS and relation.keys is None:
        answer = _aggregates(tree, relation, deleted=deleted)
        if answer is not None:
            return answer
    items = _items(tree, relation, show_hidden=show_hidden)
    return _projected(relation, items, bounds, deleted=deleted) if items is not None else None


def _is_simple(tree: exp.Select, relation: Relation) -> bool:
    """Returns whether the relation is a query's only source, and no clause must be evaluated."""
    source = tree.args.get("from_")
    if source is None or source.this is not relation.node or relation.node.args.get("joins"):
        return False
    return not any(value for name, value in tree.args.items() if name not in _CLAUSES)


def _bounds(tree: exp.Select) -> _Bounds | None:
    """Returns offset and limit, None when one of them is no plain number."""
    numbers: list[int | None] = []
    for clause in ("offset", "limit"):
        node = tree.args.get(clause)
        if node is None:
            numbers.append(None)
            continue
        value = node.expression if isinstance(node, (exp.Limit, exp.Offset)) else None
        if not isinstance(value, exp.Literal) or value.is_string or node.expressions:
            return None
        if not value.this.isdigit():
            return None
        numbers.append(int(value.this))
    return numbers[0] or 0, numbers[1]


def _items(tree: exp.Select, relation: Relation, *, show_hidden: bool) -> list[_Item] | None:
    """Returns the columns of the result, None when the query computes one."""
    items: list[_Item] = []
    for item in tree.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            if any(star.args.values()) or (item is not star and item.table.lower() != relation.alias.lower()):
                return None
            items += relation.all_columns(show_hidden=show_hidden)
            continue
        known = _column(item.unalias(), relation)
        if known is None:
            return None
        items.append((*known, item.alias))
    return items


def _column(node: exp.Expr, relation: Relation) -> tuple[str, ColumnType] | None:
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        return None
    if node.table and node.table.lower() != relation.alias.lower():
        return None
    return relation.column_type(node.name)


def _projected(
    relation: Relation, items: list[_Item], bounds: _Bounds, *, deleted: bool
) -> pa.RecordBatchReader:
    schema = pa.schema([_field(heading, kind) for _, kind, heading in items])
    skip, limit = bounds

    def batches() -> Iterator[pa.RecordBatch]:
        to_skip, left = skip, limit
        if left == 0:
            return
        with open_rows(relation, deleted=deleted) as reader:
            for batch in reader:
                cut = batch.slice(to_skip, left) if left is not None else batch.slice(to_skip)
                to_skip = max(to_skip - batch.num_rows, 0)
                if cut.num_rows:
                    arrays = [cut.column(name) for name, _, _ in items]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                if left is not None:
                    left -= cut.num_rows
                    if left == 0:
                        return

    return pa.RecordBatchReader.from_batches(schema, batches())


def _field(heading: str, kind: ColumnType) -> pa.Field:
    digits = kind.params[0] if kind.name == "DATETIME" else None
    return with_fraction_digits(pa.field(heading, kind.arrow), digits)


def open_rows(relation: Relation, *, deleted: bool) -> pa.RecordBatchReader:
    """Reads the rows that satisfy the relation's conditions, by key where these allow only a few keys.

    Args:
        deleted: tombstones count as rows (T8).
    """
    snapshot, columns, keys = relation.snapshot, relation.columns, relation.keys
    if keys is None and isinstance(snapshot, Snapshot) and not relation.partitions:
        return snapshot.scan(columns, relation.filter, conditions=relation.conditions, deleted=deleted)
    if keys is None:
        return snapshot.scan(columns, relation.filter, deleted=deleted)
    names = list(dict.fromkeys([*columns, *(condition.column for condition in relation.conditions)]))
    rows = snapshot.get(keys, names, deleted=deleted)
    if relation.partitions:
        return rows.filter(relation.filter).select(columns).to_reader()
    looked_up = relation.key_conditions.values() if isinstance(snapshot, Snapshot) else ()
    for condition in relation.conditions:
        if condition not in looked_up:  # a filter of Arrow's own wakes its threads, for a row or two
            rows = rows.filter(condition.holds(rows.column(condition.column)))
    return rows.select(columns).to_reader()


@dataclass(frozen=True)
class _Aggregate:
    """One item of a select list. `column` is None for a count of rows."""

    function: type[exp.Expr]
    column: str | None
    field: pa.Field


def _aggregates(tree: exp.Select, relation: Relation, *, deleted: bool) -> pa.RecordBatchReader | None:
    """Returns the result, computed when it is read; None for a query that selects anything else."""
    if relation.partitions:
        return None
    items = []
    for expression in tree.expressions:
        item = _aggregate(expression, relation)
        if item is None:
            return None
        items.append(item)
    snapshot = relation.snapshot
    schema = pa.schema([item.field for item in items])
    if not isinstance(snapshot, Snapshot):
        if relation.conditions or deleted or any(item.column for item in items):
            return None
        return pa.table([[snapshot.count()]] * len(items), schema=schema).to_reader()
    extremes = {item.column for item in items if item.function is not exp.Count and item.column}
    if not all(snapshot.has_bounds(column) for column in extremes):
        return None
    return pa.RecordBatchReader.from_batches(schema, _aggregated(items, relation, snapshot, schema, deleted))


def _aggregate(item: exp.Expr, relation: Relation) -> _Aggregate | None:
    call = item.unalias()
    if not isinstance(call, (exp.Count, exp.Min, exp.Max)) or call.expressions:
        return None
    of = call.this
    if isinstance(call, exp.Count) and isinstance(of, (exp.Star, exp.Literal)):
        return _Aggregate(exp.Count, None, pa.field(item.alias, pa.int64()))
    known = _column(of, relation)
    if known is None:
        return None
    name, kind = known
    if isinstance(call, exp.Count):
        return _Aggregate(exp.Count, name, pa.field(item.alias, pa.int64()))
    return _Aggregate(type(call), name, pa.field(item.alias, kind.arrow)) if kind.name in _ORDERED else None


def _aggregated(
    items: list[_Aggregate], relation: Relation, snapshot: Snapshot, schema: pa.Schema, deleted: bool
) -> Iterator[pa.RecordBatch]:
    conditions = relation.conditions
    counts: dict[str | None, int] = {}
    values = []
    for item in items:
        if item.function is not exp.Count:
            assert item.column is not None
            largest = item.function is exp.Max
            values.append(snapshot.extreme(item.column, conditions, largest=largest, deleted=deleted))
            continue
        if item.column not in counts:
            more = [Condition(item.column, "is not null")] if item.column is not None else []
            counts[item.column] = snapshot.count([*conditions, *more], deleted=deleted)
        values.append(pa.scalar(counts[item.column], pa.int64()))
    columns = [pa.repeat(value, 1).cast(field.type) for value, field in zip(values, schema, strict=True)]
    yield pa.RecordBatch.from_arrays(columns, schema=schema)
