"""The oracle finds every kind of wrong state, so that `correct` means something."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.inputs.oracle import LoadedRows, Oracle
from bench.inputs.orders import KEY, SCHEMA, SEQUENCE, base_rows, key_count, rows_of_keys, update_batch

ROWS = 500


def plain_winners(loads: list[LoadedRows]) -> dict[int, tuple[int, int, int]]:
    """Key -> (sequence, load, row) of its winner, one row at a time."""
    best: dict[int, tuple[int, int, int]] = {}
    for number, load in enumerate(loads):
        keys, sequences = load.rows.column(KEY).to_pylist(), load.rows.column(SEQUENCE).to_pylist()
        for row, (key, sequence) in enumerate(zip(keys, sequences, strict=True)):
            if key not in best or sequence >= best[key][0]:
                best[key] = (sequence, number, row)
    return {key: found for key, found in best.items() if not loads[found[1]].is_delete}


def some_loads() -> list[LoadedRows]:
    return [
        LoadedRows(base_rows(ROWS, 3)),
        *(LoadedRows(update_batch(ROWS, 200, number, 3)) for number in (1, 2, 3)),
        LoadedRows(rows_of_keys(np.arange(40), 4, 3), is_delete=True),
    ]


def expected_rows(loads: list[LoadedRows]) -> pa.Table:
    parts = [loads[number].rows.slice(row, 1) for _, number, row in plain_winners(loads).values()]
    return pa.concat_tables(parts).combine_chunks()


@pytest.fixture
def oracle() -> Oracle:
    return Oracle(key_count(ROWS), some_loads())


@pytest.fixture
def right() -> pa.Table:
    return expected_rows(some_loads())


def test_largest_sequence_then_last_row_wins(oracle: Oracle, right: pa.Table) -> None:
    assert oracle.differences(right.to_batches()) == []
    live = pa.concat_tables(oracle.live_tables()).sort_by(KEY)
    assert live.equals(right.sort_by(KEY))


def test_order_and_batches_of_the_rows_found_do_not_matter(oracle: Oracle, right: pa.Table) -> None:
    shuffled = right.take(np.random.default_rng(1).permutation(len(right)))
    assert oracle.differences(shuffled.to_batches(max_chunksize=7)) == []


def test_a_missing_row_is_found(oracle: Oracle, right: pa.Table) -> None:
    assert oracle.differences(right.slice(1).to_batches()) == ["1 missing rows"]


def test_a_row_that_was_deleted_is_found(oracle: Oracle, right: pa.Table) -> None:
    deleted = some_loads()[-1].rows.slice(0, 1)
    found = oracle.differences([*right.to_batches(), *deleted.to_batches()])
    assert "1 rows that should not be there" in found


def test_a_key_that_comes_twice_is_found(oracle: Oracle, right: pa.Table) -> None:
    found = oracle.differences([*right.to_batches(), *right.slice(0, 1).to_batches()])
    assert found == ["1 keys with several rows"]


@pytest.mark.parametrize("name", [name for name in SCHEMA.names if name != KEY])
def test_one_other_value_is_found_in_any_column(oracle: Oracle, right: pa.Table, name: str) -> None:
    column = right.column(name).to_pylist()
    changes: dict[type, Callable[[Any], Any]] = {str: lambda v: v[:-1] + "!", bool: operator.not_}
    changed = changes.get(type(column[5]), lambda v: v + 1)(column[5])
    values = pa.array([*column[:5], changed, *column[6:]], right.schema.field(name).type)
    other = right.set_column(right.schema.get_field_index(name), right.schema.field(name), values)
    assert oracle.differences(other.to_batches()) == ["1 rows with other values"]


def test_a_text_of_another_length_is_found(oracle: Oracle, right: pa.Table) -> None:
    notes = right.column("note").to_pylist()
    other = right.set_column(8, "note", pa.array([notes[0] + "x", *notes[1:]]))
    assert oracle.differences(other.to_batches())


def test_only_the_keys_asked_for_count(oracle: Oracle, right: pa.Table) -> None:
    part = right.slice(0, 10)
    assert oracle.differences(part.to_batches(), among=np.asarray(part.column(KEY))) == []
    assert oracle.differences(part.slice(1).to_batches(), among=np.asarray(part.column(KEY))) == [
        "1 missing rows"
    ]


def test_a_key_nobody_loaded_is_found(oracle: Oracle) -> None:
    stray = rows_of_keys(np.array([10**6]), 9, 3)
    assert oracle.differences(stray.to_batches()) == ["rows of keys that were never loaded"]
