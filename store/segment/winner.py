"""The winner of several rows of one key: the row that survives. No other module compares rows for that.

The row with the larger sequence wins, NULL being the smallest (SO1, SO2, SO4). Of equal sequences the row of
the later version wins, and within a version the row that arrived later (SO3, SO9, SO11). Rows of a table
without a sequence are equal. Delete signs do not matter: a tombstone wins and loses like any row.

Callers have their rows in one of three forms:

- a later row beside the earlier row of its key: `loses`;
- rows of one load by key, in order of arrival: `order_winner_last`, and for Arrow tables
  `order_winner_first`;
- rows of one load by key, on top of a stored row, where a row may bring no sequence: `ranked` turns the
  sequences into integers, from which `running_largest`, `reaching` and `last_of` compute the winner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.segment.sequence import SequenceVector

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]
NO_RANK: Final = -1  # of a row without a sequence: below every rank


def loses(later: SequenceVector, earlier: SequenceVector) -> Mask:
    """Returns which later rows lose to the earlier row of their key: those with a smaller sequence."""
    return later.less(earlier)


def order_winner_last(rows: Rows, keys: npt.NDArray[np.int64], sequence: SequenceVector) -> Rows:
    """Orders rows by key, and within a key so that the winner is the last.

    Args:
        rows: row numbers in order of arrival.
        keys: the number of the key of each row.
        sequence: of each row.

    Returns:
        Positions in `rows`.
    """
    return np.lexsort((rows, *reversed(sequence.columns), keys))


def order_winner_first(rows: pa.Table, key: Sequence[str], ranking: Sequence[str]) -> pa.UInt64Array:
    """Orders rows by key, and within a key so that the winner is the first.

    Args:
        ranking: columns that decide, the sequence first; any two different rows must differ in them.
    """
    keys = [(name, "ascending") for name in key]
    return pc.sort_indices(rows, sort_keys=[*keys, *((name, "descending") for name in ranking)])


def ranked(
    own: SequenceVector, stored: SequenceVector, default: SequenceVector, history: Rows
) -> tuple[Ints, Ints, int]:
    """Makes sequences comparable as integers.

    Args:
        own: of the rows of a load.
        stored: of stored rows.
        default: one sequence, of keys without a stored row.
        history: for each key the position of its row in `stored`, -1 for none.

    Returns:
        Ranks of `own`, the rank from which each key starts, and the rank of `default`.
    """
    ranks = SequenceVector.concatenate([own, stored, default]).ranks()
    of_default = int(ranks[-1])
    return ranks[: len(own)], np.append(ranks[len(own) : -1], of_default)[history], of_default


def running_largest(ranks: Ints, start: Ints, key_of: npt.NDArray[np.int64]) -> Ints:
    """Returns at each row the largest rank of its key so far; a row loses where its own is smaller.

    Args:
        ranks: of rows in order of key and arrival, `NO_RANK` where a row does not compete.
        start: the rank from which each key starts.
        key_of: the number of the key of each row, ascending from 0.
    """
    span = int(max(ranks.max(initial=0), start.max(initial=0))) + 2
    offset = key_of * span
    running: Ints = np.maximum.accumulate(np.maximum(ranks, start[key_of]) + offset)
    return running - offset


def reaching(ranks: Ints, start: Ints, starts: Rows, key_of: npt.NDArray[np.int64]) -> tuple[Mask, Ints]:
    """Returns which rows have the final rank of their key, and the final rank of each key.

    The winner is the last row that does; where no row does, the stored row wins.

    Args:
        ranks, start, key_of: as in `running_largest`.
        starts: the first row of each key.
    """
    final = np.maximum(np.maximum.reduceat(ranks, starts), start)
    return ranks == final[key_of], final


def last_of(chosen: Mask, starts: Rows) -> Rows:
    """Returns the last chosen row of each key, -1 where none is chosen."""
    last: Any = np.maximum.reduceat(np.where(chosen, np.arange(len(chosen)), -1), starts)
    return np.asarray(last, dtype=np.intp)
