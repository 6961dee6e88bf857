"""Loads: what the result says, labels, empty and endless data, and what an ended load refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from seqstore import (
    AlreadyExistsError,
    ClosedError,
    InvalidInputError,
    LabelExistsError,
    LoadResult,
    NotFoundError,
    Settings,
    Store,
    Table,
)
from seqstore.store.segment.key_index import KeyIndex
from seqstore.store.segment.segment import Segment
from tests.support.rows import rows_of, schema_of


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v INT"))


@pytest.fixture
def ordered(store: Store) -> Table:
    return store.create_table("db.s", schema_of("k BIGINT NOT NULL", "v INT", sequence_col="v"))


def metrics(result: LoadResult) -> dict[str, int]:
    names = ("total", "loaded", "filtered", "superseded", "late", "replaced", "deleted")
    return {name: value for name in names if (value := getattr(result, f"rows_{name}"))}


def write_all(table: Table, *batches: dict[str, Any], **options: Any) -> LoadResult:
    with table.begin_load(**options) as load:
        for batch in batches:
            load.write(pa.table(batch))
        return load.commit()


def test_losing_rows_are_loaded_rows(ordered: Table) -> None:
    """SO6, LS8: six rows of one key are six loaded rows, one of them visible."""
    result = write_all(ordered, {"k": [1] * 6, "v": [3, 1, 6, 2, 5, 4]})
    assert metrics(result) == {"total": 6, "loaded": 6, "superseded": 5}
    assert rows_of(ordered) == [(1, 6)]
    late = write_all(ordered, {"k": [1, 2], "v": [5, 0]})
    assert metrics(late) == {"total": 2, "loaded": 2, "late": 1}
    assert late.version == 3, "a version comes of it all the same"
    assert metrics(write_all(ordered, {"k": [1, 2], "v": [5, -1]})) == {"total": 2, "loaded": 2, "late": 2}


def test_replaced_and_deleted_rows_are_those_a_reader_saw(table: Table) -> None:
    write_all(table, {"k": [1, 2, 3], "v": [1, 1, 1]})
    deleted = write_all(table, {"k": [1, 2, 9], "v": [0, 0, 0], "__DELETE_SIGN__": [1, 0, 1]})
    assert metrics(deleted) == {"total": 3, "loaded": 3, "replaced": 1, "deleted": 1}
    again = write_all(table, {"k": [1, 9], "v": [0, 0], "__DELETE_SIGN__": [0, 1]})
    assert metrics(again) == {"total": 2, "loaded": 2}, "both keys were deleted before"


def test_rows_that_lost_to_another_write_of_the_load_are_superseded(table: Table, ordered: Table) -> None:
    """Not late: nothing stored has beaten them; and not replaced: no reader saw them."""
    for target in (table, ordered):
        result = write_all(target, {"k": [1], "v": [5]}, {"k": [1], "v": [5]}, {"k": [1], "v": [6]})
        assert metrics(result) == {"total": 3, "loaded": 3, "superseded": 2}
    result = write_all(ordered, {"k": [2], "v": [9]}, {"k": [2], "v": [8]})
    assert metrics(result) == {"total": 2, "loaded": 2, "superseded": 1}
    assert rows_of(ordered) == [(1, 6), (2, 9)]


def test_the_last_write_of_a_key_decides_whether_it_is_replaced_or_deleted(table: Table) -> None:
    write_all(table, {"k": [1, 2, 3], "v": [0, 0, 0]})
    result = write_all(
        table,
        {"k": [1, 2, 3], "v": [1, 1, 1], "__DELETE_SIGN__": [0, 1, 0]},
        {"k": [1, 2, 3], "v": [2, 2, 2], "__DELETE_SIGN__": [1, 0, 1]},
    )
    assert metrics(result) == {"total": 6, "loaded": 6, "superseded": 3, "replaced": 1, "deleted": 2}
    assert rows_of(table) == [(2, 2)]


def test_the_later_of_several_writes_wins_a_tie(ordered: Table) -> None:
    """SO11: also when it is another segment."""
    write_all(
        ordered,
        {"k": [1, 2], "v": [5, 5], "__DELETE_SIGN__": [1, 0]},
        {"k": [1, 2], "v": [5, 5], "__DELETE_SIGN__": [0, 1]},
    )
    assert rows_of(ordered) == [(1, 5)]


def test_a_load_without_rows_is_a_success_without_a_version(table: Table) -> None:
    result = table.upsert(
        pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int32())}), label="none"
    )
    assert (result.version, result.rows_total, table.version) == (1, 0, 1)
    with pytest.raises(LabelExistsError) as caught:
        table.upsert(pa.table({"k": [1]}), label="none")
    assert caught.value.status == "VISIBLE"
    with table.begin_load() as load:
        assert load.commit().version == 1


def test_the_sequence_of_the_document_decides(store: Store) -> None:
    """SO7: the vectors of the worked example."""
    schema = schema_of("k INT NOT NULL", "at DATE", "who VARCHAR(1)", sequence_col="at")
    table = store.create_table("db.d", schema)
    days = ["02-21", "02-22", "03-05", "02-26", "02-23", "02-24"]
    table.upsert(pa.table({"k": [1] * 6, "at": [f"2020-{day}" for day in days], "who": list("abcdef")}))
    assert [row[2] for row in rows_of(table)] == ["c"]
    table.upsert(pa.table({"k": [1, 1], "at": ["2020-02-22", "2020-02-23"], "who": ["a", "b"]}))
    assert [row[2] for row in rows_of(table)] == ["c"]
    table.upsert(pa.table({"k": [1, 1], "at": ["2020-02-22", "2020-03-23"], "who": ["a", "w"]}))
    assert [row[2] for row in rows_of(table)] == ["w"]


def test_an_old_delete_does_nothing_and_a_tombstone_keeps_old_rows_out(ordered: Table) -> None:
    """D2-D6."""
    write_all(ordered, {"k": [1], "v": [10]})
    write_all(ordered, {"k": [1], "v": [9]}, merge_type="DELETE")
    assert rows_of(ordered) == [(1, 10)]
    write_all(ordered, {"k": [1], "v": [10]}, merge_type="DELETE")
    assert rows_of(ordered) == []
    write_all(ordered, {"k": [1], "v": [9]})
    assert rows_of(ordered) == [], "D4"
    write_all(ordered, {"k": [1], "v": [10]})
    assert rows_of(ordered) == [(1, 10)], "D5"


def test_a_delete_by_key_keeps_the_sequence(ordered: Table) -> None:
    """D8, D4: what the deleted row kept out stays out."""
    write_all(ordered, {"k": [1], "v": [1000]})
    ordered.delete(pa.table({"k": [1]}))
    write_all(ordered, {"k": [1], "v": [999]})
    assert rows_of(ordered) == []
    write_all(ordered, {"k": [1], "v": [1000]})
    assert rows_of(ordered) == [(1, 1000)]


def test_a_label_is_used_once_per_database(store: Store, table: Table, ordered: Table) -> None:
    """X16, LS4: for all tables of the database, and for none of another."""
    first = table.upsert(pa.table({"k": [1]}), label="day-1")
    for other in (table, ordered):
        with pytest.raises(
            LabelExistsError, match=r"Label \[day-1\] has already been used, relate to txn"
        ) as caught:
            other.upsert(pa.table({"k": [2], "v": [1]}), label="day-1")
        commit_info = (caught.value.txn_id, caught.value.status, caught.value.version)
        assert commit_info == (first.txn_id, "VISIBLE", 2)
    store.create_database("other")
    elsewhere = store.create_table("other.t", table.schema)
    assert elsewhere.upsert(pa.table({"k": [1]}), label="day-1").version == 2


def test_a_label_is_free_after_an_abort_at_once(table: Table) -> None:
    load = table.begin_load(label="a")
    with pytest.raises(LabelExistsError) as caught:
        table.begin_load(label="a")
    assert caught.value.status == "PREPARE"
    load.abort("changed my mind")
    assert table.upsert(pa.table({"k": [1]}), label="a").version == 2


def test_a_label_is_free_after_its_time(store: Store) -> None:
    """X18."""
    short = Store.open(store.path, settings=Settings(label_keep_seconds=0))
    table = short.create_table("db.u", schema_of("k INT NOT NULL"))
    table.upsert(pa.table({"k": [1]}), label="a")
    stop = datetime.now() + timedelta(milliseconds=2)
    while datetime.now() < stop:  # the clock of records ticks in milliseconds
        pass
    assert table.upsert(pa.table({"k": [2]}), label="a").version == 3


@pytest.mark.parametrize("label", ["", "a b", "a\nb", "x" * 129, "é" * 65])
def test_bad_labels_are_refused(table: Table, label: str) -> None:
    with pytest.raises(InvalidInputError, match="expected 1 to 128 bytes"):
        table.begin_load(label=label)


def test_the_longest_label_is_taken(table: Table) -> None:
    assert table.upsert(pa.table({"k": [1]}), label="é" * 64).label == "é" * 64


def test_an_ended_load_takes_nothing_more(table: Table) -> None:
    with table.begin_load(label="a") as load:
        load.write(pa.table({"k": [1]}))
        load.commit()
        with pytest.raises(ClosedError):
            load.write(pa.table({"k": [2]}))
        with pytest.raises(ClosedError):
            load.commit()
        load.abort("of no effect")
    assert rows_of(table) == [(1, None)]


def test_leaving_a_load_without_commit_leaves_nothing(store: Store, table: Table) -> None:
    small = Store.open(store.path, settings=Settings(inline_bytes_max=1)).table("db.t")
    with small.begin_load(label="a") as load:
        load.write(pa.table({"k": [1]}))
    assert table.version == 1
    assert list(store.path.glob("tables/*/*")) == [], "its files are gone"

    def fail_halfway() -> None:
        with small.begin_load(label="a") as load:
            load.write(pa.table({"k": [1]}))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert list(store.path.glob("tables/*/*")) == []


def test_data_that_fails_halfway_applies_nothing(table: Table) -> None:
    schema = pa.schema([("k", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": [1]}, schema=schema)
        raise OSError("the source broke")

    with pytest.raises(OSError, match="the source broke"):
        table.upsert(pa.RecordBatchReader.from_batches(schema, batches()), label="a")
    assert table.version == 1
    assert table.upsert(pa.table({"k": [1]}), label="a").version == 2


def test_history_tells_every_version(table: Table) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    table.upsert(pa.table({"k": [1, 1]}), label="a", operation="STREAM LOAD")
    table.delete(pa.table({"k": [1]}))
    lines = table.history()
    assert [(line.version, line.operation) for line in lines] == [
        (1, "CREATE TABLE"),
        (2, "STREAM LOAD"),
        (3, "DELETE"),
    ]
    assert (lines[1].label, lines[1].metrics.rows_total, lines[1].metrics.rows_superseded) == ("a", 2, 1)
    assert lines[2].metrics.rows_deleted == 1
    assert before <= lines[1].timestamp <= lines[2].timestamp <= datetime.now(UTC)


def test_names_that_exist_are_refused(store: Store, table: Table) -> None:
    with pytest.raises(AlreadyExistsError, match="Can't create database 'db'; database exists"):
        store.create_database("db")
    with pytest.raises(AlreadyExistsError, match="Table 't' already exists"):
        store.create_table("db.t", table.schema)
    store.create_database("db", if_not_exists=True)
    assert (
        store.create_table("db.t", schema_of("other INT", key=["other"]), if_not_exists=True).schema
        == table.schema
    )


def test_a_load_into_a_dropped_table_is_refused(store: Store, table: Table) -> None:
    load = table.begin_load(label="a")
    load.write(pa.table({"k": [1]}))
    schema = table.schema
    store.drop_table("db.t")
    with pytest.raises(NotFoundError, match=r"Unknown table 'db\.t': it was dropped"):
        load.commit()
    again = store.create_table("db.t", schema)
    assert (again.version, again.count()) == (1, 0)
    assert again.upsert(pa.table({"k": [1]}), label="a").version == 2


def test_a_table_that_is_dropped_while_a_load_looks_its_keys_up_is_no_damage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Settings(inline_bytes_max=1)
    Store.open(store.path, settings=files).create_table("db.t", schema_of("k BIGINT NOT NULL"))
    Store.open(store.path, settings=files).upsert("db.t", pa.table({"k": [1]}))
    afresh = Store.open(store.path, settings=files).table("db.t")
    read_index = Segment.read_index

    def drop_and_read(segment: Segment) -> KeyIndex:
        store.drop_table("db.t", if_exists=True)
        return read_index(segment)

    monkeypatch.setattr(Segment, "read_index", drop_and_read)
    with pytest.raises(NotFoundError, match=r"Unknown table 'db\.t': it was dropped"):
        afresh.upsert(pa.table({"k": [1]}))


def test_every_use_of_a_dropped_table_says_so(store: Store, table: Table) -> None:
    """A load that was begun before, and a handle that lingers; staged files go."""
    files = Settings(inline_bytes_max=1)
    other = Store.open(store.path, settings=files).table("db.t")
    load = other.begin_load()
    load.write(pa.table({"k": [1]}))
    store.drop_database("db")
    uses: list[Callable[[], object]] = [
        load.commit,
        lambda: other.upsert(pa.table({"k": [1]}), label="b"),
        lambda: other.delete(pa.table({"k": [1]})),
        table.scan,
        lambda: table.get(pa.table({"k": [1]})),
        table.count,
        table.check,
        lambda: table.version,
        lambda: table.schema,
    ]
    for use in uses:
        with pytest.raises(NotFoundError, match="dropped"):
            use()
    assert list(store.path.glob("tables/*/*")) == []
