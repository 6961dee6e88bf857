"""Counts and extremes of the rows of a version; zone maps limit the rows that are read.

Counting, batch by batch:

1. Segments in which zone maps prove that every row satisfies the conditions contribute their live rows.
2. In other segments, batches that zone maps rule out contribute no rows.
3. Batches in which every row satisfies the conditions contribute their live rows, unread.
4. In the rest, the columns of the conditions are compared in place, and hidden rows are masked out.

For a smallest or largest value, batches are read in the order of their bounds, until no bound is better than
the found value: mostly one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.expressions.condition import Condition
from seqstore.store.read.scan import (
    LiveBatch,
    Projection,
    batch_rows,
    chosen_rows,
    live_rows,
    project,
    unpruned,
)
from seqstore.store.read.table_state import LiveSegment, TableState
from seqstore.store.segment.segment import INLINE


@dataclass(frozen=True)
class _Batch:
    """A batch that may contribute rows.

    Attributes:
        is_certain: zone maps prove that all its rows satisfy the conditions.
    """

    asked: LiveBatch
    is_certain: bool

    @property
    def rows(self) -> int:
        return batch_rows(*self.asked)


def count_rows(state: TableState, conditions: Sequence[Condition], *, deleted: bool = False) -> int:
    """Counts the rows that satisfy all conditions.

    Args:
        deleted: tombstones that are their key's winner count too (T8).
    """
    if not conditions and not deleted:
        return state.row_count
    whole: dict[int, LiveSegment] = {}
    rest: dict[int, LiveSegment] = {}
    for slot, live in state.segments.items():
        (whole if all(_always(state, live, conditions)) else rest)[slot] = live
    total = sum(live.deletes.live_count - (0 if deleted else live.live_tombstones) for live in whole.values())
    for batch in _batches(replace(state, segments=rest), conditions):
        mask = _chosen(state, batch, conditions, deleted=deleted)
        total += batch.rows if mask is None else mask.true_count
    return total


def has_bounds(state: TableState, column: str) -> bool:
    """Returns whether zone maps cover a column well enough for `extreme`.

    Segments in the catalog need no zone maps: they are small enough to read.
    """
    for live in state.segments.values():
        if live.segment.meta.home == INLINE or not live.deletes.live_count:
            continue
        low, high, has_nulls = live.segment.bounds(state.schema).of(column)
        if has_nulls.null_count or low.null_count != high.null_count:  # a cut text has the lower bound alone
            return False
    return True


def extreme(
    state: TableState,
    column: str,
    conditions: Sequence[Condition],
    *,
    largest: bool,
    deleted: bool = False,
) -> pa.Scalar:
    """Returns the smallest or largest value of a column among rows that satisfy all conditions; NULL without
    any.

    Args:
        column: one that has bounds, and no NaN.
    """
    batches = list(_batches(state, conditions))
    bounds = [_bound(state, batch, column, largest=largest) for batch in batches]
    found = pa.scalar(None, Projection(state.schema, (column,)).arrow.field(0).type)
    ranked = [(bound.as_py(), i) for i, bound in enumerate(bounds) if bound.is_valid]
    for bound, i in sorted(ranked, reverse=largest):
        best = found.as_py()
        if best is not None and (bound <= best if largest else bound >= best):
            break
        value = _extreme_within(state, batches[i], column, conditions, largest=largest, deleted=deleted)
        if value.is_valid and (best is None or (value.as_py() > best if largest else value.as_py() < best)):
            found = value
    return found


def _batches(state: TableState, conditions: Sequence[Condition]) -> Iterator[_Batch]:
    parts = [condition.expression for condition in conditions]
    predicate = reduce(lambda left, right: left & right, parts) if parts else None
    certain: dict[int, list[bool | None]] = {}
    for live, number in unpruned(state, predicate):
        if live.slot not in certain:
            certain[live.slot] = _always(state, live, conditions)
        yield _Batch((live, number), bool(certain[live.slot][number]))


def _always(state: TableState, live: LiveSegment, conditions: Sequence[Condition]) -> list[bool | None]:
    bounds = live.segment.bounds(state.schema)
    always = pa.repeat(pa.scalar(True), live.segment.batches)
    for condition in conditions:
        always = pc.and_(always, condition.always_holds(*bounds.of(condition.column)))
    known: list[bool | None] = always.to_pylist()
    return known


def _chosen(
    state: TableState, batch: _Batch, conditions: Sequence[Condition], *, deleted: bool
) -> pa.BooleanArray | None:
    """Returns which rows of a batch count, None when all do."""
    live, number = batch.asked
    if batch.is_certain:
        return live_rows(live, number, deleted=deleted)
    return chosen_rows(live, number, state.schema, conditions, deleted=deleted)


def _bound(state: TableState, batch: _Batch, column: str, *, largest: bool) -> pa.Scalar:
    """Returns the best value that a batch may have, NULL when it has none."""
    live, number = batch.asked
    if live.segment.meta.home == INLINE:
        values = project(live, number, batch.rows, Projection(state.schema, (column,))).column(0)
        return (pc.max if largest else pc.min)(values)
    low, high, _ = live.segment.bounds(state.schema).of(column)
    return (high if largest else low)[number]


def _extreme_within(
    state: TableState,
    batch: _Batch,
    column: str,
    conditions: Sequence[Condition],
    *,
    largest: bool,
    deleted: bool,
) -> pa.Scalar:
    live, number = batch.asked
    mask = _chosen(state, batch, conditions, deleted=deleted)
    values = project(live, number, batch.rows, Projection(state.schema, (column,))).column(0)
    if mask is not None:
        values = values.filter(mask)
    return (pc.max if largest else pc.min)(values)
