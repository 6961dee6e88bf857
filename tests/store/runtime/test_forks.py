"""A store across `os.fork`: parent, child and other threads of the parent go on."""

from __future__ import annotations

import os
import threading
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqstore import ClosedError, Settings, Store, Table
from seqstore.store.catalog.catalog import FORMAT
from seqstore.store.catalog.environment import is_open, open_environments
from seqstore.store.catalog.update_lock import update_lock
from seqstore.store.errors import UnavailableError
from tests.support.rows import rows_of, schema_of

CHILDREN = 3


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))


def put(table: Table, key: int, value: str) -> None:
    table.upsert(pa.table({"k": [key], "v": [value]}))


def in_child(work: Callable[[], bool]) -> int:
    """Forks; the child ends with 0 when `work` answers True. Returns its process id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn where threads run
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if work() else 2
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    return pid


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_process_reads_and_loads(table: Table) -> None:
    """LMDB environments must not cross a fork; Spark workers and multiprocessing do."""
    put(table, 1, "parent")

    def work() -> bool:
        put(table, 2, "child")
        return rows_of(table) == [(1, "parent"), (2, "child")]

    assert status_of(in_child(work)) == 0
    assert rows_of(table) == [(1, "parent"), (2, "child")]
    put(table, 2, "parent")
    assert (table.version, table.check()) == (4, [])


def test_a_fork_in_the_midst_of_other_threads_work_stops_nobody(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Threads read, look up and load all the time, so that a fork meets their locks and transactions."""
    waits = "seqstore.store.catalog.environment.open_environments._FORK_WAIT_SECONDS"
    monkeypatch.setattr(
        waits, 300.0
    )  # on a busy disk a transaction may take longer than the 10 s of the product
    for key in range(8):
        put(table, key, "first")
    done, errors = threading.Event(), []

    def disturb(own: int) -> None:
        try:
            while not done.is_set():
                put(table, own, "thread")
                assert len(rows_of(table)) >= 8
                assert table.get(pa.table({"k": [own]})).num_rows == 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=disturb, args=(100 + i,)) for i in range(3)]
    for thread in threads:
        thread.start()

    def work(number: int) -> bool:
        for _ in range(3):
            put(table, 200 + number, "child")
        return bool(dict(rows_of(table))[200 + number] == "child")

    try:
        children = [in_child(lambda number=number: work(number)) for number in range(CHILDREN)]  # type: ignore[misc]
        assert [status_of(pid) for pid in children] == [0] * CHILDREN, caplog.text
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert errors == []
    rows = dict(rows_of(table))
    assert {rows[key] for key in range(200, 200 + CHILDREN)} == {"child"}
    assert table.check() == []


def test_a_fork_meets_a_moment_without_transactions(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Transactions of several threads that overlap all the time left none, and the child could do nothing."""
    monkeypatch.setattr(open_environments, "_FORK_WAIT_SECONDS", 20.0)
    put(table, 1, "parent")
    done = threading.Event()

    def overlap() -> None:
        while not done.is_set():
            with table.catalog.read():
                done.wait(0.02)

    with ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(overlap) for _ in range(4)]
        try:
            child = in_child(lambda: rows_of(table) == [(1, "parent")])
            assert status_of(child) == 0, caplog.text
        finally:
            done.set()
        for thread in threads:
            thread.result()


def test_a_store_with_an_endless_transaction_keeps_no_other_from_the_child(
    tmp_path: Path, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first open catalog used up the time of all, and the child could use none of them."""
    monkeypatch.setattr(open_environments, "_FORK_WAIT_SECONDS", 2.0)
    begun, done = threading.Event(), threading.Event()

    def work_on(other: Store) -> None:
        begun.set()
        while not done.is_set():
            with other.catalog.read():
                done.wait(0.02)

    put(table, 1, "parent")
    with Store.open(tmp_path / "other") as other, ThreadPoolExecutor(1) as pool, table.catalog.read():
        thread = pool.submit(work_on, other)
        try:
            begun.wait()
            child = in_child(lambda: Store.open(tmp_path / "other").databases() is not None)
            assert status_of(child) == 0
        finally:
            done.set()
        thread.result()


def test_a_load_belongs_to_the_process_that_began_it(tmp_path: Path, table: Table) -> None:
    """The child may leave the block or try to commit: nothing of its parent's load is lost or doubled."""
    with table.begin_load(label="day-1") as load:
        load.write(pa.table({"k": [1], "v": ["parent"]}))

        def work() -> bool:
            with pytest.raises(ClosedError, match="another process"):
                load.commit()
            with pytest.raises(ClosedError, match="another process"):
                load.write(pa.table({"k": [2], "v": ["child"]}))
            load.abort("left")
            return True

        assert status_of(in_child(work)) == 0
        assert load.commit().version == 2
    assert rows_of(table) == [(1, "parent")]
    assert table.check() == []


def test_parent_and_child_close_their_own_catalogs(tmp_path: Path, table: Table) -> None:
    """A catalog without handles is closed once 16 others were opened, in the process that opened it."""

    def open_many(first: int) -> bool:
        for number in range(first, first + 20):
            Store.open(tmp_path / str(number)).close()
        return is_open(tmp_path / str(first + 19) / "catalog") and not is_open(tmp_path / "0" / "catalog")

    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(open_many, 0)
        put(table, 1, "parent")
        child = in_child(lambda: open_many(100) and rows_of(table) == [(1, "parent")])
        assert opening.result()
        assert status_of(child) == 0
    put(table, 2, "parent")
    assert table.check() == []


@pytest.mark.parametrize("end", ["rollback", "commit"])
def test_a_transaction_belongs_to_the_process_that_began_it(table: Table, end: str) -> None:
    """The child may end it, and takes away neither its files nor its label."""
    put(table, 1, "parent")
    store = Store.open(table.catalog.data_dir, settings=Settings(inline_bytes_max=1))
    transaction = store.transaction(label="day-1", timeout_seconds=3600)
    transaction.table("db.t").upsert(pa.table({"k": [2], "v": ["parent"]}))
    transaction.table("db.t").delete_where(pc.field("k") == 1)

    def work() -> bool:
        if end == "rollback":
            transaction.rollback()
            return True
        with pytest.raises(ClosedError, match="another process"):
            transaction.commit()
        return True

    assert status_of(in_child(work)) == 0
    transaction.commit()
    assert (rows_of(table), table.check()) == ([(2, "parent")], [])


def test_a_fork_within_a_transaction_leaves_the_parent_whole(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The child gets an error, and the parent logs a warning; the open catalog stays the parent's."""
    monkeypatch.setattr(open_environments, "_FORK_WAIT_SECONDS", 0.05)
    put(table, 1, "parent")

    def work() -> bool:
        with pytest.raises(UnavailableError, match="forked while a transaction"):
            rows_of(table)
        return True

    with table.catalog.read() as tx:
        assert status_of(in_child(work)) == 0
        assert tx.get("meta", b"format") == FORMAT
    assert "transactions run while this process forks" in caplog.text
    put(table, 2, "parent")
    assert (len(rows_of(table)), table.check()) == (2, [])


def test_a_child_may_leave_the_block_of_its_parent_s_update_lock(tmp_path: Path) -> None:
    held = ExitStack()
    held.enter_context(update_lock(tmp_path / "locks", 1, 0))

    def work() -> bool:
        held.close()
        return True

    with held:
        assert status_of(in_child(work)) == 0


def test_a_child_that_leaves_the_block_closes_no_lock_of_its_own(tmp_path: Path) -> None:
    """The descriptor of the parent's lock is closed in the child, so its number is the next to be given."""
    held = ExitStack()
    held.enter_context(update_lock(tmp_path / "locks", 1, 0))

    def work() -> bool:
        with update_lock(tmp_path / "locks", 2, 0):
            held.close()
            with pytest.raises(UnavailableError), update_lock(tmp_path / "locks", 2, 0):
                pass
        return True

    with held:
        assert status_of(in_child(work)) == 0


def test_parent_and_children_write_files_at_the_same_time(tmp_path: Path, table: Table) -> None:
    """Each has its own buffer: what one writes is in no other's file."""
    keys, loads = 2000, 5

    def load(own: int) -> bool:
        for number in range(loads):
            values = [f"{own}.{number}." * 8] * keys
            table.upsert(pa.table({"k": list(range(own * keys, (own + 1) * keys)), "v": values}))
        return True

    put(table, 0, "before")  # so that this thread has its buffer
    children = [in_child(lambda own=own: load(own)) for own in range(1, 1 + CHILDREN)]  # type: ignore[misc]
    load(0)
    assert [status_of(pid) for pid in children] == [0] * CHILDREN
    assert table.check() == []
    last = {key: f"{key // keys}.{loads - 1}." * 8 for key in range((CHILDREN + 1) * keys)}
    assert dict(rows_of(table)) == last
