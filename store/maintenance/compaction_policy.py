"""The policy of automatic compaction: which segments to merge, and when, in eight rules.

1. A segment is small if its live rows are fewer than half of `segment_rows` and take less than half of
   `segment_bytes_max`, and tiny if all of its rows are less than a tenth of both. Tiny ones are one kind of
   work, all others another; both kinds run side by side.
2. With more than `compaction_segments_max` tiny ones, or half as many small ones: merge the smallest of them,
   and add the next larger as long as it has no more rows than all before it together.
3. A larger segment of which `compaction_deleted_percent` of the rows are dead is rewritten.
4. A segment with a hundredth of dead rows is rewritten at leisure: when it is older than a minute, and older
   than a rewrite of the whole table takes at `compaction_bytes_per_second`. One in 10,000 suffices when all
   segments are that old.
5. Small guards (compressed tombstones without values) are merged among themselves by rule 2.
6. Where more than 16 larger segments have rows around one key code, the widest eight of them are merged. What
   comes of them share no code, so a look-up tries fewer segments, whatever the table holds.
7. In a table with `compression = auto`, larger segments older than `compression_cold_seconds` are rewritten
   as zstd when there is nothing else to do. A merge writes zstd as well when all of its inputs are that old,
   or are compressed.
8. In a table of more than eight times the rows or bytes of rule 1, merges write segments of an eighth of the
   table, at most `segment_growth` times those rows or bytes. Half as many that have less than half of this,
   and are not small, are merged by rule 2 as well.

Merged segments double in size, so by rule 2 a row is rewritten a few times at most, and by rule 8 about once
for each fourfold growth of its table. By rule 3 it is rewritten about once for every
`compaction_deleted_percent` of the table that are replaced. By rule 6 it is rewritten once more where
more than 16 segments grow no more and stand in the order of codes, and at every eightfold. The clock limits
rule 4.
While loads continue, nearly every batch soon has some dead row again, despite any rewrite. After a pause,
even few dead rows are worth a rewrite that leaves none. In the long run a table has about ten small segments
and eight to sixteen large ones; more of them when these grow no more.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from seqstore.store.publish.tombstones import Purge, group_sequences
from seqstore.store.read.live_segment import LiveSegment, Projection, project
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema import properties as props
from seqstore.store.schema.column import DELETE_SIGN, SEQUENCE_COL, VERSION_COL
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.load_marker import made_at
from seqstore.store.segment.segment import INLINE
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.settings import Settings, ThinningStep, parse_thinning

_LEISURE_SHARE: Final = 100  # one row of so many is dead
_IDLE_SHARE: Final = 10_000  # the same, of a table without loads
_LEISURE_SECONDS_MIN: Final = 60.0
_SEGMENTS_AT_ONCE: Final = 8
_GROWN_AT_ONCE: Final = 2
_LARGE_IN_TABLE: Final = 8  # segments of which a table consists at least before they grow
_TINY, _SMALL = 0.1, 0.5  # of a whole segment
_COLD_CODEC: Final = "zstd"
_OVERLAP_MAX: Final = 16  # larger segments that a look-up of one key tries


@dataclass(frozen=True)
class MaintenancePolicy:
    """The limits of one table, from its properties and the settings of the store.

    Attributes:
        is_automatic: compaction runs after loads.
        segments_max, deleted_percent, bytes_per_second: thresholds of rules 2, 3 and 4.
        cold_seconds: of rule 7; None where segments stay as they were written.
        version_retention_seconds: how long versions can be read.
        thinning: which versions stay within that time.
    """

    is_automatic: bool
    segments_max: int
    deleted_percent: int
    bytes_per_second: int
    cold_seconds: int | None
    version_retention_seconds: int
    thinning: tuple[ThinningStep, ...]

    @classmethod
    def of(cls, schema: TableSchema, settings: Settings) -> MaintenancePolicy:
        """Returns the policy of a table; its properties override the settings."""
        given = schema.properties
        return cls(
            bool(settings.auto_compaction) and given.get(props.NO_AUTO_COMPACTION) != "true",
            int(given.get(props.COMPACTION_SEGMENTS, settings.compaction_segments_max)),
            int(given.get(props.COMPACTION_DELETED, settings.compaction_deleted_percent)),
            int(given.get(props.COMPACTION_PACE, settings.compaction_bytes_per_second)),
            int(given.get(props.COMPRESSION_COLD, settings.compression_cold_seconds))
            if schema.compresses_when_cold
            else None,
            int(given.get(props.VERSION_RETENTION, settings.version_retention_seconds)),
            parse_thinning(given.get(props.VERSION_THINNING, settings.version_thinning)),
        )


def choose_tiny(state: TableState, policy: MaintenancePolicy, settings: Settings) -> list[LiveSegment]:
    """Returns the next inputs of the fast kind of compaction, empty when there is nothing to merge."""
    tiny = [live for live in state.segments.values() if is_tiny(live, settings) and not _is_guard(live)]
    rows = sum([live.segment.rows for live in tiny])
    if rows >= settings.batch_rows_max:  # fewer dead rows than a batch has delay no reader
        dead = sum([live.deletes.hidden for live in tiny])
        if _Leisure(state, policy).has_come(max(tiny, key=lambda live: live.segment.rows), dead, rows):
            return tiny
    return _smallest(tiny, policy.segments_max)


def choose_large(state: TableState, policy: MaintenancePolicy, settings: Settings) -> list[LiveSegment]:
    """Returns the next inputs of the slow kind: segments with most dead rows first, a limited number."""
    guards, small, short, dirty, whole = [], [], [], [], []
    leisure, growth = _Leisure(state, policy), growth_of(state, settings)
    for live in state.segments.values():
        dead, rows = live.deletes.hidden, live.segment.rows
        if _is_guard(live):
            guards += [live] if _is_small(live, settings) else []
        elif is_tiny(live, settings):
            continue
        elif (
            dead >= settings.batch_rows_max and dead * 100 >= rows * policy.deleted_percent
        ) or leisure.has_come(live, dead, rows):
            dirty.append(live)
        elif _is_small(live, settings):
            small.append(live)
        elif _is_small(live, settings, growth):
            short.append(live)
        else:
            whole.append(live)
    few = policy.segments_max // 2
    chosen = dirty + _smallest(small, few) + _smallest(short, few)
    if not chosen and not state.schema.is_duplicate:  # their keys are generated
        chosen = _overlapping(short + whole)
    if not chosen:
        chosen = [live for live in small + short + whole if is_cold(live, policy)]
    if not chosen:
        return _smallest(guards, policy.segments_max)
    chosen.sort(key=lambda live: live.deletes.live_count / live.segment.rows)
    so_far = itertools.accumulate(_fullness(live, live.segment.rows, settings) for live in chosen)
    limit = max(_SEGMENTS_AT_ONCE, _GROWN_AT_ONCE * growth)
    count = sum(1 for fullness in so_far if fullness <= limit)
    return chosen[: max(count, 1)]


def growth_of(state: TableState, settings: Settings) -> float:
    """Returns how many times as large as by rule 1 the segments are that merges write by rule 8."""
    size = sum(_fullness(live, live.deletes.live_count, settings) for live in state.segments.values())
    return min(max(size / _LARGE_IN_TABLE, 1), settings.segment_growth)


def merged_codec(inputs: Sequence[LiveSegment], policy: MaintenancePolicy) -> str | None:
    """Returns the codec of a merge's outputs by rule 7; None for that of the table."""
    if policy.cold_seconds is None:
        return None
    are_cold = all(live.segment.meta.compression == _COLD_CODEC or is_cold(live, policy) for live in inputs)
    return _COLD_CODEC if are_cold else None


def is_cold(live: LiveSegment, policy: MaintenancePolicy) -> bool:
    """Returns whether rule 7 compresses a segment."""
    meta = live.segment.meta
    if policy.cold_seconds is None or meta.compression != "none" or meta.home == INLINE:
        return False
    return made_at(meta.id) <= time.time() - policy.cold_seconds


def small_or_dirty(
    segments: Sequence[LiveSegment], settings: Settings, growth: float = 1
) -> list[LiveSegment]:
    """Returns the segments that OPTIMIZE rewrites: small ones, ones with dead rows, and ones in the catalog.

    A single small file without dead rows is left out: a rewrite would not improve it.

    Args:
        growth: of the segments' table (`growth_of`).
    """
    chosen = [
        live
        for live in segments
        if live.segment.meta.home == INLINE or live.deletes.hidden or _is_small(live, settings, growth)
    ]
    if len(chosen) == 1:
        only = chosen[0]
        is_better = only.segment.meta.home == INLINE or only.deletes.hidden
        return chosen if is_better and not _is_guard(only) else []
    return chosen


def rewritable(state: TableState, purge: Purge) -> list[LiveSegment]:
    """Returns the segments with removable rows: hidden ones, and tombstones that may be removed."""
    return [live for live in state.segments.values() if live.deletes.hidden or _has_leaving(live, purge)]


def _has_leaving(live: LiveSegment, purge: Purge) -> bool:
    """Returns whether a merge would remove tombstones from a segment."""
    segment = live.segment
    if not segment.meta.tombstones:
        return False
    schema = purge.schema
    names = [DELETE_SIGN, VERSION_COL, *group_sequences(schema)]
    names += [SEQUENCE_COL] if schema.has_sequence else []
    for number in range(segment.batches):
        rows = pa.Table.from_batches([project(live, number, Projection(schema, tuple(names)))])
        signs = np.asarray(rows.column(DELETE_SIGN).combine_chunks()) == 1
        versions = np.asarray(rows.column(VERSION_COL).combine_chunks())
        trial = Purge(schema, purge.version, purge.horizon)
        leaves, guards = trial.decide(signs, versions, SequenceVector.of_rows(rows, schema), rows)
        if leaves.any() or (guards.any() and not _is_guard(live)):
            return True
    return False


def _smallest(segments: Sequence[LiveSegment], limit: int) -> list[LiveSegment]:
    """Applies rule 2."""
    if len(segments) <= limit:
        return []
    ascending = sorted(segments, key=lambda live: live.deletes.live_count)
    chosen: list[LiveSegment] = []
    rows = 0
    for live in ascending:
        if len(chosen) >= max(limit // 2, 2) and live.deletes.live_count > rows:
            break
        chosen.append(live)
        rows += live.deletes.live_count
    return chosen if len(chosen) > 1 else []


def _overlapping(segments: Sequence[LiveSegment]) -> list[LiveSegment]:
    """Applies rule 6 to segments whose rows stand in the order of their key codes.

    Segments whose index this process has not read are left out: it has no look-ups yet that would be slow.
    """
    known = [(live, index) for live in segments if (index := live.segment.index_in_memory) and len(index)]
    ordered = [(live, index) for live, index in known if index.positions is None]
    if len(ordered) <= _OVERLAP_MAX:
        return []
    first = np.array([index.codes[0] for _, index in ordered], dtype=np.uint64)
    last = np.array([index.codes[-1] for _, index in ordered], dtype=np.uint64)
    starts = np.sort(first)
    depths = np.arange(1, len(starts) + 1) - np.sort(last).searchsorted(starts)
    deepest = int(depths.argmax())
    if depths[deepest] <= _OVERLAP_MAX:
        return []
    around = np.flatnonzero((first <= starts[deepest]) & (last >= starts[deepest]))
    widest = around[np.argsort(last[around] - first[around], kind="stable")[::-1]]
    return [ordered[i][0] for i in widest[:_SEGMENTS_AT_ONCE].tolist()]


def is_tiny(live: LiveSegment, settings: Settings) -> bool:
    """Returns whether a segment is tiny by rule 1.

    Never changes for a segment, so the two kinds of work never share one.
    """
    return _fullness(live, live.segment.rows, settings) < _TINY


def _is_small(live: LiveSegment, settings: Settings, growth: float = 1) -> bool:
    return _fullness(live, live.deletes.live_count, settings) < _SMALL * growth


def _fullness(live: LiveSegment, rows: int, settings: Settings) -> float:
    """Returns how much of the limits of rule 1 so many rows of a segment are.

    A merge cuts at whichever limit comes first, so what it writes is never small: or it would not end.
    """
    meta = live.segment.meta
    size = meta.data_bytes * rows / max(meta.rows, 1)
    return max(rows / settings.segment_rows, size / settings.segment_bytes_max)


class _Leisure:
    """Rule 4 for one state."""

    def __init__(self, state: TableState, policy: MaintenancePolicy) -> None:
        self._state = state
        self._policy = policy

    @cached_property
    def _limits(self) -> tuple[float, int]:
        """The moment before which a segment was made to be old enough, and the share of dead rows.

        One dead row of so many is worth a rewrite.
        """
        metas = [live.segment.meta for live in self._state.segments.values()]
        size = sum(meta.data_bytes + meta.keys_bytes for meta in metas)
        seconds = max(size / max(self._policy.bytes_per_second, 1), _LEISURE_SECONDS_MIN)
        before = time.time() - seconds
        is_idle = all(made_at(meta.id) <= before for meta in metas)
        return before, _IDLE_SHARE if is_idle else _LEISURE_SHARE

    def has_come(self, live: LiveSegment, dead: int, rows: int) -> bool:
        """Returns whether a segment is old enough, and so many dead rows are worth a rewrite."""
        if dead * _IDLE_SHARE < rows:  # the usual case, without a look at all segments
            return False
        before, share = self._limits
        return dead * share >= rows and made_at(live.segment.meta.id) <= before


def _is_guard(live: LiveSegment) -> bool:
    meta = live.segment.meta
    return meta.tombstones == meta.rows and VERSION_COL in meta.hidden and meta.rows > 0
