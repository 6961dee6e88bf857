"""Delete bitmaps: which rows of a segment no longer count, at every version.

**Stored.** Each version that hides rows of a segment adds one record, a Roaring bitmap of row positions. To find all rows
hidden at version v without reading one record per load, the i-th record of a segment (i = 1, 2, ...) holds the union of
the last `lowbit(i)` additions, as in a Fenwick tree, and names the version of the record before that span:

1. add(v, rows): i = last record's ordinal + 1; unite `rows` with the records covering the last lowbit(i) - 1 additions,
   which are the chain from record i - 1 downwards; link to where that chain goes on.
2. prefix(v): start at the newest record of version <= v, unite, follow its link until it is 0. At most log2(n) records.

What version v alone hid is prefix(v) minus prefix(v - 1). Records are forgotten with their segment.

**In memory.** A `DeleteVector` is one bit per row (1 = live), so that a scan uses it as an Arrow mask in place and a probe
tests positions by shifting. It is immutable: `hide` returns another.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from store.records import pack, unpack

Positions = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class BitmapRecord:
    """One stored record.

    Attributes:
        ordinal: i, counted from 1 within its segment.
        version: the version that added it.
        previous: version of the record before this one's span, 0 at the chain's end.
        rows: union over the span.
    """

    ordinal: int
    version: int
    previous: int
    rows: BitMap

    def to_bytes(self) -> bytes:
        return pack([self.ordinal, self.version, self.previous, self.rows.serialize()])

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> BitmapRecord:
        ordinal, version, previous, rows = unpack(data)
        return cls(ordinal, version, previous, BitMap.deserialize(rows))


def bitmap_of(positions: Positions) -> BitMap:
    """A Roaring bitmap of row positions."""
    return BitMap(array("I", np.ascontiguousarray(positions, dtype=np.uint32).tobytes()))


def positions_of(rows: BitMap) -> Positions:
    """Row positions of a bitmap, ascending."""
    return np.frombuffer(rows.to_array(), dtype=np.uint32)


def next_record(
    last: BitmapRecord | None, version: int, rows: BitMap, read: Callable[[int], BitmapRecord]
) -> BitmapRecord:
    """The record to store for an addition (step 1).

    Args:
        last: the segment's newest record, None for its first.
        read: the segment's record of a version.
    """
    ordinal = last.ordinal + 1 if last else 1
    before = ordinal - (ordinal & -ordinal)
    union, record = rows, last
    while record is not None and record.ordinal > before:
        union = union | record.rows
        record = read(record.previous) if record.previous else None
    return BitmapRecord(ordinal, version, record.version if record else 0, union)


def prefix(newest: BitmapRecord | None, read: Callable[[int], BitmapRecord]) -> BitMap:
    """All rows hidden by a record and everything before it (step 2)."""
    union, record = BitMap(), newest
    while record is not None:
        union |= record.rows
        record = read(record.previous) if record.previous else None
    return union


class DeleteVector:
    """Live rows of one segment at one version; immutable.

    Attributes:
        rows: rows of the segment.
        hidden: how many of them do not count.
    """

    __slots__ = ("_live", "hidden", "rows")

    def __init__(self, rows: int, live: npt.NDArray[np.uint8] | None = None, hidden: int = 0) -> None:
        self.rows = rows
        self.hidden = hidden
        self._live = live  # None: every row is live

    def hide(self, positions: Positions) -> DeleteVector:
        """This vector with more rows hidden: distinct positions, some of which may be hidden already."""
        if not len(positions):
            return self
        live = np.full((self.rows + 7) // 8, 0xFF, np.uint8) if self._live is None else self._live.copy()
        newly = int(np.count_nonzero(self.is_live(positions)))
        bits = np.left_shift(np.uint8(1), (positions & np.uint32(7)).astype(np.uint8))
        np.bitwise_and.at(live, positions >> np.uint32(3), ~bits)
        return DeleteVector(self.rows, live, self.hidden + newly)

    def is_live(self, positions: Positions) -> npt.NDArray[np.bool_]:
        """Which of some rows are live."""
        if self._live is None:
            return np.ones(len(positions), dtype=np.bool_)
        return ((self._live[positions >> np.uint32(3)] >> (positions & np.uint32(7)).astype(np.uint8)) & 1).astype(
            np.bool_
        )

    def live_mask(self, start: int, length: int) -> pa.BooleanArray | None:
        """Rows [start, start + length) as an Arrow mask in place, None when all of them are live."""
        if self._live is None:
            return None
        mask = pa.Array.from_buffers(pa.bool_(), length, [None, pa.py_buffer(self._live)], offset=start)
        return None if mask.true_count == length else mask

    def hidden_positions(self) -> Positions:
        """Rows that do not count, ascending."""
        if self._live is None:
            return np.empty(0, dtype=np.uint32)
        bits = np.unpackbits(self._live, count=self.rows, bitorder="little")
        return np.flatnonzero(bits == 0).astype(np.uint32)

    @property
    def live_count(self) -> int:
        return self.rows - self.hidden
