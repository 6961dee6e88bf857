"""LHBench's two tests of merges, at any size.

    refresh   a sales table in the manner of TPC-DS `store_sales`, keyed by item and ticket. Ten refreshes of
              3 % of the first rows each are merged, half of them known keys; queries run before and after.
    micro     a table of four columns: key, key * 7.1 + 13.4, a text, key % 1000. One merge for each size from
              0.0001 % to 0.1 % of the rows, half of it known keys.

Every merge is WHEN MATCHED UPDATE, WHEN NOT MATCHED INSERT: there is no sequence, the later merge counts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.inputs.script import Script, Step, TableSpec

REFRESHES: Final = 10
REFRESH_SHARE: Final = 0.03
MICRO_SHARES: Final = (0.000001, 0.00001, 0.0001, 0.001)
_ITEMS_PER_TICKET: Final = 8

_SALES: Final = pa.schema(
    [
        pa.field("ss_item_sk", pa.int64(), False),
        pa.field("ss_ticket_number", pa.int64(), False),
        pa.field("ss_sold_date_sk", pa.int32(), False),
        pa.field("ss_customer_sk", pa.int64(), False),
        pa.field("ss_store_sk", pa.int32(), False),
        pa.field("ss_quantity", pa.int32(), False),
        pa.field("ss_sales_price", pa.float64(), False),
        pa.field("ss_ext_discount_amt", pa.float64(), False),
        pa.field("ss_net_profit", pa.float64(), False),
    ]
)
_MICRO: Final = pa.schema(
    [
        pa.field("key", pa.int64(), False),
        pa.field("value", pa.float64(), False),
        pa.field("value2", pa.string(), False),
        pa.field("partition", pa.int64(), False),
    ]
)
REFRESH_SPEC: Final = TableSpec(_SALES, ("ss_item_sk", "ss_ticket_number"))
MICRO_SPEC: Final = TableSpec(_MICRO, ("key",))
Numbers = npt.NDArray[np.int64]


def refresh(rows: int, rounds: int, seed: int) -> Script:
    """The refreshes of a sales table."""
    rng = np.random.default_rng((seed, 31))
    size = max(2, round(rows * REFRESH_SHARE))
    stored, steps = rows, []
    for _ in range(rounds):
        known = rng.choice(stored, size // 2, replace=False)
        fresh = np.arange(stored, stored + size - len(known))
        steps.append(Step("upsert", _sales(rng.permutation(np.concatenate((known, fresh))), rng)))
        stored += len(fresh)
    return Script(REFRESH_SPEC, _sales(np.arange(rows), rng), steps)


def micro(rows: int, rounds: int, seed: int) -> Script:
    """Merges of growing shares of the rows, again and again."""
    rng = np.random.default_rng((seed, 32))
    stored, steps = rows, []
    for number in range(rounds):
        size = max(2, round(rows * MICRO_SHARES[number % len(MICRO_SHARES)]))
        known = rng.choice(stored, size // 2, replace=False)
        fresh = np.arange(stored, stored + size - len(known))
        steps.append(Step("upsert", _four_columns(np.concatenate((known, fresh)), number + 1)))
        stored += len(fresh)
    return Script(MICRO_SPEC, _four_columns(np.arange(rows), 0), steps)


def _sales(numbers: Numbers, rng: np.random.Generator) -> pa.Table:
    many = len(numbers)
    columns = [
        pa.array(numbers * 7_919 % 18_000),
        pa.array(numbers // _ITEMS_PER_TICKET),
        pa.array(2_450_816 + rng.integers(0, 1_823, many, dtype=np.int32)),
        pa.array(rng.integers(1, 100_000, many)),
        pa.array(rng.integers(1, 12, many, dtype=np.int32)),
        pa.array(rng.integers(1, 101, many, dtype=np.int32)),
        *(pa.array((rng.random(many) * 100).round(2)) for _ in range(3)),
    ]
    return pa.table(columns, schema=_SALES)


def _four_columns(keys: Numbers, number: int) -> pa.Table:
    """LHBench's values; a merge adds its number, so that what it changed can be seen."""
    columns = [
        pa.array(keys),
        pa.array(keys * 7.1 + 13.4 + number),
        pa.array(keys * 91).cast(pa.string()),
        pa.array(keys % 1_000),
    ]
    return pa.table(columns, schema=_MICRO)
