"""Bringing the plan of a large load up to a later version by the keys that moved alone.

The rows to hide follow, key by key, from the stored row of the key and the rows of the load. Of most keys the
stored row is the same at both versions. So:

1. The segments that arrived since, and those that a compaction dropped, have all keys whose row may have
   changed. Find the codes that the load has, too.
2. Plan the rows of the load with these codes, and no others, for both versions (publish.winner_test).
3. Take the first of these plans out of the old one, and put the second one in.

Where more rows moved than half of those that the load has, a plan of all keys is as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from seqstore.store.publish.winner_test import Plan, make_plan
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState
from seqstore.store.segment.key_codes import Codes
from seqstore.store.segment.key_index import KeyIndex, Positions, Run
from seqstore.store.segment.segment import Segment
from seqstore.store.segment.shared_codes import only_codes

_NO_ROWS: Final = np.empty(0, np.uint32)


def plan_moved(
    plan: Plan, before: TableState, now: TableState, staged: Sequence[Segment], *, is_held: bool
) -> Plan | None:
    """Returns the plan of a load for a later version, None when it has to be made anew.

    Args:
        plan: for the version `before`.
        is_held: the files of all segments of `before` are there, of those too that were dropped since.
    """
    if now.replaced > before.version or now.watermark != before.watermark:
        return None
    arrived = [live.segment for name, live in _by_id(now).items() if name not in before.slot_of]
    dropped = [live.segment for name, live in _by_id(before).items() if name not in now.slot_of]
    rows_moved = sum(segment.rows for segment in (*arrived, *dropped))
    if (dropped and not is_held) or 2 * rows_moved > sum(segment.rows for segment in staged):
        return None
    moved = _common_codes([*arrived, *dropped], staged)
    parts = []
    for segment in staged:
        entries = only_codes(segment.index, moved)
        if len(entries):
            parts.append(segment.with_index(entries))
        segment.index.release_pages()
    return _exchanged(plan, make_plan(before, parts), make_plan(now, parts))


def _by_id(state: TableState) -> dict[str, LiveSegment]:
    return {live.segment.meta.id: live for live in state.segments.values()}


def _common_codes(moved: Sequence[Segment], staged: Sequence[Segment]) -> Codes:
    """Returns ascending codes, each once, that a segment of both sides has."""
    found = [_common(each.index, own.index) for each in moved for own in staged]
    return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.uint64)


def _common(one: KeyIndex, other: KeyIndex) -> Codes:
    few, many = sorted((one, other), key=len)
    matches = Run(many, 0).probe(few.codes, with_sequence=False)
    return few.codes[matches.probe_keys] if matches is not None else np.empty(0, dtype=np.uint64)


def _exchanged(plan: Plan, old: Plan, new: Plan) -> Plan:
    """Returns a plan in which the new plan of some keys stands for the old one."""
    made = Plan(new.version)
    for name in plan.stored.keys() | new.stored.keys():
        gone = _positions_in(old, name)
        kept = [
            (positions[stays], effects[stays])
            for positions, effects in plan.stored.get(name, [])
            for stays in [~np.isin(positions, gone)]
            if stays.any()
        ]
        if parts := [*kept, *new.stored.get(name, [])]:
            made.stored[name] = parts
    for name in plan.own.keys() | new.own.keys():
        kept_rows = np.setdiff1d(plan.own.get(name, _NO_ROWS), old.own.get(name, _NO_ROWS))
        rows = np.union1d(kept_rows, new.own.get(name, _NO_ROWS))
        if len(rows):
            made.own[name] = rows
    made.lost_to_own.update(_counts(plan.lost_to_own, old.lost_to_own, new.lost_to_own))
    made.too_late.update(_counts(plan.too_late, old.too_late, new.too_late))
    replaced, deleted = (
        whole - before + now
        for whole, before, now in zip(plan.effects()[:2], old.effects()[:2], new.effects()[:2], strict=True)
    )
    made.final_effects.append((replaced, deleted))
    return made


def _positions_in(plan: Plan, name: str) -> Positions:
    parts = [positions for positions, _ in plan.stored.get(name, [])]
    return np.concatenate(parts) if parts else _NO_ROWS


def _counts(whole: dict[str, int], old: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    sums = {
        name: whole.get(name, 0) - old.get(name, 0) + new.get(name, 0) for name in whole.keys() | new.keys()
    }
    return {name: count for name, count in sums.items() if count}
