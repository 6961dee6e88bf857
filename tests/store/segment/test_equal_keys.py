"""Keys are compared alike one by one and many at a time."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from seqstore.store.segment.dedupe import equal_keys

VALUES = [
    pa.array(["a", "a", None, None, "", "b"]),
    pa.array([1, 1, None, None, 0, 2], pa.int32()),
    pa.array([Decimal("1.50"), Decimal("1.5"), None, None, Decimal(0), Decimal("-1.5")], pa.decimal128(9, 2)),
    pa.array(
        [datetime(2024, 5, 1), datetime(2024, 5, 1), None, None, datetime(1, 1, 1), datetime(9999, 1, 1)]
    ),
    pa.array([True, True, None, None, False, False]),
    pa.array([0.0, -0.0, None, None, float("nan"), float("nan")]),
]


@pytest.mark.parametrize("column", VALUES, ids=lambda column: str(column.type))
def test_one_row_is_compared_as_each_of_many(column: pa.Array) -> None:
    """One row is compared by scalars, many by kernels; NULL is an ordinary value of both."""
    left = column.take(pa.array(np.repeat(np.arange(6), 6)))
    right = column.take(pa.array(np.tile(np.arange(6), 6)))
    second = pa.array(["x"] * len(left))
    many = equal_keys([left, second], None, [right, second], None)
    chunked = pa.chunked_array([right])
    one = [
        bool(equal_keys([left[i : i + 1], second[:1]], None, [chunked[i : i + 1], second[:1]], None)[0])
        for i in range(len(left))
    ]
    assert one == many.tolist()
