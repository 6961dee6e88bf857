"""How long deletes are remembered: K3, K4, D4."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from seqstore import Column, LoadRejectedError, Store, Table, TableSchema, parse_type
from seqstore.store.check.write_modes import UpdateMode
from seqstore.store.ddl.alter import alter, enable_sequence_load, set_properties
from seqstore.store.publish.tombstones import may_lack_tombstones
from tests.support.clock import Clock


def make(store: Store, sequence: str | None, **properties: str) -> Table:
    columns = [Column("k", parse_type("bigint"), False), Column("v", parse_type("varchar(100)"))]
    given = {"tombstone_retention_seconds": "0", **properties}
    if sequence is not None:
        columns.append(Column("s", parse_type(sequence)))
        given["function_column.sequence_col"] = "s"
    return store.create_table("db.t", TableSchema.create(columns, ["k"], properties=given))


def row(key: int, sequence: object, value: str = "x") -> pa.Table:
    return pa.Table.from_pylist([{"k": key, "v": value, "s": sequence}])


def stored_keys(table: Table) -> list[int]:
    return sorted(table.scan(["k"], deleted=True).read_all().column("k").to_pylist())


def shown_keys(table: Table) -> list[int]:
    return sorted(table.scan(["k"]).read_all().column("k").to_pylist())


def test_young_tombstones_stay(store: Store) -> None:
    table = make(store, None, tombstone_retention_seconds="3600")
    table.upsert(pa.table({"k": [1, 2], "v": ["a", "b"]}))
    table.delete({"k": [1]})
    assert table.purge().tombstones_removed == 0
    assert stored_keys(table) == [1, 2]


@pytest.mark.parametrize("seconds", ["63900000000", "100000000000", "9" * 30])
def test_deletes_may_be_remembered_for_longer_than_there_are_dates(store: Store, seconds: str) -> None:
    table = make(store, "DATETIME", tombstone_retention_seconds=seconds)
    table.upsert(row(1, datetime(2024, 1, 1)))
    table.delete({"k": [1], "s": [datetime(2024, 1, 2)]})
    assert table.optimize(full=True).tombstones_removed == 0
    assert stored_keys(table) == [1]


def test_tombstones_may_be_gone_from_the_moment_on_that_compactions_remove_them(store: Store) -> None:
    with Clock() as clock:
        table = make(store, None, tombstone_retention_seconds="10000")
        for key in range(3):
            clock.tick(1000)
            table.upsert(pa.table({"k": [key], "v": ["x"]}))
        state = table.state()

        def may_lack(after: int) -> bool:
            with table.catalog.read() as tx:
                return may_lack_tombstones(tx, table.id, state.version, state.schema, table.settings, after)

        clock.tick(8999)  # the version after the second one is that of 9999 seconds ago
        assert not may_lack(2)
        clock.tick(2)
        assert may_lack(2)
        assert not may_lack(3)
        assert not may_lack(state.version)


def test_a_partial_update_is_filled_again_when_a_delete_after_it_is_forgotten(store: Store) -> None:
    """K1: the key is new then, whether a compaction removed its tombstone or not."""
    for number, compacts in enumerate((False, True)):
        schema = TableSchema.create(
            [Column("k", parse_type("bigint"), False), Column("a", parse_type("int")),
             Column("b", parse_type("int"))],
            ["k"],
            properties={"tombstone_retention_seconds": "0"},
        )  # fmt: skip
        table = store.create_table(f"db.t{number}", schema)
        table.upsert(pa.table({"k": [1, 2], "a": [1, 1], "b": [77, 77]}))
        loads = [table.begin_load(label=f"{name}{number}", mode=UpdateMode.FIXED) for name in ("one", "two")]
        for load, key in zip(loads, (1, 2), strict=True):
            load.write(pa.table({"k": [key], "a": [9]}))
        loads[0].precommit()
        loads[1].prepare()
        table.delete({"k": [1, 2]})
        if compacts:
            assert table.optimize(full=True).tombstones_removed == 2
        store.commit_transaction("db", label=f"one{number}")
        loads[1].commit()
        assert table.get({"k": [1, 2]}).to_pylist() == [
            {"k": 1, "a": 9, "b": None},
            {"k": 2, "a": 9, "b": None},
        ]


def test_without_a_sequence_old_tombstones_go(store: Store) -> None:
    table = make(store, None)
    table.upsert(pa.table({"k": [1, 2], "v": ["a", "b"]}))
    table.delete({"k": [1]})
    assert table.purge().tombstones_removed == 1
    assert stored_keys(table) == [2]
    table.upsert(pa.table({"k": [1], "v": ["again"]}))
    assert shown_keys(table) == [1, 2]
    assert table.check() == []


@pytest.mark.parametrize("sequence", ["bigint", "largeint", "int"])
def test_with_an_integer_sequence_a_deleted_key_never_comes_back_late(store: Store, sequence: str) -> None:
    """Scenario 36, K4: sequence 5; DELETE; compactions; 3 and 4 stay away, 6 comes."""
    table = make(store, sequence)
    table.upsert(row(1, 5, "x" * 100))
    table.delete({"k": [1]})
    for number in (3, 4):
        table.purge()
        table.optimize(full=True)
        assert not table.purge().made_version
        result = table.upsert(row(1, number))
        assert (result.rows_late, result.rows_too_late, shown_keys(table)) == (1, 0, [])
    guard = next(
        live.segment.meta for live in table.state().segments.values() if live.segment.meta.tombstones
    )
    assert guard.compression == "zstd"
    assert table.get({"k": [1]}, deleted=True).to_pylist() == [{"k": 1, "v": None, "s": 5}]
    table.upsert(row(1, 6))
    assert shown_keys(table) == [1]
    assert table.check() == []


@pytest.mark.parametrize(
    ("kind", "old", "older", "newer"),
    [
        ("datetime", datetime(2020, 1, 5), datetime(2020, 1, 3), datetime(2020, 1, 6)),
        ("date", datetime(2020, 1, 5).date(), datetime(2020, 1, 3).date(), datetime(2020, 1, 6).date()),
    ],
)
def test_with_a_time_sequence_rows_older_than_the_horizon_are_too_late(
    store: Store, kind: str, old: object, older: object, newer: object
) -> None:
    """K4: the tombstone is gone, and still nothing older brings its key back."""
    table = make(store, kind)
    table.upsert(pa.concat_tables([row(1, old), row(2, older)]))
    table.delete({"k": [1]})
    assert table.purge().tombstones_removed == 1
    assert stored_keys(table) == [2]
    result = table.upsert(row(1, older))
    assert (result.rows_loaded, result.rows_too_late, result.rows_late) == (1, 1, 0)
    assert shown_keys(table) == [2]
    assert table.key_history({"k": 1})[-1].outcome == "too late"
    assert table.upsert(row(2, old)).rows_too_late == 0, "a key that is stored goes by its own sequence"
    assert table.upsert(row(1, old)).rows_too_late == 0, "a tie comes later (D5)"
    table.upsert(row(3, newer))
    assert shown_keys(table) == [1, 2, 3]
    assert table.history()[-4].metrics.rows_too_late == 1
    assert table.check() == []


def test_with_a_time_sequence_a_stored_key_goes_by_its_own_sequence(store: Store) -> None:
    """K4: the watermark is for keys that are not stored; rows below it update the others."""
    table = make(store, "datetime")
    table.upsert(pa.concat_tables([row(1, datetime(2020, 1, 5)), row(2, datetime(2020, 1, 2))]))
    table.delete({"k": [1]})
    table.purge()
    newer = table.upsert(row(2, datetime(2020, 1, 3), "newer"))
    assert (newer.rows_too_late, newer.rows_late, newer.rows_replaced) == (0, 0, 1)
    late = table.upsert(row(2, datetime(2020, 1, 1), "late"))
    assert (late.rows_too_late, late.rows_late) == (0, 1)
    assert table.get({"k": [2]}, ["v"]).to_pylist() == [{"v": "newer"}]


def test_a_tombstone_of_the_future_is_kept_until_its_time(store: Store) -> None:
    """A wrong clock must not make every row too late."""
    table = make(store, "datetime")
    table.upsert(row(1, datetime(9000, 1, 1)))
    table.delete({"k": [1]})
    assert table.purge().tombstones_removed == 0
    assert table.upsert(row(2, datetime(2020, 1, 1))).rows_too_late == 0
    assert shown_keys(table) == [2]


def test_too_late_rows_are_an_error_by_option(store: Store) -> None:
    table = make(store, "datetime", too_late_rows="error")
    table.upsert(row(1, datetime(2020, 1, 5)))
    table.delete({"k": [1]})
    table.purge()
    with pytest.raises(LoadRejectedError, match="1 row is too late") as caught:
        table.upsert(row(1, datetime(2020, 1, 3)))
    assert caught.value.kind == "too_late"
    assert table.version == 4


def test_a_row_that_is_too_late_stays_so_when_its_load_is_overtaken(store: Store) -> None:
    """The plan is extended: a row that it refused must count as too late, not as late."""
    table = make(store, "datetime")
    table.upsert(row(1, datetime(2020, 1, 5)))
    table.delete({"k": [1]})
    table.purge()
    load = table.begin_load()
    load.write(pa.concat_tables([row(1, datetime(2020, 1, 3)), row(2, datetime(2020, 1, 9))]))
    load.prepare()
    table.upsert(row(3, datetime(2020, 1, 9)))
    result = load.commit()
    assert (result.rows_too_late, result.rows_late, shown_keys(table)) == (1, 0, [2, 3])


def test_a_load_planned_before_a_purge_cannot_bring_a_key_back(store: Store) -> None:
    """The floor and the tombstones change in one commit."""
    table = make(store, "datetime")
    table.upsert(row(1, datetime(2020, 1, 5)))
    table.delete({"k": [1]})
    load = table.begin_load()
    load.write(row(1, datetime(2020, 1, 3)))
    load.prepare()
    table.purge()
    result = load.commit()
    assert (result.rows_too_late, shown_keys(table)) == (1, [])
    assert table.check() == []


def grouped(store: Store, kind: str) -> Table:
    names = [("k", "bigint"), ("a", "varchar(100)"), ("s", kind), ("b", "int"), ("t", kind)]
    columns = [Column(name, parse_type(of), name != "k") for name, of in names]
    given = {"tombstone_retention_seconds": "0", "sequence_mapping.s": "a", "sequence_mapping.t": "b"}
    return store.create_table("db.g", TableSchema.create(columns, ["k"], properties=given))


@pytest.mark.parametrize("kind", ["bigint", "datetime"])
def test_with_column_groups_a_deleted_key_is_remembered_group_by_group(store: Store, kind: str) -> None:
    """K4: what came back of one group does not bring back the other."""

    def at(number: int) -> object:
        return datetime(2020, 1, number) if kind == "datetime" else number

    def write(**values: object) -> None:
        table.upsert(pa.Table.from_pylist([{"k": 1, **values}]), mode="UPDATE_FIXED_COLUMNS")

    table = grouped(store, kind)
    write(a="x" * 100, s=at(5), b=5, t=at(5))
    table.delete(pa.table({"k": [1]}))
    before = table.purge()
    assert (before.tombstones_removed, stored_keys(table)) == (0, [1])
    guard = next(iter(table.state().segments.values())).segment.meta
    assert (guard.rows, guard.tombstones) == (1, 1)
    assert not table.purge().made_version
    write(a="late", s=at(4), b=4, t=at(4))
    assert shown_keys(table) == []
    write(a="new", s=at(6))
    table.purge()
    assert table.get(pa.table({"k": [1]}), ["a", "b"]).to_pylist() == [{"a": "new", "b": None}]
    write(b=4, t=at(4))
    assert table.get(pa.table({"k": [1]}), ["a", "b"]).to_pylist() == [{"a": "new", "b": None}]
    assert table.check() == []


def test_with_column_groups_a_tombstone_without_any_sequence_goes(store: Store) -> None:
    table = grouped(store, "bigint")
    table.upsert(pa.table({"k": [1, 2], "a": ["x", "y"], "s": pa.array([None, 1], pa.int64())}))
    table.delete(pa.table({"k": [1, 2]}))
    assert table.purge().tombstones_removed == 1
    assert stored_keys(table) == [2]
    assert table.check() == []


def test_young_tombstones_that_were_merged_go_when_they_are_old(store: Store) -> None:
    table = make(store, None, tombstone_retention_seconds="3600")
    table.upsert(pa.table({"k": [1, 2], "v": ["a", "b"]}))
    table.delete(pa.table({"k": [1]}))
    table.delete(pa.table({"k": [2]}))
    table.optimize(full=True)
    assert stored_keys(table) == [1, 2]
    alter(table, [set_properties({"tombstone_retention_seconds": "0"})])
    assert table.purge().tombstones_removed == 2
    assert stored_keys(table) == []


def test_a_floor_counts_for_sequences_of_its_type(store: Store) -> None:
    """RESTORE brings back a schema without a sequence; another sequence starts from nothing."""
    table = store.create_table(
        "db.t",
        TableSchema.create(
            [Column("k", parse_type("bigint"), False)], ["k"], properties={"tombstone_retention_seconds": "0"}
        ),
    )
    alter(table, [enable_sequence_load({"function_column.sequence_type": "datetime"})])
    for when, merge_type in ((datetime(2020, 1, 5), "APPEND"), (datetime(2020, 1, 6), "DELETE")):
        table.upsert(pa.table({"k": [1], "s": [when]}), sequence="s", merge_type=merge_type)
    table.purge()
    old = pa.table({"k": [1], "s": [datetime(2020, 1, 3)]})
    assert table.upsert(old, sequence="s").rows_too_late == 1
    purged = table.version
    table.restore(1)
    alter(table, [enable_sequence_load({"function_column.sequence_type": "bigint"})])
    assert table.upsert(pa.table({"k": [2], "s": [7]}), sequence="s").rows_too_late == 0
    assert shown_keys(table) == [2]
    table.restore(purged)
    assert table.upsert(old, sequence="s").rows_too_late == 1
