"""Maintenance without being asked: compaction after loads, and vacuum now and then.

1. A load that was published looks at the table's segments (store.compaction_policy); when there is something
   to merge, the table is put on the list of its store handle. The load's reply does not wait.
2. One thread per store handle works the list off, table by table, and ends when it is empty. A file lock
   makes it one compaction per table at a time over all processes; who finds it taken leaves the table alone.
3. After a compaction old versions are taken away, at most every few minutes.

A failure changes nothing and is kept in `last_failure`; the next load tries again. When the store is closed
or the process ends, a compaction stops between two segments. `Store.maintain` does the same at once, for
servers and schedules.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from store.compaction import OPTIMIZE, Compaction, CompactionResult
from store.compaction_policy import choose_segments
from store.errors import NotFoundError, StoreError
from store.forks import new_lock
from store.merge import MergeCancelled
from store.table_state import LiveSegment, TableState

if TYPE_CHECKING:
    from store.table import Table

_ROUNDS_MAX: Final = 4
_VACUUM_EVERY_SECONDS: Final = 300.0


def maintain(table: Table, *, is_cancelled: Callable[[], bool] = lambda: False) -> list[CompactionResult]:
    """Compacts a table as its policy says, until it is in order; nothing when another process is at it."""

    def choose(state: TableState) -> list[LiveSegment]:
        return choose_segments(state, table.policy(state.schema), table.settings)

    done: list[CompactionResult] = []
    with _alone(table) as is_alone:
        while is_alone and len(done) < _ROUNDS_MAX and not (done and is_cancelled()):
            try:
                result = Compaction(table, OPTIMIZE, choose, is_cancelled=is_cancelled).run()
            except MergeCancelled:
                break
            if not result.made_version:
                break
            done.append(result)
    return done


@contextmanager
def _alone(table: Table) -> Iterator[bool]:
    """Whether nobody else maintains the table; keeps others away meanwhile, also after a crash of ours."""
    directory = table.catalog.path.parent / "locks"
    directory.mkdir(exist_ok=True)
    with (directory / f"maintain-{table.id}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            try:
                yield True
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # a child forked meanwhile would keep it


class Maintainer:
    """The list of tables to maintain of one store handle, and the thread that works it off.

    Attributes:
        last_failure: what went wrong last, empty if nothing did.
        compactions: how many it made.
    """

    def __init__(self) -> None:
        self.last_failure = ""
        self.compactions = 0
        self._lock = new_lock()
        self._waiting: dict[int, Table] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._vacuumed: dict[int, float] = {}

    def after_load(self, table: Table, state: TableState) -> None:
        """Puts a table on the list when a load made it need maintenance."""
        policy = table.policy(state.schema)
        if not policy.is_automatic or not choose_segments(state, policy, table.settings):
            return
        with self._lock:
            if self._is_closed:
                return
            self._waiting[table.id] = table
            if self._thread is None or not self._thread.is_alive():  # in a forked child it is not
                self._thread = threading.Thread(target=self._work, name="seqstore-maintenance")
                self._thread.start()

    def wait(self) -> None:
        """Until the list is worked off."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def close(self) -> None:
        """Takes nothing more; waits until the compaction at work has stopped."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
        self.wait()

    def vacuum(self, table: Table) -> None:
        """Takes old versions away unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._vacuumed.get(table.id, -_VACUUM_EVERY_SECONDS) >= _VACUUM_EVERY_SECONDS:
            self._vacuumed[table.id] = now
            table.vacuum()

    def maintain_all(
        self, names: Sequence[str], open_table: Callable[[str], Table], is_cancelled: Callable[[], bool]
    ) -> dict[str, int]:
        """Looks at every table, whoever loads it; see `Store.maintain`."""

        def stops() -> bool:
            return self._is_closed or is_cancelled()

        done: dict[str, int] = {}
        failure: StoreError | None = None
        for name in names:
            if stops():
                break
            try:
                table = open_table(name)
                if table.policy(table.schema).is_automatic:
                    done[name] = len(maintain(table, is_cancelled=stops))
                    self.compactions += done[name]
                    self.vacuum(table)
            except NotFoundError:
                continue  # dropped meanwhile
            except StoreError as error:
                self.last_failure = f"{name}: {error}"
                failure = failure or error
        if failure is not None:
            raise failure
        return done

    def _is_cancelled(self) -> bool:
        # At the interpreter's end the main thread stops first and then waits for this one.
        return self._is_closed or not threading.main_thread().is_alive()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                table = self._waiting.pop(next(iter(self._waiting)))
            try:
                done = maintain(table, is_cancelled=self._is_cancelled)
                self.compactions += len(done)
                if done and not self._is_cancelled():
                    self.vacuum(table)
            except (StoreError, OSError) as error:
                self.last_failure = f"{table.name}: {error}"
