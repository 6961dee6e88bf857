"""How a transaction ends other than by its owner's word: its time is over (X13), others abort it (X20)."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import (
    ClosedError,
    InvalidInputError,
    LabelExistsError,
    Settings,
    Store,
    Table,
    Transaction,
    TransactionOptions,
)
from seqstore.store.catalog.leases import leases_of
from seqstore.store.catalog.transaction_record import (
    EXPIRED,
    OWNER_ENDED,
    TransactionRecord,
    TransactionStatus,
    abandoned_reason,
    find_label,
    now_ms,
    precommitted,
)
from seqstore.store.catalog.update_lock import lock_directory, update_lock
from seqstore.store.load.load import LoadResult
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.sql import Session
from seqstore.store.transaction.statement import run_statement
from seqstore.store.transaction.transaction_options import DmlOptions
from seqstore.store.transaction.transaction_table import TransactionTable
from tests.support.rows import rows_of, schema_of

WAIT_SECONDS = 200.0
HERE = pc.field("k") == 1


@pytest.fixture
def table(store: Store) -> Table:
    made = store.create_table("db.t", schema_of("k INT NOT NULL", "a INT"))
    made.upsert(pa.table({"k": [1, 2], "a": [10, 20]}))
    return made


def begun(store: Store, seconds: float = 3600) -> Transaction:
    """A transaction that has updated a row, and whose owner then says nothing."""
    transaction = store.transaction(label="l", timeout_seconds=seconds)
    transaction.table("db.t").update({"a": 0}, HERE)
    return transaction


def expired(store: Store) -> Transaction:
    """The same after its timer has come, which on a busy machine would come within its statement."""
    transaction = begun(store)
    transaction.expire()
    return transaction


def await_lock(table: Table) -> None:
    """Until nobody holds the table's update lock, which goes last."""
    with update_lock(lock_directory(table.catalog), table.id, WAIT_SECONDS):
        pass


def stored_record(table: Table) -> TransactionRecord:
    """As it is in the catalog: whoever looks it up through the store may abort it."""
    with table.catalog.read() as tx:
        record = find_label(tx, table.database_id, "l")
    assert record is not None
    return record


def test_a_transaction_whose_time_is_over_gives_its_update_lock_back(store: Store, table: Table) -> None:
    """X13"""
    transaction = begun(store, 2)
    assert table.update({"a": 7}, pc.field("k") == 2, lock_seconds=WAIT_SECONDS).rows_changed == 1
    assert not transaction.is_open


def test_a_transaction_whose_time_is_over_is_stored_as_aborted(store: Store, table: Table) -> None:
    """X13, X20"""
    _transaction = expired(store)
    record = stored_record(table)
    assert (record.status, record.reason) == (TransactionStatus.ABORTED, EXPIRED)


def test_a_transaction_whose_time_is_over_frees_its_label(store: Store, table: Table) -> None:
    """X13, X16"""
    _transaction = expired(store)
    assert table.upsert(pa.table({"k": [3], "a": [30]}), label="l").version == 3


def test_a_transaction_whose_time_is_over_holds_no_version(store: Store, table: Table) -> None:
    """X13"""
    _transaction = expired(store)
    gc.collect()  # readers of the statement may be on their way out
    assert not leases_of(store.catalog.data_dir).holds(table.id, 2)


def test_a_transaction_whose_time_is_over_leaves_no_files(tmp_path: Path) -> None:
    """X13"""
    with Store.open(tmp_path / "data", settings=Settings(inline_bytes_max=1)) as store:
        store.create_database("db")
        store.create_table("db.t", schema_of("k INT NOT NULL", "a INT"))
        transaction = store.transaction(timeout_seconds=3600)
        transaction.table("db.t").upsert(pa.table({"k": [1], "a": [1]}))
        transaction.expire()
        assert [path.name for path in tmp_path.rglob("*.arrow")] == []


@pytest.mark.parametrize(
    "say",
    [
        lambda transaction: transaction.table("db.t"),
        lambda transaction: transaction.table("db.t").upsert(pa.table({"k": [9], "a": [9]})),
        lambda transaction: transaction.commit(),
    ],
    ids=["table", "upsert", "commit"],
)
def test_the_owner_is_told_that_the_time_is_over(
    store: Store, table: Table, say: Callable[[Transaction], object]
) -> None:
    """X13"""
    transaction = expired(store)
    with pytest.raises(ClosedError, match="open for more than 3600 seconds") as caught:
        say(transaction)
    assert caught.value.kind == "timeout"


def test_leaving_the_block_after_the_time_is_over_is_an_error(store: Store, table: Table) -> None:
    """X13: nothing was committed, and who left the block would think it was."""
    with pytest.raises(ClosedError, match="open for more than"), begun(store) as transaction:
        transaction.expire()


def test_a_rollback_after_the_time_is_over_is_no_error(store: Store, table: Table) -> None:
    """X13"""
    transaction = expired(store)
    transaction.rollback()
    assert stored_record(table).reason == EXPIRED


def test_a_session_learns_that_its_transaction_s_time_is_over(store: Store, table: Table) -> None:
    """X13: and is rid of it by COMMIT."""
    with Session(store, "db") as session:
        list(session.execute("SET insert_timeout = 2, query_timeout = 2"))
        list(session.execute("BEGIN; UPDATE t SET a = 0 WHERE k = 1"))
        await_lock(table)
        with pytest.raises(ClosedError, match="open for more than 2 seconds"):
            list(session.execute("COMMIT"))
        assert not session.in_transaction
    assert rows_of(table) == [(1, 10), (2, 20)]


def test_time_runs_out_while_waiting_for_another_transaction(store: Store, table: Table) -> None:
    """X13: its own lock is free at once; what it waited for it does not get."""
    other = store.create_table("db.u", schema_of("k INT NOT NULL", "a INT"))
    one, two = begun(store, 2), store.transaction()
    two.table("db.u").update({"a": 1}, HERE)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(one.lock, one.table("db.u"))
        table.update({"a": 5}, HERE)
        two.commit()
        with pytest.raises(ClosedError, match="open for more than"):
            waiting.result(WAIT_SECONDS)
    await_lock(other)
    assert rows_of(table) == [(1, 5), (2, 20)]


def test_the_timer_of_a_committed_transaction_ends(store: Store, table: Table) -> None:
    before = set(threading.enumerate())
    transaction = begun(store)
    (timer,) = set(threading.enumerate()) - before
    transaction.commit()
    timer.join(WAIT_SECONDS)
    assert not timer.is_alive()


def test_a_timer_keeps_no_transaction_alive(store: Store, table: Table) -> None:
    """One that was dropped gives its lock back with the garbage, not when its time is over."""
    before = set(threading.enumerate())
    gone = weakref.ref(begun(store))
    (timer,) = set(threading.enumerate()) - before
    gc.collect()
    assert gone() is None
    timer.join(WAIT_SECONDS)
    assert not timer.is_alive()


def test_a_running_transaction_past_its_term_counts_as_aborted(table: Table) -> None:
    """X13: for processes other than its owner, which may hang."""
    record = TransactionRecord(
        1,
        table.database_id,
        "db.t",
        "l",
        TransactionStatus.PREPARE,
        "INSERT",
        0,
        owner=this_process(),
        expires_ms=1,
    )
    assert abandoned_reason(record) == EXPIRED


@pytest.mark.parametrize("seconds", [60, 1e300, None])
def test_a_running_transaction_within_its_term_goes_on(
    store: Store, table: Table, seconds: float | None
) -> None:
    transaction = store.transaction(label="l", timeout_seconds=seconds)
    transaction.table("db.t").update({"a": 0}, HERE)
    assert abandoned_reason(stored_record(table)) == ""


def test_a_dead_owner_is_told_apart_from_the_time(table: Table) -> None:
    """X20"""
    record = TransactionRecord(1, table.database_id, "db.t", "l", TransactionStatus.PREPARE, "INSERT", 0)
    assert abandoned_reason(replace(record, expires_ms=now_ms() + 60_000)) == OWNER_ENDED


def test_a_precommitted_transaction_expires_after_its_seconds(table: Table) -> None:
    """PC8"""
    record = TransactionRecord(1, table.database_id, "db.t", "l", TransactionStatus.PREPARE, "INSERT", 0)
    done = precommitted(record, 1_000_000)
    assert done.expires_ms - done.precommitted_ms == 1_000_000_000


def test_a_statement_that_runs_again_takes_the_retry_lock(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries of several statements would fail each other. A statement without retries needs no lock."""
    taken: list[int] = []

    @contextmanager
    def noted(directory: Path, table_id: int) -> Iterator[bool]:
        taken.append(table_id)
        yield True

    monkeypatch.setattr("seqstore.store.transaction.statement.retry_lock", noted)
    attempts: list[int] = []

    def work(opened: TransactionTable) -> tuple[int, LoadResult | None]:
        attempts.append(opened.version)
        found = opened.update({"a": pc.field("a") + 1}, HERE)
        if len(attempts) == 1:  # another statement is faster
            table.update({"a": 50}, HERE)
        return found

    done = run_statement(table, work, DmlOptions("UPDATE", concurrency="optimistic", retries=2))
    assert (len(attempts), taken, done.rows_changed) == (2, [table.id], 1)
    run_statement(table, work, DmlOptions("UPDATE", concurrency="optimistic"))
    assert (len(attempts), taken) == (3, [table.id])


def test_show_transaction_tells_the_term_of_a_running_one(store: Store, table: Table) -> None:
    """X13, X15"""
    with Session(store, "db") as session:
        list(session.execute("SET insert_timeout = 50, query_timeout = 70"))
        list(session.execute("BEGIN WITH LABEL l; UPDATE t SET a = 0 WHERE k = 1"))
        shown = list(session.execute("SHOW TRANSACTION WHERE label = 'l'"))[-1].rows
    assert shown is not None
    assert shown.column("TimeoutMs").to_pylist() == ["70000"]


def test_a_commit_leaves_the_reason_of_whoever_aborted_it(store: Store, table: Table) -> None:
    """X20: told as it was given, not wrapped in what the commit says."""
    transaction = begun(store)
    store.abort_transaction("db", label="l", reason="because of you")
    with pytest.raises(InvalidInputError, match="abort reason: because of you"):
        transaction.commit()
    assert stored_record(table).reason == "because of you"


def test_a_rollback_leaves_the_reason_of_whoever_aborted_it(store: Store, table: Table) -> None:
    """X20"""
    transaction = begun(store)
    store.abort_transaction("db", label="l", reason="because of you")
    transaction.rollback()
    assert stored_record(table).reason == "because of you"


@pytest.mark.parametrize("end", [Transaction.commit, Transaction.rollback], ids=["commit", "rollback"])
def test_the_timer_ends_with_the_transaction(
    store: Store, table: Table, end: Callable[[Transaction], object]
) -> None:
    """Thousands of transactions an hour would keep as many threads."""
    before = set(threading.enumerate())
    transaction = begun(store)
    timers = set(threading.enumerate()) - before
    assert timers
    end(transaction)
    for timer in timers:
        timer.join(WAIT_SECONDS)
        assert not timer.is_alive()


def test_a_label_without_a_database_is_taken_by_the_first_write(store: Store, table: Table) -> None:
    """Only the tables that are written tell its database."""
    with store.transaction(label="l") as one, store.transaction(label="l") as two:
        for transaction in (one, two):
            assert transaction.table("db.t").scan().read_all().num_rows == 2
        one.table("db.t").upsert(pa.table({"k": [3], "a": [30]}))
        with pytest.raises(LabelExistsError):
            two.table("db.t").upsert(pa.table({"k": [4], "a": [40]}))
        two.rollback()


def test_a_transaction_without_a_label_is_stored_when_it_is_committed(store: Store, table: Table) -> None:
    with store.transaction(database="db") as transaction:
        transaction.table("db.t").upsert(pa.table({"k": [3], "a": [30]}))
        with table.catalog.read() as tx:
            assert "PREPARE" not in {record["status"] for _, record in tx.records("txns")}


def test_options_may_be_one_object(store: Store, table: Table) -> None:
    options = TransactionOptions(label="given", operation="NIGHTLY")
    with store.transaction(options) as transaction:
        transaction.table("db.t").update({"a": 0}, HERE)
    with store.transaction(options, label="other") as transaction:
        transaction.table("db.t").update({"a": 1}, HERE)
    last = table.history()[-2:]
    assert [(info.label, info.operation) for info in last] == [("given", "NIGHTLY"), ("other", "NIGHTLY")]
