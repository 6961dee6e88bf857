"""New prices for stored orders: what the partial-update workload loads, and what must come of it.

A batch names orders of the base at random, each once, and gives nothing but key and price: 1 of the 8 value
columns. No order is new and no sequence is given, so every price counts and later batches win.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from bench.inputs.oracle import LoadedRows
from bench.inputs.orders import KEY, SCHEMA

PRICE: Final = "price"


def price_changes(base: int, rows: int, number: int, seed: int) -> pa.Table:
    """Batch `number` of changes to a base of `base` rows."""
    rng = np.random.default_rng((seed, number, rows))
    keys = rng.choice(base, rows, replace=False).astype(np.int64)
    return pa.table({KEY: keys, PRICE: rng.random(rows)})


def repriced(base: pa.Table, changes: list[pa.Table]) -> list[LoadedRows]:
    """The base with the last price of each order, as the one load that would make it."""
    keys = np.asarray(base.column(KEY))
    prices = np.empty(len(base))
    prices[keys] = np.asarray(base.column(PRICE))
    for batch in changes:
        prices[np.asarray(batch.column(KEY))] = np.asarray(batch.column(PRICE))
    at = SCHEMA.get_field_index(PRICE)
    return [LoadedRows(base.set_column(at, SCHEMA.field(PRICE), pa.array(prices[keys])))]
