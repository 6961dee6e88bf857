"""The live rows of the inputs of a merge: where they are, and how they are collected.

An entry stands for a row by its key code, the number of its input, and its position there. Entries are
cheap, so those of a whole part of a merge are held in memory; rows are collected for some entries at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.read.live_segment import LiveSegment, Projection
from seqstore.store.segment.key_codes import Codes
from seqstore.store.segment.key_index import Positions, places_in

_POSITION_BITS = np.uint64(32)
_STRING_BYTES_MAX = 2**30  # Arrow's strings have 32-bit offsets
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


@dataclass(frozen=True)
class Entries:
    """Rows of the inputs of a merge: key code, number of the input, position in it."""

    codes: Codes
    inputs: npt.NDArray[np.uint32]
    positions: Positions

    @classmethod
    def within(cls, inputs: Sequence[LiveSegment], low: int, high: int) -> Entries:
        """Returns the live rows whose code is at least `low` and less than `high`: input by input, and in
        stored order within each.

        Args:
            low, high: from 0 to 2**64.
        """
        codes, positions = [np.empty(0, np.uint64)], [np.empty(0, np.uint32)]
        for live in inputs:
            index = live.segment.index
            first = int(index.codes.searchsorted(np.uint64(low)))
            last = len(index) if high > 2**64 - 1 else int(index.codes.searchsorted(np.uint64(high)))
            at = index.row_positions(slice(first, last))
            chosen = np.flatnonzero(live.deletes.is_live(at))
            at, found = at[chosen], index.codes[first:last][chosen]
            if index.positions is not None:
                order = np.argsort(at)
                at, found = at[order], found[order]
            codes.append(found)
            positions.append(at)
        numbers = np.repeat(np.arange(len(inputs), dtype=np.uint32), [len(each) for each in codes[1:]])
        return cls(np.concatenate(codes), numbers, np.concatenate(positions))

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Entries:
        """Returns the entries at an index array or a mask."""
        return Entries(self.codes[rows], self.inputs[rows], self.positions[rows])


def collect(inputs: Sequence[LiveSegment], entries: Entries, projection: Projection) -> pa.Table:
    """Returns the projection's columns of the rows of some entries, in the order of these.

    Reads each input from its begin to its end, in whatever order the entries are. Columns may have chunks.
    """
    places = (entries.inputs.astype(np.uint64) << _POSITION_BITS) | entries.positions
    order = None if bool((places[1:] > places[:-1]).all()) else np.argsort(places)
    if order is not None:
        entries = entries.take(order)
    bounds = entries.inputs.searchsorted(np.arange(len(inputs) + 1)).tolist()
    tables = [
        live.take(entries.positions[first:end], projection)
        for live, first, end in zip(inputs, bounds, bounds[1:], strict=False)
        if end > first
    ]
    if not tables:
        return projection.arrow.empty_table()
    table = pa.concat_tables(tables)
    return table if order is None else table.combine_chunks().take(pa.array(places_in(order)))


def without_chunks(table: pa.Table) -> pa.Table:
    """Returns the same rows in columns of one chunk each; texts beyond the limit of their type get a larger
    one.
    """
    for i, column in enumerate(table.columns):
        if column.type in _WIDE and column.nbytes > _STRING_BYTES_MAX:
            table = table.set_column(i, table.schema.names[i], column.cast(_WIDE[column.type]))
    return table.combine_chunks()
