"""AUTO_INCREMENT and ON UPDATE CURRENT_TIMESTAMP: values the store makes (A4-A9, F24)."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from seqstore import Column, Default, InvalidInputError, Store, Table, TableSchema, parse_type
from seqstore.store.errors import UnavailableError
from seqstore.store.load.write_task import WriteTask
from seqstore.store.publish import two_phase
from seqstore.store.publish.prepared_writer import writer_to_record
from seqstore.store.publish.table_writer import TableWriter
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython

FIXED = "UPDATE_FIXED_COLUMNS"
BIGINT = parse_type("bigint")
MOMENT = parse_type("datetime(6)")


pytestmark = pytest.mark.settings(catalog_bytes_max=2**28, auto_increment_values_reserved=10)


def make(store: Store, *, key: bool = False, start: int = 1) -> Table:
    """`id` is the key, or the first value column of the key `k`."""
    made = Column("id", BIGINT, nullable=False, auto_increment=start)
    columns = [made] if key else [Column("k", parse_type("int"), nullable=False), made]
    columns += [Column("a", parse_type("int")), Column("b", parse_type("int"))]
    return store.create_table("db.t", TableSchema.create(columns, [columns[0].name]))


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().read_all().to_pylist())


def ids_of(table: Table) -> dict[int, int]:
    return {k: made for k, made, *_ in rows_of(table)}


# whole rows


def test_values_are_made_where_none_are_given(store: Store) -> None:
    """A5, A6: the column left out, or NULL; what is given is kept."""
    table = make(store, start=100)
    table.upsert(pa.table({"k": [1, 2], "a": [1, 2]}))
    table.upsert(pa.table({"k": [3, 4, 5], "id": [None, 7, None]}))
    assert ids_of(table) == {1: 100, 2: 101, 3: 102, 4: 7, 5: 103}


def test_a_key_is_made_for_every_row(store: Store) -> None:
    table = make(store, key=True)
    for _ in range(3):
        table.upsert(pa.table({"a": [1, 1, 1, 1, 1, 1, 1]}))
    assert table.count() == 21  # ranges of ten, what is left of one is a gap


def test_a_start_of_zero_is_taken(store: Store) -> None:
    table = make(store, start=0)
    table.upsert(pa.table({"k": [1]}))
    assert ids_of(table) == {1: 0}


def test_values_of_a_bigint_are_used_up(store: Store) -> None:
    table = make(store, start=2**63 - 15)
    table.upsert(pa.table({"k": [1]}))
    with pytest.raises(UnavailableError, match="has used all values of a BIGINT"):
        table.upsert(pa.table({"k": list(range(10))}))
    assert rows_of(table) == [(1, 2**63 - 15, None, None)]


def test_a_reopened_store_leaves_a_gap_and_uses_nothing_again(store: Store) -> None:
    table = make(store)
    table.upsert(pa.table({"k": [1]}))
    with Store.open(store.path, settings=store.settings) as fresh:
        fresh.table("db.t").upsert(pa.table({"k": [2]}))
    table.upsert(pa.table({"k": [3]}))
    assert ids_of(table) == {1: 1, 2: 11, 3: 2}


def test_a_table_made_again_starts_again(store: Store) -> None:
    make(store).upsert(pa.table({"k": [1]}))
    store.drop_table("db.t")
    with store.catalog.read() as tx:
        assert list(tx.items("counters")) == []
    table = make(store)
    table.upsert(pa.table({"k": [1]}))
    assert ids_of(table) == {1: 1}


LOAD = """
import sys
import pyarrow as pa
from seqstore import Settings, Store
settings = Settings(catalog_bytes_max=2**28, auto_increment_values_reserved=7)
table = Store.open(sys.argv[1], settings=settings).table("db.t")
first = int(sys.argv[2])
for number in range(40):
    table.upsert(pa.table({"a": [first] * (1 + number % 5)}))
"""


def test_processes_never_make_the_same_value(store: Store) -> None:
    """A6: rows of generated keys, so a value made twice would replace a row."""
    table = make(store, key=True)
    environment = {**os.environ, "PYTHONPATH": MODULES}
    running = [ForkedPython(["-c", LOAD, str(store.path), str(i)], environment=environment) for i in range(3)]
    assert [process.communicate(timeout=120) for process in running] == ["", "", ""]
    assert [process.returncode for process in running] == [0, 0, 0]
    rows = sum(1 + number % 5 for number in range(40))
    assert table.count() == 3 * rows
    counts = np.bincount([a for _, a, _ in rows_of(table)])
    assert counts.tolist() == [rows] * 3


# partial updates


def test_existing_keys_keep_their_value_and_new_ones_get_one(store: Store) -> None:
    """A7."""
    table = make(store)
    table.upsert(pa.table({"k": [1, 2], "a": [1, 2]}))
    before = ids_of(table)
    table.upsert(pa.table({"k": [1, 3, 2, 4, 3], "a": [10, 30, 20, 40, 31]}), mode=FIXED)
    after = ids_of(table)
    assert {k: after[k] for k in before} == before
    assert len(set(after.values())) == 4
    assert {k: a for k, _, a, _ in rows_of(table)} == {1: 10, 2: 20, 3: 31, 4: 40}


def test_a_listed_null_gets_a_value_and_a_listed_value_is_kept(store: Store) -> None:
    """A7."""
    table = make(store)
    table.upsert(pa.table({"k": [1, 2], "id": [500, 501]}))
    table.upsert(pa.table({"k": [1, 2, 3], "id": [None, 7, None]}), mode=FIXED)
    found = ids_of(table)
    assert found[2] == 7
    assert found[1] not in (500, None)
    assert len(set(found.values())) == 3


def test_flexible_rows_decide_one_by_one(store: Store) -> None:
    """A7 with F9."""
    table = make(store)
    table.upsert(pa.table({"k": [1, 2], "id": [500, 501]}))
    data = pa.table({"k": [1, 2, 3, 4], "id": [None, None, None, 9], "a": [1, 2, 3, 4]})
    with table.begin_load(mode="UPDATE_FLEXIBLE_COLUMNS") as load:
        load.write(data, supplied={"id": np.array([False, True, False, True])})
        load.commit()
    found = ids_of(table)
    assert (found[1], found[4]) == (500, 9)
    assert found[2] not in (501, None)
    assert found[3] not in (found[2], None)


def test_null_means_keep_holds_for_the_column_too(store: Store) -> None:
    table = make(store)
    table.upsert(pa.table({"k": [1], "id": [500]}))
    table.upsert(pa.table({"k": [1, 2], "id": pa.nulls(2, pa.int64())}), mode=FIXED, ignore_null=True)
    found = ids_of(table)
    assert found[1] == 500
    assert found[2] not in (500, None)


def test_an_update_without_the_made_key_adds_rows(store: Store) -> None:
    """A8: a plain upsert; new_keys is of no effect then (P13)."""
    table = make(store, key=True)
    table.upsert(pa.table({"a": [1, 2]}), mode=FIXED, new_keys="ERROR")
    assert rows_of(table) == [(1, 1, None), (2, 2, None)]
    table.upsert(pa.table({"id": [1, None], "b": [5, 6]}), mode=FIXED)
    assert rows_of(table) == [(1, 1, 5), (2, 2, None), (3, None, 6)]
    with pytest.raises(InvalidInputError, match="E-7003"):
        table.upsert(pa.table({"id": [1, 99], "b": [5, 6]}), mode=FIXED, new_keys="ERROR")


def test_a_row_that_is_filled_again_keeps_its_value(store: Store, monkeypatch: Any) -> None:
    """A9: at publish after a lost race, and at a commit days later."""
    table = make(store)
    other = Store.open(store.path, settings=store.settings).table("db.t")
    load = table.begin_load(mode=FIXED)
    load.write(pa.table({"k": [1, 2], "a": [1, 2]}))
    load.prepare()
    other.upsert(pa.table({"k": [1], "id": [500], "b": [5]}))
    other.delete(pa.table({"k": [1]}))
    load.commit()
    assert ids_of(table) == {1: 1, 2: 2}
    prepared = table.begin_load(mode=FIXED, label="l")
    prepared.write(pa.table({"k": [3, 4], "a": [3, 4]}))
    seen: list[int] = []

    def noted(writer: TableWriter) -> dict[str, Any]:
        seen.extend(writer.segments[0].batch(0).column("id").to_pylist())
        return writer_to_record(writer)

    monkeypatch.setattr(two_phase, "writer_to_record", noted)
    prepared.precommit()
    other.upsert(pa.table({"k": [3], "id": [500], "b": [5]}))
    other.delete(pa.table({"k": [3]}))
    other_store = Store.open(store.path, settings=store.settings)
    other_store.commit_transaction("db", label="l")
    assert sorted([ids_of(table)[3], ids_of(table)[4]]) == sorted(seen)


def test_a_tombstone_needs_no_value(store: Store) -> None:
    """D9."""
    table = make(store)
    table.upsert(pa.table({"k": [1], "a": [1]}))
    table.delete(pa.table({"k": [1, 2]}))
    assert rows_of(table) == []
    table.upsert(pa.table({"k": [1], "a": [2]}), mode=FIXED)
    (row,) = rows_of(table)
    assert row[0] == 1
    assert row[1] is not None


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([Column("n", parse_type("int"), False, auto_increment=1)], "n must be BIGINT, is INT"),
        ([Column("n", BIGINT, True, auto_increment=1)], "n must be NOT NULL"),
        ([Column("n", BIGINT, False, Default("constant", "1"), auto_increment=1)], "n cannot have a default"),
        ([Column("n", BIGINT, False, auto_increment=-1)], "n must start at 0 or above, starts at -1"),
        (
            [Column("n", BIGINT, False, auto_increment=1), Column("m", BIGINT, False, auto_increment=1)],
            "there can not be more than one auto increment column, found n and m",
        ),
    ],
)
def test_a_declaration_that_cannot_be_kept_is_refused(columns: list[Column], said: str) -> None:
    """A5."""
    with pytest.raises(InvalidInputError) as caught:
        TableSchema.create([Column("k", BIGINT, False), *columns], ["k"])
    assert said in caught.value.message


def test_executors_are_not_asked_for_values(store: Store) -> None:
    table = make(store)
    with pytest.raises(InvalidInputError, match="cannot be staged by executors"):
        begun(table).run(pa.table({"k": [1]}))
    assert begun(table).run(pa.table({"k": [1], "id": [5]})).rows_total == 1


def begun(table: Table) -> WriteTask:
    task = table.write_task()
    task.begin()
    return task


def test_a_forked_process_takes_values_of_its_own(store: Store) -> None:
    table = make(store, key=True)
    table.upsert(pa.table({"a": [0]}))
    script = (
        "import os, sys, pyarrow as pa\n"
        "from seqstore import Settings, Store\n"
        "table = Store.open(sys.argv[1], settings=Settings(catalog_bytes_max=2**28)).table('db.t')\n"
        "table.upsert(pa.table({'a': [1]}))\n"
        "child = os.fork()\n"
        "for _ in range(3):\n"
        "    table.upsert(pa.table({'a': [2 if child else 3]}))\n"
        "child and os.waitpid(child, 0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": MODULES}
    command = [sys.executable, "-W", "ignore", "-c", script, str(store.path)]
    subprocess.run(command, check=True, env=environment, timeout=200)
    assert sorted(a for _, a, _ in rows_of(table)) == [0, 1, 2, 2, 2, 3, 3, 3]
    table.upsert(pa.table({"a": [9]}))
    assert table.count() == 9


# ON UPDATE CURRENT_TIMESTAMP


def clocked(store: Store) -> Table:
    now = Default("current_timestamp", precision=6)
    columns = [
        Column("k", parse_type("int"), nullable=False),
        Column("a", parse_type("int")),
        Column("at", MOMENT, True, now, on_update_current_timestamp=True),
        Column("made", MOMENT, True, now),
    ]
    schema = TableSchema.create(columns, ["k"], properties={"enable_unique_key_skip_bitmap_column": "true"})
    return store.create_table("db.c", schema)


def load(table: Table, data: dict[str, Any], day: int, mode: str = FIXED, **supplied: Any) -> None:
    with table.begin_load(mode=mode, now=datetime(2024, 5, day)) as opened:
        opened.write(pa.table(data), supplied=supplied or None)
        opened.commit()


def days(table: Table) -> dict[int, tuple[int | None, int | None]]:
    return {
        row["k"]: (row["at"].day if row["at"] else None, row["made"].day if row["made"] else None)
        for row in table.scan().read_all().to_pylist()
    }


def test_an_update_that_does_not_list_the_column_moves_it(store: Store) -> None:
    """A3, A4: one moment per load; the plain default of another column stays."""
    table = clocked(store)
    load(table, {"k": [1, 2], "a": [1, 2]}, 1, "UPSERT")
    load(table, {"k": [1, 3], "a": [10, 30]}, 2)
    assert days(table) == {1: (2, 1), 2: (1, 1), 3: (2, 2)}


def test_a_listed_value_is_kept_and_whole_rows_take_the_default(store: Store) -> None:
    """A4."""
    table = clocked(store)
    load(table, {"k": [1, 2], "a": [1, 2]}, 1, "UPSERT")
    load(table, {"k": [1, 2], "at": [datetime(2024, 5, 20), None]}, 2)
    assert days(table) == {1: (20, 1), 2: (None, 1)}
    load(table, {"k": [1], "a": [1]}, 3, "UPSERT")
    assert days(table)[1] == (3, 3)


def test_naming_only_keys_touches_rows(store: Store) -> None:
    """P5, A4: what only-key updates are for."""
    table = clocked(store)
    load(table, {"k": [1, 2], "a": [1, 2]}, 1, "UPSERT")
    load(table, {"k": [2]}, 5)
    assert days(table) == {1: (1, 1), 2: (5, 1)}
    assert sorted(table.scan(["k", "a"]).read_all().to_pylist(), key=str) == [
        {"k": 1, "a": 1},
        {"k": 2, "a": 2},
    ]


def test_flexible_rows_that_do_not_have_the_column_move_it(store: Store) -> None:
    """F24."""
    table = clocked(store)
    load(table, {"k": [1, 2], "a": [1, 2]}, 1, "UPSERT")
    data = {"k": [1, 2], "a": [5, 6], "at": [None, datetime(2024, 5, 20)]}
    load(table, data, 7, "UPDATE_FLEXIBLE_COLUMNS", at=np.array([False, True]))
    assert days(table) == {1: (7, 1), 2: (20, 1)}


def test_on_update_needs_the_default_of_new_rows() -> None:
    """A4."""
    column = Column("at", MOMENT, on_update_current_timestamp=True)
    with pytest.raises(InvalidInputError, match="needs DEFAULT CURRENT_TIMESTAMP"):
        TableSchema.create([Column("k", BIGINT, False), column], ["k"])


def test_46_writers_that_make_values_at_once_do_not_conflict(store: Store) -> None:
    """Delta's identity columns admit one writer at a time; here values come from ranges, so all commit.

    Also a transaction that read something, and one whose row brings its own value.
    """
    table = make(store)
    one, two = table.begin_load(), table.begin_load()
    for number, load in enumerate((one, two)):
        load.write(pa.table({"k": pa.array([number], pa.int32())}))
    with store.transaction(concurrency="optimistic") as reader:
        opened = reader.table("db.t")
        opened.get(pa.table({"k": pa.array([9], pa.int32())}))
        opened.upsert(pa.table({"k": pa.array([2], pa.int32())}))
        one.commit()
        two.commit()
    table.upsert(pa.table({"k": pa.array([3], pa.int32()), "id": [1_000]}))
    ids = ids_of(table)
    assert (len(ids), len(set(ids.values())), ids[3]) == (4, 4, 1_000)
    made = [info.commit_info for info in table.history()[1:]]
    assert not any("changes" in commit_info for commit_info in made), (
        "no change of metadata that others could meet"
    )
