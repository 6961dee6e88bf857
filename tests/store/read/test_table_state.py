"""A handle whose state is many versions behind: how much it reads to catch up, and that nothing is amiss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Store, Table
from seqstore.store.read import table_state
from seqstore.store.read.table_state import StateLoader, TableState
from tests.support.rows import rows_of, schema_of

FAR = 20  # versions that are read one by one at most, in these tests


@pytest.fixture
def table(store: Store, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(table_state, "_STEPS_MAX", FAR)
    made = store.create_table("db.t", schema_of("k INT NOT NULL", "v INT", "w INT"))
    put(made, range(100), v=0)
    return made


@pytest.fixture
def behind(store: Store, table: Table) -> Iterator[Table]:
    """Another handle of the table, which has read the first load."""
    with Store.open(store.path) as other:
        handle = other.table("db.t")
        assert handle.state().version == table.version
        yield handle


class ReadVersions:
    """Counts the version records that states are made of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = StateLoader._version_record

        def counted(loader: StateLoader, *given: Any) -> Any:
            self.count += 1
            return read(loader, *given)

        monkeypatch.setattr(StateLoader, "_version_record", counted)


def put(table: Table, keys: range, v: int) -> None:
    table.upsert(pa.table({"k": list(keys), "v": [v] * len(keys), "w": [v] * len(keys)}))


def load_often(table: Table, count: int) -> None:
    for number in range(1, count + 1):
        put(table, range(number % 7, number % 7 + 2), v=number)


def live_rows(state: TableState) -> dict[str, list[int]]:
    """The hidden rows by the id of the segment: equal of equal states, whatever their slots."""
    return {
        live.segment.meta.id: live.deletes.hidden_positions().tolist() for live in state.segments.values()
    }


@pytest.mark.parametrize(("versions", "reads"), [(FAR, FAR), (FAR + 1, 1), (10 * FAR, 1)])
def test_a_handle_far_behind_reads_no_version_in_between(
    table: Table, behind: Table, monkeypatch: pytest.MonkeyPatch, versions: int, reads: int
) -> None:
    """A handle read each version since: 100,000 of them took seconds."""
    load_often(table, versions)
    counted = ReadVersions(monkeypatch)
    caught_up = behind.state()
    assert counted.count == reads
    assert caught_up.version == table.version
    assert live_rows(caught_up) == live_rows(table.state())
    assert sorted(rows_of(behind)) == sorted(rows_of(table))
    assert behind.check() == []


def test_versions_are_read_where_the_catalog_has_many_more_segments(
    table: Table, behind: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of dropped segments stay while their versions can be read; a fresh state reads all of them."""
    steps = FAR + 1
    load_often(table, 8 * steps)
    behind.state()
    load_often(table, steps)
    counted = ReadVersions(monkeypatch)
    assert behind.state().version == table.version
    assert counted.count == steps


def test_a_partial_update_planned_far_behind_keeps_the_cells_of_others(table: Table, behind: Table) -> None:
    with behind.begin_load(mode="UPDATE_FIXED_COLUMNS") as load:
        load.write(pa.table({"k": list(range(10)), "v": [-1] * 10}))
        load_often(table, FAR + 5)
        before = sorted(rows_of(table))
        load.commit()
    assert sorted(rows_of(table)) == [(k, -1 if k < 10 else v, w) for k, v, w in before]
    assert table.check() == []


def test_segments_that_are_gone_are_not_kept_open(table: Table, behind: Table) -> None:
    load_often(table, FAR + 5)
    table.optimize()
    caught_up = behind.state()
    assert set(behind.loader._segments) == set(caught_up.slot_of)


def test_states_that_were_loaded_apart_compare_by_segment(store: Store, table: Table) -> None:
    """A load gives slots in the order of ids, and later versions in the order of commits."""
    slow = table.begin_load(label="slow")
    slow.write(pa.table({"k": [1], "v": [1], "w": [1]}))
    slow.precommit()  # its segment has an earlier id than the next one
    put(table, range(200, 210), v=2)
    before = table.state()
    store.commit_transaction(label="slow", database="db")
    with store.catalog.read() as tx:
        now = table.loader.load(tx, table.version)
    renumbered = [i for i, slot in now.slot_of.items() if before.slot_of.get(i, slot) != slot]
    assert renumbered, "slots differ, else this tells nothing"
    arrived = now.since(before)
    assert [live.created for live in arrived.segments.values()] == [table.version]
    assert now.has_all_of(before)
