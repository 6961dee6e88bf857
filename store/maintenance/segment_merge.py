"""Merging: the live rows of some segments, written as new ones. The part of a compaction that moves bytes.

Given segments as one version sees them:

1. The range of key codes is cut into parts of about `segment_rows` rows, or `segment_bytes_max` bytes when
   rows are wide; in large tables of several times as many (compaction_policy). Parts are merged one after the
   other, so the memory is that of one part, however large the table is. The rows of a part that is larger
   than a segment of a load are never in memory together (large_part).
2. From each segment, take the live entries of its key index within the part. No two of them have the same
   key, so no keys are compared: only the codes are sorted.
3. Rows are copied with all columns that a reader may request, each with its own `__VERSION_COL__`: that keeps
   the results at later versions the same (K1). Removable tombstones are left out (publish.tombstones).
4. Stored order is by code, by key where the part is large enough for zone maps to pay, by the columns of
   CLUSTER BY, or along a Z-order curve of some columns. Data and key index are written as files, never into
   the catalog.

The result maps every row of the inputs to its new place. By that map, rows that are hidden while the merge
runs are hidden in the outputs, without a look-up by key (K5).

A change of column types merges in the same way: between steps 2 and 3 rows become those of the new revision
(maintenance.reshaping). Where that gives keys other codes, the parts are cut by the old ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.maintenance.large_part import merged_order, write_large_part
from seqstore.store.maintenance.live_entries import Entries, collect
from seqstore.store.maintenance.reshaping import Reshaping
from seqstore.store.publish.tombstones import Purge
from seqstore.store.read.live_segment import LiveSegment, Projection
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime import cancellation
from seqstore.store.schema.column import (
    DELETE_SIGN,
    GROUPS_COL,
    HIDDEN_COLUMNS,
    ROW_ID_COL,
    SEQUENCE_COL,
    VERSION_COL,
)
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_codes import encode_keys
from seqstore.store.segment.key_index import KeyIndex, Positions, places_in
from seqstore.store.segment.segment import Segment
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.stager import Stager
from seqstore.store.types.column_types import empty_values

_GONE: Final = -1
_OUTPUT_SHIFT: Final = 32
_POSITION_MASK: Final = (1 << _OUTPUT_SHIFT) - 1
_PARTS_MAX: Final = 2**16

Places = npt.NDArray[np.int64]


def places_in_output(number: int, positions: Positions) -> Places:
    """Returns the number of an output and positions in it, one integer for each position."""
    places: Places = positions.astype(np.int64) + (number << _OUTPUT_SHIFT)
    return places


class MergeCancelled(Exception):
    """The merge was cancelled; its files are removed. Never leaves the engine."""


@dataclass
class Merged:
    """The outputs of a merge, and the new place of every row.

    Attributes:
        inputs: by segment id, as they were when the merge began.
        places: segment id -> for each of its rows output number and position in one integer
            (`places_in_output`), -1 when the row was not copied.
        outputs: new segments; their files are durable.
        rows: rows written.
    """

    inputs: dict[str, LiveSegment]
    places: dict[str, Places]
    outputs: list[Segment] = field(default_factory=list)
    rows: int = 0

    def hidden_since(self, now: TableState) -> dict[str, Positions]:
        """Returns rows of the outputs whose origin was hidden since the merge began, by output id."""
        gone: list[tuple[LiveSegment, Positions]] = []
        for segment_id, before in self.inputs.items():
            positions = now.segments[now.slot_of[segment_id]].deletes.hidden_since(before.deletes)
            if len(positions):
                gone.append((before, positions))
        places = self.places_of(gone)
        outputs = places >> _OUTPUT_SHIFT
        return {
            self.outputs[number].meta.id: (places[outputs == number] & _POSITION_MASK).astype(np.uint32)
            for number in np.unique(outputs).tolist()
        }

    def places_of(self, rows: Sequence[tuple[LiveSegment, Positions]]) -> Places:
        """Returns the places of those rows of inputs that were copied, in any order."""
        found = [self.places[live.segment.meta.id][positions] for live, positions in rows]
        places = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
        copied: Places = places[places != _GONE]
        return copied

    def delete_files(self) -> None:
        """Removes the outputs' files; only while no catalog names them."""
        for segment in self.outputs:
            segment.delete_files()

    @property
    def bytes_written(self) -> int:
        return sum(segment.meta.data_bytes + segment.meta.keys_bytes for segment in self.outputs)


def merge(
    state: TableState,
    inputs: Sequence[LiveSegment],
    stager: Stager,
    *,
    order_by: Sequence[str] = (),
    purge: Purge,
    is_cancelled: Callable[[], bool],
    reshaping: Reshaping | None = None,
    growth: float = 1,
) -> Merged:
    """Writes the live rows of some segments of a state as new ones; see the module.

    Args:
        stager: the place, schema and sizes of the outputs.
        order_by: columns of a Z-order curve; none means the stored order of loads.
        purge: the rule for removable tombstones.
        is_cancelled: called between parts, and between the pieces of a large one.
        reshaping: from the state's schema to the stager's, where they differ.
        growth: how many times as large outputs are as the segments of loads; has no effect with `reshaping`.

    Raises:
        MergeCancelled: `is_cancelled` returned True.
        InvalidInputError: a value does not fit its new type.
    """

    def check() -> None:
        cancellation.check()
        if is_cancelled():
            raise MergeCancelled

    merging = Merging(state.schema, inputs, stager, order_by, purge, reshaping, growth=growth, check=check)
    try:
        for number, (low, high) in enumerate(merging.parts()):
            check() if number else cancellation.check()
            merging.merge_part(low, high)
        if merging.merged.outputs:
            stager.sync()
    except BaseException:
        merging.merged.delete_files()
        raise
    return merging.merged


@dataclass(frozen=True)
class _Part:
    """Rows of one part: stored columns, and the entries that they are from."""

    rows: pa.Table
    entries: Entries

    def take(self, chosen: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> _Part:
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        table = self.rows.combine_chunks().take(pa.array(rows))
        return _Part(table, self.entries.take(rows))


@dataclass
class Merging:
    """One run of `merge`, or the run of some of its parts.

    Attributes:
        source: the schema of the inputs.
        keeps_places: the result has the place of every row, which needs 8 bytes for each.
        growth: how many times as large parts are as the segments of loads.
        check: called between the pieces of a large part; its error ends the merge.
        merged: the result so far.
    """

    source: TableSchema
    inputs: Sequence[LiveSegment]
    stager: Stager
    order_by: Sequence[str]
    purge: Purge
    reshaping: Reshaping | None = None
    keeps_places: bool = True
    growth: float = 1
    check: Callable[[], None] = cancellation.check

    def __post_init__(self) -> None:
        self.schema = self.stager.schema
        self.projection = Projection(self.source, self._stored_names())
        live_by_id = {live.segment.meta.id: live for live in self.inputs}
        places: dict[str, Places] = {}
        if self.keeps_places:
            places = {name: np.full(live.segment.rows, _GONE, np.int64) for name, live in live_by_id.items()}
        self.merged = Merged(live_by_id, places)

    def _stored_names(self) -> tuple[str, ...]:
        """Returns the visible columns, then the hidden ones whose values may differ between rows."""
        names = list(self.source.names)
        if any(live.segment.meta.tombstones for live in self.inputs):
            names.append(DELETE_SIGN)
        if self.source.has_sequence and (
            self.source.sequence_column is None
            or any(SEQUENCE_COL in live.segment.meta.hidden for live in self.inputs)
        ):
            names.append(SEQUENCE_COL)
        if self.source.groups:
            names.append(GROUPS_COL)
        if self.schema.is_duplicate:
            names.append(ROW_ID_COL)
        return (*names, VERSION_COL)

    def parts(self) -> list[tuple[int, int]]:
        """Runs step 1: returns ranges [low, high) of codes."""
        rows = sum(live.deletes.live_count for live in self.inputs)
        size = sum(
            live.segment.meta.data_bytes * live.deletes.live_count // max(live.segment.rows, 1)
            for live in self.inputs
        )
        settings = self.stager.settings
        growth = self.growth if self.reshaping is None else 1
        by_rows = round(rows / (settings.segment_rows * growth))
        by_bytes = int(size // (settings.segment_bytes_max * growth))
        count = min(max(by_rows, by_bytes, 1), _PARTS_MAX)
        bounds = [(-(-(number << 32) // count)) << 32 for number in range(count)]
        return list(itertools.pairwise([*bounds, 1 << 64]))

    def merge_part(self, low: int, high: int) -> None:
        """Runs steps 2 to 4 for one range of codes."""
        entries = Entries.within(self.inputs, low, high)
        if not len(entries):
            return
        if self.reshaping is None and self._is_large(entries):
            self._merge_large(entries)
            return
        part = _Part(collect(self.inputs, entries, self.projection).combine_chunks(), entries)
        if self.reshaping is not None:
            part = self._reshaped(part, self.reshaping)
        if DELETE_SIGN in self.projection.names:
            leaves, guards = self._old_tombstones(part)
            if (gone := leaves | guards).any():
                self._write_guards(part.take(guards))
                part = part.take(~gone)
        self._write_part(part)

    def _is_large(self, entries: Entries) -> bool:
        """Returns whether a part is larger than those of step 1 without growth can be."""
        settings = self.stager.settings
        counts = np.bincount(entries.inputs, minlength=len(self.inputs)).tolist()
        size = sum(
            live.segment.meta.data_bytes * count // max(live.segment.rows, 1)
            for live, count in zip(self.inputs, counts, strict=True)
        )
        return len(entries) > 1.5 * settings.segment_rows or size >= 2 * settings.segment_bytes_max

    def _merge_large(self, entries: Entries) -> None:
        """Merges a part whose rows are not held in memory, but for its tombstones."""
        tombstones = 0
        if DELETE_SIGN in self.projection.names:
            signs = collect(self.inputs, entries, Projection(self.source, (DELETE_SIGN,))).column(0)
            deleted = np.flatnonzero(signs.to_numpy() == 1)
            if len(deleted):
                found = entries.take(deleted)
                part = _Part(collect(self.inputs, found, self.projection).combine_chunks(), found)
                leaves, guards = self._old_tombstones(part)
                self._write_guards(part.take(guards))
                stay = np.ones(len(entries), dtype=np.bool_)
                stay[deleted[leaves | guards]] = False
                entries = entries.take(stay)
                tombstones = len(deleted) - int(np.count_nonzero(leaves | guards))
        if not len(entries):
            return
        names = [name for name in self.projection.names if tombstones or name != DELETE_SIGN]
        columns = Projection(self.source, tuple(names))
        segment, positions = write_large_part(
            self.inputs, entries, columns, self.stager, self.order_by, tombstones, self.check
        )
        self._add(segment, entries, positions)

    def _write_part(self, part: _Part) -> None:
        if not len(part.entries):
            return
        part = part.take(np.argsort(part.entries.codes, kind="stable"))
        self._write(part, merged_order(part.rows, self.stager, self.order_by))

    def _write_guards(self, part: _Part) -> None:
        """Writes old tombstones that stay, without values."""
        if not len(part.entries):
            return
        rows = part.rows
        kept = {*self.schema.key, self.schema.sequence_column, *HIDDEN_COLUMNS}
        if self.schema.groups:  # cells of tombstones hold defaults already, and count as history
            kept.update(rows.schema.names)
        for i, column in enumerate(rows.schema):
            if column.name not in kept:
                rows = rows.set_column(i, column, empty_values(column, len(rows)))
        part = _Part(rows, part.entries)
        self._write(part.take(np.argsort(part.entries.codes, kind="stable")), None, compression="zstd")

    def _write(
        self, part: _Part, order: npt.NDArray[np.intp] | None, *, compression: str | None = None
    ) -> None:
        """Writes rows that are in the order of their codes."""
        codes = part.entries.codes
        positions = None if order is None else places_in(order)
        repeats = bool((codes[1:] == codes[:-1]).any())
        index = KeyIndex(codes, positions, SequenceVector.of_rows(part.rows, self.schema), repeats)
        segment = self.stager.write(part.rows, index, order, compression=compression)
        self._add(segment, part.entries, index.row_positions(slice(None)))

    def _add(self, segment: Segment, entries: Entries, positions: Positions) -> None:
        """Adds an output to the result.

        Args:
            positions: of the rows of the entries in it.
        """
        if self.keeps_places:
            places = places_in_output(len(self.merged.outputs), positions)
            for number, live in enumerate(self.inputs):
                mine = entries.inputs == number
                self.merged.places[live.segment.meta.id][entries.positions[mine]] = places[mine]
        self.merged.outputs.append(segment)
        self.merged.rows += len(entries)

    def _reshaped(self, part: _Part, reshaping: Reshaping) -> _Part:
        """Returns the rows of a part under the new revision, with their codes."""
        rows, stays = reshaping.rows(part.rows)
        reshaped = replace(part, rows=rows)
        if stays is not None:
            reshaped = reshaped.take(stays)
        if not reshaping.changes_keys:
            return reshaped
        keys = [reshaped.rows.column(name).combine_chunks() for name in self.schema.key]
        codes = encode_keys(keys, exact=self.schema.has_exact_key)
        return replace(reshaped, entries=replace(reshaped.entries, codes=codes))

    def _old_tombstones(self, part: _Part) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Returns which rows of a part are removed, and which stay as guards."""
        signs = np.asarray(part.rows.column(DELETE_SIGN).combine_chunks()) == 1
        if not signs.any():
            return signs, signs
        versions = np.asarray(part.rows.column(VERSION_COL).combine_chunks())
        sequence = SequenceVector.of_rows(part.rows, self.schema)
        return self.purge.decide(signs, versions, sequence, part.rows)
