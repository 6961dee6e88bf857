"""Counts and extremes from zone maps: `count(*)`, `count(1)`, `count(c)`, `min(c)` and `max(c)` of one table.

A scan must decide the query's conditions. Floats are excluded: SQL orders NaN among them, Arrow does not.
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
from seqstore.store.types.column_types import INTEGER_RANGES

_ORDERED: Final = frozenset([*INTEGER_RANGES, "DECIMAL", "DATE", "DATETIME", "CHAR", "VARCHAR", "STRING"])


@dataclass(frozen=True)
class _Aggregate:
    """One item of a select list. `column` is None for a count of rows."""

    function: type[exp.Expr]
    column: str | None
    field: pa.Field


def aggregates(tree: exp.Select, relation: Relation, *, deleted: bool) -> pa.RecordBatchReader | None:
    """Returns the result, computed when it is read; None for a query that selects anything else.

    Args:
        relation: the table; its conditions are the whole WHERE.
        deleted: tombstones count too (T8).
    """
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
    return pa.RecordBatchReader.from_batches(schema, _answer(items, relation, snapshot, schema, deleted))


def _aggregate(item: exp.Expr, relation: Relation) -> _Aggregate | None:
    call = item.unalias()
    if not isinstance(call, (exp.Count, exp.Min, exp.Max)) or call.expressions:
        return None
    of = call.this
    if isinstance(call, exp.Count) and isinstance(of, (exp.Star, exp.Literal)):
        return _Aggregate(exp.Count, None, pa.field(item.alias, pa.int64()))
    if not isinstance(of, exp.Column) or not isinstance(of.this, exp.Identifier):
        return None
    if of.table and of.table.lower() != relation.alias.lower():
        return None
    known = relation.column_type(of.name)
    if known is None:
        return None
    name, kind = known
    if isinstance(call, exp.Count):
        return _Aggregate(exp.Count, name, pa.field(item.alias, pa.int64()))
    return _Aggregate(type(call), name, pa.field(item.alias, kind.arrow)) if kind.name in _ORDERED else None


def _answer(
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
