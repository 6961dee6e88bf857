"""The statements of workload groups in one process: how many run and wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from seqstore.store.catalog.workload_groups import WorkloadGroup
from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import cancellation

_LOOK_SECONDS: Final = 0.1
# First words of the statements that a group limits, as in Doris: those that read or write rows.
LIMITED: Final = frozenset(
    [
        "SELECT",
        "WITH",
        "(",
        "DO",
        "INSERT",
        "UPDATE",
        "DELETE",
        "MERGE",
        "CREATE TABLE * AS",
        "CREATE TABLE * FROM",
    ]
)


@dataclass
class _Count:
    running: int = 0
    waiting: int = 0


class WorkloadQueues:
    """The queues of all groups; the sessions of a server share one value."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}
        self._changed = threading.Condition()

    def counts(self, name: str) -> tuple[int, int]:
        """Returns how many statements of a group run and wait."""
        with self._changed:
            found = self._counts.get(name, _Count())
            return found.running, found.waiting

    @contextmanager
    def admitted(self, group: WorkloadGroup, find: Callable[[], WorkloadGroup]) -> Iterator[None]:
        """Runs a statement of a group as soon as fewer than `max_concurrency` of them run.

        Args:
            find: returns the group as it is by then; a change applies to statements that wait.

        Raises:
            UnavailableError: the queue is full, or the statement waited too long.
        """
        name = group.name
        self._enter(group, find)
        try:
            yield
        finally:
            with self._changed:
                self._counts[name].running -= 1
                self._changed.notify_all()

    def _enter(self, group: WorkloadGroup, find: Callable[[], WorkloadGroup]) -> None:
        since = time.monotonic()
        with self._changed:
            count = self._counts.setdefault(group.name, _Count())
            if count.running >= group.max_concurrency or count.waiting:
                if count.waiting >= group.max_queue_size:
                    raise queue_full(group)
                self._wait(count, find, since)
            count.running += 1

    def _wait(self, count: _Count, find: Callable[[], WorkloadGroup], since: float) -> None:
        count.waiting += 1
        try:
            while count.running >= (group := find()).max_concurrency:
                waited_ms = (time.monotonic() - since) * 1000
                if waited_ms > group.queue_timeout:
                    raise queue_timeout(group)
                self._changed.wait(min(_LOOK_SECONDS, (group.queue_timeout - waited_ms) / 1000 + 0.001))
                cancellation.check()
        finally:
            count.waiting -= 1


def queue_timeout(group: WorkloadGroup) -> UnavailableError:
    """Returns the error of a statement that waited for too long."""
    return UnavailableError(
        f"query queue timeout, timeout: {group.queue_timeout} ms, workload group '{group.name}'; try again "
        "later, or raise its queue_timeout",
        kind="queue_timeout",
    )


def queue_full(group: WorkloadGroup) -> UnavailableError:
    """Returns the error of a statement for which the queue has no place."""
    return UnavailableError(
        f"query waiting queue is full, queue length={group.max_queue_size}, workload group '{group.name}' "
        f"runs {group.max_concurrency} statements; try again later",
        kind="queue_full",
    )
