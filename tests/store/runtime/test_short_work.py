"""Turns of short work: one thread has a turn at a time, and no wait for one is long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import pyarrow as pa
import pytest

from seqstore import Store, Table
from seqstore.store.runtime import short_work
from seqstore.store.runtime.short_work import publishing_turn, staging_turn
from tests.support.rows import rows_of
from tests.support.waiting import until

Turn = Callable[[], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def free_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of another test, and waits that no slow machine ends by chance."""
    monkeypatch.setattr(short_work, "_door", short_work._Queue(60))
    monkeypatch.setattr(short_work, "_turn", short_work._Queue(60))
    monkeypatch.setattr(short_work, "_PUBLISHING_SECONDS", 60)


class Worker:
    """A thread that has a turn until the test calls `end`."""

    def __init__(self, turn: Turn) -> None:
        self.has_turn, self._may_end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(turn,), daemon=True)
        self._thread.start()

    def _run(self, turn: Turn) -> None:
        with turn():
            self.has_turn.set()
            self._may_end.wait()

    def end(self) -> None:
        self._may_end.set()
        self._thread.join()


def test_one_thread_works_at_a_time() -> None:
    at_work, most = 0, 0

    def work(number: int) -> None:
        nonlocal at_work, most
        with staging_turn() if number % 3 else publishing_turn():
            at_work += 1
            most = max(most, at_work)
            at_work -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(2_000)))
    assert most == 1


def test_loads_wait_at_the_door_and_publishing_does_not() -> None:
    short_work._door._lock.acquire()
    staging, publishing = Worker(staging_turn), Worker(publishing_turn)
    assert publishing.has_turn.wait(60)
    assert not staging.has_turn.is_set()
    short_work._door._lock.release()
    until(short_work._door._lock.locked)
    assert not staging.has_turn.is_set()  # it waits for the turn by now
    publishing.end()
    assert staging.has_turn.wait(60)
    staging.end()


def test_a_turn_within_a_turn_of_the_thread_is_none() -> None:
    with staging_turn(), staging_turn(), publishing_turn():
        assert short_work._turn._lock.locked()
    assert not short_work._turn._lock.locked()
    assert not short_work._door._lock.locked()


def test_an_error_ends_its_turn() -> None:
    with pytest.raises(ZeroDivisionError), staging_turn():
        raise ZeroDivisionError
    assert not short_work._turn._lock.locked()
    assert not short_work._door._lock.locked()


@pytest.mark.parametrize("queue", ["_door", "_turn"])
def test_what_nobody_frees_is_waited_for_once(monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    lost = short_work._Queue(0.05)
    monkeypatch.setattr(short_work, queue, lost)
    held = lost._lock
    held.acquire()
    with staging_turn():
        assert lost._lock is not held
    lost._seconds = 60  # a second wait would be noticed
    for _ in range(3):
        with staging_turn():
            pass


def test_publishing_goes_on_beside_a_turn_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_work, "_PUBLISHING_SECONDS", 0.01)
    staging = Worker(staging_turn)
    assert staging.has_turn.wait(60)
    with publishing_turn():
        pass
    assert short_work._turn._lock.locked()  # the other one has it still
    staging.end()
    assert not short_work._turn._lock.locked()


@pytest.mark.sql("CREATE TABLE t (k BIGINT NOT NULL AUTO_INCREMENT, v INT) UNIQUE KEY(k)")
def test_small_loads_of_threads_are_all_there(store: Store) -> None:
    """Also beside a thread that keeps its turn, and for a key that the catalog gives out meanwhile."""
    table = store.table("db.t")
    keeps = Worker(staging_turn)
    assert keeps.has_turn.wait(60)
    short_work._door._seconds = short_work._turn._seconds = 0.05
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: load(table, number), range(64)))
    keeps.end()
    assert sorted(value for _, value in rows_of(table)) == sorted(list(range(64)) * 3)
    assert table.version == 65


def load(table: Table, number: int) -> None:
    table.upsert(pa.table({"v": pa.array([number] * 3, pa.int32())}))
