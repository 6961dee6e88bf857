"""The winner test: staged rows against the rows of a table (SO1, SO2, D1-D4).

Given the segments of one load, in order, and a state of the table:

1. Probe the codes of a segment against the state: live rows, tombstones included, one per key at most.
2. Hashed keys: compare the key columns, keep true matches.
3. A staged row below the tombstone watermark whose key is not stored is too late (publish.tombstones).
   Another row loses to the stored one or hides it (segment.winner).
4. The next segment of the same load is tested against the earlier ones too, as if each were a version of
   its own; so of equal sequences the later segment wins (SO11). Of many segments only keys that several of
   them have are compared so (segment.shared_codes).

The result is a `Plan`: positions to hide, by segment. Losing rows of the load are stored and hidden from
the start, so that the rows of a segment never depend on the state it was tested against; a plan can be made
again at any later state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from seqstore.store.publish.tombstones import is_below
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState, grouped_by_slot
from seqstore.store.schema.column import DELETE_SIGN
from seqstore.store.segment.dedupe import equal_keys
from seqstore.store.segment.delete_bitmap import DeleteVector
from seqstore.store.segment.key_codes import Codes, prove_keys
from seqstore.store.segment.key_index import Matches, Positions, Run
from seqstore.store.segment.segment import Segment
from seqstore.store.segment.shared_codes import only_codes, shared_codes
from seqstore.store.segment.winner import loses

# The effect of hiding a stored row on its key.
UNSEEN: Final = 0  # a tombstone
REPLACED: Final = 1
DELETED: Final = 2
OWN: Final = 3  # a row of an earlier segment of the same load
_NO_ROWS: Final = np.empty(0, np.uint32)
_COMPARED_WHOLE_MAX: Final = 2  # segments of a load; the keys of more are looked through first


@dataclass(frozen=True)
class Plan:
    """The rows that publishing a load will hide.

    Attributes:
        version: the state it was made against.
        stored: segment id -> (positions, effect of each) in segments the table has.
        own: id of a segment of the load -> its rows that lost to a larger sequence.
        lost_to_own: how many of those lost to another row of the load.
        too_late: how many of those lost to a tombstone that is forgotten (publish.tombstones).
        final_effects: rows replaced and deleted, where segments of the load share keys.
    """

    version: int
    stored: dict[str, list[tuple[Positions, npt.NDArray[np.uint8]]]] = field(default_factory=dict)
    own: dict[str, Positions] = field(default_factory=dict)
    lost_to_own: dict[str, int] = field(default_factory=dict)
    too_late: dict[str, int] = field(default_factory=dict)
    final_effects: list[tuple[int, int]] = field(default_factory=list)

    @property
    def rows_late(self) -> int:
        """Rows of the load that lost to a stored row with a larger sequence."""
        lost = sum(len(positions) for positions in self.own.values())
        return lost - sum(self.lost_to_own.values()) - self.rows_too_late

    @property
    def rows_too_late(self) -> int:
        """Rows of the load whose keys may have been deleted, with no tombstone left."""
        return sum(self.too_late.values())

    def effects(self) -> tuple[int, int, int]:
        """Returns the rows a reader saw that the load replaces, rows it deletes, own rows that lost to its
        own."""
        parts = [effects for hidden in self.stored.values() for _, effects in hidden]
        lost = sum(self.lost_to_own.values())
        if not parts:
            return 0, 0, lost
        _, replaced, deleted, own = np.bincount(np.concatenate(parts), minlength=4).tolist()
        seen = self.final_effects[0] if self.final_effects else (replaced, deleted)
        return *seen, own + lost

    def positions(self) -> dict[str, Positions]:
        """Returns every segment in which rows are hidden, with their distinct positions."""
        hidden = {name: _joined([p for p, _ in parts]) for name, parts in self.stored.items()}
        for name, lost in self.own.items():
            hidden[name] = _joined([hidden[name], lost]) if name in hidden else lost
        return hidden


def _joined(parts: list[Positions]) -> Positions:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def make_plan(
    state: TableState,
    staged: Sequence[Segment],
    stale: Mapping[str, Positions] | None = None,
    *,
    ageless: Mapping[str, Positions] | None = None,
) -> Plan:
    """Tests the segments of one load against a state; see the module.

    Args:
        stale: by segment, rows that a later segment of the load has instead, whatever their sequence.
        ageless: by segment, rows that are never too late.
    """
    planner = Planner(state, stale or {}, staged, ageless or {})
    for segment in staged:
        planner.add(segment)
    return planner.finish()


class Planner:
    """Makes a plan segment by segment, for loads whose later segments depend on the earlier ones.

    Attributes:
        before: the table without any of the segments.

    Args:
        known: all segments that will be added, when they are known beforehand and `state` is not used.
        ageless: see `make_plan`.
    """

    def __init__(
        self,
        state: TableState,
        stale: Mapping[str, Positions] | None = None,
        known: Sequence[Segment] = (),
        ageless: Mapping[str, Positions] | None = None,
    ) -> None:
        self._stale = stale or {}
        self._ageless = ageless or {}
        self._shared: Codes | None = None
        if len(known) > _COMPARED_WHOLE_MAX and not all(map(adds_only, known)):
            self._shared = shared_codes([segment.index for segment in known])
        self.before = state
        self._grown = state
        self._plan = Plan(state.version)
        self._staged: list[Segment] = []
        self._seen = 0

    @property
    def state(self) -> TableState:
        """The table as if the segments so far were published."""
        while self._seen < len(self._staged):
            self._grown = _with_segment(self._grown, self._staged[self._seen], self._plan, self._shared)
            self._seen += 1
        return self._grown

    def add(self, segment: Segment, matches: Matches | None = None) -> None:
        """Tests one more segment.

        Args:
            matches: the live rows of `state` with a key of the segment, if they were looked up already;
                probe keys are entries of the segment's index.
        """
        name = segment.meta.id
        stale, ageless = self._stale.get(name, _NO_ROWS), self._ageless.get(name, _NO_ROWS)
        _test_segment(self._plan, self.state, segment, matches, stale, ageless)
        self._staged.append(segment)
        segment.index.release_pages()

    def finish(self) -> Plan:
        plan = self._plan
        if plan.effects()[2]:
            # Segments share keys: the last row of a key alone decides the effect on its stored row.
            plan.final_effects.append(_final_effects(plan, self.before, self._staged))
        return plan


def _final_effects(plan: Plan, state: TableState, staged: Sequence[Segment]) -> tuple[int, int]:
    """Counts stored rows that the surviving rows of a load replace, and those that they delete."""
    hidden = plan.positions()
    replaced = deleted = 0
    for segment in staged:
        matches = _matches(state, segment)
        positions = segment.index.row_positions(matches.probe_keys)
        survives = ~np.isin(positions, hidden.get(segment.meta.id, []))
        signs = np.asarray(state.take(matches, [DELETE_SIGN]).column(0).combine_chunks())
        counts = survives & (signs == 0)
        deletes = np.zeros(len(positions), dtype=np.bool_)
        if segment.meta.tombstones:
            deletes = signs_of(segment, positions) == 1
        deleted += int(np.count_nonzero(counts & deletes))
        replaced += int(np.count_nonzero(counts & ~deletes))
    return replaced, deleted


def extend_plan(plan: Plan, before: TableState, now: TableState, segment: Segment) -> Plan:
    """Returns a plan of a one-segment load for a later state that only has more segments.

    The staged rows are tested against the new segments alone. A stored row that the plan hides may have
    been hidden by others since: then it is theirs. A staged row that lost cannot win any more, for a key's
    sequence only grows.
    """
    # The watermark has not moved: it rises with a compaction, which drops segments.
    arrived = replace(now.since(before), watermark=None)
    extended = Plan(now.version, too_late=dict(plan.too_late))
    for segment_id, parts in plan.stored.items():
        deletes = now.segments[now.slot_of[segment_id]].deletes
        still = [(p[live], e[live]) for p, e in parts for live in [deletes.is_live(p)] if live.any()]
        if still:
            extended.stored[segment_id] = still
    _test_segment(extended, arrived, segment)
    name = segment.meta.id
    lost = np.union1d(plan.own.get(name, _NO_ROWS), extended.own.get(name, _NO_ROWS))
    if len(lost):
        extended.own[name] = lost
    return extended


def _test_segment(
    plan: Plan,
    state: TableState,
    segment: Segment,
    matches: Matches | None = None,
    stale: Positions = _NO_ROWS,
    ageless: Positions = _NO_ROWS,
) -> None:
    index, name = segment.index, segment.meta.id
    if matches is None:
        matches = _matches(state, segment)
    if len(stale):
        plan.own[name] = stale
        plan.lost_to_own[name] = len(stale)
        matches = matches.take(~np.isin(index.row_positions(matches.probe_keys), stale))
    if state.watermark is not None:
        _refuse_too_late(plan, state.watermark, segment, matches, ageless)
    if not len(matches):
        return
    staged_positions = index.row_positions(matches.probe_keys)
    if index.sequence is not None and matches.sequence is not None:
        lost_now = loses(index.sequence.take(matches.probe_keys), matches.sequence)
        if lost_now.any():
            plan.own[name] = _joined([plan.own.get(name, _NO_ROWS), staged_positions[lost_now]])
            to_own = [slot for slot, live in state.segments.items() if live.created > state.version]
            lost_to_own = int(np.isin(matches.slots[lost_now], to_own).sum())
            plan.lost_to_own[name] = plan.lost_to_own.get(name, 0) + lost_to_own
            matches, staged_positions = matches.take(~lost_now), staged_positions[~lost_now]
    slots, bounds, order = grouped_by_slot(matches.slots)
    positions = matches.positions
    if order is not None:
        positions, staged_positions = positions[order], staged_positions[order]
    effects = np.full(len(positions), REPLACED, dtype=np.uint8)
    if segment.meta.tombstones:
        effects[signs_of(segment, staged_positions) == 1] = DELETED
    for slot, first, end in zip(slots, bounds, bounds[1:], strict=False):
        live, own, its = state.segments[slot], positions[first:end], effects[first:end]
        if live.created > state.version:  # an earlier segment of the load, which no reader saw
            its[:] = OWN
        elif live.segment.meta.tombstones:
            its[signs_of(live.segment, own) == 1] = UNSEEN
        plan.stored.setdefault(live.segment.meta.id, []).append((own, its))


def _refuse_too_late(
    plan: Plan, watermark: int, segment: Segment, matches: Matches, ageless: Positions
) -> None:
    """Plans rows below the watermark whose key is not stored as too late: their tombstone may be removed."""
    index = segment.index
    assert index.sequence is not None
    late = is_below(index.sequence, watermark)
    late[matches.probe_keys] = False
    positions = index.row_positions(np.flatnonzero(late))
    stale = plan.own.get(segment.meta.id, _NO_ROWS)
    positions = positions[~np.isin(positions, stale) & ~np.isin(positions, ageless)]
    if len(positions):
        plan.own[segment.meta.id] = _joined([stale, positions])
        plan.too_late[segment.meta.id] = len(positions)


def _matches(state: TableState, segment: Segment) -> Matches:
    """Steps 1 and 2: live rows of a state with a key of the segment.

    A row that a duplicate table adds has a new key; only its tombstones name stored rows.
    """
    if adds_only(segment):
        return Matches.none(with_sequence=False)
    codes = segment.index.codes
    matches = state.probe(codes)
    if len(matches) and not prove_keys(codes, state.schema.key_columns):
        matches = matches.take(_same_keys(state, segment, matches))
    return matches


def adds_only(segment: Segment) -> bool:
    """Returns whether no row of a segment can have the key of another row: the keys are generated."""
    return segment.schema.is_duplicate and not segment.meta.tombstones


def signs_of(segment: Segment, positions: Positions) -> npt.NDArray[np.int8]:
    """Reads the delete signs of some rows of a segment that stores them."""
    column = segment.take(positions, [DELETE_SIGN]).column(0).combine_chunks()
    return np.asarray(pc.fill_null(column, 0))


def _same_keys(state: TableState, segment: Segment, matches: Matches) -> npt.NDArray[np.bool_]:
    names = [column.name for column in state.schema.key_columns]
    stored = state.take(matches, names)
    staged_names = [column.name for column in segment.schema.key_columns]
    staged = segment.take(segment.index.row_positions(matches.probe_keys), staged_names)
    return equal_keys(staged.columns, None, stored.columns, None)


def _with_segment(state: TableState, segment: Segment, plan: Plan, shared: Codes | None = None) -> TableState:
    """Returns the state as if the segment were published already; only for the rest of the same load.

    Args:
        shared: codes by which the segment can be found in it, None for all.
    """
    segments = dict(state.segments)
    for segment_id, parts in plan.stored.items():
        slot = state.slot_of[segment_id]
        hidden = segments[slot].deletes.hide(_joined([positions for positions, _ in parts]))
        segments[slot] = replace(segments[slot], deletes=hidden)
    slot = state.next_slot
    lost = plan.own.get(segment.meta.id, _NO_ROWS)
    segments[slot] = LiveSegment(slot, segment, state.version + 1, DeleteVector(segment.rows).hide(lost))
    grown = replace(state, segments=segments, prior_runs=state.runs, fresh=(slot,), next_slot=slot + 1)
    if shared is None:
        return grown
    findable = Run(only_codes(segment.index, shared), slot)
    return replace(grown, prior_runs=(*state.runs, findable) if len(findable) else state.runs, fresh=())
