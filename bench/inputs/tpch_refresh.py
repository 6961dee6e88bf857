"""The refresh streams of TPC-H over stored orders: `RF1` adds orders with lines, `RF2` takes orders away.

Each stream has 1,500 orders a scale factor. `tpchgen-cli` makes no refresh sets, so `RF1` repeats stored
orders under new keys: of every 32 keys TPC-H uses the first 8 for the first rows and the next 8 for the new
ones. Each repeated row is some cents dearer, so that no orders tie where a query sorts by price. No order
is repeated or taken away twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ORDERS_PER_SCALE: Final = 1_500
_KEY_STEP: Final = 8


@dataclass(frozen=True)
class Refresh:
    """One pair of streams.

    Attributes:
        orders, lines: what `RF1` adds, whole rows.
        gone_orders, gone_lines: the keys that `RF2` takes away.
    """

    orders: pa.Table
    lines: pa.Table
    gone_orders: pa.Table
    gone_lines: pa.Table


def refreshes(orders: pa.Table, lines: pa.Table, scale: float, pairs: int, seed: int) -> list[Refresh]:
    """Pairs of streams over the first rows."""
    size = max(1, round(ORDERS_PER_SCALE * scale))
    keys = np.asarray(orders.column("o_orderkey"))
    chosen = np.random.default_rng((seed, 22)).choice(keys, 2 * size * pairs, replace=False)
    return [
        _pair(orders, lines, *np.split(chosen[2 * size * number : 2 * size * (number + 1)], 2))
        for number in range(pairs)
    ]


def _pair(
    orders: pa.Table, lines: pa.Table, copied: npt.NDArray[np.int64], gone: npt.NDArray[np.int64]
) -> Refresh:
    of_gone = _of(lines, "l_orderkey", gone)
    return Refresh(
        _dearer(_renamed(_of(orders, "o_orderkey", copied), "o_orderkey"), "o_totalprice"),
        _dearer(_renamed(_of(lines, "l_orderkey", copied), "l_orderkey"), "l_extendedprice"),
        pa.table({"o_orderkey": pa.array(gone)}),
        of_gone.select(["l_orderkey", "l_linenumber"]),
    )


def _of(rows: pa.Table, column: str, keys: npt.NDArray[np.int64]) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(column), pa.array(keys)))


def _renamed(rows: pa.Table, column: str) -> pa.Table:
    at = rows.schema.get_field_index(column)
    return rows.set_column(at, rows.schema.field(at), pc.add(rows.column(column), _KEY_STEP))


def _dearer(rows: pa.Table, column: str) -> pa.Table:
    """The n-th row costs n cents more."""
    at = rows.schema.get_field_index(column)
    cents = pc.multiply(pa.array(np.arange(1, len(rows) + 1)), pa.scalar(Decimal("0.01")))
    dearer = pc.add(rows.column(column), cents).cast(rows.schema.field(at).type)
    return rows.set_column(at, rows.schema.field(at), dearer)


def after(rows: pa.Table, key: str, added: list[pa.Table], gone: list[pa.Table]) -> pa.Table:
    """A table's rows after some pairs: nothing that was added is taken away again."""
    doomed = pa.concat_tables([each.select([key]) for each in gone]).column(key) if gone else None
    kept = rows if doomed is None else rows.filter(pc.invert(pc.is_in(rows.column(key), doomed)))
    return pa.concat_tables([kept, *added])
