"""Cuts a short block of CSV into columns of text.

Arrow's reader starts and joins tasks for each block, which takes longer than cutting a thousand rows. Only a
block whose text needs no care is cut here: every line has as many fields as there are columns, no line is
empty, and all of it is ASCII.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_NEWLINE, _BACKSLASH, _N = b"\n\\N"


def cut(data: bytes, separator: bytes, count: int, *, is_empty_null: bool) -> list[pa.Array] | None:
    r"""Returns the columns as text; `\N` is NULL.

    Args:
        data: whole lines; the last one may have no end.
        separator: one byte.
        count: of the columns.
        is_empty_null: an empty field is NULL too.

    Returns:
        None if the block must be read in another way.
    """
    if not data.isascii() or b"\r" in data or not data:
        return None
    if not data.endswith(b"\n"):
        data += b"\n"
    octets = np.frombuffer(data, dtype=np.uint8)
    is_end = octets == _NEWLINE
    rows = int(np.count_nonzero(is_end))
    is_end |= octets == separator[0]
    ends = np.flatnonzero(is_end)
    if len(ends) != rows * count or (octets[ends[count - 1 :: count]] != _NEWLINE).any():
        return None
    offsets = np.empty(len(ends) + 1, dtype=np.int32)
    offsets[0] = 0
    offsets[1:] = ends - np.arange(len(ends))
    lengths = np.diff(offsets)
    if count == 1 and not lengths.all():
        return None
    fields_only = data.translate(None, separator + b"\n")
    text = np.frombuffer(fields_only, dtype=np.uint8)
    is_valid = None
    if is_empty_null or b"\\N" in data:
        is_null = lengths == 2
        pairs = offsets[:-1][is_null]
        is_null[is_null] = (text[pairs] == _BACKSLASH) & (text[pairs + 1] == _N)
        if is_empty_null:
            is_null |= lengths == 0
        is_valid = pa.array(~is_null).buffers()[1]
    fields = pa.StringArray.from_buffers(
        len(ends), pa.py_buffer(offsets), pa.py_buffer(fields_only), is_valid
    )
    return [fields.take(pa.array(np.arange(column, len(ends), count))) for column in range(count)]
