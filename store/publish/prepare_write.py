"""Filling, staging and planning a write against a state of its table.

1. `prepare_write` fills the deltas in the order of the parts, each on the segments before it, stages the
   rows that this yields, and tests all segments against the state.
2. `align_write` plans for a later state. One segment of whole rows is tested against the segments that
   arrived since, several by the keys that moved (publish.moved_keys). Of a lone delta, rows whose keys were
   written since are filled again and become one more segment. Anything else is filled and planned anew.
3. `resume_write` does the same for a stored write, whose earlier state may not be readable any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from seqstore.store.catalog.version_record import VersionMetrics
from seqstore.store.check.delta import Delta
from seqstore.store.fill.partial import fill
from seqstore.store.publish.moved_keys import plan_moved
from seqstore.store.publish.replace_where import plan_replace_where
from seqstore.store.publish.winner_test import Planner, extend_plan, make_plan
from seqstore.store.publish.write_states import (
    DeltaPart,
    FilledWrite,
    Part,
    PendingWrite,
    PreparedWrite,
    RowPart,
    StoredWrite,
    WriteTarget,
    bytes_of,
    have_files,
)
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.column import VERSION_COL
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.checked_rows import CheckedRows
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.segment import Segment
from seqstore.store.segment.stager import Stager
from seqstore.store.segment.winner import Rows

_ARRIVED_MAX: Final = 4  # more segments are probed by the runs of the newest state, made once for all


class Filling:
    """The segments that one preparation stages; as a context, it removes their files on an error.

    No catalog transaction has named these segments yet, so nothing else can need their files.
    """

    def __init__(self, stager: Stager) -> None:
        self._stager = stager
        self._staged: list[Segment] = []
        self._rows_superseded = 0

    def stage(self, rows: CheckedRows) -> tuple[Segment, ...]:
        staged = self._stager.stage(rows)
        self._staged += staged.segments
        self._rows_superseded += staged.superseded
        return staged.segments

    def finish(self, pending: PendingWrite, segments: Sequence[Segment]) -> PendingWrite:
        """Makes the names of segment files durable; returns a write with the staged ones in its metrics."""
        if have_files(segments):
            self._stager.sync()
        if not self._staged:
            return pending
        size = bytes_of(self._staged)
        more = VersionMetrics(rows_superseded=self._rows_superseded, bytes_written=size)
        return replace(pending, metrics=pending.metrics + more)

    def __enter__(self) -> Filling:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for segment in self._staged:
                segment.delete_files()


@dataclass(frozen=True)
class StagedPart:
    """A part of a write whose rows stand in segments.

    Attributes:
        filled: those segments, if the part is a partial update.
        late, superseded: rows that filling dropped.
    """

    segments: tuple[Segment, ...]
    filled: tuple[Segment, ...] = ()
    late: int = 0
    superseded: int = 0


def stage_part(part: Part, planner: Planner, filling: Filling) -> StagedPart:
    """Fills and stages a part on the parts that a planner has, and adds its segments to it.

    Raises:
        InvalidInputError: it cannot be filled; the planner is unchanged.
    """
    if isinstance(part, RowPart):
        staged, known = StagedPart(part.segments), None
    else:
        state = planner.state
        rows = fill(part.delta_on(state, planner.before), state, part.options)
        added = filling.stage(rows.rows)
        staged = StagedPart(added, added, rows.late, rows.superseded)
        # Where rows and index entries stand in one order, filling has looked up the stored rows already.
        known = rows.matches if len(added) == 1 and not added[0].index.has_equal_codes else None
    for segment in staged.segments:
        planner.add(segment, known)
    return staged


def prepare_write(pending: PendingWrite, state: TableState, filling: Filling) -> PreparedWrite:
    """Fills, stages and plans a write."""
    planner = Planner(state, known=() if pending.has_deltas else pending.row_segments)
    parts = [stage_part(part, planner, filling) for part in pending.parts]
    plan = planner.finish()
    published = [segment for part in parts for segment in part.segments]
    if pending.replace_where is not None:
        plan = plan_replace_where(state, published, pending.replace_where)
    done = FilledWrite(
        filling.finish(pending, published),
        tuple(segment for part in parts for segment in part.filled),
        tuple(published),
        rows_late=sum(part.late for part in parts),
        rows_superseded=sum(part.superseded for part in parts),
    )
    return PreparedWrite(done, state, plan)


def align_write(
    prepared: PreparedWrite, now: TableState, filling: Filling, *, has_all_tombstones: bool = True
) -> PreparedWrite:
    """Plans a prepared write for a later state.

    Args:
        has_all_tombstones: no compaction has removed one of those that were written since.
    """
    filled, before = prepared.filled, prepared.state
    pending = filled.pending
    if pending.replace_where is not None or len(pending.parts) > 1:
        return prepare_write(pending, now, filling)
    only_moved = now.replaced <= before.version
    arrived = now.since(before)
    if pending.lone_delta is not None:
        is_shown = only_moved and has_all_tombstones
        touched = _touched(pending.lone_delta, arrived, before.version, is_shown=is_shown)
        if len(touched):
            filled = _filled_again(filled, pending.lone_delta, touched, now, filling)
            return PreparedWrite(filled, now, make_plan(now, filled.published, filled.stale))
    only_grew = only_moved and now.has_all_of(before)
    is_one = len(filled.published) == 1 and not filled.stale
    if only_grew and is_one and len(arrived.segments) <= _ARRIVED_MAX:
        plan = extend_plan(prepared.plan, before, now, filled.published[0])
    else:
        moved = None
        if pending.lone_delta is None:
            is_held = prepared.lease is not None
            moved = plan_moved(prepared.plan, before, now, filled.published, is_held=is_held)
        plan = moved or make_plan(now, filled.published, filled.stale)
    return PreparedWrite(filled, now, plan)


def resume_write(
    target: WriteTarget,
    stored: StoredWrite,
    now: TableState,
    filling: Filling,
    *,
    has_all_tombstones: bool = True,
) -> PreparedWrite:
    """Plans a stored write; `has_all_tombstones` as of `align_write`."""
    filled, pending, lone = stored.filled, stored.filled.pending, stored.filled.pending.lone_delta
    if pending.replace_where is not None or (pending.has_deltas and lone is None):
        return prepare_write(pending, now, filling)
    if lone is not None:
        is_shown = has_all_tombstones and target.table.only_moved(stored.version, now.version)
        arrived = now.arrived_after(stored.version)
        touched = _touched(lone, arrived, stored.version, is_shown=is_shown)
        if len(touched):
            filled = _filled_again(filled, lone, touched, now, filling)
    return PreparedWrite(filled, now, make_plan(now, filled.published, filled.stale))


def _touched(part: DeltaPart, arrived: TableState, before: int, *, is_shown: bool) -> Rows:
    """Returns the rows of a delta whose key has a row written after version `before`.

    Args:
        arrived: the segments that were added since that version; a compaction adds some and only moves rows.
        is_shown: each key that was written since has a row in them: no row was removed without a tombstone,
            and no tombstone was removed.
    """
    delta = part.delta
    if not is_shown:
        return np.arange(len(delta))
    _, codes = delta.keys(part.schema)
    order = np.argsort(codes, kind="stable")
    matches = arrived.probe(codes[order])
    versions = arrived.take(matches, [VERSION_COL]).column(0).combine_chunks()
    written = np.asarray(versions) > before
    return np.sort(order[np.unique(matches.probe_keys[written])])


def _filled_again(
    filled: FilledWrite, part: DeltaPart, touched: Rows, now: TableState, filling: Filling
) -> FilledWrite:
    """Fills some rows of a lone delta again; they stand in a segment behind those of the first filling."""
    delta = part.delta.take(touched)
    # A new key may have been another load's a moment ago: new keys were checked at the first filling (C13).
    options = replace(part.options, refuse_new_keys=False, again=True)
    stale = _set_aside(filled, delta, part.schema)
    segments = (*filled.filled, *filling.stage(fill(delta, now, options).rows))
    pending = filling.finish(filled.pending, segments)
    return replace(filled, pending=pending, filled=segments, published=segments, stale=stale)


def _set_aside(filled: FilledWrite, touched: Delta, schema: TableSchema) -> dict[str, Positions]:
    """Returns the stale rows with those of the touched keys from earlier fillings. A larger sequence does not
    save them: a new key had its default, and the row that came between may have less (C7)."""
    stale = dict(filled.stale)
    _, codes = touched.keys(schema)
    for segment in filled.filled:
        entries = np.flatnonzero(np.isin(segment.index.codes, codes))
        if len(entries):
            known = stale.get(segment.meta.id, np.empty(0, np.uint32))
            stale[segment.meta.id] = np.union1d(known, segment.index.row_positions(entries))
    return stale
