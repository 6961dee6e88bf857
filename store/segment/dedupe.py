"""One row per key within a load: the largest sequence, then the last in the input (SO1, SO3, SO9).

Given codes, sequences and key columns of n rows:

1. Order rows by (code, input order). Only rows that share their code with another need the next steps.
2. Hashed keys: compare the key columns of neighbours. If all agree, equal codes are equal keys; otherwise the
   rows of those codes are numbered by their real key (hash collisions: a handful of rows).
3. Among rows of one key choose by sequence, NULL lowest, then by input order.

Result: indices of the winning rows in ascending order of their codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.segment.key_codes import Codes
from seqstore.store.segment.sequence import SequenceVector
from seqstore.store.segment.winner import Rows, order_winner_last

_ONE: Final = np.uint64(1)


@dataclass(frozen=True)
class Groups:
    """Rows grouped by key.

    Attributes:
        order: row numbers by (code, key, input order).
        group: number of each ordered row's group, ascending from 0.
        has_equal_codes: distinct keys share a code.
    """

    order: Rows
    group: npt.NDArray[np.int64]
    has_equal_codes: bool = False

    @property
    def starts(self) -> Rows:
        """The first entry of each group within `order`."""
        return np.flatnonzero(np.append(True, self.group[1:] != self.group[:-1]))


def group_rows(codes: Codes, keys: Sequence[pa.Array], *, exact: bool) -> Groups:
    """Groups at least one row by key: steps 1 and 2 of the module.

    Args:
        codes: one per row, in input order.
        keys: key columns, used only when `exact` is False.
    """
    order = argsort_codes(codes)
    ordered = codes[order]
    return _grouped(order, ordered[1:] == ordered[:-1], keys, exact=exact)


def _grouped(order: Rows, same: npt.NDArray[np.bool_], keys: Sequence[pa.Array], *, exact: bool) -> Groups:
    """Groups rows in the order of their codes, given which of them share the code of the next row."""
    group = np.zeros(len(order), dtype=np.int64)
    np.cumsum(~same, out=group[1:])
    neighbours = np.flatnonzero(same) if not exact else np.empty(0, dtype=np.intp)
    if len(neighbours) and not equal_keys(keys, order[neighbours], keys, order[neighbours + 1]).all():
        order, group = _regroup(order, group, same, keys)
        return Groups(order, group, has_equal_codes=True)
    return Groups(order, group)


def choose_winners(
    codes: Codes, sequence: SequenceVector | None, keys: Sequence[pa.Array], *, exact: bool
) -> tuple[Rows, bool]:
    """Applies the module's steps.

    Args:
        sequence: one per row, None in tables without a sequence.

    Returns:
        The remaining rows in ascending order of their codes, and whether distinct keys share a code.
    """
    order = argsort_codes(codes)
    ordered = codes[order]
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return order, False
    groups = _grouped(order, same, keys, exact=exact)
    order, same = groups.order, groups.group[1:] == groups.group[:-1]
    if sequence is not None:
        shared = _sharing(same)
        rows = order[shared]
        order = order.copy()
        order[shared] = rows[order_winner_last(rows, groups.group[shared], sequence.take(rows))]
    return order[np.append(~same, True)], groups.has_equal_codes


def _sharing(same: npt.NDArray[np.bool_]) -> Rows:
    """Returns the entries that are equal to the one before or after them."""
    return np.flatnonzero(np.append(same, False) | np.append(False, same))


def argsort_codes(codes: Codes) -> Rows:
    """Sorts codes stably and returns their order, faster than a stable argsort.

    Codes are even, so their leading bits are nearly always distinct. Those bits and the row number are packed
    into one integer and sorted as values. If two codes differ only below the cut, a plain stable argsort
    follows.
    """
    rows = len(codes)
    bits = max(rows - 1, 1).bit_length()
    if rows < 2 or bits > 24:
        return np.argsort(codes, kind="stable")
    low = (_ONE << np.uint64(bits)) - _ONE
    packed = (codes & ~low) | np.arange(rows, dtype=np.uint64)
    packed.sort()
    order = (packed & low).astype(np.intp)
    ordered = codes[order]
    if (ordered[1:] < ordered[:-1]).any():
        return np.argsort(codes, kind="stable")
    return order


def equal_keys(
    left: Sequence[pa.Array | pa.ChunkedArray],
    left_rows: Rows | None,
    right: Sequence[pa.Array | pa.ChunkedArray],
    right_rows: Rows | None,
) -> npt.NDArray[np.bool_]:
    """Compares keys row by row; NULL is an ordinary value (T3). Row lists of None mean all rows in their
    order.
    """
    if left_rows is None and right_rows is None and len(left[0]) == 1:
        pairs = list(zip(left, right, strict=True))
        if all(a.type.equals(b.type) for a, b in pairs):  # a kernel of Arrow takes as long as all of these
            return np.array([all(a[0].equals(b[0]) for a, b in pairs)])
    equal_columns = []
    for a, b in zip(left, right, strict=True):
        x = a if left_rows is None else a.take(pa.array(left_rows))
        y = b if right_rows is None else b.take(pa.array(right_rows))
        equal = pc.fill_null(pc.equal(x, y), False)
        if x.null_count and y.null_count:
            equal = pc.or_(equal, pc.and_(pc.is_null(x), pc.is_null(y)))
        equal_columns.append(np.asarray(equal))
    result: npt.NDArray[np.bool_] = np.logical_and.reduce(equal_columns)
    return result


def _regroup(
    order: Rows, group: npt.NDArray[np.int64], same: npt.NDArray[np.bool_], keys: Sequence[pa.Array]
) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Numbers rows of colliding codes by their real keys: (code group, key) pairs in order of code."""
    shared = _sharing(same)
    taken = [key.take(pa.array(order[shared])).to_pylist() for key in keys]
    seen: dict[tuple[object, ...], int] = {}
    number = np.zeros(len(order), dtype=np.int64)
    number[shared] = [seen.setdefault(key, len(seen)) for key in zip(*taken, strict=True)]
    again = np.lexsort((np.arange(len(order)), number, group))
    order, group, number = order[again], group[again], number[again]
    changed = (group[1:] != group[:-1]) | (number[1:] != number[:-1])
    return order, np.concatenate(([0], np.cumsum(changed)))
