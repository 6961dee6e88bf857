"""One row per key of a join's result, for UPDATE .. FROM and MERGE when several source rows match one.

1. Equal rows are one.
2. Where the sequence is assigned, the largest decides, as between rows of a load.
3. Other rows of one key are ambiguous: the largest assigned values stay, so that the result does not depend
   on the order of the join. `one_per_key` returns the number of such keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.segment.winner import order_winner_first
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import parse_type

_TEXT = parse_type("STRING")
_AT = "__at__"


def one_per_key(rows: pa.Table, key: Sequence[str], sequence: str | None) -> tuple[pa.Table, int]:
    """Reduces the rows of each key to one, by the rules of this module.

    Args:
        rows: key columns and assigned ones.
        sequence: the column of `rows` that is the sequence, None when it is not assigned.

    Returns:
        The rows, each key once, and how many of the keys were ambiguous.
    """
    if len(rows.group_by(list(key)).aggregate([])) == len(rows):
        return rows, 0
    names = [f"v{number}" for number in range(rows.num_columns)]
    by = dict(zip(rows.schema.names, names, strict=True))
    plain = pa.table([_sortable(column) for column in rows.columns], names=names)
    deciding = [by[sequence]] if sequence is not None else []
    keys = [by[name] for name in key]
    rest = [name for name in names if name not in (*keys, *deciding)]
    order = order_winner_first(plain, keys, [*deciding, *rest])
    ordered = plain.take(order)
    fresh = _differs_from_before(ordered, keys)
    distinct = fresh | _differs_from_before(ordered, names)
    at = np.flatnonzero(distinct)
    first = fresh[at]
    # The second row of a key contradicts the first, unless its sequence is smaller.
    contradicts = ~_differs_from_before(ordered.take(pa.array(at)), [*keys, *deciding])
    ambiguous = int((first[:-1] & contradicts[1:]).sum())
    return rows.take(order.take(pa.array(np.flatnonzero(fresh)))), ambiguous


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts values to ones that Arrow can sort: lists, maps and structs become text."""
    if not pa.types.is_nested(column.type) and not pa.types.is_null(column.type):
        return column
    return pa.chunked_array([try_cast(column, _TEXT).values])


def _differs_from_before(rows: pa.Table, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Marks rows that differ from the row before in these columns.

    NULL equals NULL, and the first row differs.
    """
    differs = np.zeros(len(rows), dtype=np.bool_)
    differs[:1] = True
    for name in names:
        column = rows.column(name).combine_chunks()
        before, after = column[:-1], column[1:]
        same = pc.fill_null(pc.equal(before, after), pc.and_(pc.is_null(before), pc.is_null(after)))
        differs[1:] |= ~np.asarray(same.to_numpy(zero_copy_only=False)).astype(np.bool_)
    return differs


def keys_in_several(parts: Sequence[pa.Table], key: Sequence[str]) -> pa.Table:
    """Returns keys that occur in several tables, each of which has a key once."""
    both = pa.concat_tables([part.select(key) for part in parts])
    numbered = both.append_column(_AT, pa.array(np.arange(len(both))))
    counted = numbered.group_by(list(key)).aggregate([(_AT, "count")])
    return counted.filter(pc.field(f"{_AT}_count") > 1).select(list(key))
