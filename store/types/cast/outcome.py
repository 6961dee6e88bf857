"""The result of a cast, and the steps of every cast.

1. Arrow converts the whole array.
2. If Arrow refuses, the array is cut into slices and Arrow converts each.
3. The slices that Arrow refuses are decided row by row (in Arrow and NumPy, not in Python).

One bad value in a million therefore costs one slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SLICE_ROWS: Final = 8192
_PROBE_ROWS: Final = 256
BLANKS: Final = " \t\n\r\f\v"

Mask = npt.NDArray[np.bool_]
Direct = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class Cast:
    """The outcome of `try_cast`.

    Attributes:
        values: exactly of the requested Arrow type, as long as the source; NULL where a value could not be
            converted.
        failed: true for rows that lost a value: the source was not NULL and the result is, or an element
            inside a nested value was lost (then the rest of the nested value is kept). None when there is no
            such row. This is Y1.
        out_of_range: the rows of `failed` whose value was a number of the right kind with too many integer
            digits for its DECIMAL. None when there is none. This is Y4: such rows are filtered whatever the
            strict mode.
    """

    values: pa.Array
    failed: pa.BooleanArray | None = None
    out_of_range: pa.BooleanArray | None = None


def outcome(source: pa.Array, values: pa.Array, out_of_range: pa.BooleanArray | None = None) -> Cast:
    """Builds a `Cast` whose failures are the values that became NULL."""
    if values.null_count == source.null_count:
        return Cast(values)
    failed = pc.and_(pc.is_valid(source), pc.is_null(values))
    return Cast(values, _any(failed), _any(out_of_range))


def all_failed(source: pa.Array, arrow: pa.DataType) -> Cast:
    """Builds a `Cast` in which every value failed."""
    return outcome(source, pa.nulls(len(source), arrow))


def by_slices(source: pa.Array, directs: Sequence[Direct], careful: Callable[[pa.Array], Cast]) -> Cast:
    """Tries each of `directs` on the whole array, then on slices; uses `careful` where all of them refuse."""
    for direct in directs:
        try:
            if len(source) > _PROBE_ROWS:  # Arrow's refusal of an array formats a message for every bad value
                direct(source.slice(0, _PROBE_ROWS))
            return Cast(direct(source))
        except pa.ArrowInvalid:
            continue
    if len(source) <= SLICE_ROWS:
        return careful(source)
    pieces = [
        by_slices(source.slice(start, SLICE_ROWS), directs, careful)
        for start in range(0, len(source), SLICE_ROWS)
    ]
    return Cast(
        pa.concat_arrays([piece.values for piece in pieces]),
        _concat_masks([piece.failed for piece in pieces], pieces),
        _concat_masks([piece.out_of_range for piece in pieces], pieces),
    )


def merge_masks(left: pa.BooleanArray | None, right: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Returns the rows of either mask."""
    if left is None or right is None:
        return left if right is None else right
    return pc.or_(left, right)


def masked(values: pa.Array, keep: Mask | pa.BooleanArray) -> pa.Array:
    """Returns the values, NULL where `keep` is not true."""
    condition = pa.array(keep) if isinstance(keep, np.ndarray) else keep
    return pc.if_else(condition, values, pa.scalar(None, values.type))


def contains_byte(text: pa.Array, letters: bytes) -> bool:
    """Returns whether one of the ASCII letters occurs anywhere in the text."""
    content = _content(text).to_pybytes()
    return any(bytes([letter]) in content for letter in letters)


def is_ascii(text: pa.Array) -> bool:
    """Returns whether all bytes of the text are ASCII."""
    content = np.frombuffer(_content(text), dtype=np.uint8)
    return not len(content) or int(content.max()) < 128


def is_valid(array: pa.Array) -> bool:
    """Returns whether texts are UTF-8, texts within other values included. Producers need not have checked
    them.
    """
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _content(text: pa.Array) -> pa.Buffer:
    """Returns the bytes of all values in sequence, those of NULLs included."""
    _, offsets, data = text.buffers()
    if data is None or not len(text):
        return pa.py_buffer(b"")
    bounds = np.frombuffer(offsets, dtype=np.int32)
    start, end = int(bounds[text.offset]), int(bounds[text.offset + len(text)])
    return data.slice(start, end - start)


def _any(mask: pa.BooleanArray | None) -> pa.BooleanArray | None:
    return mask if mask is not None and mask.true_count else None


def _concat_masks(masks: Sequence[pa.BooleanArray | None], pieces: Sequence[Cast]) -> pa.BooleanArray | None:
    if all(mask is None for mask in masks):
        return None
    filled = [
        pa.repeat(False, len(piece.values)) if mask is None else mask
        for mask, piece in zip(masks, pieces, strict=True)
    ]
    return pa.concat_arrays(filled)
