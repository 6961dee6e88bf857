"""Leaving rows out of a batch: Arrow's filter, with other ways for the columns that are slow in it.

Arrow filters numbers at the speed of memory, but bits one at a time and texts value by value. So

1. booleans are filtered as bytes and packed again;
2. texts of one length (codes, digests, dates) are filtered as numbers or blocks of that many bytes; their
   offsets are a row of multiples, made anew.

What comes out are the values Arrow would give, without NULLs where there were none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Fewer rows than this are not worth a look at how long their texts are.
_ROWS_MIN: Final = 1_024
_INTEGERS: Final = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32(), 8: pa.uint64()}


def rows_where(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """Rows where the mask, without NULLs, is true.

    Column by column: of whole batches Arrow takes rows by position, and that is slow for texts.
    """
    if not batch.num_columns:
        return batch.filter(mask)
    filter_column = _filtered if batch.num_rows >= _ROWS_MIN else _by_arrow
    return pa.RecordBatch.from_arrays(
        [filter_column(column, mask) for column in batch.columns], schema=batch.schema
    )


def _by_arrow(array: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    return array.filter(mask)


def _filtered(array: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    found: pa.Array | None = None
    if not array.null_count:
        if pa.types.is_boolean(array.type):
            found = _filtered_bits(array, mask)
        elif pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            found = _filtered_blocks(array, mask)
    return array.filter(mask) if found is None else found


def _filtered_bits(array: pa.BooleanArray, mask: pa.BooleanArray) -> pa.BooleanArray:
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    first, start = array.offset // 8, array.offset % 8
    values = np.unpackbits(bits[first:], count=start + len(array), bitorder="little")[start:]
    chosen = pa.array(values).filter(mask)
    packed = np.packbits(chosen.to_numpy(), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(chosen), [None, pa.py_buffer(packed)])


def _filtered_blocks(array: pa.Array, mask: pa.BooleanArray) -> pa.Array | None:
    """Texts of one length, None when they are not."""
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
    """Offsets of texts of one length; batches mostly have as many rows as the one before."""
    return np.arange(0, width * rows + 1, width, dtype=np.int32)
