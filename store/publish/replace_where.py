"""Removing rows before those of a load are added: TRUNCATE, INSERT OVERWRITE, a dropped partition.

Given a state, the segments a load staged, and which rows go:

1. The positions of the rows that go are hidden, tombstones among them, so that no sequence of the past keeps
   a new row out. A filter over key columns selects the rows; without one all rows are removed.
2. The staged segments are tested against the rows left, as those of any load. Where no row is left, or every
   staged row matches the filter, nothing is left that they could meet, and they are tested among themselves
   only. The filter alone decides that, never the writer of the rows: a row beside the filter that counted as
   new would stand beside the stored row of its key.
3. The tombstone watermark (publish.tombstones) holds for staged rows beside the filter only: with the removed
   rows the memory of deleted keys is removed too.

An earlier version still shows the removed rows; compaction drops segments without live rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.expressions.predicate import named_in
from seqstore.store.publish.winner_test import DELETED, UNSEEN, Plan, make_plan
from seqstore.store.read.live_segment import LiveSegment, Projection, project
from seqstore.store.read.scan import unpruned
from seqstore.store.read.table_state import TableState
from seqstore.store.segment.delete_bitmap import DeleteVector
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.segment import Segment

Effects = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ReplaceWhere:
    """The rows to remove: those that match `filter`; None for all rows.

    The filter is an expression over key columns, in a duplicate table over any columns.
    """

    filter: pc.Expression | None = None


def plan_replace_where(state: TableState, staged: list[Segment], replace_where: ReplaceWhere) -> Plan:
    """Plans against a state; see the module."""
    going: dict[str, list[tuple[Positions, Effects]]] = {}
    for live, number in unpruned(state, replace_where.filter):
        found = _going(live, number, state, replace_where.filter)
        if len(found[0]):
            going.setdefault(live.segment.meta.id, []).append(found)
    cleared: dict[str, Positions] = {}  # by staged segment, the rows that match the filter
    if replace_where.filter is not None:
        cleared = {segment.meta.id: _matching(segment, state, replace_where.filter) for segment in staged}
    if not cleared or all(len(cleared[segment.meta.id]) == segment.rows for segment in staged):
        left = TableState(state.table_id, state.version, state.schema, {}, (), (), state.next_slot)
    else:
        left = _without(state, going)
    plan = make_plan(left, staged, ageless=cleared)
    stored = dict(plan.stored)
    for name, parts in going.items():
        stored[name] = [*stored.get(name, []), *parts]
    deleted = sum(
        int(np.count_nonzero(effects == DELETED)) for parts in going.values() for _, effects in parts
    )
    final = [(replaced, gone + deleted) for replaced, gone in plan.final_effects]
    return replace(plan, stored=stored, final_effects=final)


def _without(state: TableState, going: Mapping[str, list[tuple[Positions, Effects]]]) -> TableState:
    """Returns the state without the rows to remove; only to plan against."""
    segments = dict(state.segments)
    for name, parts in going.items():
        slot = state.slot_of[name]
        hidden = segments[slot].deletes.hide(np.concatenate([positions for positions, _ in parts]))
        segments[slot] = replace(segments[slot], deletes=hidden)
    return replace(state, segments=segments, prior_runs=state.runs, fresh=())


def _matching(staged: Segment, state: TableState, predicate: pc.Expression) -> Positions:
    """Returns the rows of a staged segment that match."""
    live = LiveSegment(state.next_slot, staged, state.version + 1, DeleteVector(staged.rows))
    found = [
        np.flatnonzero(_satisfying(live, number, state, predicate)) + number * staged.meta.batch_rows
        for number in range(staged.batches)
    ]
    return np.concatenate([np.empty(0, np.uint32), *found]).astype(np.uint32)


def _going(
    live: LiveSegment, number: int, state: TableState, predicate: pc.Expression | None
) -> tuple[Positions, Effects]:
    """Returns the positions of the rows of a batch to remove, and the effect of each removal."""
    rows = live.batch_rows(number)
    going = _mask(live.live_rows(number, deleted=True), rows)
    if predicate is not None:
        going &= _satisfying(live, number, state, predicate)
    seen = _mask(live.live_rows(number, deleted=False), rows)
    at = np.flatnonzero(going)
    effects = np.where(seen[at], DELETED, UNSEEN).astype(np.uint8)
    return (at + number * live.segment.meta.batch_rows).astype(np.uint32), effects


def _mask(rows: pa.BooleanArray | None, count: int) -> npt.NDArray[np.bool_]:
    if rows is None:
        return np.ones(count, dtype=np.bool_)
    mask: npt.NDArray[np.bool_] = np.array(rows.to_numpy(zero_copy_only=False), dtype=np.bool_)
    return mask


def _satisfying(
    live: LiveSegment, number: int, state: TableState, predicate: pc.Expression
) -> npt.NDArray[np.bool_]:
    rows = live.batch_rows(number)
    schema = state.schema
    names = tuple(named_in(predicate, schema.names)) if schema.is_duplicate else schema.key
    keys = project(live, number, Projection(schema, names))
    numbered = pa.table([*keys.columns, pa.array(np.arange(rows))], names=[*keys.schema.names, "__ROW__"])
    found: Any = numbered.filter(predicate).column("__ROW__").to_numpy()
    mask = np.zeros(rows, dtype=np.bool_)
    mask[found] = True
    return mask
