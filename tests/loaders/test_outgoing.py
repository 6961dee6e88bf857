"""Changes of a table as JSON."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from seqstore.loaders.changes.outgoing import json_objects


def test_a_small_decimal_is_written_without_an_exponent() -> None:
    """`seqstore changes --follow` wrote zero as 0E-9."""
    rows = pa.table({"c": pa.array([Decimal(0), Decimal("0.000000100")], pa.decimal128(27, 9))})
    assert json_objects(rows).to_pylist() == ['{"c":"0.000000000"}', '{"c":"0.000000100"}']
