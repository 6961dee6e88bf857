"""Clearing rows in the version that brings new ones: all of them, or those of some keys."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from store import InvalidInputError, Store, Table
from tests.support.rows import schema_of


@pytest.fixture
def table(tmp_path: Path) -> Table:
    store = Store.open(tmp_path / "data")
    store.create_database("db")
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "v INT", sequence_col="v"))
    table.upsert(pa.table({"k": [1, 2, 3, 4], "v": [10, 20, 30, 40]}))
    table.upsert(pa.table({"k": [2, 5], "v": [21, 50]}))
    table.upsert(pa.table({"k": [4], "v": [41]}), merge_type="DELETE")
    return table


def keys(table: Table, version: int | None = None) -> dict[int, int]:
    rows = table.snapshot(version).scan().read_all().to_pydict()
    return dict(sorted(zip(rows["k"], rows["v"], strict=True)))


def test_clearing_all_leaves_nothing_and_forgets_sequences(table: Table) -> None:
    with table.begin_load(operation="TRUNCATE") as load:
        load.clear()
        done = load.commit()
    assert (done.version, done.rows_deleted) == (5, 4)
    assert keys(table) == {}
    assert table.snapshot().count() == 0
    assert keys(table, 4) == {1: 10, 2: 21, 3: 30, 5: 50}
    table.upsert(pa.table({"k": [1, 4], "v": [1, 1]}))  # smaller than the sequences of before
    assert keys(table) == {1: 1, 4: 1}
    assert table.check() == []


def test_clearing_some_keys_takes_their_tombstones_too(table: Table) -> None:
    with table.begin_load() as load:
        load.clear(pc.field("k") >= 3)
        assert load.commit().rows_deleted == 2
    assert keys(table) == {1: 10, 2: 21}
    table.upsert(pa.table({"k": [4, 2], "v": [1, 1]}))
    assert keys(table) == {1: 10, 2: 21, 4: 1}
    assert table.check() == []


def test_rows_of_the_load_come_in_the_same_version(table: Table) -> None:
    with table.begin_load(operation="INSERT OVERWRITE") as load:
        load.clear()
        load.write(pa.table({"k": [1, 9], "v": [0, 0]}))
        done = load.commit()
    assert done.version == 5
    assert keys(table) == {1: 0, 9: 0}
    assert table.check() == []


def test_rows_published_meanwhile_are_cleared_too(table: Table) -> None:
    with table.begin_load() as load:
        load.clear(pc.field("k") < 100)
        load.write(pa.table({"k": [7], "v": [7]}))
        load.prepare()
        table.upsert(pa.table({"k": [6, 200], "v": [6, 6]}))
        load.commit()
    assert keys(table) == {7: 7, 200: 6}
    assert table.check() == []


def test_a_load_planned_before_a_clearing_still_gets_in(table: Table) -> None:
    with table.begin_load() as load:
        load.write(pa.table({"k": [1, 8], "v": [5, 5]}))
        load.prepare()
        with table.begin_load() as other:
            other.clear()
            other.commit()
        load.commit()
    assert keys(table) == {1: 5, 8: 5}
    assert table.check() == []


def test_a_partial_update_cannot_overwrite(table: Table) -> None:
    with table.begin_load(mode="UPDATE_FIXED_COLUMNS") as load, pytest.raises(InvalidInputError):
        load.clear()
