"""Our own mix of changes: 10 % late, 5 % repeated, about 5 % new, over whole keys or keys of two columns.

The rows are those of `orders`. The composite key is a text and a number that an order's number decides, so
that the same keys are late, repeated and new.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa

from bench.inputs.orders import KEY, SCHEMA, SEQUENCE, base_rows, update_batches
from bench.inputs.price_changes import price_changes
from bench.inputs.script import Script, Step, TableSpec

REGION: Final = "region"
_REGIONS: Final = 997
_WHOLE: Final = TableSpec(SCHEMA, (KEY,), SEQUENCE)
COMPOSITE: Final = TableSpec(
    pa.schema([pa.field(REGION, pa.string(), False), *SCHEMA]), (REGION, KEY), SEQUENCE
)
_FOUR: Final[dict[str, Callable[[np.random.Generator, int], pa.Array]]] = {
    "price": lambda rng, rows: pa.array(rng.random(rows)),
    "weight": lambda rng, rows: pa.array(rng.random(rows)),
    "quantity": lambda rng, rows: pa.array(rng.integers(0, 100, rows, dtype=np.int32)),
    "customer_id": lambda rng, rows: pa.array(rng.integers(0, 1 << 40, rows)),
}


def whole_keys(rows: int, batch: int, steps: int, seed: int) -> Script:
    """Batches of upserts by a BIGINT key."""
    batches = islice(update_batches(rows, batch, seed), steps)
    return Script(_WHOLE, base_rows(rows, seed), [Step("upsert", each) for each in batches])


def composite_keys(rows: int, batch: int, steps: int, seed: int) -> Script:
    """The same batches by a key of a text and a number."""
    plain = whole_keys(rows, batch, steps, seed)
    return Script(
        COMPOSITE, with_region(plain.base), [Step("upsert", with_region(s.rows)) for s in plain.steps]
    )


def partial_updates(rows: int, batch: int, steps: int, seed: int, *, columns: int) -> Script:
    """Batches that change 1 or 4 of the 8 value columns of stored orders, each order once."""
    changes = []
    for number in range(steps):
        change = price_changes(rows, batch, number, seed)
        if columns == 4:
            rng = np.random.default_rng((seed, number, 4))
            made = {name: make(rng, len(change)) for name, make in _FOUR.items()}
            change = pa.table({KEY: change.column(KEY), **made})
        changes.append(Step("update", change))
    return Script(_WHOLE, base_rows(rows, seed), changes)


def with_region(rows: pa.Table) -> pa.Table:
    """The rows with the region in front that the order's number decides."""
    names = pa.array([f"region-{number:03d}-{number * 7919 % 1000:03d}" for number in range(_REGIONS)])
    regions = names.take(pa.array(np.asarray(rows.column(KEY)) * 31 % _REGIONS))
    return pa.table([regions, *rows.columns], schema=COMPOSITE.schema)
