"""The end of a statement whose load is in a group: KILL, a timeout, a client that has left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pytest

from seqstore import LoadResult, Table, UnavailableError
from seqstore.store.load import group_commit
from seqstore.store.load.group_commit import GroupedLoad
from seqstore.store.runtime.cancellation import Cancellation, interrupted, watched
from tests.support.rows import MakeTable, rows_of
from tests.support.waiting import until

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
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as started:
        yield started


def waiting(table: Table) -> int:
    group = group_commit._groups.get(table)
    return 0 if group is None else group.waiting


def led(table: Table) -> bool:
    group = group_commit._groups.get(table)
    return group is not None and group._begun == 1


def three(table: Table, load: Load) -> tuple[Cancellation, list[Future[LoadResult]]]:
    """Begins three loads: the first is being published, the others wait in their order.

    Returns:
        The statement of the second one, and what comes of all.
    """
    _, first = load(1)
    until(lambda: led(table))
    statement, second = load(2)
    until(lambda: waiting(table) == 1)
    _, third = load(3)
    until(lambda: waiting(table) == 2)
    return statement, [first, second, third]


def test_a_member_that_waits_leaves_the_group_and_the_others_go_on(
    table: Table, load: Load, go_on: threading.Event
) -> None:
    killed, (first, second, third) = three(table, load)
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
    leader, loads = three(table, load)
    group = group_commit._groups[table]
    group._waiting[0].woken.set()  # as if the first one were over: the leader publishes both
    until(lambda: group._begun == 2)
    leader.cancel(interrupted())
    go_on.set()
    assert {each.result(60).rows_loaded for each in loads} == {1}
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
