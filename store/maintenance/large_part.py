"""A large part of a merge: its rows pass from the inputs to one new segment in pieces.

Given the entries of the part (live_entries):

1. Collect the columns that order the stored rows, and sort the entries by them.
2. In this order, collect the rows of a quarter as many entries as a load's segment holds, and write them
   batch by batch; then the next ones. Inputs are mostly in that order themselves, so each is read from its
   begin to its end.
3. Sort the entries by code, and write the key index.

So the memory is that of the entries and of the order, some 60 bytes a row and the columns of step 1, and a
few times that of the rows of one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.maintenance.live_entries import Entries, collect, without_chunks
from seqstore.store.maintenance.z_order import z_order
from seqstore.store.read.live_segment import LiveSegment, Projection
from seqstore.store.schema.column import ROW_ID_COL
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_index import KeyIndex, Positions, places_in
from seqstore.store.segment.segment import NewRows, Segment
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.stager import Stager, order_columns, stored_order

_PIECES: Final = 4  # of a load's segment; larger ones took more memory and were not faster
_SAMPLE_ROWS: Final = 64  # whose size is measured first


def write_large_part(
    inputs: Sequence[LiveSegment],
    entries: Entries,
    columns: Projection,
    stager: Stager,
    order_by: Sequence[str],
    tombstones: int,
    check: Callable[[], None],
) -> tuple[Segment, Positions]:
    """Writes the rows of some entries as one segment.

    Args:
        columns: that are stored.
        order_by: of a Z-order curve, or none.
        tombstones: among the rows.
        check: called before each piece; its error leaves no file.

    Returns:
        The segment, and the position of each entry's row in it.
    """
    ordering = Projection(columns.schema, _order_columns(columns.schema, order_by))
    order = merged_order(without_chunks(collect(inputs, entries, ordering)), stager, order_by)
    if order is None:
        order = np.argsort(entries.codes, kind="stable")
    part = _LargePart(inputs, entries, columns, stager, order, check)
    batch_rows = stager.batch_rows(part.row_bytes)
    rows = NewRows(columns.arrow, part.batches(batch_rows), part.index)
    return stager.write_file(len(entries), tombstones, rows, batch_rows), part.positions


@dataclass
class _LargePart:
    """The rows of a part on their way; `positions` are those of the entries in the new segment."""

    inputs: Sequence[LiveSegment]
    entries: Entries
    columns: Projection
    stager: Stager
    order: npt.NDArray[np.intp]
    check: Callable[[], None]
    sequences: list[SequenceVector] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.positions = places_in(self.order)
        some = self._rows(slice(0, _SAMPLE_ROWS))
        stored = np.array([live.segment.meta.data_bytes / max(live.segment.rows, 1) for live in self.inputs])
        stored_bytes = stored[self.entries.inputs].mean()  # fewer than in memory where inputs are compressed
        self.row_bytes = max(some.nbytes // some.num_rows, int(stored_bytes), 1)

    def _rows(self, places: slice) -> pa.Table:
        """Returns the rows at some positions of the new segment."""
        return collect(self.inputs, self.entries.take(self.order[places]), self.columns)

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Runs step 2; notes the sequences."""
        settings, start = self.stager.settings, 0
        while start < len(self.order):
            self.check()
            rows = min(settings.segment_rows, settings.segment_bytes_max // self.row_bytes) // _PIECES
            piece = max(rows // batch_rows, 1) * batch_rows
            table = self._rows(slice(start, start + piece)).combine_chunks()
            self.row_bytes = max(self.row_bytes, table.nbytes // table.num_rows)  # the next piece is smaller
            sequence = SequenceVector.of_rows(table, self.stager.schema)
            if sequence is not None:
                self.sequences.append(sequence)
            yield from table.to_batches(max_chunksize=batch_rows)
            start += piece

    def index(self) -> KeyIndex:
        """Runs step 3."""
        by_code = np.argsort(self.entries.codes, kind="stable")
        codes, positions = self.entries.codes[by_code], self.positions[by_code]
        repeats = bool((codes[1:] == codes[:-1]).any())
        stored = SequenceVector.concatenate(self.sequences) if self.sequences else None
        return KeyIndex(codes, positions, None if stored is None else stored.take(positions), repeats)


def merged_order(rows: pa.Table, stager: Stager, order_by: Sequence[str]) -> npt.NDArray[np.intp] | None:
    """Returns the stored order of merged rows; None for that of key codes.

    Args:
        order_by: columns of a Z-order curve; none means the stored order of loads.
    """
    if order_by:
        return z_order([rows.column(name).combine_chunks() for name in order_by])
    order = stored_order(rows, None, stager.schema, stager.settings)
    if order is None and stager.schema.is_duplicate:
        return np.argsort(np.asarray(rows.column(ROW_ID_COL).combine_chunks()))
    return order


def _order_columns(schema: TableSchema, order_by: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns that `merged_order` reads."""
    if order_by:
        return tuple(order_by)
    names = [*order_columns(schema), *([ROW_ID_COL] if schema.is_duplicate else [])]
    return tuple(dict.fromkeys(names))
