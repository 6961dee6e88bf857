"""The values and errors that travel."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    Condition,
    ConflictError,
    InvalidInputError,
    LoadRejectedError,
    LoadResult,
    RejectedRow,
    StoreError,
    WriteOptions,
)
from seqstore.store import errors
from seqstore.store.remote.failures import error_of, failure
from seqstore.store.remote.wire import packed, unpacked
from tests.seeds import new_seed
from tests.support.rows import schema_of
from tests.weight import by_form

ZONE = dt.timezone(dt.timedelta(hours=2))
VALUES: list[Any] = [
    None,
    True,
    2**200,
    -(2**70),
    1.5,
    "text",
    b"bytes",
    (1, ("a", [2])),
    {"a": (1,), 5: [None]},
    frozenset([1, 2]),
    dt.datetime(2024, 2, 29, 1, 2, 3, 4),
    dt.datetime(2024, 2, 29, tzinfo=ZONE),
    dt.date(9999, 12, 31),
    dt.time(23, 59, 59, 999_999),
    dt.timedelta(days=-3, microseconds=7),
    Decimal("-0.10"),
    pa.scalar(7, pa.int8()),
    pa.scalar(None, pa.string()),
    pa.schema([pa.field("a", pa.int32(), nullable=False)]),
    WriteOptions(label="x", partitions=("p",), now=dt.datetime(2024, 1, 1)),
    LoadResult(1, "x", 2, 3, 2, 1, 0, 0, 0, 0, 0, 10, 5, [RejectedRow(0, None, "why")]),
    Condition("k", "in", (pa.scalar(1), pa.scalar(2))),
    schema_of("k BIGINT", "v STRING DEFAULT x", "s INT", sequence_col="s"),
]


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_a_value_arrives_as_it_was_sent(number: int) -> None:
    value = VALUES[number]
    found = unpacked(packed(value))
    assert (found, type(found)) == (value, type(value))


def test_an_expression_arrives_with_the_same_meaning() -> None:
    sent = pc.field("k").isin([1, 2]) | (pc.field("s") == "x") & ~pc.is_null(pc.field("d"))
    assert unpacked(packed(sent)).equals(sent)


def test_values_of_numpy_arrive_as_those_of_python_and_arrow() -> None:
    assert unpacked(packed({"a": np.int64(4), "b": np.array([True, False])})) == {
        "a": 4,
        "b": pa.array([True, False]),
    }


@pytest.mark.parametrize("value", [print, object(), {"f": print}, [ValueError("x")]])
def test_a_value_that_is_not_listed_is_refused_before_it_is_sent(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="cannot be sent"):
        packed(value)


def test_damaged_bytes_are_an_error_and_nothing_else() -> None:
    seed = new_seed()
    print("seed", seed)
    chosen = random.Random(seed)
    whole = packed([*VALUES, pc.field("k").isin([1, 2]), pa.table({"a": ["x", None], "b": [1, 2]})])
    for _ in range(by_form(200, 5_000)):
        damaged = bytearray(whole)
        for _ in range(chosen.choice([1, 2, 8])):
            damaged[chosen.randrange(len(damaged))] = chosen.randrange(256)
        with suppress(StoreError):
            unpacked(bytes(damaged[: chosen.choice([len(damaged), chosen.randrange(len(damaged))])]))


def test_a_message_within_messages_without_end_is_refused() -> None:
    value: Any = 1
    for _ in range(100):
        value = (value,)
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        unpacked(packed(value))


@pytest.mark.parametrize(
    "cls", [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, StoreError)]
)
def test_an_error_keeps_class_message_kind_and_fields(cls: type[StoreError]) -> None:
    sent = cls(
        "what failed; what to do", kind="a_kind", label="x", numbers=(1, 2), rows=[RejectedRow(1, "c", "r")]
    )
    found = error_of(unpacked(packed(failure(sent))))
    assert type(found) is cls
    assert isinstance(found, StoreError)
    assert (found.message, found.kind, found.fields) == (sent.message, sent.kind, sent.fields)


@pytest.mark.parametrize("make", [ValueError, TypeError, KeyError, pa.ArrowInvalid])
def test_an_error_of_python_or_arrow_keeps_its_class(make: Callable[[str], Exception]) -> None:
    assert repr(error_of(failure(make("text")))) == repr(make(str(make("text"))))


def test_a_field_that_does_not_travel_is_sent_as_text() -> None:
    found = error_of(failure(ConflictError("m", conflicts=(object,))))
    assert found.conflicts == ("<class 'object'>",)  # type: ignore[attr-defined]


def test_the_largest_fields_are_left_out_where_there_is_no_room() -> None:
    sent = LoadRejectedError("m", rejected=[RejectedRow(i, "c", "r" * 100) for i in range(100)], total=7)
    assert error_of(failure(sent, 1_000)).fields == {"total": 7}  # type: ignore[attr-defined]
