"""Key codes: exact ones are a bijection, hashed ones depend on the value alone, all of them are pinned."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqstore import Column, parse_type
from seqstore.store.schema.column import is_exact
from seqstore.store.segment.key_codes import encode_keys, prove_keys
from tests.support.equal_codes import AS_NULL
from tests.support.shapes import POOLS

BIGINT = Column("k", parse_type("BIGINT"), nullable=True)


def codes(kind: str, values: list[Any], *, nullable: bool = True) -> list[int]:
    return codes_of(pa.array(values, parse_type(kind).arrow), kind, nullable=nullable)


def codes_of(array: pa.Array, kind: str, *, nullable: bool = True) -> list[int]:
    exact = is_exact([Column("k", parse_type(kind), nullable)])
    return [int(code) for code in encode_keys([array], exact=exact)]


@pytest.mark.parametrize(
    ("kind", "nullable", "exact"),
    [
        ("BOOLEAN", True, True),
        ("INT", True, True),
        ("DATE", True, True),
        ("DATETIME(6)", True, True),
        ("BIGINT", False, True),
        ("BIGINT", True, False),
        ("LARGEINT", False, False),
        ("DECIMAL(9,2)", False, False),
        ("VARCHAR(4)", False, False),
    ],
)
def test_a_key_is_exact_when_its_values_and_null_fit_64_bits(kind: str, nullable: bool, exact: bool) -> None:
    column = Column("k", parse_type(kind), nullable)
    assert is_exact([column]) is exact
    assert not is_exact([column, column])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=200))
def test_distinct_bigints_have_distinct_codes(values: list[int]) -> None:
    assert len(set(codes("BIGINT", values, nullable=False))) == len(values)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1, max_size=200))
def test_distinct_nullable_bigints_have_distinct_codes_but_null_and_one(values: list[int]) -> None:
    found = codes("BIGINT", values)
    assert len(set(found)) == len(values)
    of_null = codes("BIGINT", [None])
    assert codes("BIGINT", [AS_NULL]) == of_null
    assert prove_keys(np.array(found, np.uint64), [BIGINT]) is (AS_NULL not in values)
    assert not prove_keys(np.array([*found, *of_null], np.uint64), [BIGINT])


@pytest.mark.parametrize("kind", ["VARCHAR(9)", "LARGEINT", "DECIMAL(9,2)"])
def test_codes_of_other_keys_prove_nothing(kind: str) -> None:
    column = Column("k", parse_type(kind), nullable=True)
    assert not prove_keys(np.array([1], np.uint64), [column])
    assert not prove_keys(np.array([1], np.uint64), [BIGINT, column])


@pytest.mark.parametrize("kind", sorted(POOLS))
def test_distinct_values_of_every_type_and_null_have_distinct_codes(kind: str) -> None:
    """T3. Hashes may collide; those of these values are known not to."""
    values = [None, *(value for value in POOLS[kind] if value != AS_NULL)]
    assert len(set(codes(kind, values))) == len(values)


PINNED: list[tuple[str, bool, list[Any], list[int]]] = [
    (
        "BIGINT",
        False,
        [0, 1, -1, 2**63 - 1, -(2**63)],
        [0x0, 0xB456BCFC34C2CB2C, 0x64B5720B4B825F21, 0xABB93DF0A930EDEA, 0x8F780810AF31A493],
    ),
    ("INT", True, [None, 0, 1], [0x8F780810AF31A493, 0x0, 0xB456BCFC34C2CB2C]),
    ("BIGINT", True, [None, 0, -(2**63)], [0xCCAB128CA1F08E96, 0x18354A57BCA47882, 0x7E955EDD07B10436]),
    ("DATE", True, [None, date(2024, 2, 29)], [0x8F780810AF31A493, 0xFE340174FBFA7912]),
    ("DATETIME(6)", True, [None, datetime(2024, 2, 29, 12)], [0x8F780810AF31A493, 0xB301BC17C50D1F7A]),
    (
        "VARCHAR(400)",
        True,
        [None, "", "a", "12345678", "123456789", "é", "k" * 128, "k" * 129],
        [
            0xCCAB128CA1F08E96,
            0x18354A57BCA47882,
            0x22DC4229D1E93F6,
            0x8BB61C54CAADEC0A,
            0x431F0339A16CCA0B,
            0xCF4547D69839911C,
            0x8FFD660DA6F38F02,
            0xC38B5E7D7CB6B02F,
        ],
    ),
    ("DECIMAL(20,3)", True, [Decimal("1.5"), Decimal("-1.5")], [0x20E0A9D029E3C268, 0xC3ADD828E35723D]),
    ("LARGEINT", True, [0, -1, 2**127 - 1], [0x18354A57BCA47882, 0x25DD54F44098E423, 0x8DA377797698D11B]),
]


@pytest.mark.parametrize(
    ("kind", "nullable", "values", "pinned"), PINNED, ids=[f"{p[0]}-{p[1]}" for p in PINNED]
)
def test_codes_are_those_of_stored_indexes(
    kind: str, nullable: bool, values: list[Any], pinned: list[int]
) -> None:
    """Key indexes hold these numbers: another number is another format."""
    assert codes(kind, values, nullable=nullable) == pinned


def test_codes_of_composite_keys_are_those_of_stored_indexes() -> None:
    arrays = [pa.array([None, 1], pa.int32()), pa.array(["x", "y"])]
    codes = encode_keys(arrays, exact=False).tolist()
    assert codes == [0x9B6D0004BDD2BCF3, 0x7EE0957AE800506E]
    assert encode_keys(arrays[::-1], exact=False).tolist() != codes


@given(st.lists(st.one_of(st.none(), st.text(max_size=300)), min_size=1, max_size=30), st.data())
def test_a_slice_of_strings_has_the_codes_of_the_whole(values: list[str | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    array = pa.array(values, pa.string())
    whole = codes_of(array, "VARCHAR(65533)")
    assert codes_of(array.slice(start, stop - start), "VARCHAR(65533)") == whole[start:stop]
    alone = [codes_of(pa.array([value], pa.string()), "VARCHAR(65533)")[0] for value in values]
    assert alone == whole


@pytest.mark.parametrize("kind", sorted(POOLS))
def test_a_slice_has_the_codes_of_the_whole(kind: str) -> None:
    values = [*POOLS[kind], None, *POOLS[kind]]
    array = pa.array(values, parse_type(kind).arrow)
    for start in range(4):
        assert codes_of(array.slice(start), kind) == codes(kind, values)[start:]


def test_bytes_under_a_null_do_not_matter() -> None:
    """Arrow leaves the cell of a NULL undefined."""
    filled = pa.array(["abc", "x"], mask=np.array([True, False]))
    dirty = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\x02"), *pa.array(["abc", "x"]).buffers()[1:]]
    )
    assert codes_of(filled, "VARCHAR(9)") == codes_of(dirty, "VARCHAR(9)") == codes("VARCHAR(9)", [None, "x"])


def test_codes_are_spread_evenly() -> None:
    """Buckets and segments are ranges of codes."""
    for encoded in (
        encode_keys([pa.array(np.arange(64_000))], exact=True),
        encode_keys([pa.array([f"user-{i}" for i in range(64_000)])], exact=False),
    ):
        counts = np.bincount((encoded >> np.uint64(58)).astype(np.int64), minlength=64)
        assert counts.min() > 800
        assert counts.max() < 1_200
