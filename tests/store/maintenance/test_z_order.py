"""The order of the Z-order curve over ranks."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa

from seqstore.store.maintenance.z_order import z_order
from tests.seeds import new_seed


def test_one_column_is_sorted_with_null_first() -> None:
    values = [None, *range(100)]
    seed = new_seed()
    random.Random(seed).shuffle(values)
    order = z_order([pa.array(values, pa.int32())]).tolist()
    assert [values[row] for row in order] == [None, *range(100)], f"seed {seed}"


def test_two_columns_alternate_from_the_highest_bit_on() -> None:
    """So a square of both is one range of the order. The scale was too small by one: the second of four
    values had the highest bits of the first.
    """
    pairs = list(itertools.product(range(4), repeat=2))
    order = z_order([pa.array(column) for column in zip(*pairs, strict=True)]).tolist()
    expected = sorted(pairs, key=lambda pair: [each >> bit & 1 for bit in (1, 0) for each in pair])
    assert [pairs[row] for row in order] == expected


def test_many_columns_share_the_bits_of_a_code() -> None:
    """The highest bits would be lost, and with them the order of far values."""
    values = list(range(100))
    constant = pa.array([0] * 100)
    assert z_order([pa.array(values), constant, constant, constant, constant]).tolist() == values
