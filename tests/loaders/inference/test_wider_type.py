"""The type that a column needs for values that do not fit it (EV2)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from seqstore.loaders.inference.wider_type import WiderType
from seqstore.store.types.column_types import parse_type, takes_values_of


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("TINYINT", ["127", "-5"], "TINYINT"),
        ("TINYINT", ["128"], "SMALLINT"),
        ("INT", ["2147483648", "word"], "BIGINT"),
        ("INT", ["9223372036854775808"], "LARGEINT"),
        ("INT", ["9" * 60], "INT"),
        ("INT", ["1.50"], "DOUBLE"),
        ("INT", ["1.00"], "DOUBLE"),
        ("INT", ["1.00", "2147483648"], "DOUBLE"),
        ("BIGINT", ["1.00", "2"], "DECIMAL(20,1)"),
        ("INT", ["1e3"], "DOUBLE"),
        ("INT", ["word", ""], "INT"),
        ("BIGINT", ["1.25"], "DECIMAL(21,2)"),
        ("BIGINT", ["1e3"], "BIGINT"),
        ("LARGEINT", ["1.5"], "LARGEINT"),
        ("DECIMAL(5,2)", ["999.99"], "DECIMAL(5,2)"),
        ("DECIMAL(5,2)", ["1000.001"], "DECIMAL(7,3)"),
        ("DECIMAL(38,2)", ["1.001"], "DECIMAL(38,2)"),
        ("FLOAT", ["1.5"], "FLOAT"),
        ("FLOAT", ["1.2345678901"], "DOUBLE"),
        ("FLOAT", ["1e300"], "DOUBLE"),
        ("CHAR(2)", ["abc"], "VARCHAR(4)"),
        ("VARCHAR(3)", ["äöü"], "VARCHAR(8)"),
        ("VARCHAR(3)", ["x" * 40000], "VARCHAR(65533)"),
        ("VARCHAR(3)", ["x" * 70000], "STRING"),
        ("DATE", ["2024-01-01", "2024-01-01 00:00:00"], "DATE"),
        ("DATE", ["2024-01-01 10:00:00"], "DATETIME"),
        ("DATE", ["2024-01-01 10:00:00.5"], "DATETIME(6)"),
        ("DATETIME", ["2024-01-01 10:00:00.000"], "DATETIME"),
        ("DATETIME", ["2024-01-01T10:00:00.25Z"], "DATETIME(6)"),
        ("BOOLEAN", ["2"], "BOOLEAN"),
        ("JSON", ["2"], "JSON"),
    ],
)
def test_a_column_becomes_as_wide_as_its_values_need(column: str, values: list[str], expected: str) -> None:
    wider = WiderType(parse_type(column))
    wider.see(pa.array(values))
    assert wider.type.sql == expected
    assert takes_values_of(wider.type, parse_type(column))


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("FLOAT", pa.array([0.5]), "DOUBLE"),
        ("INT", pa.array([5]), "INT"),
        ("INT", pa.array([2**40]), "BIGINT"),
        ("BIGINT", pa.array([5], pa.int8()), "BIGINT"),
        ("STRING", pa.array([5]), "STRING"),
        ("INT", pa.array([[5]]), "INT"),
        ("INT", pa.nulls(3), "INT"),
    ],
)
def test_values_with_types_of_their_own_widen_too(column: str, values: pa.Array, expected: str) -> None:
    wider = WiderType(parse_type(column))
    wider.see(values)
    assert wider.type.sql == expected


def test_it_grows_over_batches_and_never_shrinks() -> None:
    wider = WiderType(parse_type("DECIMAL(3,1)"))
    for value in ("1000", "0.001", "1"):
        wider.see(pa.array([value]))
    assert wider.type.sql == "DECIMAL(7,3)"
