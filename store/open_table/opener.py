"""Shows versions of open tables in time: at once where the table wants that, else by a thread.

1. A process that publishes a version of an open table puts the table on the list of its store handle, to be
   shown `open_every_seconds` later. Versions that are published meanwhile appear together. With 0 the
   version appears before its publisher goes on.
2. A handle that is closed, and a process that ends, shows what is on the list first.
3. A process that was killed leaves that to the next handle of the store, which looks at every table that has
   a log.

A failure hides nothing and is kept in `last_failure`: the version appears with the next one, or when the
thread tries again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from seqstore.store.errors import NotFoundError, StoreError
from seqstore.store.maintenance.segment_merge import MergeCancelled
from seqstore.store.open_table.open_table import OpenTable
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.internal import internal

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_POLL_SECONDS: Final = 0.1  # the end of the main thread wakes no other
_RETRY_SECONDS: Final = 5.0
_LOG: Final = logging.getLogger(__name__)


class Opener:
    """The open tables of one store handle that wait for their appearance, and the thread that shows them.

    It keeps its last failure, empty if there was none.
    """

    @internal
    def __init__(self) -> None:
        self.last_failure = ""
        self._lock = new_lock()
        self._due: dict[int, float] = {}
        self._tables: dict[int, OpenTable] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @internal
    def published(self, table: VersionedTable, every_seconds: float) -> None:
        """Shows the newest version of a table, now or when its time has come."""
        self.of(table)
        if every_seconds <= 0:
            self._show(table.id)
        elif table.id not in self._due:
            self._put(table.id, time.monotonic() + every_seconds)

    @internal
    def of(self, table: VersionedTable) -> OpenTable:
        """Returns the open table of a table; one that is not open has nothing to show."""
        found = self._tables.get(table.id)
        return found if found is not None else self._tables.setdefault(table.id, OpenTable(table))

    @internal
    def forget(self, tables: Collection[int]) -> None:
        """Forgets tables that were dropped, given by id."""
        with self._lock:
            for table_id in tables:
                self._due.pop(table_id, None)
                self._tables.pop(table_id, None)

    def wait(self) -> None:
        """Shows what waits on the list at once, and returns when it is shown."""
        with self._lock:
            waiting, self._due = self._due, {}
        for table_id in waiting:
            self._show(table_id)
        for opened in list(self._tables.values()):
            opened.settle()  # the thread may be at one

    @internal
    def close(self) -> None:
        """Shows what waits on the list, and accepts no more."""
        with self._lock:
            self._is_closed = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            thread.join()
        self.wait()

    def _put(self, table_id: int, due: float) -> None:
        with self._lock:
            self._due.setdefault(table_id, due)
            if self._is_closed:
                return
            if self._thread is None or not self._thread.is_alive():  # a forked child has no such thread
                self._thread = threading.Thread(target=self._work_off, name="seqstore-open-tables")
                self._thread.start()

    def _is_ending(self) -> bool:
        # At the interpreter's end the main thread stops first and then waits for this one.
        return self._is_closed or not threading.main_thread().is_alive()

    def _work_off(self) -> None:
        while True:
            with self._lock:
                if not self._due:
                    self._thread = None
                    return
                table_id = min(self._due, key=self._due.__getitem__)
                seconds = self._due[table_id] - time.monotonic()
                if seconds <= 0 or self._is_ending():
                    del self._due[table_id]
                    seconds = 0
            if seconds > 0:
                time.sleep(min(seconds, _POLL_SECONDS))
            elif not self._show(table_id) and not self._is_ending():
                self._put_again(table_id)

    def _put_again(self, table_id: int) -> None:
        with self._lock:
            self._due.setdefault(table_id, time.monotonic() + _RETRY_SECONDS)

    def _show(self, table_id: int) -> bool:
        """Shows a table; returns whether there is nothing left to do."""
        opened = self._tables.get(table_id)
        if opened is None:  # it was dropped
            return True
        try:
            opened.show(is_cancelled=self._is_ending)
        except NotFoundError:
            self._tables.pop(table_id, None)  # it was dropped
        except MergeCancelled:
            return False
        except (StoreError, OSError) as error:
            self.last_failure = f"{opened.name}: {error}"
            _LOG.warning("%s: a version is not shown to other readers yet: %s", opened.name, error)
            return False
        return True
