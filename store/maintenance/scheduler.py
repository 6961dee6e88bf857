"""Automatic maintenance: compaction after loads, and vacuum from time to time.

1. After its publish, a load inspects the table's segments (compaction_policy). If there is work, the table is
   put on a list of its store handle. The load's reply does not wait.
2. There are two lists, for tiny segments and for large ones, so that small loads do not pile up while a large
   segment is rewritten. One thread per list processes it, table by table, and ends when it is empty. A file
   lock permits one compaction per table and list at a time over all processes; a process that finds the lock
   held skips the table.
3. With the setting `compaction_process` another process does both lists (maintenance.compaction_process).
4. After a compaction old versions are removed, every `vacuum_seconds`; earlier when compactions have replaced
   half of the table since, later when a vacuum needs long.

A failure changes no data and is kept in `last_failure`; the next load tries again. When the store is closed
or the process ends, a compaction stops between two segments. `Store.maintain` does the same at once, for
servers and schedules.
"""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from seqstore.store.errors import NotFoundError, StoreError
from seqstore.store.maintenance.compaction import OPTIMIZE, Compaction, CompactionResult
from seqstore.store.maintenance.compaction_policy import MaintenancePolicy, choose_large, choose_tiny
from seqstore.store.maintenance.compaction_process import AFTER_LOAD, MAINTAIN, CompactionProcess
from seqstore.store.maintenance.retention import vacuum_unless_busy
from seqstore.store.maintenance.segment_merge import MergeCancelled
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.internal import internal
from seqstore.store.settings import Settings

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_LOG: Final = logging.getLogger(__name__)
_ROUNDS_MAX: Final = 4
_VACUUM_SHARE: Final = 20  # a vacuum may run for one of so many seconds
_GROWN_BYTES_MIN: Final = 64 * 2**20  # that compactions replaced, before a vacuum comes early
_BEHIND: Final = 4  # times as many small segments show that the other process is starved: threads help
_EARLY: Final = 10  # times as often as `vacuum_seconds` says
_LEFT_ALONE_SECONDS: Final = 0.1  # after another process was found at work on a table

Choose = Callable[[TableState, MaintenancePolicy, Settings], list[LiveSegment]]


@dataclass(frozen=True)
class Work:
    """One of the two kinds of compaction, which run side by side."""

    name: str
    choose: Choose


TINY: Final = Work("tiny", choose_tiny)
LARGE: Final = Work("large", choose_large)


def maintain(
    table: VersionedTable, *, is_cancelled: Callable[[], bool] = lambda: False
) -> list[CompactionResult]:
    """Compacts a table by its policy until there is no work; no-op while another process compacts it."""
    return [result for work in (TINY, LARGE) for result in _compact(table, work, is_cancelled) or ()]


def _compact(
    table: VersionedTable, work: Work, is_cancelled: Callable[[], bool]
) -> list[CompactionResult] | None:
    """Runs compactions; returns None when another process holds the lock."""

    def choose(state: TableState) -> list[LiveSegment]:
        return work.choose(state, MaintenancePolicy.of(state.schema, table.settings), table.settings)

    done: list[CompactionResult] = []
    with _alone(table, work) as is_alone:
        if not is_alone:
            return None
        while len(done) < _ROUNDS_MAX and not (done and is_cancelled()):
            try:
                result = Compaction(table, OPTIMIZE, choose, is_cancelled=is_cancelled).run()
            except MergeCancelled:
                break
            if not result.made_version:
                break
            done.append(result)
    return done


@contextmanager
def _alone(table: VersionedTable, work: Work) -> Iterator[bool]:
    """Locks this work on the table against other processes; yields whether the lock was free.

    The system releases the lock when this process crashes.
    """
    directory = table.catalog.path.parent / "locks"
    directory.mkdir(exist_ok=True)
    with (directory / f"maintain-{table.id}-{work.name}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            try:
                yield True
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # a child forked meanwhile would keep it


@dataclass
class _VacuumPace:
    """When to vacuum a table: time and duration of the last vacuum, and the bytes replaced since then."""

    ended: float | None = None
    seconds: float = 0.0
    replaced: int = 0

    def is_due(self, table: VersionedTable) -> bool:
        if self.ended is None:
            return True
        wait: float = table.settings.vacuum_seconds
        if self.replaced >= _GROWN_BYTES_MIN:
            metas = [live.segment.meta for live in table.state().segments.values()]
            if self.replaced * 2 >= sum(meta.data_bytes + meta.keys_bytes for meta in metas):
                wait /= _EARLY
        return time.monotonic() - self.ended >= max(wait, self.seconds * _VACUUM_SHARE)


class Maintainer:
    """The lists of tables to maintain of one store handle, and the threads that process them.

    It counts its compactions and keeps its last failure, empty if there was none.
    """

    @internal
    def __init__(self, process: CompactionProcess | None = None) -> None:
        self._process = process
        self._closing = threading.Event()
        self.last_failure = ""
        self.compactions = 0
        self._lock = new_lock()
        self._waiting: dict[Work, dict[int, VersionedTable]] = {TINY: {}, LARGE: {}}
        self._threads: dict[Work, threading.Thread] = {}
        self._is_closed = False
        self._paces: dict[int, _VacuumPace] = {}
        self._left_alone: dict[tuple[Work, int], float] = {}  # until when a table is skipped

    @internal
    def after_load(self, table: VersionedTable, state: TableState) -> None:
        """Puts a table on the lists when a load made it need maintenance.

        A compaction slows the loads beside it, so small segments may exceed the policy's limit by half: then
        there is a merge after every dozen of loads, not after every few.
        """
        policy = MaintenancePolicy.of(state.schema, table.settings)
        if not policy.is_automatic:
            return
        patient = replace(policy, segments_max=policy.segments_max * 3 // 2)
        for work in (TINY, LARGE):
            if work.choose(state, patient, table.settings):
                is_asked = self._process is not None and self._process.ask(AFTER_LOAD, table.name)
                is_behind = replace(policy, segments_max=policy.segments_max * _BEHIND)
                if not is_asked or (work is TINY and work.choose(state, is_behind, table.settings)):
                    self._put(table, work)

    def _put(self, table: VersionedTable, work: Work) -> None:
        if time.monotonic() < self._left_alone.get((work, table.id), 0.0):
            return
        with self._lock:
            if self._is_closed:
                return
            self._waiting[work][table.id] = table
            thread = self._threads.get(work)
            if thread is None or not thread.is_alive():  # a forked child has no such thread
                name = f"seqstore-maintenance-{work.name}"
                thread = threading.Thread(target=self._work_off, args=(work,), name=name)
                self._threads[work] = thread
                thread.start()

    def wait(self) -> None:
        """Waits until the lists are empty."""
        while any(self.wait_for(work) for work in (TINY, LARGE)):  # one list may add work to the other
            pass

    @internal
    def wait_for(self, work: Work) -> bool:
        """Waits until one list is empty; returns whether its thread ran."""
        thread = self._threads.get(work)
        if thread is None or thread is threading.current_thread():
            return False
        thread.join()
        with self._lock:
            if self._threads.get(work) is thread:  # it ended by an error
                del self._threads[work]
        return True

    def close(self) -> None:
        """Accepts no more tables; waits until the running compaction has stopped."""
        self._closing.set()
        with self._lock:
            self._is_closed = True
            for waiting in self._waiting.values():
                waiting.clear()
        if self._process is not None:
            self._process.close()
        self.wait()

    @internal
    def forget(self, tables: Collection[int]) -> None:
        """Forgets what it knows of tables that were dropped, given by id."""
        with self._lock:
            for table_id in tables:
                self._paces.pop(table_id, None)
                for work in (TINY, LARGE):
                    self._waiting[work].pop(table_id, None)
                    self._left_alone.pop((work, table_id), None)

    @internal
    def vacuum(self, table: VersionedTable) -> None:
        """Removes old versions, unless that happened a moment ago."""
        with self._lock:
            pace = self._paces.setdefault(table.id, _VacuumPace())
            if not pace.is_due(table):
                return
            pace.ended, pace.replaced = time.monotonic(), 0
        started = time.monotonic()
        vacuum_unless_busy(table)
        pace.seconds = time.monotonic() - started

    def _count(self, table: VersionedTable, done: Sequence[CompactionResult]) -> None:
        """Counts compactions of a table, and the bytes that they replaced."""
        self.compactions += len(done)
        with self._lock:
            pace = self._paces.setdefault(table.id, _VacuumPace())
            pace.replaced += sum(result.bytes_read for result in done)

    @internal
    def maintain_all(
        self,
        names: Sequence[str],
        open_table: Callable[[str], VersionedTable],
        is_cancelled: Callable[[], bool],
    ) -> dict[str, int]:
        """Maintains every table, whichever process loads it; see `Store.maintain`."""

        def stops() -> bool:
            return self._is_closed or is_cancelled()

        done: dict[str, int] = {}
        failure: Exception | None = None
        for name in names:
            if stops():
                break
            try:
                table = open_table(name)
                if MaintenancePolicy.of(table.schema, table.settings).is_automatic:
                    if self._process is not None and self._process.ask(MAINTAIN, table.name):
                        continue
                    results = maintain(table, is_cancelled=stops)
                    done[name] = len(results)
                    self._count(table, results)
                    self.vacuum(table)
            except NotFoundError:
                continue  # dropped meanwhile
            except Exception as error:  # the other tables are maintained all the same
                self.last_failure = f"{name}: {error}"
                failure = failure or error
        if failure is not None:
            raise failure
        return done

    def _is_cancelled(self) -> bool:
        # At the interpreter's end the main thread stops first and then waits for this one.
        return self._is_closed or not threading.main_thread().is_alive()

    def _work_off(self, work: Work) -> None:
        waiting = self._waiting[work]
        while True:
            with self._lock:
                if not waiting:
                    del self._threads[work]
                    return
                table = waiting.pop(next(iter(waiting)))
            started = time.monotonic()
            try:
                done = _compact(table, work, self._is_cancelled)
                if done is None:
                    self._left_alone[work, table.id] = time.monotonic() + _LEFT_ALONE_SECONDS
                    continue
                self._count(table, done)
                if done and not self._is_cancelled():
                    self.vacuum(table)
                    self.after_load(table, table.state())  # the result may be work for the other list
                if work is LARGE and (rate := table.settings.compaction_write_bytes_per_second):
                    written = sum(result.bytes_written for result in done)
                    self._closing.wait(max(written / rate - (time.monotonic() - started), 0.0))
            except Exception as error:  # the thread goes on with the other tables
                self.last_failure = f"{table.name}: {error}"
                if not isinstance(error, StoreError | OSError):
                    _LOG.exception("%s: maintenance failed", table.name)
