"""The handles of tables: a table dropped here or by another process leaves no memory and no mapped file."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import NotFoundError, Session, Settings, Store, Table
from seqstore.store import table_handles
from seqstore.store.read.versioned_table import VersionedTable
from tests.support.rows import MakeTable
from tests.support.statements import run

pytestmark = pytest.mark.settings(Settings(inline_bytes_max=0, auto_compaction=0))


def loaded(make_table: MakeTable) -> Table:
    table = make_table("k BIGINT NOT NULL", "v STRING")
    table.upsert(pa.table({"k": list(range(1000)), "v": ["x" * 100] * 1000}))
    table.vacuum()
    assert table.count() == 1000
    assert len(table.get(pa.table({"k": [7]}))) == 1
    return table


def deleted_files(store: Store) -> list[str]:
    """Files of the store that are deleted and still mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if str(store.path) in line and line.endswith("(deleted)")]


def dropped_soon(make_table: MakeTable) -> weakref.ref[Table]:
    """A table that was written and read; a fixture would hold its handle."""
    return weakref.ref(loaded(make_table))


def is_gone(handle: weakref.ref[Table]) -> bool:
    gc.collect()
    return handle() is None


@pytest.mark.family(2)
@pytest.mark.parametrize("way", ["drop", "replace", "drop of the database", "SQL"])
def test_a_dropped_table_leaves_nothing_in_memory(store: Store, make_table: MakeTable, way: str) -> None:
    handle = dropped_soon(make_table)
    if way == "drop":
        store.drop_table("db.t")
    elif way == "replace":
        make_table("k BIGINT NOT NULL", name="db.new")
        store.replace_table("db.t", "db.new", swap=False)
    elif way == "SQL":
        list(Session(store).execute("DROP TABLE db.t FORCE"))
    else:
        store.drop_database("db")
    assert is_gone(handle)
    if sys.platform == "linux":
        assert deleted_files(store) == []


@pytest.mark.parametrize("asks", ["maintenance", "a table"])
def test_a_table_that_another_process_dropped_is_let_go(
    store: Store, make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    make_table("k BIGINT NOT NULL", name="db.other")
    handle = dropped_soon(make_table)
    with Store.open(store.path) as another:
        another.drop_table("db.t")
    assert not is_gone(handle)
    if asks == "maintenance":
        store.maintain()
    else:
        monkeypatch.setattr(table_handles, "_LOOK_SECONDS", 0.0)
        store.table("db.other")
    assert is_gone(handle)


def test_a_handle_that_is_still_used_says_that_the_table_was_dropped(
    store: Store, make_table: MakeTable
) -> None:
    table = loaded(make_table)
    store.drop_table("db.t")
    with pytest.raises(NotFoundError):
        table.upsert(pa.table({"k": [1], "v": ["y"]}))


def test_a_table_made_again_has_a_handle_of_its_own(store: Store, make_table: MakeTable) -> None:
    table = loaded(make_table)
    store.drop_table("db.t")
    again = make_table("k BIGINT NOT NULL", "v STRING")
    assert store.table("db.t") is again
    assert again is not table
    assert again.count() == 0


def test_handles_stay_one_for_each_table(store: Store, make_table: MakeTable) -> None:
    session = Session(store)
    for number in range(20):
        make_table("k BIGINT NOT NULL", name=f"db.t{number}").upsert(pa.table({"k": [number]}))
        assert run(session, f"SELECT k FROM db.t{number}") == [(number,)]
        store.drop_table(f"db.t{number}")
    gc.collect()
    mine = [each for each in gc.get_objects() if isinstance(each, VersionedTable)]
    assert [each.name for each in mine if each.catalog is store.catalog] == []
