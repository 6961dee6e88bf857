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
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.expressions.condition import Condition
from seqstore.store.read.live_segment import LiveSegment, Projection, chosen_rows, project, tested_columns
from seqstore.store.read.scan import unpruned
from seqstore.store.read.table_state import TableState
from seqstore.store.segment.segment import INLINE


class _Batch(NamedTuple):
    """A batch that may contribute rows; `is_certain` if zone maps prove that all its rows satisfy the
    conditions.
    """

    live: LiveSegment
    number: int
    is_certain: bool


def count_rows(state: TableState, conditions: Sequence[Condition], *, deleted: bool = False) -> int:
    """Counts the rows that satisfy all conditions.

    Args:
        deleted: tombstones that are their key's winner count too (T8).
    """
    if not conditions and not deleted:
        return state.row_count
    total = 0
    rest: dict[int, LiveSegment] = {}
    for slot, live in state.segments.items():
        if all(_always(state, live, conditions)):
            total += live.deletes.live_count - (0 if deleted else live.live_tombstones)
        else:
            rest[slot] = live
    for batch in _batches(replace(state, segments=rest), conditions):
        mask = _chosen(state, batch, conditions, deleted=deleted)
        total += batch.live.batch_rows(batch.number) if mask is None else mask.true_count
    return total


def has_bounds(state: TableState, column: str) -> bool:
    """Returns whether zone maps cover a column well enough for `extreme`.

    Segments in the catalog need no zone maps: they are small enough to read.
    """
    for live in state.segments.values():
        if live.segment.meta.home == INLINE or not live.deletes.live_count:
            continue
        low, high, has_nulls = live.segment.pruner(state.schema).bounds(column)
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
    projection = Projection(state.schema, (column,))
    best_of = pc.max if largest else pc.min
    ranked: list[tuple[Any, int, _Batch]] = []
    for batch in _batches(state, conditions):
        if batch.live.segment.meta.home == INLINE:
            bound = best_of(project(batch.live, batch.number, projection).column(0))
        else:
            low, high, _ = batch.live.segment.pruner(state.schema).bounds(column)
            bound = (high if largest else low)[batch.number]
        if bound.is_valid:
            ranked.append((bound.as_py(), len(ranked), batch))
    found = pa.scalar(None, projection.arrow.field(0).type)
    for bound, _, batch in sorted(ranked, reverse=largest):
        best = found.as_py()
        if best is not None and (bound <= best if largest else bound >= best):
            break
        mask = _chosen(state, batch, conditions, deleted=deleted)
        values = project(batch.live, batch.number, projection).column(0)
        value = best_of(values if mask is None else values.filter(mask))
        if value.is_valid and (best is None or (value.as_py() > best if largest else value.as_py() < best)):
            found = value
    return found


def _batches(state: TableState, conditions: Sequence[Condition]) -> Iterator[_Batch]:
    parts = [condition.expression for condition in conditions]
    certain: dict[int, list[bool | None]] = {}
    for live, number in unpruned(state, reduce(and_, parts) if parts else None):
        if live.slot not in certain:
            certain[live.slot] = _always(state, live, conditions)
        yield _Batch(live, number, bool(certain[live.slot][number]))


def _always(state: TableState, live: LiveSegment, conditions: Sequence[Condition]) -> list[bool | None]:
    """Returns for each batch whether zone maps prove that every row satisfies the conditions."""
    pruner = live.segment.pruner(state.schema)
    always = pa.repeat(pa.scalar(True), live.segment.batches)
    for condition in conditions:
        always = pc.and_(always, condition.always_holds(*pruner.bounds(condition.column)))
    known: list[bool | None] = always.to_pylist()
    return known


def _chosen(
    state: TableState, batch: _Batch, conditions: Sequence[Condition], *, deleted: bool
) -> pa.BooleanArray | None:
    """Returns which rows of a batch count, None when all do."""
    wanted = () if batch.is_certain else conditions
    tested = tested_columns(state.schema, wanted)
    return chosen_rows(batch.live, batch.number, tested, wanted, deleted=deleted)
