"""Loads of duplicate tables: rows are added, by every door, and meet nothing (T10, T12)."""

from __future__ import annotations

import io
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import ConflictError, InvalidInputError, LabelExistsError, Session, Store, Table, TableSchema
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.loaders.stream_load import stream_load
from seqstore.store.errors import FormatError, StoreError
from seqstore.store.read.table_state import TableState
from seqstore.store.schema import features
from seqstore.store.sql import ServerContext
from tests.support.statements import last_result, run

pytestmark = pytest.mark.sql("CREATE TABLE t (k INT, v INT) DUPLICATE KEY(k)")
UNIQUE_ONLY = "load by MERGE or DELETE is only supported in unique tables."
PARTIAL = "Only unique key merge on write support partial update"


@pytest.fixture
def table(store: Store) -> Table:
    return store.table("db.t")


def given(*rows: tuple[int, int]) -> pa.Table:
    k, v = zip(*rows, strict=True)
    return pa.table({"k": pa.array(k, pa.int32()), "v": pa.array(v, pa.int32())})


def found(table: Table, version: int | None = None) -> Counter[tuple[Any, ...]]:
    rows = table.snapshot(version).scan(["k", "v"]).read_all().to_pylist()
    return Counter((row["k"], row["v"]) for row in rows)


def load(store: Store, body: bytes, **headers: str) -> dict[str, Any]:
    options = {"column_separator": ","} | {name.replace("__", "."): value for name, value in headers.items()}
    return dict(stream_load(store, "db", "t", io.BytesIO(body), options))


def test_a_stream_load_adds_rows_and_a_label_adds_them_once(store: Store, table: Table) -> None:
    for label in ("a", "b", "a"):
        reply = load(store, b"1,1\n1,1\n2,2\n", label=label)
    assert reply["Status"] == "Label Already Exists"
    assert found(table) == {(1, 1): 4, (2, 2): 2}


def test_a_grouped_stream_load_keeps_equal_rows(store: Store, table: Table) -> None:
    threads = [
        threading.Thread(target=load, args=(store, b"1,1\n1,1\n"), kwargs={"group_commit": "sync_mode"})
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found(table) == {(1, 1): 12}


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"merge_type": "DELETE"}, UNIQUE_ONLY),
        ({"merge_type": "MERGE", "delete": "v = 1"}, UNIQUE_ONLY),
        ({"columns": "k,v,__DORIS_DELETE_SIGN__"}, UNIQUE_ONLY),
        ({"partial_columns": "true", "columns": "k,v"}, PARTIAL),
        ({"unique_key_update_mode": "UPDATE_FLEXIBLE_COLUMNS", "format": "json"}, PARTIAL),
        ({"function_column__sequence_col": "v"}, "There is no sequence column in the table t"),
    ],
)
def test_stream_loads_that_need_a_key_are_refused(
    store: Store, table: Table, headers: dict[str, str], message: str
) -> None:
    body = b'{"k": 1, "v": 1}' if headers.get("format") == "json" else b"1,1,1\n"
    reply = load(store, body, **headers)
    assert (reply["Status"], message in reply["Message"]) == ("Fail", True), reply["Message"]
    assert table.version == 1


def test_python_writes_that_need_a_key_are_refused(store: Store, table: Table) -> None:
    table.upsert(given((1, 1)))
    for write in (
        lambda: table.delete(pa.table({"k": [1]})),
        lambda: table.upsert(given((1, 1)), merge_type="DELETE"),
        lambda: table.upsert(given((1, 1)), merge_type="MERGE"),
        lambda: table.upsert(given((1, 1)).append_column("__DELETE_SIGN__", pa.array([1], pa.int8()))),
        lambda: table.upsert(given((1, 1)), mode="UPDATE_FIXED_COLUMNS"),
        lambda: table.write_task(merge_type="DELETE"),
        lambda: table.update({"v": 2}),
        lambda: table.merge(given((1, 1)), on="k").when_matched_delete().execute(),
    ):
        with pytest.raises(InvalidInputError, match="unique"):
            write()
    with pytest.raises(InvalidInputError, match="no unique key to look up"):
        table.get(pa.table({"k": [1]}))
    with pytest.raises(InvalidInputError, match="written by the store"):
        table.upsert(given((1, 1)).append_column("__ROW_ID_COL__", pa.array([1])))
    assert found(table) == {(1, 1): 1}


def test_a_broker_load_adds_the_rows_of_every_file(store: Store, table: Table, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("1,1\n1,1\n")
    described = DataDescription("t", (f"{tmp_path}/*.csv",), column_separator=",", columns=("k", "v"))
    spec = LoadSpec("db", "job", (described,), {"load_parallelism": "1"})
    job = BrokerLoad(store, spec, [str(tmp_path)]).run()[1]
    assert (job.loaded, job.error, found(table)) == (4, "", {(1, 1): 4})
    described = DataDescription("t", (f"{tmp_path}/a.csv",), column_separator=",", merge_type="DELETE")
    refused = LoadSpec("db", "other", (described,), {"load_parallelism": "1"})
    assert UNIQUE_ONLY in BrokerLoad(store, refused, [str(tmp_path)]).run()[1].error
    assert table.version == 2


def test_routine_loads_that_need_a_key_are_refused(store: Store, tmp_path: Path) -> None:
    session = Session(store, "db", server=ServerContext(load_jobs=StoreLoadJobs(store)))
    for clause, properties, message in (
        ("WITH DELETE", "", UNIQUE_ONLY),
        ("", "PROPERTIES ('partial_columns' = 'true')", "only supported in unique table MoW"),
    ):
        with pytest.raises(StoreError) as caught:
            run(
                session,
                f"CREATE ROUTINE LOAD job ON t {clause} {properties} FROM FILES ('path' = '{tmp_path}')",
            )
        assert message in str(caught.value)
    assert RoutineJobs(store.catalog).all("db") == {}


def test_tasks_of_other_processes_stage_rows_that_the_load_numbers(table: Table) -> None:
    task = table.write_task()
    task.begin()
    shares = [task.run(given((1, 1), (1, 1))), task.run(given((1, 1)))]
    with table.begin_load() as opened:
        for share in shares:
            opened.adopt(share)
        done = opened.commit()
    assert (done.rows_total, done.rows_loaded, found(table)) == (3, 3, {(1, 1): 3})
    ids = table.scan(["__ROW_ID_COL__"]).read_all().column(0).to_pylist()
    assert len({*ids}) == 3


def test_an_append_looks_no_key_up(table: Table) -> None:
    table.upsert(given((1, 1)))
    with mock.patch.object(TableState, "probe", side_effect=AssertionError("looked up")):
        table.upsert(given((1, 1)))
        with table.begin_load() as opened:
            opened.write(given((2, 2)))
            opened.prepare()
            table.upsert(given((3, 3)))
            opened.commit()
    assert found(table) == {(1, 1): 2, (2, 2): 1, (3, 3): 1}


def test_a_process_reserves_row_ids_once(store: Store, table: Table) -> None:
    """A reservation is a step of the catalog, which a small load must not pay for."""
    table.upsert(given((1, 1)))
    before = table._id_sources[0]
    with mock.patch.object(type(before), "_reserve", side_effect=AssertionError("reserved")):
        for _ in range(20):
            table.upsert(given((1, 1)))
    with Store.open(store.path) as other:
        other.table("db.t").upsert(given((9, 9)))
    ids = table.scan(["__ROW_ID_COL__"]).read_all().column(0).to_pylist()
    assert len({*ids}) == 22


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
@pytest.mark.parametrize("detects_rows", ["true", "false"])
def test_blind_appends_never_conflict(store: Store, session: Session, level: str, detects_rows: str) -> None:
    """ISO6; of transactions that overlap all commit, in any order."""
    properties = f"'delta.isolationLevel' = '{level}', 'delta.enableDeletionVectors' = '{detects_rows}'"
    run(session, f"CREATE TABLE leveled (k INT, v INT) DUPLICATE KEY(k) PROPERTIES ({properties})")
    table = store.table("db.leveled")
    transactions = [store.transaction() for _ in range(4)]
    for transaction in transactions:
        transaction.table("db.leveled").upsert(given((1, 1), (1, 1)))
    for transaction in reversed(transactions):
        table.upsert(given((1, 1)))
        transaction.commit()
    assert found(table) == {(1, 1): 12}


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_a_delete_keeps_rows_that_were_added_meanwhile(store: Store, session: Session, level: str) -> None:
    """R3: a blind append counts as later than the DELETE; a Serializable one meets what it read."""
    properties = f"PROPERTIES ('delta.isolationLevel' = '{level}')"
    run(session, f"CREATE TABLE leveled (k INT, v INT) DUPLICATE KEY(k) {properties}")
    table = store.table("db.leveled")
    table.upsert(given((1, 1), (2, 2)))
    with store.transaction() as transaction:
        transaction.table("db.leveled").delete_where(pc.field("k") == 1)
        table.upsert(given((1, 9)))
        if level == "Serializable":
            with pytest.raises(ConflictError):
                transaction.commit()
            return
        transaction.commit()
    assert found(table) == {(1, 9): 1, (2, 2): 1}


def test_two_deletes_of_a_row_conflict_and_of_other_rows_do_not(store: Store, table: Table) -> None:
    table.upsert(given((1, 1), (2, 2), (3, 3)))
    first, second, third = (store.transaction(concurrency="optimistic") for _ in range(3))
    for transaction, number in ((first, 1), (second, 2), (third, 1)):
        transaction.table("db.t").delete_where(pc.field("k") == number)
    first.commit()
    second.commit()
    with pytest.raises(ConflictError):
        third.commit()
    assert found(table) == {(3, 3): 1}


def test_versions_feed_restore_and_compaction(store: Store, table: Table) -> None:
    table.upsert(given((1, 1), (1, 1)))
    table.upsert(given((1, 1)))
    table.delete_where(pc.field("k") == 1)
    table.upsert(given((1, 1)))
    assert [sum(found(table, version).values()) for version in range(1, 6)] == [0, 2, 3, 0, 1]
    table.restore(3)
    table.optimize(full=True)
    assert found(table) == {(1, 1): 3}
    feed = table.changes(2).read_all()
    assert feed.schema.names[:2] == ["k", "v"]
    assert Counter(feed.column("_change_type").to_pylist()) == {"+I": 7, "-D": 4}
    assert table.check() == []


def test_two_phase_commit_and_repeated_writes(store: Store, table: Table) -> None:
    opened = table.begin_load(label="prepared")
    opened.write(given((1, 1), (1, 1)))
    opened.precommit()
    table.upsert(given((1, 1)))
    store.commit_transaction("db", label="prepared")
    for _ in range(2):
        table.upsert(given((5, 5)), txn_app_id="app", txn_version=1)
    with pytest.raises(LabelExistsError):
        table.upsert(given((1, 1)), label="prepared")
    assert found(table) == {(1, 1): 3, (5, 5): 1}


def test_auto_increment_and_constraints_work(session: Session) -> None:
    run(session, "CREATE TABLE made (k INT, id BIGINT NOT NULL AUTO_INCREMENT) DUPLICATE KEY(k)")
    run(session, "INSERT INTO made (k) VALUES (1), (1), (1)")
    assert sorted(run(session, "SELECT * FROM made")) == [(1, 1), (1, 2), (1, 3)]
    run(session, "ALTER TABLE made ADD CONSTRAINT small CHECK (k < 9)")
    with pytest.raises(InvalidInputError, match=r"small .* first \(k=9\)"):
        run(session, "INSERT INTO made (k) VALUES (9)")


def test_a_row_without_a_key_that_breaks_a_constraint_is_named_by_its_values(session: Session) -> None:
    run(
        session,
        "CREATE TABLE plain (a INT, b INT) PROPERTIES ('enable_duplicate_without_keys_by_default' = 'true')",
    )
    run(session, "ALTER TABLE plain ADD CONSTRAINT small CHECK (a < 9)")
    with pytest.raises(InvalidInputError, match=r"small .* first \(a=9, b=1\)"):
        run(session, "INSERT INTO plain VALUES (9, 1)")


def test_the_kind_of_table_stays(session: Session) -> None:
    for statement in (
        "ALTER TABLE t DROP FEATURE duplicateKey",
        "ALTER TABLE t ENABLE FEATURE 'SEQUENCE_LOAD' WITH PROPERTIES "
        "('function_column.sequence_type' = 'int')",
        "ALTER TABLE t ENABLE FEATURE 'UPDATE_FLEXIBLE_COLUMNS'",
        "ALTER TABLE t SET ('enable_unique_key_skip_bitmap_column' = 'true')",
    ):
        with pytest.raises(InvalidInputError) as caught:
            last_result(session, statement)
        assert "key" in str(caught.value).lower() or "unique" in str(caught.value), statement


def test_a_program_that_does_not_know_duplicate_tables_refuses_them(
    store: Store, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = table.schema.to_record()
    assert record["min_reader_version"] == features.READER_VERSION
    monkeypatch.setattr(features, "KNOWN_FEATURES", ("deletionVectors",))
    with pytest.raises(FormatError, match="duplicateKey"):
        TableSchema.from_record(record)


def test_tables_from_arrow_without_a_key_are_duplicate_tables(store: Store) -> None:
    schema = TableSchema.from_arrow(given((1, 1)).schema, [])
    made = store.create_table("db.made", schema)
    made.upsert(given((1, 1), (1, 1)))
    assert (made.schema.declared_key, found(made)) == (("k", "v"), {(1, 1): 2})
