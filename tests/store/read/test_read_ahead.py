"""Batches made ready by other threads come in order, and nobody works for a reader that is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from seqstore.store.read.read_ahead import read_ahead


def _batch(number: int, rows: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [number] * rows})


@pytest.mark.parametrize(
    "takes_work", [lambda n: True, lambda n: False, lambda n: n % 3 == 0], ids=["all", "none", "some"]
)
def test_batches_come_in_order_and_empty_ones_are_left_out(takes_work: Callable[[int], bool]) -> None:
    batches = read_ahead(range(50), lambda n: _batch(n, rows=n % 4), takes_work)
    assert [batch["n"][0].as_py() for batch in batches] == [n for n in range(50) if n % 4]


def test_the_first_batch_is_read_by_who_asks() -> None:
    read_by: list[str] = []

    def read(number: int) -> pa.RecordBatch:
        read_by.append(threading.current_thread().name)
        return _batch(number)

    batches = read_ahead(range(50), read, lambda _: True)
    next(batches)
    assert read_by == [threading.current_thread().name]
    batches.close()  # type: ignore[attr-defined]
    assert len(read_by) == 1


def test_a_failure_comes_in_its_place() -> None:
    def read(number: int) -> pa.RecordBatch:
        if number == 5:
            raise ValueError("5 cannot be read")
        return _batch(number)

    batches = read_ahead(range(50), read, lambda _: True)
    assert [next(batches)["n"][0].as_py() for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="5 cannot"):
        next(batches)


def test_nothing_to_read_gives_nothing() -> None:
    assert list(read_ahead([], lambda n: _batch(n), lambda _: True)) == []
