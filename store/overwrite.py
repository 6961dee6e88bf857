"""Taking rows away before a load's own come in: TRUNCATE, INSERT OVERWRITE, a dropped partition.

Given a state, the segments a load staged, and which rows go:

1. The positions of the rows that go are hidden, tombstones among them, so that no sequence of the past keeps
   a new row out. Which rows those are is told by a filter over key columns, or all of them go.
2. The staged segments are tested among themselves only: what they could meet in the state has gone.

An earlier version still shows what was there; compaction takes segments without live rows away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from store.key_index import Positions
from store.resolve import Plan, make_plan
from store.scan import Projection, batch_rows, live_rows, project, unpruned
from store.segment import Segment
from store.table_state import LiveSegment, TableState

_UNSEEN: Final = 0  # effects, as store.resolve counts them
_DELETED: Final = 2

Effects = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Clearing:
    """What goes: rows that match `filter`, an expression over key columns; all rows when it is None."""

    filter: pc.Expression | None = None


def plan_clearing(state: TableState, staged: list[Segment], clearing: Clearing) -> Plan:
    """Plans against a state; see the module."""
    empty = TableState(state.table_id, state.version, state.schema, {}, (), (), state.next_slot)
    plan = make_plan(empty, staged)
    stored = dict(plan.stored)
    for live, number in unpruned(state, clearing.filter):
        found = _going(live, number, state, clearing.filter)
        if len(found[0]):
            stored.setdefault(live.segment.meta.id, []).append(found)
    return replace(plan, stored=stored)


def _going(
    live: LiveSegment, number: int, state: TableState, predicate: pc.Expression | None
) -> tuple[Positions, Effects]:
    """Positions of the rows of a batch that go, and what their going means."""
    rows = batch_rows(live, number)
    going = _mask(live_rows(live, number, deleted=True), rows)
    if predicate is not None:
        going &= _satisfying(live, number, state, predicate)
    seen = _mask(live_rows(live, number, deleted=False), rows)
    at = np.flatnonzero(going)
    effects = np.where(seen[at], _DELETED, _UNSEEN).astype(np.uint8)
    return (at + number * live.segment.meta.batch_rows).astype(np.uint32), effects


def _mask(rows: pa.BooleanArray | None, count: int) -> npt.NDArray[np.bool_]:
    if rows is None:
        return np.ones(count, dtype=np.bool_)
    mask: npt.NDArray[np.bool_] = np.array(rows.to_numpy(zero_copy_only=False), dtype=np.bool_)
    return mask


def _satisfying(
    live: LiveSegment, number: int, state: TableState, predicate: pc.Expression
) -> npt.NDArray[np.bool_]:
    rows = batch_rows(live, number)
    keys = project(live, number, rows, Projection(state.schema, state.schema.key))
    numbered = pa.table([*keys.columns, pa.arange(0, rows)], names=[*keys.schema.names, "__ROW__"])
    found: Any = numbered.filter(predicate).column("__ROW__").to_numpy()
    mask = np.zeros(rows, dtype=np.bool_)
    mask[found] = True
    return mask
