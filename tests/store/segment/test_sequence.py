"""Sequence vectors order rows as their values do, NULL lowest (SO4, SO8)."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqstore import parse_type
from seqstore.store.segment.sequence import SequenceVector
from tests.support.model import is_smaller

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "TINYINT": st.integers(-128, 127),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), -(2**63) + 1]),
    "LARGEINT": st.integers(-(2**127), 2**127 - 1) | st.sampled_from([-(2**127), 2**64, 2**63, -1, 0]),
    "DATE": st.dates(date(1, 1, 1)),
    "DATETIME(6)": st.datetimes(),
}


def encode(kind: str, values: list[Any]) -> SequenceVector:
    return SequenceVector.encode(pa.array(values, parse_type(kind).arrow), parse_type(kind))


@pytest.mark.family(3)
@pytest.mark.parametrize("kind", sorted(VALUES))
@given(data=st.data())
def test_less_is_what_the_values_say(kind: str, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(*[st.none() | VALUES[kind]] * 2), min_size=1, max_size=20))
    left, right = (encode(kind, [pair[side] for pair in pairs]) for side in (0, 1))
    assert left.less(right).tolist() == [is_smaller(a, b) for a, b in pairs]


@pytest.mark.family(3)
@pytest.mark.parametrize("kind", sorted(VALUES))
@given(data=st.data())
def test_vectors_of_different_widths_compare_and_join(kind: str, data: st.DataObject) -> None:
    """A batch without the extremes has fewer columns than one with them."""
    parts = data.draw(
        st.lists(st.lists(st.none() | VALUES[kind], min_size=1, max_size=4), min_size=1, max_size=4)
    )
    joined = SequenceVector.concatenate([encode(kind, part) for part in parts])
    whole = encode(kind, [value for part in parts for value in part])
    assert not joined.less(whole).any()
    assert not whole.less(joined).any()


@pytest.mark.family(3)
@pytest.mark.parametrize("kind", sorted(VALUES))
@given(data=st.data())
def test_ranks_are_dense_and_in_order(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=20))
    distinct = sorted({value for value in values if value is not None})
    order = ([None] if None in values else []) + distinct
    assert encode(kind, values).ranks().tolist() == [order.index(value) for value in values]


def test_null_is_below_the_smallest_value_of_every_type() -> None:
    """SO4, SO5: also below the minimum date and the int64 that stands for NULL inside."""
    for kind, low in [
        ("BIGINT", -(2**63)),
        ("LARGEINT", -(2**127)),
        ("DATE", date(1, 1, 1)),
        ("DATETIME", datetime(1, 1, 1)),
        ("TINYINT", -128),
    ]:
        null, value = encode(kind, [None]), encode(kind, [low])
        assert null.less(value).tolist() == [True]
        assert value.less(null).tolist() == [False]
        assert null.less(null).tolist() == [False]


def test_slices_encode_as_the_whole() -> None:
    array = pa.array([None, 1, -(2**127), None, 2**127 - 1, 7], pa.decimal256(39, 0))
    whole = SequenceVector.encode(array, parse_type("LARGEINT"))
    part = SequenceVector.encode(array.slice(2, 3), parse_type("LARGEINT"))
    for a, b in zip(whole.columns, part.columns, strict=True):
        assert np.array_equal(a[2:5], b)
