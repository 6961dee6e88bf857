"""The end of a statement whose load is in a group: KILL, a timeout, a client that has left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pytest

from seqstore import LoadResult, Table, UnavailableError
from seqstore.store.load import group_commit
from seqstore.store.load.group_commit import GroupedLoad
from seqstore.store.runtime.cancellation import Cancellation, interrupted, watched
from tests.support.rows import MakeTable, rows_of

Load = Callable[[int], tuple[Cancellation, "Future[LoadResult]"]]


@pytest.fixture
def table(make_table: MakeTable) -> Table:
    return make_table("k BIGINT NOT NULL")


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Publishes of groups wait for it."""
    event, publish = threading.Event(), group_commit._publish

    def held(*arguments: object) -> object:
        assert event.wait(60)
        return publish(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(group_commit, "_publish", held)
    return event


@pytest.fixture
def load(table: Table, threads: ThreadPoolExecutor) -> Load:
    """Loads one row in a thread, by a statement that may be ended."""

    def begin(key: int) -> tuple[Cancellation, Future[LoadResult]]:
        statement = Cancellation()

        def run() -> LoadResult:
            with watched(statement), GroupedLoad(table, table.begin_load) as load:
                load.write(pa.table({"k": [key]}))
                return load.commit()

        return statement, threads.submit(run)

    return begin


@pytest.fixture
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


def until(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.001)


def waiting(table: Table) -> int:
    group = group_commit._groups.get(table)
    return 0 if group is None else len(group._waiting)


def led(table: Table) -> bool:
    group = group_commit._groups.get(table)
    return group is not None and group._begun == 1


def test_a_member_that_waits_leaves_the_group_and_the_others_go_on(
    table: Table, load: Load, go_on: threading.Event
) -> None:
    _, first = load(1)
    until(lambda: led(table))
    killed, second = load(2)
    until(lambda: waiting(table) == 1)
    _, third = load(3)
    until(lambda: waiting(table) == 2)
    killed.cancel(interrupted())
    with pytest.raises(UnavailableError, match="interrupted"):
        second.result(60)
    assert waiting(table) == 1
    go_on.set()
    assert (first.result(60).version, third.result(60).version) == (2, 3)
    assert sorted(rows_of(table)) == [(1,), (3,)]


def test_the_end_of_the_leader_is_none_of_the_others(
    table: Table, load: Load, go_on: threading.Event
) -> None:
    _, first = load(1)
    until(lambda: led(table))
    leader, second = load(2)
    until(lambda: waiting(table) == 1)
    _, third = load(3)
    until(lambda: waiting(table) == 2)
    group = group_commit._groups[table]
    group._waiting[0].woken.set()  # as if the first one were over: the leader publishes both
    until(lambda: group._begun == 2)
    leader.cancel(interrupted())
    go_on.set()
    assert {each.result(60).rows_loaded for each in (first, second, third)} == {1}
    assert sorted(rows_of(table)) == [(1,), (2,), (3,)]


def test_a_leader_that_was_ended_passes_the_lead_on(table: Table, load: Load, go_on: threading.Event) -> None:
    _, first = load(1)
    until(lambda: led(table))
    with group_commit._groups[table]._lock:
        leader, second = load(2)
        leader.cancel(interrupted())
    go_on.set()
    first.result(60)
    with pytest.raises(UnavailableError, match="interrupted"):
        second.result(60)
    _, third = load(3)
    third.result(60)
    assert sorted(rows_of(table)) == [(1,), (3,)]
