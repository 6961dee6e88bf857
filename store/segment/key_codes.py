"""Key codes: one 64-bit code per row, computed from its key columns.

Given the key columns of n rows as Arrow arrays:

1. A key of one fixed-width column of up to 8 bytes is *exact*: a bijection of 64-bit integers maps its value;
   NULL has a value that the type never reaches. Equal codes mean equal keys.
2. Any other key is *hashed*: each column yields 64 bits a row (words of 8 bytes folded one after the other,
   the length first; NULL yields a constant), and the columns are folded in key order. Equal codes mean that
   keys *may* be equal: users of hashed codes must compare the key columns as well, unless `prove_keys`.
3. A key of one nullable BIGINT is hashed. Each step of its hash is a bijection, so only two keys share a
   code: NULL, and the value that is hashed to the constant of NULL.
4. Both end in the same finaliser, so codes are spread evenly over 64 bits. A range of codes is therefore a
   fair share of the rows: buckets, tasks and segments split by code range.

Key indexes store codes. The results of this module may never change without a new format number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from seqstore.store.schema.column import Column, is_exact

Codes: TypeAlias = npt.NDArray[np.uint64]

# NULL of an exact key. Types narrower than 8 bytes never reach it and DATETIME ends at the year 9999.
_NULL_VALUE: Final = np.int64(-(2**63))
_NULL_HASH: Final = np.uint64(0x9E3779B97F4A7C15)
_FOLD: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT: Final = np.uint64(33)
_FOLD_SHIFT: Final = np.uint64(29)
# Longer strings are hashed one at a time: a vectorised step per 8 bytes does not pay for a few rows.
_VECTOR_BYTES: Final = 128
_FEW_STRINGS: Final = 4
_64_BITS: Final = 2**64 - 1
_PROVEN_TYPES: Final = ("BIGINT",)  # of step 3


def have_same_codes(before: Sequence[Column], after: Sequence[Column]) -> bool:
    """Returns whether the key columns of two revisions give each key the same code."""
    return [_coded_as(column) for column in before] == [_coded_as(column) for column in after]


def _coded_as(column: Column) -> tuple[int, str, bool]:
    """Returns a column's id and the parts of its declaration that codes may depend on; lengths and fraction
    digits are none."""
    kind = column.type
    is_plain = kind.name in ("CHAR", "VARCHAR", "DATETIME")
    return column.id, str(kind.arrow) if is_plain else str(kind), column.nullable


def encode_keys(arrays: Sequence[pa.Array], *, exact: bool) -> Codes:
    """Returns the codes of n rows.

    Args:
        arrays: the key columns, n rows each, of the columns' Arrow types, without chunks.
        exact: whether the schema has an exact key.
    """
    if exact:
        return _mix(fixed_values(arrays[0]).view(np.uint64))
    folded = np.full(len(arrays[0]), len(arrays), dtype=np.uint64)
    for array in arrays:
        folded ^= _column_hash(array)
        folded *= _FOLD
        folded ^= folded >> _FOLD_SHIFT
    return finish_hash(folded)


def prove_keys(codes: Codes, columns: Sequence[Column]) -> bool:
    """Returns whether rows that share one of some codes have the same key; else compare the keys.

    Args:
        columns: of the key.
    """
    if is_exact(columns):
        return True
    is_proven = len(columns) == 1 and columns[0].type.name in _PROVEN_TYPES
    return is_proven and not (codes == _CODE_OF_NULL).any()


def are_ordered_as_int64(keys: Sequence[pa.Array], columns: Sequence[Column]) -> bool:
    """Returns whether `fixed_values` of a key have the order of the keys."""
    if is_exact(columns):
        return True
    return len(columns) == 1 and columns[0].type.name in _PROVEN_TYPES and not keys[0].null_count


def finish_hash(folded: Codes) -> Codes:
    """Finishes hashed codes; separate from exact codes so that tests can force collisions here."""
    return _mix(folded)


def _mix(values: Codes) -> Codes:
    """Maps 64-bit integers to evenly spread ones by a bijection; returns a new array."""
    mixed = values ^ (values >> _SHIFT)
    mixed *= _MIX_1
    mixed ^= mixed >> _SHIFT
    mixed *= _MIX_2
    mixed ^= mixed >> _SHIFT
    return mixed


def fixed_values(array: pa.Array) -> npt.NDArray[np.int64]:
    """Returns a column of up to 8 bytes as int64, NULL as the smallest; the array is new or read-only."""
    arrow = array.type
    if pa.types.is_boolean(arrow):
        array = array.cast(pa.int8())
    elif pa.types.is_date32(arrow):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(arrow):
        array = array.view(pa.int64())
    if array.null_count == 0:
        return np.asarray(array).astype(np.int64, copy=False)
    valid = np.asarray(array.is_valid())
    values = np.asarray(pc.fill_null(array, 0)).astype(np.int64)
    values[~valid] = _NULL_VALUE
    return values


def _column_hash(array: pa.Array) -> Codes:
    arrow = array.type
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
        hashed = _hash_strings(array)
    elif pa.types.is_decimal(arrow):
        words = decimal_words(array)
        hashed = np.zeros(len(array), dtype=np.uint64)
        for i in range(words.shape[1]):
            hashed ^= words[:, i]
            hashed *= _FOLD
            hashed ^= hashed >> _FOLD_SHIFT
    else:
        hashed = _mix(fixed_values(array).view(np.uint64))
    if array.null_count:
        hashed[np.asarray(array.is_null())] = _NULL_HASH
    return hashed


def decimal_words(array: pa.Array) -> Codes:
    """Returns a decimal column as little-endian 64-bit words, (rows, 2 or 4); NULL rows hold any bits."""
    width = array.type.byte_width // 8
    data = np.frombuffer(array.buffers()[1], dtype=np.uint64)
    start = array.offset * width
    return data[start : start + len(array) * width].reshape(len(array), width)


def _hash_strings(array: pa.Array) -> Codes:
    rows = len(array)
    if rows <= _FEW_STRINGS:
        return np.array([_hash_string(value) for value in array.to_pylist()], dtype=np.uint64)
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.string())
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + rows + 1]
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    first, last = (int(offsets[0]), int(offsets[-1])) if rows else (0, 0)
    raw = array.buffers()[2]
    data = np.zeros(last - first + 8, dtype=np.uint8)  # 8 bytes of slack: words may be read past the end
    if last > first:
        data[: last - first] = np.frombuffer(raw, dtype=np.uint8)[first:last]
    starts -= first
    words: Any = np.ndarray(shape=(len(data) - 7,), dtype="<u8", buffer=data.data, strides=(1,))
    hashed = lengths.view(np.uint64) * _MIX_1
    longest = int(lengths.max(initial=0))
    for at in range(0, min(longest, _VECTOR_BYTES), 8):
        chosen = np.flatnonzero(lengths > at) if at else None
        _fold_word(hashed, words, starts, lengths, at, chosen)
    if longest > _VECTOR_BYTES:
        view = memoryview(data.data)
        for row in np.flatnonzero(lengths > _VECTOR_BYTES):
            start = int(starts[row])
            hashed[row] ^= np.uint64(xxhash.xxh3_64_intdigest(view[start : start + int(lengths[row])]))
    return hashed


def _hash_string(value: str | None) -> int:
    """Returns what `_hash_strings` returns for one value; its NumPy operations take longer than this."""
    data = (value or "").encode()
    hashed = len(data) * int(_MIX_1) & _64_BITS
    for at in range(0, min(len(data), _VECTOR_BYTES), 8):
        hashed ^= int.from_bytes(data[at : at + 8], "little")
        hashed = hashed * int(_FOLD) & _64_BITS
        hashed ^= hashed >> int(_FOLD_SHIFT)
    return hashed ^ xxhash.xxh3_64_intdigest(data) if len(data) > _VECTOR_BYTES else hashed


def _fold_word(
    hashed: Codes,
    words: Any,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    at: int,
    chosen: npt.NDArray[np.intp] | None,
) -> None:
    """Folds bytes [at, at + 8) of the chosen strings (None: of all) into their hashes."""
    if chosen is not None:
        starts, lengths = starts[chosen], lengths[chosen]
    word = words[starts + at]
    rest = np.clip(lengths - at, 0, 8).astype(np.uint64)
    short = rest < 8
    if short.any():
        mask = (np.uint64(1) << (rest[short] * np.uint64(8))) - np.uint64(1)
        word[short] &= mask
    part = hashed if chosen is None else hashed[chosen]
    part ^= word
    part *= _FOLD
    part ^= part >> _FOLD_SHIFT
    if chosen is not None:
        hashed[chosen] = part


_CODE_OF_NULL: Final = encode_keys([pa.nulls(1, pa.int64())], exact=False)[0]  # of step 3
