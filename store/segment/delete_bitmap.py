"""Delete bitmaps: the hidden rows of each segment, at every version.

**Stored.** Every version writes one record: for each segment in which rows are hidden, a Roaring bitmap of
row positions. A reader of version v must find all hidden rows without one record per load. The record of
version v therefore holds the union over the versions (v - span(v), v], where span(v) is the largest power of
8 that divides v (a Fenwick tree of radix 8):

1. write(v): unite the version's own rows with the records `children(v)`, which cover (v - span(v), v - 1].
2. prefix(v): unite the records `chain(v)` = v, v - span(v), ... down to 0; about 3.5 per octal digit of v.

Each addition is rewritten once per octal digit, so a load's share grows with the logarithm of the versions.
With radix 8, readers of a thousand versions read some fifteen records, for about three times as many written
bytes.

**In memory.** A `DeleteVector` is one bit per row (1 = live). A scan uses it as an Arrow mask in place, and a
probe tests positions by shifts. It is immutable: `hide` returns another.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

Positions = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]
HiddenRows = dict[str, BitMap]
_RADIX: Final = 8
_ALL_BUT_ONE: Final = ~np.left_shift(np.uint8(1), np.arange(8, dtype=np.uint8))
_DENSE: Final = 64  # at one hidden row of so many, a whole-vector operation is faster than single bits


def span(version: int) -> int:
    """Returns how many versions the record of a version covers, itself included."""
    size = 1
    while version % (size * _RADIX) == 0:
        size *= _RADIX
    return size


def chain(version: int) -> Iterator[int]:
    """Yields the versions whose records together cover (0, version], newest first."""
    while version > 0:
        yield version
        version -= span(version)


def children(version: int) -> Iterator[int]:
    """Yields the versions whose records cover the span of `version` except `version` itself."""
    first = version - span(version)
    for earlier in chain(version - 1):
        if earlier <= first:
            return
        yield earlier


def unite(records: Iterable[Mapping[str, BitMap]]) -> HiddenRows:
    """Returns the union of some records, segment by segment."""
    union: HiddenRows = {}
    for record in records:
        for segment, rows in record.items():
            union[segment] = union[segment] | rows if segment in union else rows
    return union


def bitmap_of(positions: Positions) -> BitMap:
    """Builds a Roaring bitmap of row positions in any order."""
    ascending = np.sort(positions)  # Roaring then appends to its last container, several times as fast
    return BitMap(array("I", ascending.astype(np.uint32, copy=False).tobytes()))


def positions_of(rows: BitMap) -> Positions:
    """Returns the row positions of a bitmap, ascending."""
    return np.frombuffer(rows.to_array(), dtype=np.uint32)


def are_live(vectors: Sequence[DeleteVector | None], bounds: Sequence[int], positions: Positions) -> Mask:
    """Returns which rows of several segments are live, in fewer calls than `DeleteVector.is_live` of each.

    Args:
        vectors: of the segments; None for one of which no row counts.
        bounds: of the rows of each segment among `positions`, one more than vectors.
    """
    bits = np.full(len(positions), 0xFF, dtype=np.uint8)
    places = positions >> np.uint32(3)
    for vector, first, end in zip(vectors, bounds, bounds[1:], strict=False):
        if vector is None:
            bits[first:end] = 0
        elif vector.bits is not None:
            bits[first:end] = vector.bits[places[first:end]]
    live: Mask = ((bits >> (positions & np.uint32(7)).astype(np.uint8)) & np.uint8(1)).view(np.bool_)
    return live


class DeleteVector:
    """Live rows of one segment at one version; immutable. `hidden` and `live_count` are numbers of rows.

    `bits` has one bit for each row, 1 for a live one; it is None where every row is live.
    """

    __slots__ = ("bits", "hidden", "live_count", "rows")

    def __init__(self, rows: int, live: npt.NDArray[np.uint8] | None = None, hidden: int = 0) -> None:
        self.rows = rows
        self.hidden = hidden
        self.live_count = rows - hidden
        self.bits = live

    def hide(self, positions: Positions, *, all_live: bool = False) -> DeleteVector:
        """Returns a vector with more rows hidden.

        Args:
            positions: distinct; some may be hidden already unless `all_live`.
        """
        if not len(positions) or self.hidden == self.rows:
            return self
        live = np.full((self.rows + 7) // 8, 0xFF, np.uint8) if self.bits is None else self.bits.copy()
        newly = len(positions)
        if not all_live and self.bits is not None:
            newly = int(np.count_nonzero(self.is_live(positions)))
        if len(positions) * _DENSE >= self.rows:
            stay = np.ones(len(live) * 8, dtype=np.bool_)
            stay[positions] = False
            live &= np.packbits(stay, bitorder="little")
        else:
            np.bitwise_and.at(live, positions >> np.uint32(3), _ALL_BUT_ONE[positions & np.uint32(7)])
        return DeleteVector(self.rows, live, self.hidden + newly)

    def is_live(self, positions: Positions) -> npt.NDArray[np.bool_]:
        """Returns which of some rows are live."""
        if self.bits is None:
            return np.ones(len(positions), dtype=np.bool_)
        shifted = self.bits[positions >> np.uint32(3)] >> (positions & np.uint32(7)).astype(np.uint8)
        live: npt.NDArray[np.bool_] = (shifted & np.uint8(1)).view(np.bool_)
        return live

    def live_mask(self, start: int, length: int) -> pa.BooleanArray | None:
        """Returns rows [start, start + length) as an Arrow mask in place, None when all of them are live."""
        if self.bits is None:
            return None
        mask = pa.Array.from_buffers(pa.bool_(), length, [None, pa.py_buffer(self.bits)], offset=start)
        return None if mask.true_count == length else mask

    def hidden_positions(self) -> Positions:
        """Returns the hidden rows, ascending."""
        if self.bits is None:
            return np.empty(0, dtype=np.uint32)
        bits = np.unpackbits(self.bits, count=self.rows, bitorder="little")
        return np.flatnonzero(bits == 0).astype(np.uint32)

    def hidden_since(self, before: DeleteVector) -> Positions:
        """Returns rows that are live in an earlier vector of the same segment and hidden here, ascending."""
        if self.bits is None or self.hidden == before.hidden:
            return np.empty(0, dtype=np.uint32)
        if before.bits is None:
            return self.hidden_positions()
        bits = np.unpackbits(before.bits & ~self.bits, count=self.rows, bitorder="little")
        return np.flatnonzero(bits).astype(np.uint32)
