"""Isolation levels on the real store, scenario by scenario: the number in a name is that of the scenario.

`begin` opens a transaction at the version that is the newest then; who begins first and commits last loses.
Elsewhere: 26 in sql/test_isolation_sql, 35 and 36 in test_sequence_scenarios, 40 and 41 in test_compaction, 4
and 42 to 45 in test_alter, 46 in test_auto_increment, 48 to 50 with Spark in loaders/spark/test_stream, 52 in
tests/crash, 54 in concurrency/test_histories.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    Column,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConflictError,
    InvalidInputError,
    Session,
    Settings,
    Store,
    Table,
    TableSchema,
    Transaction,
    TransactionTable,
    parse_type,
)
from seqstore.store.publish.table_writer import TableWriter

App, DR, DD = ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException
SER, WS = "Serializable", "WriteSerializable"
both_levels = pytest.mark.parametrize("level", [SER, WS])
f = pc.field


def rows(*values: tuple[int, int, int, int]) -> pa.Table:
    columns = zip(*values, strict=True)
    return pa.table(
        {
            name: pa.array(column, pa.int32())
            for name, column in zip(("k", "grp", "a", "b"), columns, strict=True)
        }
    )


def keys(*values: int) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.int32())})


def fixture(store: Store, level: str = WS, **properties: str) -> Table:
    columns = [Column("k", parse_type("INT"), nullable=False)]
    columns += [Column(name, parse_type("INT")) for name in ("grp", "a", "b")]
    given = {"delta.isolationLevel": level, **properties}
    table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=given))
    table.upsert(rows((1, 0, 10, 0), (2, 0, 20, 0), (3, 1, 30, 0)))
    return table


def begin(store: Store, **options: Any) -> tuple[Transaction, TransactionTable]:
    transaction = store.transaction(concurrency="optimistic", **options)
    return transaction, transaction.table("db.t")


def stored(table: Table) -> dict[int, tuple[int | None, ...]]:
    return {row["k"]: (row["grp"], row["a"], row["b"]) for row in table.scan().read_all().to_pylist()}


Work = Callable[[TransactionTable], Any]


def race(store: Store, first: Work, second: Work) -> Transaction:
    """Both begin at the same version, the first commits; gives the second, ready to commit."""
    one, of_one = begin(store)
    two, of_two = begin(store)
    second(of_two)
    first(of_one)
    one.commit()
    return two


def add_one(key: int) -> Work:
    return lambda t: t.update({"a": f("a") + 1}, f("k") == key)


def put(*values: tuple[int, int, int, int]) -> Work:
    return lambda t: t.upsert(rows(*values))


def partial(key: int, **cells: int) -> Work:
    data = pa.table({name: pa.array([value], pa.int32()) for name, value in {"k": key, **cells}.items()})
    return lambda t: t.upsert(data, mode="UPDATE_FIXED_COLUMNS")


@both_levels
def test_1_a_blind_insert_under_a_delete(store: Store, level: str) -> None:
    table = fixture(store, level)
    two = race(store, put((4, 0, 40, 0)), lambda t: t.delete_where(f("grp") == 0))
    if level == WS:
        two.commit()
        assert set(stored(table)) == {3, 4}
        return
    with pytest.raises(App) as caught:
        two.commit()
    error = caught.value
    assert (error.winner_version, error.keys, error.reason) == (3, ({"k": 4},), "ROW_LEVEL_CHANGES")
    table.delete_where(f("grp") == 0)
    assert set(stored(table)) == {3}


@both_levels
def test_1a_a_row_that_does_not_match_hurts_nobody(store: Store, level: str) -> None:
    table = fixture(store, level)
    race(store, put((5, 1, 50, 0)), lambda t: t.delete_where(f("grp") == 0)).commit()
    assert set(stored(table)) == {3, 5}


@both_levels
def test_1b_11_an_update_moves_a_row_into_the_condition(store: Store, level: str) -> None:
    fixture(store, level)
    two = race(store, lambda t: t.update({"grp": 0}, f("k") == 3), lambda t: t.delete_where(f("grp") == 0))
    with pytest.raises(App) as caught:
        two.commit()
    assert caught.value.keys == ({"k": 3},)


@both_levels
def test_1c_an_upsert_replaces_a_row_that_was_read(store: Store, level: str) -> None:
    fixture(store, level)
    with pytest.raises(DR):
        race(store, put((1, 0, 99, 0)), lambda t: t.delete_where(f("grp") == 0)).commit()


def test_2_10_a_snapshot_reads_the_same_rows_whatever_happens(store: Store) -> None:
    table = fixture(store)
    transaction, opened = begin(store)
    before = opened.scan(["k", "a"], f("grp") == 0).read_all().sort_by("k")
    for number in range(10):
        table.upsert(rows((number, 0, 0, 0)))
    table.update({"a": 5})
    table.optimize()
    table.vacuum(retention_seconds=0)
    assert opened.scan(["k", "a"], f("grp") == 0).read_all().sort_by("k").equals(before)
    transaction.rollback()


def test_3_levels_have_two_names(store: Store) -> None:
    fixture(store, "serializable")
    assert store.table("db.t").schema.isolation_level == SER
    for level in ("SnapshotIsolation", "x"):
        with pytest.raises(InvalidInputError, match="expected Serializable or WriteSerializable"):
            store.transaction(isolation=level)


def test_5_g0_writes_are_not_interleaved(store: Store) -> None:
    table = fixture(store)
    one, of_one = begin(store)
    two, of_two = begin(store)
    of_one.upsert(rows((1, 0, 1, 1)))
    of_two.upsert(rows((1, 0, 2, 2)))
    of_one.upsert(rows((2, 0, 1, 1)))
    of_two.upsert(rows((2, 0, 2, 2)))
    two.commit()
    one.commit()
    assert stored(table)[1] == stored(table)[2] == (0, 1, 1)


def test_5_g0_writes_prepared_side_by_side_are_not_interleaved(store: Store) -> None:
    """What each hides was planned before the other was there, and is planned anew."""
    table = fixture(store)
    one, two = table.begin_load(), table.begin_load()
    for load, value in ((one, 1), (two, 2)):
        load.write(rows((1, 0, value, value), (2, 0, value, value), (9, 0, value, value)))
        load.prepare()
    two.commit()
    one.commit()
    assert [stored(table)[key] for key in (1, 2, 9)] == [(0, 1, 1)] * 3
    assert table.count() == 4
    assert table.check() == []


def test_6_g1a_aborted_writes_are_never_seen(store: Store) -> None:
    table = fixture(store)
    transaction, opened = begin(store, label="gone")
    opened.upsert(rows((1, 0, 99, 0)))
    assert stored(table)[1] == (0, 10, 0)
    transaction.rollback()
    assert stored(table)[1] == (0, 10, 0)
    assert table.get(keys(1)).column("a").to_pylist() == [10]
    with store.transaction(label="gone") as again:  # its label is free
        again.table("db.t").upsert(rows((9, 9, 9, 9)))


def test_7_g1b_intermediate_writes_are_never_seen(store: Store) -> None:
    table = fixture(store)
    transaction, opened = begin(store)
    opened.upsert(rows((1, 0, 98, 0)))
    opened.upsert(rows((1, 0, 99, 0)))
    version = transaction.commit().versions["db.t"]
    seen = [table.get(keys(1), ["a"], version=v).column("a")[0].as_py() for v in range(2, version + 1)]
    assert seen == [10, 99]


@both_levels
def test_8_g1c_two_transactions_do_not_read_each_other(store: Store, level: str) -> None:
    fixture(store, level)

    def cross(reads: int, writes: int) -> Work:
        def work(t: TransactionTable) -> None:
            assert t.get(keys(reads)).column("a").to_pylist() == [10 * reads]
            t.upsert(rows((writes, 0, 0, 0)))

        return work

    with pytest.raises(DR):
        race(store, cross(reads=2, writes=1), cross(reads=1, writes=2)).commit()


def test_9_otv_a_reader_sees_one_version(store: Store) -> None:
    table = fixture(store)
    table.upsert(rows((1, 0, 11, 0), (2, 0, 11, 0)))
    transaction, opened = begin(store)
    first = opened.get(keys(1)).column("a")[0].as_py()
    table.upsert(rows((1, 0, 12, 0), (2, 0, 12, 0)))
    assert first == opened.get(keys(2)).column("a")[0].as_py() == 11
    transaction.commit()


@both_levels
def test_12_p4_no_update_is_lost(store: Store, level: str) -> None:
    table = fixture(store, level)
    with pytest.raises(DR):
        race(store, add_one(1), add_one(1)).commit()
    table.update({"a": f("a") + 1}, f("k") == 1)
    assert stored(table)[1] == (0, 12, 0)


def test_12_24_without_row_level_checks_any_update_meets_any_other(store: Store) -> None:
    fixture(store, **{"delta.enableDeletionVectors": "false"})
    with pytest.raises(App) as caught:
        race(store, add_one(1), add_one(3)).commit()
    assert caught.value.reason == "ROW_LEVEL_OFF"


@both_levels
@pytest.mark.parametrize("value", [100, 10])
def test_13_an_upsert_under_an_update(store: Store, level: str, value: int) -> None:
    """An equal-valued overwrite counts too."""
    table = fixture(store, level)
    with pytest.raises(DR):
        race(store, put((1, 0, value, 0)), add_one(1)).commit()
    table.update({"a": f("a") + 1}, f("k") == 1)
    assert stored(table)[1] == (0, value + 1, 0)


@both_levels
def test_14_a_blind_upsert_lies_on_an_update(store: Store, level: str) -> None:
    table = fixture(store, level)
    race(store, add_one(1), put((1, 0, 100, 0))).commit()
    assert stored(table)[1] == (0, 100, 0)


@both_levels
def test_15_g_single(store: Store, level: str) -> None:
    table = fixture(store, level)
    writer, of_writer = begin(store)
    reader, of_reader = begin(store)
    for opened in (of_writer, of_reader):
        assert opened.get(keys(1)).column("a")[0].as_py() == 10
    table.upsert(rows((1, 0, 1, 0), (2, 0, 2, 0)))
    for opened in (of_writer, of_reader):
        assert opened.get(keys(2)).column("a")[0].as_py() == 20
    of_writer.upsert(rows((3, 1, 30, 0)))
    with pytest.raises(DR):
        writer.commit()
    reader.commit()


@both_levels
def test_16_g2_item_write_skew(store: Store, level: str) -> None:
    fixture(store, level)

    def work(key: int) -> Work:
        def write(t: TransactionTable) -> None:
            t.get(keys(1, 2))
            t.upsert(rows((key, 0, 0, 0)))

        return write

    with pytest.raises(DR):
        race(store, work(1), work(2)).commit()


def count_then_put(key: int) -> Work:
    def work(t: TransactionTable) -> None:
        t.upsert(rows((key, 0, t.count(f("grp") == 0), 0)))

    return work


@both_levels
def test_17_g2_predicate_skew(store: Store, level: str) -> None:
    fixture(store, level)
    with pytest.raises(App):
        race(store, count_then_put(7), count_then_put(8)).commit()


@both_levels
def test_18_a_read_the_store_was_not_told_about_protects_nothing(store: Store, level: str) -> None:
    table = fixture(store, level)
    counts = [len(table.scan(["k"], f("grp") == 0).read_all()) for _ in range(2)]
    for key, count in zip((7, 8), counts, strict=True):
        table.upsert(rows((key, 0, count, 0)))
    assert stored(table)[7] == stored(table)[8] == (0, 2, 0)


@both_levels
@pytest.mark.parametrize("times", [1, 2])
def test_19_a_phantom(store: Store, level: str, times: int) -> None:
    table = fixture(store, level)
    transaction, opened = begin(store)
    count_then_put(3)(opened)
    for _ in range(times):
        table.upsert(rows((4, 0, 40, 0)))
    if level == WS:
        transaction.commit()
    else:
        with pytest.raises(App):
            transaction.commit()


def cycle(store: Store, level: str, *, middle: Work | None, chained: bool = False) -> Transaction:
    """T deletes grp = 0 and is ready; blind A inserts key 9 there; W begins after A and does `middle`."""
    table = fixture(store, level)
    transaction, opened = begin(store)
    opened.delete_where(f("grp") == 0)
    table.upsert(rows((9, 0, 90, 0), (5, 1, 0, 0)) if chained else rows((9, 0, 90, 0)))
    if chained:
        table.upsert(rows((5, 1, 1, 0), (6, 1, 0, 0)))
    if middle is not None:
        later, of_later = begin(store)
        middle(of_later)
        later.commit()
    return transaction


def count_into_another_group(t: TransactionTable) -> None:
    t.upsert(rows((50, 1, t.count(f("grp") == 0), 0)))


def test_20_the_cycle_is_broken(store: Store) -> None:
    with pytest.raises(App) as caught:
        cycle(store, WS, middle=count_into_another_group).commit()
    assert (caught.value.winner_version, caught.value.conflicts[0].voided_by) == (3, 4)
    assert "seen by version 4" in str(caught.value)


@pytest.mark.parametrize("key", [9, 3])
def test_20_the_cycle_is_broken_by_a_look_up_of_the_key(store: Store, key: int) -> None:
    """The witness reads no condition, and writes another key."""

    def work(t: TransactionTable) -> None:
        t.upsert(rows((50, 1, len(t.get({"k": [key]})), 0)))

    transaction = cycle(store, WS, middle=work)
    if key == 9:
        with pytest.raises(App) as caught:
            transaction.commit()
        assert caught.value.conflicts[0].voided_by == 4
    else:
        transaction.commit()


def test_20_the_chained_cycle_is_broken(store: Store) -> None:
    """W never touches the keys of A, only one that B upserted together with one of A's."""

    def work(t: TransactionTable) -> None:
        t.update({"b": 1}, f("k") == 6)

    with pytest.raises(App):
        cycle(store, WS, middle=work, chained=True).commit()


def test_20_without_a_witness_writeserializable_commits(store: Store) -> None:
    cycle(store, WS, middle=None).commit()
    assert set(stored(store.table("db.t"))) == {3, 9}


@pytest.mark.parametrize("middle", [None, count_into_another_group])
def test_20_serializable_never_passes_the_insert(store: Store, middle: Work | None) -> None:
    with pytest.raises(App):
        cycle(store, SER, middle=middle).commit()


@both_levels
@pytest.mark.parametrize("statement", ["TRUNCATE TABLE db.t", "RESTORE TABLE db.t TO VERSION AS OF 1"])
@pytest.mark.parametrize("read", [3, 77], ids=["a row that was there", "a row that was not"])
def test_a_table_that_is_replaced_meets_every_reader(
    store: Store, level: str, statement: str, read: int
) -> None:
    """Rows are not looked at: all of them may have gone at once."""
    fixture(store, level)
    transaction, opened = begin(store)
    opened.upsert(rows((50, 1, len(opened.get(keys(read))), 0)))
    with Session(store) as session:
        list(session.execute(statement))
    with pytest.raises(DR, match="version 3") as caught:
        transaction.commit()
    assert caught.value.conflicts[0].reason == "WHOLE_TABLE_REPLACE"


def test_21_a_witness_that_cannot_see_the_rows_voids_nothing(store: Store) -> None:
    def work(t: TransactionTable) -> None:
        t.upsert(rows((50, 1, t.count(f("grp") == 1), 0)))

    cycle(store, WS, middle=work).commit()
    assert set(stored(store.table("db.t"))) == {3, 9, 50}


def test_21_a_condition_that_does_not_match_passes_a_witness(store: Store) -> None:
    table = fixture(store, WS)
    transaction, opened = begin(store)
    opened.delete_where(f("grp") == 1)
    table.upsert(rows((9, 0, 90, 0)))
    store.run_transaction(lambda tx: count_then_put(50)(tx.table("db.t")), concurrency="optimistic")
    transaction.commit()
    assert set(stored(table)) == {1, 2, 9, 50}


@both_levels
def test_22_different_rows_of_one_segment(store: Store, level: str) -> None:
    table = fixture(store, level)
    race(
        store,
        lambda t: t.delete_where(f("k") == 1),
        lambda t: t.update({"a": 0}, f("k") == 2),
    ).commit()
    assert stored(table) == {2: (0, 0, 0), 3: (1, 30, 0)}


def test_23_deletes_from_one_snapshot(store: Store) -> None:
    table = fixture(store)
    table.upsert(rows(*((k, 0, 0, 0) for k in range(10, 20))))
    table.delete_where(f("k") == 19)
    opened = [begin(store) for _ in range(4)]
    for (_, t), key in zip(opened, (10, 11, 12, 11), strict=True):
        t.delete_where(f("k") == key)
    for transaction, _ in opened[:3]:
        transaction.commit()
    with pytest.raises(DR):
        opened[3][0].commit()


def test_25_literal_partitions_are_disjoint_and_whole_reads_are_not(store: Store) -> None:
    properties = {"delta.enableDeletionVectors": "false", "partition_columns": "grp"}
    table = fixture(store, **properties)

    def in_group(group: int) -> Work:
        return lambda t: t.update({"a": 0}, f("grp") == group)

    race(store, in_group(0), in_group(1)).commit()
    with pytest.raises(App) as caught:
        race(store, in_group(0), lambda t: t.update({"b": f("a")}, f("a") >= 0)).commit()
    assert caught.value.keys == ({"grp": 0},)
    assert "(grp=0)" in str(caught.value)
    assert stored(table)[3] == (1, 0, 0)


@both_levels
def test_24_reads_by_key_without_row_level_checks_are_reads_of_the_table(store: Store, level: str) -> None:
    """Only the keys themselves were compared."""
    table = fixture(store, level, **{"delta.enableDeletionVectors": "false"})

    def copy(source: int) -> Work:
        def run(t: TransactionTable) -> None:
            (row,) = t.get(keys(source)).to_pylist()
            t.upsert(rows((source, row["grp"], row["a"] + 1, row["b"])))

        return run

    with pytest.raises(App) as caught:
        race(store, copy(1), copy(3)).commit()
    assert caught.value.reason == "ROW_LEVEL_OFF"
    assert stored(table) == {1: (0, 11, 0), 2: (0, 20, 0), 3: (1, 30, 0)}


def test_25_a_key_counts_as_its_partition_where_it_names_one(store: Store) -> None:
    columns = [Column(name, parse_type("INT"), nullable=name != "k") for name in ("grp", "k", "a")]
    properties = {"delta.enableDeletionVectors": "false", "partition_columns": "grp"}
    table = store.create_table("db.t", TableSchema.create(columns, ["grp", "k"], properties=properties))
    table.upsert(pa.table({"grp": [None, 0, 0, 1], "k": [1, 1, 2, 3], "a": [5, 5, 5, 5]}))

    def add(group: int | None, key: int) -> Work:
        def run(t: TransactionTable) -> None:
            one = pa.table({"grp": pa.array([group], pa.int32()), "k": pa.array([key], pa.int32())})
            (row,) = t.get(one).to_pylist()
            t.upsert(one.append_column("a", pa.array([row["a"] + 1], pa.int32())))

        return run

    race(store, add(0, 1), add(1, 3)).commit()
    race(store, add(0, 1), add(None, 1)).commit()
    with pytest.raises(App) as caught:
        race(store, add(0, 1), add(0, 2)).commit()
    assert caught.value.keys == ({"grp": 0},)
    found = table.scan().read_all().sort_by([("k", "ascending"), ("a", "descending")])
    assert found.column("a").to_pylist() == [8, 6, 5, 6]


@both_levels
def test_a_blind_insert_under_a_delete_without_row_level_checks(store: Store, level: str) -> None:
    """Matrix 2.1: WriteSerializable passes a blind insert, but no key that the snapshot has."""
    table = fixture(store, level, **{"delta.enableDeletionVectors": "false"})
    two = race(store, put((4, 0, 40, 0)), lambda t: t.delete_where(f("grp") == 0))
    if level == WS:
        two.commit()
        assert set(stored(table)) == {3, 4}
    else:
        with pytest.raises(App):
            two.commit()
    with pytest.raises(App):
        race(store, put((3, 0, 31, 0)), lambda t: t.delete_where(f("k") == 4)).commit()


def test_a_conflict_of_rows_names_keys_in_a_table_with_partitions_too(store: Store) -> None:
    """ISO12: the partition stands for rows only where they were not looked at."""
    fixture(store, partition_columns="grp")
    with pytest.raises(DR) as caught:
        race(store, add_one(1), add_one(1)).commit()
    assert caught.value.keys == ({"k": 1},)


def test_a_blind_insert_of_several_tables_is_not_exempt(store: Store) -> None:
    """ISO4: a transaction over several tables in the chain voids the exemption, the insert itself too."""
    table = fixture(store)
    other = store.create_table("db.u", table.schema)
    attempt, opened = begin(store)
    opened.delete_where(f("grp") == 0)
    with store.transaction() as blind:
        blind.table("db.t").upsert(rows((4, 0, 40, 0)))
        blind.table("db.u").upsert(rows((4, 0, 40, 0)))
    with pytest.raises(App) as caught:
        attempt.commit()
    assert caught.value.conflicts[0].voided_by == 3
    assert (set(stored(table)), other.count()) == ({1, 2, 3, 4}, 1)


HIDDEN_READS: dict[str, Work] = {
    "DELETE": lambda t: t.delete_where(f("__VERSION_COL__") == 2),
    "UPDATE": lambda t: t.update({"b": 1}, f("__VERSION_COL__") == 2),
    "scan by a condition": lambda t: [t.scan(["k"], f("__VERSION_COL__") == 2).close(), t.delete(keys(3))],
    "scan of the column": lambda t: [t.scan(["__DORIS_VERSION_COL__"]).close(), t.delete(keys(3))],
    "scan of all columns": lambda t: [t.scan(hidden=True).close(), t.delete(keys(3))],
    "look-up": lambda t: [t.get(keys(1), ["__VERSION_COL__"]), t.delete(keys(3))],
    "look-up of all columns": lambda t: [t.get(keys(1), hidden=True), t.delete(keys(3))],
}


@both_levels
@pytest.mark.parametrize("read", HIDDEN_READS)
def test_a_read_of_versions_meets_every_write_of_its_rows(store: Store, level: str, read: str) -> None:
    """A condition on the version raised InvalidInputError once another transaction had committed; a version
    that was read as a column did not meet a write of other columns."""
    fixture(store, level)
    with pytest.raises(DR):
        race(store, partial(1, a=11), HIDDEN_READS[read]).commit()


def test_a_condition_on_versions_that_a_change_does_not_meet_commits(store: Store) -> None:
    table = fixture(store)
    table.upsert(rows((4, 0, 40, 0)))
    race(store, partial(1, a=11), lambda t: t.delete_where(f("__VERSION_COL__") == 3)).commit()
    assert set(stored(table)) == {1, 2, 3}
    race(store, partial(1, a=12), lambda t: t.update({"b": 1}, f("__DELETE_SIGN__") == 0)).commit()
    assert stored(table) == {1: (0, 12, 1), 2: (0, 20, 1), 3: (1, 30, 1)}


def test_a_condition_on_versions_is_no_partition(store: Store) -> None:
    """It named no visible column, and so counted as one over partition columns alone."""
    fixture(store, **{"delta.enableDeletionVectors": "false", "partition_columns": "grp"})
    with pytest.raises(App):
        race(store, add_one(3), lambda t: t.delete_where(f("__VERSION_COL__") == 2)).commit()


def test_a_recorded_condition_on_versions_voids_an_exemption(store: Store) -> None:
    """The guard of a third transaction cannot test its rows for it."""
    table = fixture(store)
    third, of_third = begin(store)
    of_third.delete_where(f("grp") == 0)
    table.upsert(rows((4, 0, 40, 0)))
    witness, of_witness = begin(store)
    of_witness.update({"b": 1}, f("__VERSION_COL__") == 7)
    of_witness.upsert(rows((9, 9, 9, 9)))
    witness.commit()
    with pytest.raises(App) as caught:
        third.commit()
    assert caught.value.conflicts[0].voided_by == 4


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_condition_on_the_hidden_sequence_is_a_read(store: Store, is_prepared: bool) -> None:
    columns = [Column("k", parse_type("INT"), nullable=False), Column("a", parse_type("INT"))]
    properties = {"function_column.sequence_type": "int"}
    table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))
    table.upsert(pa.table({"k": [1, 2], "a": [1, 1], "__SEQUENCE_COL__": [5, 9]}))

    def commit(key: int) -> None:
        transaction, opened = begin(store, label=f"of-{key}")
        opened.delete_where(f("__SEQUENCE_COL__") < 7)
        if is_prepared:
            transaction.precommit()
        table.upsert(pa.table({"k": [key], "a": [2], "__SEQUENCE_COL__": [10]}))
        if is_prepared:
            store.commit_transaction("db", label=f"of-{key}")
        else:
            transaction.commit()

    with pytest.raises(DR):
        commit(1)
    table.upsert(pa.table({"k": [3], "a": [1], "__SEQUENCE_COL__": [5]}))
    commit(2)
    assert table.count() == 2


def test_27_a_budget_that_is_used_up_is_a_conflict(store: Store) -> None:
    with Store.open(store.path, settings=Settings(conflict_check_seconds=0)) as hasty:
        table = fixture(store)
        transaction, opened = begin(hasty)
        add_one(1)(opened)
        for number in range(50):
            table.upsert(rows((100 + number, 1, 0, 0)))
        with pytest.raises(ConflictError) as caught:
            transaction.commit()
    assert caught.value.reason == "ALLOTTED_TIME_EXCEEDED"
    assert len(caught.value.conflicts) == 50


def insert_if_absent(key: int, value: int) -> Work:
    def work(t: TransactionTable) -> None:
        if not len(t.get(keys(key))):
            t.upsert(rows((key, 0, value, 0)))

    return work


@both_levels
def test_28_two_inserts_of_one_new_key(store: Store, level: str) -> None:
    table = fixture(store, level)
    with pytest.raises(App):
        race(store, insert_if_absent(7, 1), insert_if_absent(7, 2)).commit()
    assert stored(table)[7] == (0, 1, 0)


@both_levels
def test_29_a_blind_upsert_and_an_insert_of_one_new_key(store: Store, level: str) -> None:
    table = fixture(store, level)
    with pytest.raises(App):
        race(store, put((7, 0, 1, 0)), insert_if_absent(7, 2)).commit()
    race(store, insert_if_absent(8, 2), put((8, 0, 1, 0))).commit()
    assert stored(table)[8] == (0, 1, 0)


@both_levels
def test_30_an_insert_that_reads_its_own_table(store: Store, level: str) -> None:
    fixture(store, level)
    two = race(store, put((4, 0, 40, 0)), count_then_put(60))
    if level == WS:
        two.commit()
    else:
        with pytest.raises(App):
            two.commit()
    with pytest.raises((App, DR)):
        race(store, lambda t: t.update({"grp": 5}, f("k") == 1), count_then_put(61)).commit()


@both_levels
def test_31_partial_loads_of_different_columns_both_stand(store: Store, level: str) -> None:
    table = fixture(store, level)
    for first, second in itertools.permutations([partial(1, a=7), partial(1, b=8)]):
        table.upsert(rows((1, 0, 10, 0)))
        race(store, first, second).commit()
        assert stored(table)[1] == (0, 7, 8)


@both_levels
def test_32_partial_loads_of_one_column(store: Store, level: str) -> None:
    table = fixture(store, level)
    race(store, partial(1, a=1), partial(1, a=2)).commit()
    assert stored(table)[1] == (0, 2, 0)


@both_levels
def test_33_updates_of_different_columns(store: Store, level: str) -> None:
    table = fixture(store, level)

    def put_a(t: TransactionTable) -> None:
        t.update({"a": 1}, f("k") == 1)

    race(store, put_a, lambda t: t.update({"b": 2}, f("k") == 1)).commit()
    assert stored(table)[1] == (0, 1, 2)
    with pytest.raises(DR):
        race(store, put_a, lambda t: t.update({"b": f("a")}, f("k") == 1)).commit()


@both_levels
@pytest.mark.parametrize("value", [5, 6], ids=["equal values", "other values"])
def test_two_updates_of_one_column_to_constants_meet(store: Store, level: str, value: int) -> None:
    """R2: neither read what the other wrote, and both write one cell."""
    table = fixture(store, level)
    with pytest.raises(DD):
        race(
            store,
            lambda t: t.update({"a": 5}, f("k") == 1),
            lambda t: t.update({"a": value, "b": 1}, f("k") == 1),
        ).commit()
    assert stored(table)[1] == (0, 5, 0)


@both_levels
@pytest.mark.parametrize("sequence", ["function_column.sequence_col", "function_column.sequence_type"])
def test_the_sequence_of_a_row_counts_as_read_by_its_update(store: Store, level: str, sequence: str) -> None:
    """ISO17: it decides whether the update takes effect."""
    is_mapped = sequence.endswith("col")
    columns = [Column("k", parse_type("INT"), nullable=False)]
    columns += [Column(name, parse_type("INT")) for name in ("a", "b", "s")]
    properties = {"delta.isolationLevel": level, sequence: "s" if is_mapped else "int"}
    table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))
    name = "s" if is_mapped else "__SEQUENCE_COL__"
    table.upsert(pa.table({"k": [1], "a": [1], "b": [1], "s": [5], name: [5]}))

    def newer(t: TransactionTable) -> None:
        t.upsert(pa.table({"k": [1], "b": [2], name: [9]}), mode="UPDATE_FIXED_COLUMNS")

    with pytest.raises(DR):
        race(store, newer, lambda t: t.update({"a": 7}, f("k") == 1)).commit()
    race(store, lambda t: t.update({"b": 3}, f("k") == 1), lambda t: t.update({"a": 7}, f("k") == 1)).commit()
    assert table.get(keys(1), ["a", "b"]).to_pylist() == [{"a": 7, "b": 3}]


@both_levels
def test_34_a_partial_load_on_a_deleted_key_starts_from_defaults(store: Store, level: str) -> None:
    table = fixture(store, level)
    table.upsert(rows((1, 0, 10, 8)))
    race(store, lambda t: t.delete_where(f("k") == 1), partial(1, a=5)).commit()
    assert stored(table)[1] == (None, 5, None)


def sequenced(store: Store) -> Table:
    columns = [Column(name, parse_type("INT"), nullable=name != "k") for name in ("k", "grp", "a", "b", "s")]
    properties = {"function_column.sequence_col": "s"}
    table = store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))
    table.upsert(sequenced_row(1, 10, 5))
    return table


def sequenced_row(key: int, a: int, s: int) -> pa.Table:
    return pa.table({"k": [key], "grp": [0], "a": [a], "b": [0], "s": [s]})


def test_37_partial_loads_and_the_sequence(store: Store) -> None:
    table = sequenced(store)
    late = pa.table({"k": [1], "a": [1], "s": [3]})
    assert table.upsert(late, mode="UPDATE_FIXED_COLUMNS").rows_late == 1
    table.upsert(pa.table({"k": [1], "a": [2]}), mode="UPDATE_FIXED_COLUMNS")
    done = table.update({"s": 4})
    assert (done.rows_matched, done.rows_changed, len(done.warnings)) == (1, 0, 1)
    assert table.scan(["a", "s"]).read_all().to_pylist() == [{"a": 2, "s": 5}]


def test_38_an_upsert_that_lost_hurts_nobody(store: Store) -> None:
    table = sequenced(store)

    def late(t: TransactionTable) -> None:
        t.upsert(sequenced_row(1, 99, 4))

    race(store, late, add_one(1)).commit()
    race(store, add_one(1), late).commit()
    assert table.scan(["a", "s"]).read_all().to_pylist() == [{"a": 12, "s": 5}]


@both_levels
def test_39_compaction_conflicts_with_nobody(store: Store, level: str) -> None:
    table = fixture(store, level)
    for number in range(4):
        table.upsert(rows((10 + number, 1, 0, 0)))
    transaction, opened = begin(store)
    add_one(1)(opened)
    table.optimize()
    transaction.commit()
    assert stored(table)[1] == (0, 11, 0)


def test_47_append_only(store: Store) -> None:
    table = fixture(store, **{"delta.appendOnly": "true"})
    for work in (
        lambda: table.delete(keys(1)),
        lambda: table.upsert(rows((1, 0, 0, 0))),
        lambda: table.delete_where(f("k") == 1),
    ):
        with pytest.raises(InvalidInputError, match=r"delta\.appendOnly is true"):
            work()
    table.upsert(rows((4, 0, 40, 0)))
    table.optimize()
    assert set(stored(table)) == {1, 2, 3, 4}


def test_49_idempotent_writes(store: Store) -> None:
    table = fixture(store)
    statuses = [
        table.upsert(rows((9, 0, n, 0)), txn_app_id="job", txn_version=n).status for n in (1, 2, 5, 5, 4)
    ]
    assert statuses == ["VISIBLE", "VISIBLE", "VISIBLE", "DUPLICATE", "DUPLICATE"]
    assert stored(table)[9] == (0, 5, 0)
    skipped = table.upsert(rows((9, 0, 0, 0)), txn_app_id="job", txn_version=3)
    assert skipped.version == table.version
    with pytest.raises(InvalidInputError, match="txnVersion is missing"):
        table.upsert(rows((9, 0, 0, 0)), txn_app_id="job")


def test_49_an_update_is_idempotent_too(store: Store) -> None:
    table = fixture(store)
    done = [table.update({"a": f("a") + 1}, f("k") == 1, txn_app_id="job", txn_version=n) for n in (1, 1, 2)]
    assert [result.status for result in done] == ["VISIBLE", "DUPLICATE", "VISIBLE"]
    assert done[1].version == done[0].version
    assert stored(table)[1] == (0, 12, 0)


def test_50_two_runs_with_one_application_id(store: Store) -> None:
    table = fixture(store)
    one = table.begin_load(txn_app_id="query", txn_version=7)
    two = table.begin_load(txn_app_id="query", txn_version=7)
    other = table.begin_load(txn_app_id="other", txn_version=7)
    for number, load in enumerate((one, two, other)):
        load.write(rows((20 + number, 0, 0, 0)))
    one.commit()
    with pytest.raises(ConcurrentTransactionException) as caught:
        two.commit()
    assert (caught.value.app_id, caught.value.app_version) == ("query", 7)
    other.commit()
    assert table.upsert(rows((21, 0, 0, 0)), txn_app_id="query", txn_version=7).status == "DUPLICATE"


@pytest.mark.parametrize(
    "options", [{"concurrency": "serial"}, {"concurrency": "optimistic", "retries": 200}]
)
def test_51_twenty_threads_lose_nothing(store: Store, options: dict[str, Any]) -> None:
    table = fixture(store)
    stop = threading.Event()
    failed: list[BaseException] = []

    def stream() -> None:
        while not stop.is_set():
            table.upsert(rows((2, 0, 0, 0)))

    def work() -> None:
        try:
            table.update({"a": f("a") + 1}, f("k") == 1, **options)
        except BaseException as error:
            failed.append(error)

    loader = threading.Thread(target=stream)
    loader.start()
    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    loader.join()
    assert not failed
    assert stored(table)[1] == (0, 30, 0)


def test_53_retries_end(store: Store) -> None:
    table = fixture(store)

    def work(transaction: Transaction) -> None:
        opened = transaction.table("db.t")
        add_one(1)(opened)
        table.upsert(rows((1, 0, 100, 0)))

    with pytest.raises(DR, match="3 attempts met versions 3, 4, 5") as caught:
        store.run_transaction(work, retries=2, concurrency="optimistic")
    assert (caught.value.attempts, caught.value.winner_versions) == (3, (3, 4, 5))
    assert stored(table)[1] == (0, 100, 0)


def test_a_transaction_over_two_tables_is_visible_at_once(store: Store) -> None:
    table = fixture(store)
    other = store.create_table("db.u", table.schema)
    with store.transaction() as transaction:
        transaction.table("db.t").upsert(rows((4, 0, 0, 0)))
        transaction.table("db.u").upsert(rows((4, 0, 0, 0)))
        assert 4 not in stored(table)
        assert not stored(other)
    assert 4 in stored(table)
    assert 4 in stored(other)


@both_levels
def test_write_skew_over_two_tables_is_refused(store: Store, level: str) -> None:
    table = fixture(store, level)
    store.create_table("db.u", table.schema).upsert(rows((1, 0, 0, 0)))

    def cross(reads: str, writes: str) -> Transaction:
        transaction = store.transaction(concurrency="optimistic")
        transaction.table(reads).count(f("grp") == 0)
        transaction.table(writes).upsert(rows((5, 0, 0, 0)))
        return transaction

    one, two = cross("db.t", "db.u"), cross("db.u", "db.t")
    one.commit()
    with pytest.raises(App):
        two.commit()


@both_levels
def test_a_table_that_is_only_read_may_not_change_between_prepare_and_commit_point(
    store: Store, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version makes no plan out of date; its reads must be checked up to the head all the same."""
    fixture(store, level)
    other = store.create_table("db.u", store.table("db.t").schema)
    other.upsert(rows((1, 0, 10, 0)))
    monkeypatch.setattr(
        TableWriter, "is_small", lambda _: False
    )  # large writes try before they take the writer lock
    transaction, opened = begin(store)
    (row,) = transaction.table("db.u").get(keys(1)).to_pylist()
    opened.upsert(rows((1, 0, row["a"] + 1, 0)))
    write = store.catalog.write

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(store.catalog, "write", write)
        other.update({"a": 99})
        return write(*arguments)

    monkeypatch.setattr(store.catalog, "write", overtaken)
    with pytest.raises(DR) as caught:
        transaction.commit()
    assert caught.value.table == "db.u"
    assert stored(store.table("db.t"))[1] == (0, 10, 0)


def test_a_witness_that_writes_another_table_voids_the_exemption(store: Store) -> None:
    """Scenario 20 with W in another table: it leaves its mark on the table it read."""
    table = fixture(store, WS)
    store.create_table("db.u", table.schema)
    transaction, opened = begin(store)
    opened.delete_where(f("grp") == 0)
    table.upsert(rows((9, 0, 90, 0)))
    with store.transaction(concurrency="optimistic") as witness:
        count = witness.table("db.t").count(f("grp") == 0)
        witness.table("db.u").upsert(rows((50, 1, count, 0)))
    with pytest.raises(App):
        transaction.commit()


def test_an_error_tells_all_conflicts_and_survives_pickling(store: Store) -> None:
    import pickle

    table = fixture(store)
    transaction, opened = begin(store)
    opened.delete_where(f("grp") == 0)
    table.upsert(rows((1, 0, 1, 0)))
    table.update({"grp": 0}, f("k") == 3)
    with pytest.raises(DR) as caught:
        transaction.commit()
    error = pickle.loads(pickle.dumps(caught.value))
    assert [c.kind.value for c in error.conflicts] == [
        "ConcurrentDeleteReadException",
        "ConcurrentAppendException",
    ]
    assert (error.error_class, error.sqlstate) == ("DELTA_CONCURRENT_DELETE_READ", "2D521")
    assert (error.table, error.read_version, error.winner_version) == ("db.t", 2, 3)


def test_unchecked_updates_win_by_version(store: Store) -> None:
    table = fixture(store)
    transaction = store.transaction(concurrency="unchecked")
    add_one(1)(transaction.table("db.t"))
    table.upsert(rows((1, 0, 100, 0)))
    transaction.commit()
    assert stored(table)[1] == (0, 11, 0)


def test_a_compaction_after_a_blind_insert_voids_nothing(store: Store) -> None:
    table = fixture(store, WS)
    transaction, opened = begin(store)
    opened.delete_where(f("grp") == 0)
    table.upsert(rows((9, 0, 90, 0)))
    table.optimize()
    transaction.commit()
    assert set(stored(table)) == {3, 9}
