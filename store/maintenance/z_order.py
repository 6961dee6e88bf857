"""Z-order: rows ordered so that a range of any of several columns lies in few record batches.

1. Each column's values become ranks from 0 (NULL first), scaled to as many bits as fit into 64 together.
2. The bits of the ranks are interleaved, highest first, and rows are ordered by the result.

With ranks instead of values, the curve is even for all types and however skewed the values are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.runtime.arrow_versions import dense_ranks_nulls_first

_BITS: Final = 63
_BITS_MAX: Final = 21


def z_order(columns: Sequence[pa.Array]) -> npt.NDArray[np.intp]:
    """Returns row numbers in the order of the curve; ties in input order."""
    bits = min(_BITS // len(columns), _BITS_MAX)
    scaled = [_scaled_ranks(column, bits) for column in columns]
    code = np.zeros(len(columns[0]), dtype=np.uint64)
    for bit in range(bits - 1, -1, -1):
        for ranks in scaled:
            code = (code << np.uint64(1)) | ((ranks >> np.uint64(bit)) & np.uint64(1))
    return np.argsort(code, kind="stable")


def _scaled_ranks(column: pa.Array, bits: int) -> npt.NDArray[np.uint64]:
    ranks = np.asarray(dense_ranks_nulls_first(column)).astype(np.uint64)
    highest = max(int(ranks.max(initial=1)), 1)
    return np.asarray((ranks - np.uint64(1)) * np.uint64(1 << bits) // np.uint64(highest))
