"""Loads of several batches as statements of a transaction, and what only a load of its own can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Column, InvalidInputError, Settings, Store, Table, TableSchema, parse_type


@pytest.fixture
def table(store: Store) -> Table:
    return made(store)


def made(store: Store) -> Table:
    columns = [Column("k", parse_type("INT"), nullable=False), Column("a", parse_type("INT"))]
    table = store.create_table("db.t", TableSchema.create(columns, ["k"]))
    table.upsert(rows(1, 2))
    return table


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int32()), "a": pa.array(keys, pa.int32())})


def keys(table: Table) -> list[Any]:
    return sorted(table.scan(["k"]).read_all().column("k").to_pylist())


def test_x7_a_load_of_a_transaction_cannot_clear(store: Store, table: Table) -> None:
    with (
        store.transaction() as transaction,
        transaction.table("db.t").begin_load() as load,
        pytest.raises(InvalidInputError, match=r"db\.t: .* cannot clear rows; delete them with delete_where"),
    ):
        load.clear()


def test_pc1_a_load_of_a_transaction_cannot_be_pre_committed(store: Store, table: Table) -> None:
    with (
        store.transaction() as transaction,
        transaction.table("db.t").begin_load() as load,
        pytest.raises(InvalidInputError, match=r"db\.t: .* cannot be pre-committed alone; end it"),
    ):
        load.precommit()


def test_pc1_a_load_goes_on_after_a_refused_pre_commit(store: Store, table: Table) -> None:
    with store.transaction() as transaction, transaction.table("db.t").begin_load() as load:
        load.write(rows(3))
        with pytest.raises(InvalidInputError):
            load.precommit()
        load.commit()
    assert keys(table) == [1, 2, 3]


def test_preparing_a_load_of_a_transaction_leaves_no_files(tmp_path: Path) -> None:
    with Store.open(tmp_path, settings=Settings(inline_bytes_max=0)) as store:
        store.create_database("db")
        table = made(store)
        with store.transaction() as transaction:
            opened = transaction.table("db.t")
            with opened.begin_load(mode="UPDATE_FIXED_COLUMNS") as load:
                load.write(rows(1))
                load.prepare()
                load.commit()
        files = list((tmp_path / "tables" / str(table.id)).glob("*.arrow"))
        assert len(files) == len(table.state().segments)


@pytest.mark.parametrize("sizes", [(20_000, 1), (1, 20_000), (20_000, 20_000), (1, 1)])
def test_large_and_small_loads_of_two_tables_commit_together(store: Store, sizes: tuple[int, int]) -> None:
    """X1: others publish in between."""
    columns = [Column("k", parse_type("INT"), nullable=False), Column("a", parse_type("INT"))]
    tables = [store.create_table(f"db.t{i}", TableSchema.create(columns, ["k"])) for i in range(2)]
    with store.transaction() as transaction:
        for table, size in zip(tables, sizes, strict=True):
            transaction.table(table.name).upsert(rows(*range(size)))
        for table in tables:  # others publish first
            table.upsert(rows(0, 50_000))
    assert [table.count() for table in tables] == [size + 1 for size in sizes]
    assert [table.version for table in tables] == [3, 3]
