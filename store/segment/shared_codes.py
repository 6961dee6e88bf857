"""Key codes that several segments of one load share.

A load of many segments writes most keys once. A test of each segment against all earlier ones of the load
costs the square of their number. This module first finds the codes that more than one segment has; only those
take part in the test.

1. Cut the range of codes into equal slices of about `_SLICE_CODES` codes of all segments together; codes are
   spread evenly (segment.key_codes).
2. Sort each slice's codes; equal neighbours are shared codes.

A few slices are in memory at a time, and pages of mapped indexes are released after each read. Equal codes
within one segment (hash collisions) are found too, which costs a test and is harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from seqstore.store.runtime.workers import THREADS, pool
from seqstore.store.segment.key_codes import Codes
from seqstore.store.segment.key_index import KeyIndex

_SLICE_CODES: Final = 2**19
_TOP: Final = 2**64


def shared_codes(indexes: Sequence[KeyIndex], slice_codes: int = _SLICE_CODES) -> Codes:
    """Returns ascending codes, each once, of which the indexes have more than one entry."""
    total = sum(len(index) for index in indexes)
    slices = max(-(-total // slice_codes), 1)
    edges = np.array([_TOP * i // slices for i in range(1, slices)], dtype=np.uint64)
    cuts = []
    for index in indexes:
        cuts.append([0, *index.codes.searchsorted(edges).tolist(), len(index)])
        index.release_pages()

    def repeated(number: int) -> Codes:
        parts = [index.codes[cut[number] : cut[number + 1]] for index, cut in zip(indexes, cuts, strict=True)]
        codes = np.concatenate(parts)
        codes.sort()
        found: Codes = np.unique(codes[1:][codes[1:] == codes[:-1]])
        return found

    found: list[Codes] = []
    for start in range(0, slices, THREADS):
        numbers = range(start, min(start + THREADS, slices))
        found += pool().map(repeated, numbers) if slices > 1 else map(repeated, numbers)
        for index in indexes:
            index.release_pages()
    return np.concatenate(found) if found else np.empty(0, dtype=np.uint64)


def only_codes(index: KeyIndex, wanted: Codes) -> KeyIndex:
    """Returns the entries of an index whose code is among some ascending codes; a copy in memory."""
    if not len(wanted) or not len(index):
        entries = np.empty(0, dtype=np.intp)
    else:
        at = np.minimum(wanted.searchsorted(index.codes), len(wanted) - 1)
        entries = np.flatnonzero(wanted[at] == index.codes)
    sequence = index.sequence.take(entries) if index.sequence is not None else None
    return KeyIndex(index.codes[entries], index.row_positions(entries), sequence, index.has_equal_codes)
