"""Queries that count rows or ask for the smallest and largest values, answered from zone maps.

That is: `count(*)`, `count(1)`, `count(c)`, `min(c)` and `max(c)` of one table, under conditions that a scan
decides itself. Floats are left out, for NaN has a place among them in SQL and none in Arrow.
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
    """One item of a select list. `column` is None where rows are counted, whatever is in them."""

    function: type[exp.Expr]
    column: str | None
    field: pa.Field


def aggregates(tree: exp.Select, relation: Relation, *, deleted: bool) -> pa.RecordBatchReader | None:
    """The answer, found when it is read, or None when a query asks for something else.

    Args:
        relation: the one that is read; what its conditions say is all that the query asks of a row.
        deleted: tombstones count too (T8).
    """
    found = [_aggregate(item, relation) for item in tree.expressions]
    items = [item for item in found if item is not None]
    if not items or len(items) < len(found) or relation.partitions:
        return None
    snapshot = relation.snapshot
    if not isinstance(snapshot, Snapshot):
        if relation.conditions or deleted or any(item.column for item in items):
            return None
        counted = pa.table([[snapshot.count()]] * len(items), schema=pa.schema([i.field for i in items]))
        return counted.to_reader()
    extremes = {item.column for item in items if item.function is not exp.Count and item.column}
    if not all(snapshot.has_bounds(column) for column in extremes):
        return None
    schema = pa.schema([item.field for item in items])
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
