"""Rows on the wire: few rows are written one by one, many by Arrow, and both are the same bytes."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from seqstore.cli.mysql.rows import few_payloads, many_payloads
from seqstore.store.types.column_types import parse_type
from tests.seeds import new_seed

MOMENT = datetime(2024, 2, 29, 23, 59, 59)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 0, 127],
    pa.int16(): [-(2**15), 2**15 - 1],
    pa.int32(): [-(2**31), 0, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 2**63 - 1],
    pa.uint8(): [0, 255],
    pa.uint16(): [0, 2**16 - 1],
    pa.uint32(): [0, 2**32 - 1],
    pa.float32(): [0.5, -0.0, float("inf"), float("nan")],
    pa.float64(): [0.1, 1e300, -1e-300, 3.0],
    pa.decimal128(9, 2): [Decimal("-1234567.89"), Decimal("0.01")],
    pa.decimal128(38, 10): [Decimal("1234567890123456789012345678.0123456789")],
    parse_type("LARGEINT").arrow: [Decimal(2**127 - 1), Decimal(-(2**127)), Decimal(0)],
    pa.date32(): [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    pa.timestamp("us"): [MOMENT, MOMENT + timedelta(microseconds=1), datetime(1, 1, 1)],
    pa.timestamp("s"): [MOMENT],
    pa.string(): ["", "a", "é", "日本", "x" * 250, "x" * 251, "y" * 70_000, "a\0b"],
    pa.binary(): [b"", b"\xff\0", b"z" * 300],
    pa.list_(pa.int32()): [[1, None], []],
    pa.null(): [],
}


@pytest.mark.parametrize("is_binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_a_value_is_written_alike_alone_and_among_many(kind: pa.DataType, is_binary: bool) -> None:
    for values in ([value] for value in [*VALUES[kind], None]):
        batch = pa.record_batch({"v": pa.array(values, kind)})
        few = list(few_payloads(batch, is_binary=is_binary))
        assert few == many_payloads(batch, is_binary=is_binary).to_pylist(), values


@pytest.mark.parametrize("is_binary", [False, True], ids=["text", "binary"])
def test_rows_of_many_columns_are_written_alike(is_binary: bool) -> None:
    seed = new_seed()
    chosen = random.Random(seed)
    for _ in range(50):
        kinds = [chosen.choice(list(VALUES)) for _ in range(chosen.randint(1, 20))]
        rows = chosen.randint(1, 16)
        columns = [
            pa.array([chosen.choice([*VALUES[kind][:4], None]) for _ in range(rows)], kind) for kind in kinds
        ]
        batch = pa.record_batch(columns, [f"c{place}" for place in range(len(kinds))]).slice(rows // 3)
        few = list(few_payloads(batch, is_binary=is_binary))
        assert few == many_payloads(batch, is_binary=is_binary).to_pylist(), f"seed {seed}"
