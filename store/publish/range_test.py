"""The winner test of a large load in pieces that any process can run, such as Spark executors.

A `RangeTest` is a picklable value: the segments of one load and those of one version of its table, as their
readers need them. Codes of keys are spread evenly over 64 bits (segment.key_codes), so equal ranges of codes
are fair shares of the rows, and whatever happens to a key happens within its range.

1. The process with the catalog makes the test against the newest version (`RangeTest.of`), and holds that
   version.
2. `run(i)` opens the key indexes, keeps the entries of range i, and tests them by the planner of any load
   (publish.winner_test). It returns a `PlanShare`: bitmaps of the rows to hide, and counts.
3. `joined` makes the plan of all shares. Running a range twice yields the same share.

So the process that commits holds delete vectors, never keys. Each file of key indexes is compared with its
checksum by the range that it falls to; where hosts read copies of their own (object stores), by each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import numpy as np
from pyroaring import BitMap

from seqstore.store.publish.winner_test import OWN, Plan, make_plan
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.scan_task import SegmentSlice
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.delete_bitmap import DeleteVector, bitmap_of, positions_of
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.segment import INLINE, Segment

_CODES: Final = 2**64
Bitmaps = dict[tuple[str, int], bytes]


@dataclass(frozen=True)
class PlanShare:
    """The part of a plan that one range of codes decides.

    Attributes:
        number, version: the range, and the version it was tested against.
        stored: (segment id, effect) -> rows to hide, serialised Roaring bitmaps.
        own: segment id -> rows of the load that lost to a larger sequence, the same.
        lost_to_own, too_late: as in `Plan`.
        replaced, deleted: stored rows that a reader saw.
    """

    number: int
    version: int
    stored: Bitmaps
    own: dict[str, bytes]
    lost_to_own: dict[str, int]
    too_late: dict[str, int]
    replaced: int
    deleted: int

    @classmethod
    def of(cls, number: int, plan: Plan) -> PlanShare:
        """Returns the plan of a range as a value that travels."""
        stored: Bitmaps = {}
        for segment_id, parts in plan.stored.items():
            positions = np.concatenate([each for each, _ in parts])
            effects = np.concatenate([each for _, each in parts])
            for effect in np.unique(effects).tolist():
                stored[segment_id, effect] = bitmap_of(positions[effects == effect]).serialize()
        own = {segment_id: bitmap_of(lost).serialize() for segment_id, lost in plan.own.items()}
        replaced, deleted, _ = plan.effects()
        lost = {name: count for name, count in plan.lost_to_own.items() if count}
        return cls(number, plan.version, stored, own, lost, dict(plan.too_late), replaced, deleted)


@dataclass(frozen=True)
class RangeTest:
    """The winner test of one load against one version, detached from the catalog.

    Attributes:
        disk, directory: the place of the segment files.
        table_id, version, schema, watermark: of the state that the load is tested against.
        staged: the segments of the load, in order.
        stored: those of the state.
        ranges: how many there are.
    """

    disk: Disk
    directory: str
    table_id: int
    version: int
    schema: TableSchema
    watermark: int | None
    staged: tuple[SegmentSlice, ...]
    stored: tuple[SegmentSlice, ...]
    ranges: int

    @classmethod
    def of(
        cls, state: TableState, staged: Sequence[Segment], disk: Disk, directory: str, ranges: int
    ) -> RangeTest:
        """Describes the test of some staged segments against a state; opens no file.

        Args:
            ranges: at least one.
        """
        added = [LiveSegment(0, segment, 0, DeleteVector(segment.rows)) for segment in staged]
        lives = [live for live in state.segments.values() if live.deletes.live_count]
        return cls(
            disk,
            directory,
            state.table_id,
            state.version,
            state.schema,
            state.watermark,
            tuple(map(SegmentSlice.of, added)),
            tuple(map(SegmentSlice.of, lives)),
            max(ranges, 1),
        )

    def run(self, number: int) -> PlanShare:
        """Tests one range.

        Args:
            number: from 0 to `ranges` - 1.

        Raises:
            CorruptionError: a file is missing or differs from the written bytes.
        """
        low, high = (_CODES * end // self.ranges for end in (number, number + 1))
        segments: dict[int, LiveSegment] = {}
        staged: list[Segment] = []
        for slot, piece in enumerate((*self.stored, *self.staged)):
            segment = self._part(piece, low, high, is_verifier=slot % self.ranges == number)
            if segment is None:
                continue
            if slot < len(self.stored):
                segments[slot] = LiveSegment(slot, segment, piece.created, piece.deletes)
            else:
                staged.append(segment)
        slots, next_slot = tuple(segments), len(self.stored)
        state = TableState(
            self.table_id, self.version, self.schema, segments, (), slots, next_slot, 0, self.watermark
        )
        return PlanShare.of(number, make_plan(state, staged))

    def _part(self, piece: SegmentSlice, low: int, high: int, *, is_verifier: bool) -> Segment | None:
        """Opens a segment with the entries of a range of codes; None when there are none."""
        segment = piece.segment(self.disk, self.directory)
        if piece.meta.home == INLINE:
            index = segment.index
        else:
            index = segment.read_index(is_verified=not is_verifier and not self.disk.has_copies)
        part = index.within(low, high)
        return segment.with_index(part) if len(part) else None


def joined(shares: Sequence[PlanShare]) -> Plan:
    """Returns the plan of all ranges of one test, one share of each.

    Args:
        shares: at least one; all of one version.
    """
    (version,) = {share.version for share in shares}
    plan = Plan(version)
    for segment_id, effect in sorted({key for share in shares for key in share.stored}):
        found = _union([share.stored.get((segment_id, effect)) for share in shares])
        effects = np.full(len(found), effect, dtype=np.uint8)
        plan.stored.setdefault(segment_id, []).append((positions_of(found), effects))
    for segment_id in sorted({name for share in shares for name in share.own}):
        plan.own[segment_id] = positions_of(_union([share.own.get(segment_id) for share in shares]))
    for share in shares:
        for name, count in share.lost_to_own.items():
            plan.lost_to_own[name] = plan.lost_to_own.get(name, 0) + count
        for name, count in share.too_late.items():
            plan.too_late[name] = plan.too_late.get(name, 0) + count
    if plan.lost_to_own or any(effect == OWN for share in shares for _, effect in share.stored):
        seen = sum(share.replaced for share in shares), sum(share.deleted for share in shares)
        plan.final_effects.append(seen)
    return plan


def _union(parts: Sequence[bytes | None]) -> BitMap:
    return reduce(or_, [BitMap.deserialize(part) for part in parts if part is not None])
