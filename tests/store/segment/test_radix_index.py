"""A radix index finds what a binary search finds, whatever the codes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqstore.store.segment.key_index import RadixIndex

HIGHEST = 2**64 - 1
CODES = st.lists(
    st.integers(0, HIGHEST) | st.integers(0, 40) | st.integers(HIGHEST - 40, HIGHEST), min_size=1
)


@given(CODES, st.lists(st.integers(0, HIGHEST)))
def test_few_codes_of_any_kind(codes: list[int], probe_keys: list[int]) -> None:
    ascending = np.sort(np.array(codes, dtype=np.uint64))
    inside = [n for n in [*probe_keys, *codes] if ascending[0] <= n <= ascending[-1]]
    wanted = np.array(inside, dtype=np.uint64)
    assert np.array_equal(RadixIndex(ascending).find(wanted), ascending.searchsorted(wanted))


@pytest.mark.parametrize("shape", ["even", "crowded", "one value", "two ends"])
def test_many_codes_even_and_uneven(shape: str) -> None:
    rng = np.random.default_rng(len(shape))
    even = rng.integers(0, HIGHEST, 50_000, dtype=np.uint64)
    codes = {
        "even": even,
        "crowded": np.append(even[:10], rng.integers(10**9, 10**9 + 70_000, 50_000).astype(np.uint64)),
        "one value": np.full(50_000, 7, dtype=np.uint64),
        "two ends": np.array([0, HIGHEST] * 25_000, dtype=np.uint64),
    }[shape]
    codes.sort()
    near = np.concatenate([codes[::3], codes[:-1:5] + np.uint64(1), codes[1::7] - np.uint64(1)])
    wanted = near[(near >= codes[0]) & (near <= codes[-1])]
    assert np.array_equal(RadixIndex(codes).find(wanted), codes.searchsorted(wanted))
