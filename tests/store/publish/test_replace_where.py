"""Clearing rows in the version that brings new ones: all of them, or those of some keys."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import Column, InvalidInputError, Store, Table, TableSchema, parse_type
from tests.support.rows import schema_of


@pytest.fixture
def table(store: Store) -> Table:
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


@pytest.mark.settings(batch_rows_max=8, inline_bytes_max=0)
def test_clearing_finds_the_rows_of_every_batch(store: Store) -> None:
    table = store.create_table("db.t", schema_of("k INT NOT NULL", "v INT", sequence_col="v"))
    table.upsert(pa.table({"k": range(100), "v": [10] * 100}))
    with table.begin_load() as load:
        load.clear(pc.field("k") >= 60)
        load.write(pa.table({"k": range(40, 90), "v": [5] * 50}))
        assert load.commit().rows_deleted == 40
    assert keys(table) == dict.fromkeys(range(60), 10) | dict.fromkeys(range(60, 90), 5)
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


def test_a_partial_update_planned_before_a_clearing_is_filled_anew(store: Store) -> None:
    """The version that cleared was taken for one that only adds rows, and the cleared row came back."""
    table = store.create_table("db.w", schema_of("k INT NOT NULL", "v INT", "w INT"))
    table.upsert(pa.table({"k": [1], "v": [1], "w": [1]}))
    load = table.begin_load(mode="UPDATE_FIXED_COLUMNS")
    load.write(pa.table({"k": [1], "v": [9]}))
    load.prepare()
    with table.begin_load() as other:
        other.clear()
        other.write(pa.table({"k": [5], "v": [5], "w": [5]}))
        other.commit()
    load.commit()
    found = table.scan().read_all().sort_by("k").to_pylist()
    assert found == [{"k": 1, "v": 9, "w": None}, {"k": 5, "v": 5, "w": 5}]


def test_a_partial_update_cannot_overwrite(table: Table) -> None:
    with table.begin_load(mode="UPDATE_FIXED_COLUMNS") as load, pytest.raises(InvalidInputError):
        load.clear()


def test_a_row_beside_the_filter_takes_the_place_of_the_stored_one(table: Table) -> None:
    with table.begin_load() as load:
        load.clear(pc.field("k") >= 3)
        load.write(pa.table({"k": [1, 9], "v": [11, 9]}))
        load.commit()
    assert table.scan().read_all().num_rows == 3
    assert keys(table) == {1: 11, 2: 21, 9: 9}


def test_a_row_beside_the_filter_loses_to_a_larger_sequence(table: Table) -> None:
    with table.begin_load() as load:
        load.clear(pc.field("k") >= 3)
        load.write(pa.table({"k": [1, 4], "v": [9, 1]}))
        done = load.commit()
    assert done.rows_late == 1
    assert keys(table) == {1: 10, 2: 21, 4: 1}


@pytest.fixture
def aged(tmp_path: Path) -> Table:
    """Keys 1 and 2 of 2020 were deleted, and nobody remembers; so rows older than that are too late."""
    store = Store.open(tmp_path / "data")
    store.create_database("db")
    given = {"function_column.sequence_col": "v", "tombstone_retention_seconds": "0"}
    columns = [Column("k", parse_type("INT"), nullable=False), Column("v", parse_type("DATETIME"))]
    table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=given))
    table.upsert(pa.table({"k": [1, 2], "v": [datetime(2020, 1, 5)] * 2}))
    table.delete({"k": [1, 2]})
    assert table.purge().tombstones_removed == 2
    return table


def test_a_row_beside_the_filter_may_be_too_late(aged: Table) -> None:
    with aged.begin_load() as load:
        load.clear(pc.field("k") < 2)
        load.write(pa.table({"k": [1, 2], "v": [datetime(2019, 1, 5)] * 2}))
        done = load.commit()
    assert (done.rows_too_late, list(keys(aged))) == (1, [1])


def test_rows_that_went_are_counted_where_pieces_of_the_load_share_keys(table: Table) -> None:
    with table.begin_load() as load:
        load.clear()
        load.write(pa.table({"k": [1], "v": [1]}))
        load.write(pa.table({"k": [1], "v": [2]}))
        done = load.commit()
    assert done.rows_deleted == 4
