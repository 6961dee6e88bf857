"""Rows at random positions of a mapped file without compression, gathered in one pass for each column.

Arrow takes rows of one record batch in one call for each column. A call for many keys meets hundreds of
batches with a few rows each, and the calls are most of its time. The values of a column lie in the file as
they do in memory, one piece for each batch. So:

1. Where the pieces of a batch begin is noted when it is first met (Arrow's reader tells it).
2. The values of fixed width are taken from the whole file, seen as an array of integers of this width, at
   the begin of their piece and their place in it. Bits of booleans and of NULLs are taken with their byte.
3. Of texts, offsets are taken first, then the bytes between them.
4. Many bytes of texts are taken by Arrow, from the file seen as an array of these texts and the gaps between.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.segment.key_index import places_in

Places = npt.NDArray[np.int64]

_PIECES: Final = 3  # bits of NULLs, values or offsets, bytes of texts
_ABSENT: Final = -1
_ALIGNMENT: Final = 8  # bytes; of all pieces in Arrow's files
_TEXT_BYTES_MAX: Final = 2**31 - 1  # of a call: an array of texts holds no more
_FEW_BYTES: Final = 2**17  # of texts: their places, eight bytes each, take less time than the calls of step 4
_WINDOW_BYTES: Final = 2**26  # Arrow reserves half of the bytes between the first and the last text of a call


def can_gather(arrow: pa.DataType) -> bool:
    """Returns whether columns of a type are gathered."""
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow) or pa.types.is_boolean(arrow):
        return True
    is_plain = pa.types.is_primitive(arrow) or pa.types.is_decimal(arrow)
    return bool(is_plain and arrow.bit_width in (8, 16, 32, 64, 128, 256))


class MappedColumns:
    """The columns of one file. Threads may share it.

    Args:
        file: all of its bytes.
        columns: how many it has.
        batches: how many record batches it has.

    Attributes:
        is_in_place: all batches that are noted lie in the file as they do in memory.
    """

    def __init__(self, file: pa.Buffer, columns: int, batches: int) -> None:
        self._file = file
        self._begins = np.full((columns, _PIECES, batches), _ABSENT, dtype=np.int64)
        self._is_known = np.zeros(batches, dtype=np.bool_)
        self.is_in_place = True
        self._views = {
            width: np.frombuffer(file, dtype=f"u{width}", count=file.size // width) for width in (1, 2, 4, 8)
        }

    def unknown(self, batch_of: Places) -> list[int]:
        """Returns those of some batches that are not noted yet."""
        met = np.zeros(len(self._is_known), dtype=np.bool_)
        met[batch_of] = True
        return np.flatnonzero(met & ~self._is_known).tolist()

    def note(self, number: int, batch: pa.RecordBatch) -> None:
        """Runs step 1 for one batch, as it was read from the file."""
        for i, column in enumerate(batch.columns):
            buffers = column.buffers()[:_PIECES] if can_gather(column.type) else ()
            for piece, buffer in enumerate(buffers):
                if buffer is None or not buffer.size:
                    continue
                begin = buffer.address - self._file.address
                ends_within = begin >= 0 and begin + buffer.size <= self._file.size
                if column.offset or begin % _ALIGNMENT or not ends_within:
                    self.is_in_place = False
                self._begins[i, piece, number] = begin
        self._is_known[number] = True

    def take(self, column: int, arrow: pa.DataType, batch_of: Places, places: Places) -> pa.Array | None:
        """Returns values of one column; None if they are too many texts.

        Args:
            arrow: its type, one that `can_gather` accepts.
            batch_of, places: of n rows, the numbers of batches that are noted, and places within these.
        """
        nulls, values, texts = (self._begins[column, piece] for piece in range(_PIECES))
        count = len(places)
        buffers: Sequence[Any]
        if pa.types.is_boolean(arrow):
            buffers = [_packed(self._bits(values[batch_of], places))]
        elif pa.types.is_string(arrow) or pa.types.is_binary(arrow):
            found = self._texts(values[batch_of], texts[batch_of], places)
            if found is None:
                return None
            buffers = found
        else:
            buffers = [self._fixed(values[batch_of], places, arrow.bit_width // 8)]
        begins = nulls[batch_of]
        valid = None
        if (begins != _ABSENT).any():
            valid = _packed(self._bits(np.maximum(begins, 0), places) | (begins == _ABSENT))
        return pa.Array.from_buffers(
            arrow, count, [buffer if buffer is None else pa.py_buffer(buffer) for buffer in (valid, *buffers)]
        )

    def _bits(self, begins: Places, places: Places) -> npt.NDArray[np.bool_]:
        found = self._views[1].take(begins + (places >> 3)) >> (places & 7).astype(np.uint8)
        bits: npt.NDArray[np.bool_] = (found & np.uint8(1)).view(np.bool_)
        return bits

    def _fixed(self, begins: Places, places: Places, width: int) -> npt.NDArray[Any]:
        words = max(width // 8, 1)
        view = self._views[width // words]
        at = begins // (width // words) + places * words
        if words == 1:
            return view.take(at)
        out = np.empty((len(places), words), dtype=view.dtype)
        for word in range(words):
            out[:, word] = view.take(at + word)
        return out

    def _texts(self, begins: Places, bytes_begin: Places, places: Places) -> Sequence[Any] | None:
        """Returns offsets and bytes."""
        offsets = self._views[4].view(np.int32)
        at = begins // 4 + places
        first = offsets.take(at).astype(np.int64)
        lengths = offsets.take(at + 1) - first
        ends = np.zeros(len(places) + 1, dtype=np.int64)
        np.cumsum(lengths, out=ends[1:])
        if ends[-1] > _TEXT_BYTES_MAX:
            return None
        if ends[-1] > _FEW_BYTES:
            texts = self._long_texts(np.where(lengths > 0, bytes_begin + first, 0), lengths)
            return list(texts.buffers()[1:])
        source = np.repeat(bytes_begin + first - ends[:-1], lengths)
        source += np.arange(len(source))
        return ends.astype(np.int32), self._views[1].take(source)

    def _long_texts(self, starts: Places, lengths: Places) -> pa.Array:
        """Returns the bytes of texts, by where they start in the file; 0 for empty ones."""
        order = np.argsort(starts, kind="stable")
        starts, lengths = starts[order], lengths[order]
        bounds = np.searchsorted(starts, np.arange(_WINDOW_BYTES, self._file.size, _WINDOW_BYTES))
        cuts = np.unique([0, *bounds.tolist(), len(starts)]).tolist()
        parts = [self._window(starts[low:high], lengths[low:high]) for low, high in pairwise(cuts)]
        found = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return found if (order[1:] > order[:-1]).all() else found.take(pa.array(places_in(order)))

    def _window(self, starts: Places, lengths: Places) -> pa.Array:
        """Runs step 4 for texts in the order of their starts, none of them NULL."""
        edges = np.empty(2 * len(starts), dtype=np.int64)
        edges[0::2], edges[1::2] = starts, starts + lengths
        buffers = [None, pa.py_buffer(edges), self._file]
        spans = pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)
        return spans.take(pa.array(np.arange(0, len(edges), 2))).cast(pa.binary())


def _packed(bits: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    return np.packbits(bits, bitorder="little")
