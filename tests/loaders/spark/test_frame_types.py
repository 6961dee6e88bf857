"""Rows of the store in the types of Spark."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from seqstore.loaders.spark.frame_types import frame_rows


def test_a_wide_decimal_is_read_without_an_exponent() -> None:
    """Zero and small values were read as 0E-10."""
    values = pa.array([Decimal(0), Decimal("-1E-10"), Decimal("1.5"), None], pa.decimal256(60, 10))
    batch = pa.RecordBatch.from_arrays([values], ["c"])
    found = frame_rows(batch, pa.schema([("c", pa.string())]))
    assert found.column(0).to_pylist() == ["0.0000000000", "-0.0000000001", "1.5000000000", None]
