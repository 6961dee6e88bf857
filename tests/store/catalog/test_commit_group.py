"""Writers that share a commit: all of it or nothing, each one's failure its own, and few fsyncs."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seqstore import Column, NotFoundError, Store, TableSchema, parse_type
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import commit_group, environment
from seqstore.store.catalog.environment.commit_group import QueuedWriter
from seqstore.store.errors import AlreadyExistsError, CommitUnknownError, StoreError, UnavailableError

SCHEMA = TableSchema.create(
    [Column("k", parse_type("INT"), nullable=False), Column("v", parse_type("INT"))], key=["k"]
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data") as opened:
        opened.create_database("db")
        opened.create_table("db.t", SCHEMA)
        yield opened


@pytest.fixture(autouse=True)
def patient_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    """No leader commits early because the machine is slow: all that wait behind it belong to its group."""
    monkeypatch.setattr(commit_group, "_GROUP_SECONDS", math.inf)


class Commits:
    """Counts commits of LMDB, and may hold or break them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fails = False
        self.error: StoreError = UnavailableError("the disk is full", kind="disk")
        self._commit = environment._commit
        monkeypatch.setattr(environment, "_commit", self)

    def __call__(self, env: Any, txn: Any) -> None:
        self.count += 1
        if self.fails:
            raise self.error
        self._commit(env, txn)


class WatchedQueue(deque[QueuedWriter]):
    """The writers that wait; a leader may await a number of them."""

    def __init__(self) -> None:
        super().__init__()
        self._longer = threading.Condition()

    def append(self, writer: QueuedWriter) -> None:
        with self._longer:
            super().append(writer)
            self._longer.notify_all()

    def await_length(self, length: int) -> None:
        with self._longer:
            self._longer.wait_for(lambda: len(self) >= length)


def watched_queue(store: Store) -> WatchedQueue:
    """The queue of the store, watched from now on; no writer may wait yet."""
    queue = store.catalog._environment().queue
    assert not queue.waiting
    queue.waiting = watched = WatchedQueue()
    return watched


@contextmanager
def writer_held_until(
    store: Store, waiting: int, *, refusal: type[Exception] | None = None
) -> Iterator[None]:
    """Around writers: another is ahead of them and commits once so many of them wait behind it."""
    entered = threading.Event()
    queue = watched_queue(store)

    def lead() -> None:
        with store.catalog.write() as tx:
            tx.put("meta", b"leader", 1)
            entered.set()
            queue.await_length(waiting)

    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(lead)
        entered.wait()
        yield
        assert type(leader.exception()) is (refusal or type(None))


def together(store: Store, blocks: list[Callable[[CatalogTransaction], None]]) -> list[BaseException | None]:
    """Runs blocks as writers that all wait behind a leader; what each raised."""
    entered = threading.Event()
    queue = watched_queue(store)

    def run(block: Callable[[CatalogTransaction], None]) -> BaseException | None:
        try:
            with store.catalog.write() as tx:
                block(tx)
        except Exception as error:
            return error
        return None

    def lead(tx: CatalogTransaction) -> None:
        tx.put("meta", b"leader", 1)
        entered.set()
        queue.await_length(len(blocks))

    with ThreadPoolExecutor(len(blocks) + 1) as pool:
        leader = pool.submit(run, lead)
        entered.wait()
        followers = [pool.submit(run, block) for block in blocks]
        return [leader.result(), *(follower.result() for follower in followers)]


def put(key: bytes) -> Callable[[CatalogTransaction], None]:
    def block(tx: CatalogTransaction) -> None:
        tx.put("meta", key, 1)

    return block


def read(store: Store, *keys: bytes) -> list[int | None]:
    with store.catalog.read() as tx:
        return [tx.get("meta", key) for key in keys]


def test_writers_that_wait_share_one_commit(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits(monkeypatch)
    assert together(store, [put(b"k%d" % i) for i in range(20)]) == [None] * 21
    assert commits.count == 1
    assert read(store, b"leader", b"k0", b"k19") == [1, 1, 1]


def test_the_next_writer_alone_prepares_while_the_leader_works(store: Store) -> None:
    """What the others prepare would be of the past when they run."""
    entered, readied = threading.Event(), []
    queue = watched_queue(store)

    def write(number: int) -> None:
        with store.catalog.write(lambda: readied.append(number)) as tx:
            tx.put("meta", b"k%d" % number, 1)
            if not number:
                entered.set()
                queue.await_length(3)

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, 0)]
        entered.wait()
        before = list(readied)
        for number in (1, 2):
            writers.append(pool.submit(write, number))
            queue.await_length(number)
        writers.append(pool.submit(write, 3))
        assert [writer.result() for writer in writers] == [None] * 4
    assert readied == [*before, 1]
    assert read(store, b"k1", b"k3") == [1, 1]


def test_a_follower_that_fails_takes_back_only_its_own(store: Store) -> None:
    def fail(tx: CatalogTransaction) -> None:
        tx.put("meta", b"bad", 1)
        raise NotFoundError("nothing here")

    outcomes = together(store, [put(b"a"), fail, put(b"b")])
    assert [type(outcome) for outcome in outcomes] == [type(None), type(None), NotFoundError, type(None)]
    assert read(store, b"a", b"bad", b"b") == [1, None, 1]


def test_a_follower_sees_what_was_written_before_it(store: Store) -> None:
    seen: list[tuple[int | None, bool]] = []

    def look(tx: CatalogTransaction) -> None:
        seen.append((tx.get("meta", b"leader"), tx.is_shared))

    together(store, [look])
    assert seen == [(1, True)]


def test_a_commit_that_fails_fails_for_all_and_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = Commits(monkeypatch)
    commits.fails = True
    outcomes = together(store, [put(b"a"), put(b"b")])
    assert [str(outcome) for outcome in outcomes] == ["the disk is full"] * 3
    commits.fails = False
    assert read(store, b"leader", b"a", b"b") == [None, None, None]
    assert together(store, [put(b"c")]) == [None, None]


def refuse_what_the_leader_wrote(tx: CatalogTransaction) -> None:
    if tx.get("meta", b"leader"):
        raise AlreadyExistsError("the leader was first")


@pytest.mark.parametrize("is_unknown", [False, True])
def test_a_follower_is_not_refused_for_what_was_never_committed(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_unknown: bool
) -> None:
    """A follower that met the leader's label was refused for it, and then the leader's commit failed."""
    commits = Commits(monkeypatch)
    commits.fails = True
    if is_unknown:
        commits.error = CommitUnknownError("the disk failed to sync it", kind="disk")
    refused = together(store, [refuse_what_the_leader_wrote])[1]
    assert isinstance(refused, UnavailableError)
    assert str(commits.error) in str(refused)
    assert isinstance(refused.__cause__, AlreadyExistsError)


def test_a_follower_is_refused_after_the_commit_of_what_it_read(store: Store) -> None:
    """A follower was refused first: the load that its label belonged to could not be found yet."""
    seen: list[list[int | None]] = []
    entered = threading.Event()
    queue = watched_queue(store)

    def lead() -> None:
        with store.catalog.write() as tx:
            tx.put("meta", b"leader", 1)
            entered.set()
            queue.await_length(1)

    def follow() -> None:
        entered.wait()
        try:
            with store.catalog.write() as tx:
                refuse_what_the_leader_wrote(tx)
        except AlreadyExistsError:
            seen.append(read(store, b"leader"))

    with ThreadPoolExecutor(2) as pool:
        leader, follower = pool.submit(lead), pool.submit(follow)
        leader.result()
        follower.result()
    assert seen == [[1]]


def test_a_table_of_a_failed_commit_does_not_exist_for_its_follower(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = Commits(monkeypatch)
    commits.fails = True
    with ThreadPoolExecutor(2) as pool:
        with writer_held_until(store, 2, refusal=UnavailableError):
            made = [pool.submit(store.create_table, "db.new", SCHEMA) for _ in range(2)]
        assert [type(future.exception()) for future in made] == [UnavailableError] * 2
    commits.fails = False
    store.create_table("db.new", SCHEMA)


def test_a_leader_that_fails_fails_alone(store: Store) -> None:
    def fail() -> None:
        with store.catalog.write() as tx:
            tx.put("meta", b"x", 1)
            raise NotFoundError("no")

    with pytest.raises(NotFoundError):
        fail()
    assert read(store, b"x") == [None]
    assert together(store, [put(b"y")]) == [None, None]


def test_concurrent_loads_of_one_table_are_all_there_and_share_commits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = Commits(monkeypatch)
    loads, rows, threads = 200, 5, 32
    table = store.table("db.t")

    def load(i: int) -> int:
        data = pa.table({"k": list(range(i * rows, (i + 1) * rows)), "v": [i] * rows})
        return table.upsert(data).version

    with ThreadPoolExecutor(threads) as pool:
        with writer_held_until(store, threads):
            first = [pool.submit(load, i) for i in range(threads)]
        versions = [load.result() for load in first]
        assert commits.count == 1
        versions += pool.map(load, range(threads, loads))
    assert sorted(versions) == list(range(2, loads + 2))
    assert table.count() == loads * rows
    assert table.check() == []


def test_concurrent_loads_of_the_same_keys_leave_one_row_each(store: Store) -> None:
    def load(i: int) -> tuple[int, int]:
        data = pa.table({"k": [1, 2, 3], "v": [i, i, i]})
        return store.table("db.t").upsert(data).version, i

    with ThreadPoolExecutor(32) as pool:
        newest, winner = max(pool.map(load, range(100)))
    assert newest == 101
    rows = store.scan("db.t").read_all().sort_by("k").to_pylist()
    assert rows == [{"k": k, "v": winner} for k in (1, 2, 3)]
    assert store.table("db.t").check() == []


def test_a_transaction_of_a_log_shares_its_commit_with_no_follower(store: Store) -> None:
    """A writer that joined the application of a log was neither refused at a follower nor shipped by a
    leader: only leaders of a group were asked whether they may write.
    """
    entered, queue = threading.Event(), watched_queue(store)
    shared: list[bool] = []

    def apply() -> None:
        with store.catalog.following():
            entered.set()
            queue.await_length(1)

    def write() -> None:
        with store.catalog.write() as tx:
            shared.append(tx.is_shared)

    with ThreadPoolExecutor(2) as pool:
        applying = pool.submit(apply)
        entered.wait()
        pool.submit(write).result()
        applying.result()
    assert shared == [False]


def test_a_transaction_of_a_log_is_no_follower(store: Store) -> None:
    """Writers behind it in the group of another writer would miss what it changes."""
    shared: list[bool] = []

    def follow() -> None:
        with store.catalog.following() as tx:
            shared.append(tx.is_shared)

    with ThreadPoolExecutor(1) as pool, writer_held_until(store, 1):
        following = pool.submit(follow)
    following.result()
    assert shared == [False]


def test_a_deferred_change_waits_for_a_transaction_that_is_shipped(store: Store) -> None:
    """A transaction of a log is not shipped, and at a follower nothing else may change the copy."""
    store.catalog.defer(lambda tx: put(b"deferred")(tx))
    with store.catalog.following():
        pass
    assert read(store, b"deferred") == [None]
    with store.catalog.write():
        pass
    assert read(store, b"deferred") == [1]
