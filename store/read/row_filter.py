"""Removes rows from a batch: Arrow's filter, with faster ways for the columns that it filters slowly.

Arrow filters numbers at the speed of memory as long as few rows are removed, but bits one at a time and texts
value by value. Therefore:

1. Booleans are filtered as bytes and packed again.
2. Texts of one length (codes, digests, dates) are filtered as numbers or blocks of that many bytes; their
   offsets are multiples, built anew.
3. If more than one row in ten is removed, numbers are taken by position, computed once for all columns. That
   takes the same time whatever the share of rows; the filter takes four times as long for a third.

The results are the values that Arrow would return, without NULLs where there were none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# For fewer rows, a test of the lengths of their texts does not pay.
_ROWS_MIN: Final = 1_024
# If more than one row in so many is removed, positions are faster than a filter.
_TAKEN_FROM: Final = 10
Positions = npt.NDArray[np.intp]
_INTEGERS: Final = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}


def rows_where(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """Returns the rows where the mask, without NULLs, is true.

    It filters column by column: Arrow takes rows of whole batches by position, which is slow for texts.
    """
    if not batch.num_columns:
        return batch.filter(mask)
    if batch.num_rows < _ROWS_MIN:
        arrays = [column.filter(mask) for column in batch.columns]
    else:
        positions = _positions(mask)
        arrays = [_filtered(column, mask, positions) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _positions(mask: pa.BooleanArray) -> Positions | None:
    """Returns the positions of the remaining rows, None if so few are removed that a filter is as fast."""
    if (len(mask) - mask.true_count) * _TAKEN_FROM <= len(mask):
        return None
    return np.flatnonzero(_bytes(mask).view(np.bool_))  # NumPy is ten times as fast with booleans


def _filtered(array: pa.Array, mask: pa.BooleanArray, positions: Positions | None) -> pa.Array:
    found: pa.Array | None = None
    if isinstance(array, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(_filtered(array.indices, mask, positions), array.dictionary)
    if not array.null_count:
        if pa.types.is_boolean(array.type):
            found = _filtered_bits(array, mask)
        elif pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            found = _filtered_blocks(array, mask)
        elif positions is not None and _is_number(array.type):
            found = _taken(array, positions)
    return array.filter(mask) if found is None else found


def _is_number(arrow: pa.DataType) -> bool:
    is_one = pa.types.is_primitive(arrow) and not pa.types.is_boolean(arrow)
    return is_one and arrow.bit_width in (8, 16, 32, 64)


def _taken(array: pa.Array, positions: Positions) -> pa.Array:
    width = array.type.bit_width // 8
    values = np.frombuffer(array.buffers()[1], f"u{width}", offset=array.offset * width, count=len(array))
    # Arrow's allocator reuses memory; NumPy would request this size from the system every time.
    taken = pa.allocate_buffer(len(positions) * width)
    values.take(positions, out=np.frombuffer(taken, values.dtype), mode="clip")
    return pa.Array.from_buffers(array.type, len(positions), [None, taken])


def _bytes(bits: pa.BooleanArray) -> npt.NDArray[np.uint8]:
    """Returns a byte per value; no value may be NULL."""
    first, start = bits.offset // 8, bits.offset % 8
    packed = np.frombuffer(bits.buffers()[1], np.uint8)[first:]
    return np.unpackbits(packed, count=start + len(bits), bitorder="little")[start:]


def _filtered_bits(array: pa.BooleanArray, mask: pa.BooleanArray) -> pa.BooleanArray:
    chosen = pa.array(_bytes(array)).filter(mask)
    packed = np.packbits(chosen.to_numpy(), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(chosen), [None, pa.py_buffer(packed)])


def _filtered_blocks(array: pa.Array, mask: pa.BooleanArray) -> pa.Array | None:
    """Filters texts of one length; returns None for texts of several lengths."""
    _, offsets_buffer, data = array.buffers()
    rows = len(array)
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + rows + 1]
    start, end = int(offsets[0]), int(offsets[-1])
    width, rest = divmod(end - start, rows)
    if rest or not width or offsets[1] != start + width:
        return None
    multiples = _multiples(width, rows)
    if not np.array_equal(offsets if not start else offsets - start, multiples):
        return None
    blocks = pa.Array.from_buffers(
        _INTEGERS.get(width, pa.binary(width)), rows, [None, data.slice(start, end - start)]
    )
    chosen = blocks.filter(mask)
    values = chosen.buffers()[1]
    return pa.Array.from_buffers(
        array.type, len(chosen), [None, pa.py_buffer(multiples[: len(chosen) + 1]), values]
    )


@lru_cache(maxsize=16)
def _multiples(width: int, rows: int) -> npt.NDArray[np.int32]:
    """Returns the offsets of texts of one length; cached, because most batches have as many rows."""
    return np.arange(0, width * rows + 1, width, dtype=np.int32)
