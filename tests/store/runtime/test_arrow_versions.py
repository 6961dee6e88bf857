"""Arrow calls that differ between versions answer alike under each of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from seqstore.store.runtime.arrow_versions import (
    batch_bytes,
    dense_ranks_nulls_first,
    python_rows,
    sorted_nulls_first,
)

MAP = pa.map_(pa.string(), pa.string())


def test_nulls_come_first_in_every_column() -> None:
    table = pa.table({"a": [2, None, 2, 1], "b": ["x", "y", None, "z"]})
    assert sorted_nulls_first(table, ["a", "b"]).to_pylist() == [1, 3, 2, 0]


def test_equal_values_share_a_rank_and_null_has_the_lowest() -> None:
    assert dense_ranks_nulls_first(pa.array([30, None, 10, 30])).to_pylist() == [3, 1, 2, 3]


def test_string_views_have_a_size() -> None:
    views = pa.array(["x" * 100] * 10, pa.string()).cast(pa.string_view())
    assert batch_bytes(pa.record_batch({"s": views})) >= 100


def test_maps_are_dicts_within_lists_structs_and_maps() -> None:
    kind = pa.struct([("m", pa.map_(pa.string(), pa.list_(MAP))), ("n", pa.int32())])
    rows = [{"x": 1, "s": {"m": {"a": [{"b": "c"}, {}], "d": None}, "n": None}}, {"x": 2, "s": None}]
    pairs = [
        {"x": 1, "s": {"m": [("a", [[("b", "c")], []]), ("d", None)], "n": None}},
        {"x": 2, "s": None},
    ]
    table = pa.Table.from_pylist(pairs, pa.schema([("x", pa.int64()), ("s", kind)]))
    assert python_rows(table) == rows
    assert python_rows(table.to_batches()[0]) == rows


def test_a_key_that_is_there_twice_is_an_error() -> None:
    table = pa.table({"m": pa.array([[("a", "b"), ("a", "c")]], MAP)})
    with pytest.raises(ValueError, match="a key twice"):
        python_rows(table)
