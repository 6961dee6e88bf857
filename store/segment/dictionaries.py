"""Texts of a batch as codes and a dictionary, cached for later queries that group by them.

DuckDB groups texts two to three times as slowly as codes, and encoding costs about as much as that
difference. The first query that groups by a column encodes it; later queries use the cached codes. Codes need
a byte per row where a batch has at most 256 values. A full cache evicts the least recently used codes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeAlias

import pyarrow as pa

from seqstore.store.runtime.forks import new_lock
from seqstore.store.segment.segment import Segment

# The type for consumers: all batches of a scan have one type, however many values each has.
ENCODED: Final = pa.dictionary(pa.int32(), pa.string())
_BYTES_MAX: Final = 128 * 2**20
# Codes pay off if a value occurs in so many rows on average.
_ROWS_PER_VALUE: Final = 8
_NARROW: Final = ((2**8, pa.uint8()), (2**16, pa.uint16()))
_Key: TypeAlias = tuple[str, int, str]

_lock: Final = new_lock()
_known: OrderedDict[_Key, tuple[pa.Array, pa.Array, int]] = OrderedDict()
_bytes = [0]


def encoded(segment: Segment, number: int, source: str) -> pa.DictionaryArray:
    """Returns a text column of one batch as codes, of the narrowest type that holds them.

    Args:
        source: the stored column.
    """
    key = (segment.meta.file_id, number, source)
    with _lock:
        found = _known.get(key)
        if found is not None:
            _known.move_to_end(key)
    if found is None:
        found = _made(segment.batch(number, [source]).column(0))
        _keep(key, found)
    return pa.DictionaryArray.from_arrays(found[0], found[1])


def is_encoded(segment: Segment, number: int, source: str) -> bool:
    """Returns whether the codes are cached."""
    return (segment.meta.file_id, number, source) in _known


def is_worth_it(column: pa.DictionaryArray) -> bool:
    """Returns whether a batch has few enough values."""
    return len(column.dictionary) * _ROWS_PER_VALUE <= len(column)


def widened(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Returns the column in the type `ENCODED`."""
    return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), column.dictionary)


def _made(column: pa.Array) -> tuple[pa.Array, pa.Array, int]:
    whole = column.dictionary_encode()
    narrow = next((kind for limit, kind in _NARROW if len(whole.dictionary) <= limit), pa.int32())
    codes = whole.indices.cast(narrow)
    return codes, whole.dictionary, codes.nbytes + whole.dictionary.nbytes


def _keep(key: _Key, made: tuple[pa.Array, pa.Array, int]) -> None:
    with _lock:
        if key not in _known:
            _bytes[0] += made[2]
        _known[key] = made
        while _bytes[0] > _BYTES_MAX:
            _, (_, _, size) = _known.popitem(last=False)
            _bytes[0] -= size
