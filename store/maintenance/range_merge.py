"""The merge of a compaction in pieces that any process can run, such as Spark executors.

A `RangeMerge` is a picklable value: the segments that are merged, as their readers need them, and the ranges
of key codes into which segment_merge cuts them. Equal keys have equal codes, so the ranges do not depend on
each other.

1. The process with the catalog makes it (`RangeMerge.of`), and holds the version that it reads.
2. `run(i)` merges range i: it writes new segments and returns their descriptions as a `MergeShare`. A range
   may run several times; one of its shares counts, and the end of the load removes the files of the others
   (segment.load_marker).
3. `merged_elsewhere` makes the result of one share for each range. It has no place of each row: the process
   that commits holds no keys. It finds the places of rows that were hidden meanwhile by their keys, range by
   range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.maintenance.segment_merge import Merged, Merging, Places, places_in_output
from seqstore.store.publish.tombstones import Purge
from seqstore.store.read.live_segment import LiveSegment, Projection
from seqstore.store.read.lookup import find
from seqstore.store.read.scan_task import SegmentSlice
from seqstore.store.read.table_state import TableState, rows_by_slot
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.delete_bitmap import DeleteVector
from seqstore.store.segment.key_codes import encode_keys
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.load_marker import StagingId
from seqstore.store.segment.segment import Segment, SegmentMeta
from seqstore.store.segment.stager import Stager

_CODES: Final = 2**64


@dataclass(frozen=True)
class MergeShare:
    """What one range was merged to.

    Attributes:
        number: of the range.
        outputs: descriptions of the new segments, in order; their files are durable.
        rows: rows written.
        tombstones_removed, watermark: see `Purge`.
    """

    number: int
    outputs: tuple[SegmentMeta, ...]
    rows: int
    tombstones_removed: int
    watermark: int | None


@dataclass(frozen=True)
class RangeMerge:
    """The merge of some segments of one version, detached from the catalog.

    Attributes:
        source: the schema of the version.
        inputs: the segments.
        stager: the place, schema and sizes of the outputs.
        load: owns their files until they are published.
        order_by: columns of a Z-order curve, or none.
        purge: the rule for removable tombstones.
        ranges: of key codes, [low, high) each.
    """

    source: TableSchema
    inputs: tuple[SegmentSlice, ...]
    stager: Stager
    load: StagingId
    order_by: tuple[str, ...]
    purge: Purge
    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls,
        source: TableSchema,
        inputs: Sequence[LiveSegment],
        stager: Stager,
        load: StagingId,
        order_by: Sequence[str],
        purge: Purge,
        growth: float = 1,
    ) -> RangeMerge:
        """Describes the merge of some segments; opens no file.

        Args:
            growth: see `segment_merge.merge`.
        """
        merging = Merging(source, inputs, stager, order_by, purge, keeps_places=False, growth=growth)
        ranges = merging.parts()
        slices = tuple(map(SegmentSlice.of, inputs))
        return cls(source, slices, stager, load, tuple(order_by), purge, tuple(ranges))

    def run(self, number: int) -> MergeShare:
        """Merges one range.

        Args:
            number: from 0 to the number of ranges less one.

        Raises:
            CorruptionError: a file is missing or differs from the written bytes.
            UnavailableError: a file cannot be written; none is left.
            ClosedError: the load has ended.
        """
        purge = replace(self.purge)  # it counts
        with self.stager.attempt_of(self.load) as stager:
            merging = Merging(self.source, self._opened, stager, self.order_by, purge, keeps_places=False)
            merging.merge_part(*self.ranges[number])
            if merging.merged.outputs:
                stager.sync()
        outputs = tuple(segment.meta for segment in merging.merged.outputs)
        return MergeShare(number, outputs, merging.merged.rows, purge.gone, purge.watermark)

    @cached_property
    def _opened(self) -> list[LiveSegment]:
        """The inputs; ranges that one process runs share what they read of them."""
        return [piece.open(self.stager.disk, self.stager.directory) for piece in self.inputs]

    def segments(self, share: MergeShare) -> list[Segment]:
        """Returns the segments of a share."""
        stager = self.stager
        return [Segment(stager.disk, stager.directory, meta, stager.schema, None) for meta in share.outputs]


# Runs all ranges of a merge in other processes; returns their shares in any order, some perhaps twice.
RunRanges = Callable[[RangeMerge], Sequence[MergeShare]]


def merged_elsewhere(
    ranges: RangeMerge,
    shares: Sequence[MergeShare],
    state: TableState,
    inputs: Sequence[LiveSegment],
    purge: Purge,
) -> Merged:
    """Returns the result of all ranges of a merge; `purge` counts what they removed.

    Args:
        state, inputs: from which the merge was made.

    Raises:
        InvalidInputError: a range has no share.
    """
    by_number = {share.number: share for share in shares}
    if by_number.keys() != set(range(len(ranges.ranges))):
        raise InvalidInputError(
            f"expected the shares of {len(ranges.ranges)} ranges of a merge, found {len(by_number)}",
            kind="missing_shares",
        )
    merged = _RangesMerged({live.segment.meta.id: live for live in inputs}, {}, state=state, parts=[])
    for number, (low, high) in enumerate(ranges.ranges):
        share = by_number[number]
        first = len(merged.outputs)
        merged.outputs += ranges.segments(share)
        merged.rows += share.rows
        merged.parts.append((low, high, range(first, len(merged.outputs))))
        purge.gone += share.tombstones_removed
        if share.watermark is not None:
            known = purge.watermark
            purge.watermark = share.watermark if known is None else max(known, share.watermark)
    return merged


@dataclass(kw_only=True)
class _RangesMerged(Merged):
    """The result of a merge by ranges.

    Attributes:
        state: from which the merge was made.
        parts: range of codes, and the numbers of its outputs, ascending.
    """

    state: TableState
    parts: list[tuple[int, int, range]]

    def places_of(self, rows: Sequence[tuple[LiveSegment, Positions]]) -> Places:
        """Finds the rows by their keys: no two rows of the outputs have the same."""
        if not rows:
            return np.empty(0, dtype=np.int64)
        schema = self.state.schema
        projection = Projection(schema, tuple(schema.key))
        taken = pa.concat_tables([live.take(positions, projection) for live, positions in rows])
        keys = [column.combine_chunks() for column in taken.columns]
        codes = encode_keys(keys, exact=schema.has_exact_key)
        order = np.argsort(codes)
        codes = codes[order]
        places: list[Places] = []
        for low, high, outputs in self.parts:
            first = int(codes.searchsorted(np.uint64(low)))
            last = len(codes) if high >= _CODES else int(codes.searchsorted(np.uint64(high)))
            if first == last or not len(outputs):
                continue
            chosen = pa.array(order[first:last])
            _, matches = find(self._state_of(outputs), [column.take(chosen) for column in keys])
            places += [
                places_in_output(slot, matches.positions[found])
                for slot, found in rows_by_slot(matches.slots)
            ]
            for number in outputs:
                self.outputs[number].forget_index()
        return np.concatenate(places) if places else np.empty(0, dtype=np.int64)

    def _state_of(self, numbers: range) -> TableState:
        """Returns a state of some outputs alone; their slots are their numbers."""
        segments = {
            number: LiveSegment(number, segment, self.state.version, DeleteVector(segment.rows))
            for number in numbers
            for segment in [self.outputs[number]]
        }
        slots = tuple(segments)
        return TableState(
            self.state.table_id, self.state.version, self.state.schema, segments, (), slots, numbers.stop
        )
