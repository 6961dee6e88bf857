"""The end of a running statement on request of another thread: KILL, a timeout, a client that has left.

1. A statement runs within `watched(Cancellation(...))`, which makes it the current one of its thread.
2. Work in DuckDB registers the call that interrupts it (`interruptible`). Work in Python and Arrow calls
   `check` between batches. Threads that work for the statement capture `current()` where it is known.
3. One thread of the process looks at all watched statements, ten times a second: it cancels those whose time
   is over or whose client has left. It repeats the interrupts of cancelled ones, because DuckDB forgets an
   interrupt that comes just before a query starts.
"""

from __future__ import annotations

import itertools
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from seqstore.store.errors import StoreError, UnavailableError
from seqstore.store.runtime.forks import new_lock, new_rlock

_LOOK_SECONDS: Final = 0.1
_RUSAGE_THREAD: Final = getattr(resource, "RUSAGE_THREAD", None)
_MINOR_FAULTS: Final = 7  # of the fields behind the name in /proc/self/task/*/stat
_numbers: Final = itertools.count(1)
# Guards the interrupts of all statements; each takes a moment. A finalizer may need it again in its thread.
_interrupting: Final = new_rlock()


class Cancellation:
    """The cancellation of one statement; threads may share it.

    Args:
        look: called ten times a second while the statement runs, with the cancellation; it may cancel.
        owner: the user that runs the statement.

    Attributes:
        number: grows from statement to statement.
        error: the reason of the cancellation, None while the statement may continue.
        since: `time.monotonic()` when the statement began.
        is_waiting: the statement waits for memory, and holds little.
        touched_before: the sum of `touched_bytes` so far.
    """

    def __init__(self, look: Callable[[Cancellation], None] | None = None, owner: str = "") -> None:
        self._look = look
        self.owner = owner
        self.number = next(_numbers)
        self.error: StoreError | None = None
        self.since = time.monotonic()
        self.is_waiting = False
        self._thread = 0
        self._faults = 0
        self.touched_before = 0
        self._interrupts: list[Callable[[], object]] = []

    def cancel(self, error: StoreError) -> None:
        """Ends the statement with an error; the first reason counts."""
        self.error = self.error or error
        self._interrupt()

    def check(self) -> None:
        """Raises the reason if the statement was cancelled."""
        if self.error is not None:
            raise self.error

    def begin(self) -> None:
        """Notes the thread that runs the statement."""
        self._thread = threading.get_native_id()
        if _RUSAGE_THREAD is not None:
            self._faults = resource.getrusage(_RUSAGE_THREAD).ru_minflt

    def touched_bytes(self) -> int:
        """Returns how much new memory the thread of the statement touched since the last call (Linux)."""
        try:
            stat = Path(f"/proc/self/task/{self._thread}/stat").read_bytes()
        except OSError:  # the thread has ended
            return 0
        before, self._faults = self._faults, int(stat.rpartition(b")")[2].split()[_MINOR_FAULTS])
        touched = max(self._faults - before, 0) * resource.getpagesize()
        self.touched_before += touched
        return touched

    def add(self, interrupt: Callable[[], object]) -> None:
        """Registers a call that ends a part of the statement; it may be called several times."""
        with _interrupting:
            self._interrupts.append(interrupt)

    def remove(self, interrupt: Callable[[], object]) -> None:
        """Forgets a call; after the return no thread runs it."""
        with _interrupting, suppress(ValueError):
            self._interrupts.remove(interrupt)

    def look(self) -> None:
        """Calls `look` of the statement, and repeats the interrupts if it was cancelled."""
        if self._look is not None:
            self._look(self)
        if self.error is not None:
            self._interrupt()

    def _interrupt(self) -> None:
        with _interrupting:
            for interrupt in self._interrupts:
                interrupt()


_thread: Final = threading.local()


def running() -> list[Cancellation]:
    """Returns the watched statements of all threads."""
    return _watcher.all()


def current() -> Cancellation | None:
    """Returns the cancellation of the statement that this thread runs, None outside of statements."""
    return getattr(_thread, "current", None)


def check() -> None:
    """Raises the reason if the statement of this thread was cancelled."""
    found = current()
    if found is not None:
        found.check()


@contextmanager
def within(cancellation: Cancellation | None) -> Iterator[None]:
    """Makes a cancellation the current one of this thread."""
    before, _thread.current = current(), cancellation
    try:
        yield
    finally:
        _thread.current = before


@contextmanager
def waiting() -> Iterator[None]:
    """Marks the statement of this thread as waiting for memory."""
    found = current()
    if found is None:
        yield
        return
    found.is_waiting = True
    try:
        yield
    finally:
        found.is_waiting = False


@contextmanager
def watched(cancellation: Cancellation) -> Iterator[Cancellation]:
    """Runs a statement that may be cancelled."""
    cancellation.begin()
    _watcher.add(cancellation)
    try:
        with within(cancellation):
            yield cancellation
    finally:
        _watcher.remove(cancellation)


@contextmanager
def interruptible(interrupt: Callable[[], object]) -> Iterator[None]:
    """Runs work that `interrupt` ends from another thread, with the reason as its error."""
    found = current()
    if found is None:
        yield
        return
    found.add(interrupt)
    try:
        found.check()
        yield
    except Exception as error:
        if found.error is not None and error is not found.error:
            raise found.error from error
        raise
    finally:
        found.remove(interrupt)


def interrupted() -> UnavailableError:
    """Builds the error of a statement that a user or the server ended."""
    return UnavailableError("Query execution was interrupted", kind="interrupted")


class _Watcher:
    """The thread that looks at statements; it sleeps while none runs."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._watched: set[Cancellation] = set()
        self._has_some = threading.Event()
        self._process = 0

    def add(self, cancellation: Cancellation) -> None:
        with self._lock:
            self._watched.add(cancellation)
            if self._process != os.getpid():  # the first statement, or the first after a fork
                self._process = os.getpid()
                self._has_some = threading.Event()
                threading.Thread(target=self._run, args=(self._has_some,), name="watch", daemon=True).start()
        if not self._has_some.is_set():
            self._has_some.set()

    def remove(self, cancellation: Cancellation) -> None:
        with self._lock:
            self._watched.discard(cancellation)

    def all(self) -> list[Cancellation]:
        with self._lock:
            return list(self._watched)

    def _run(self, has_some: threading.Event) -> None:
        while True:
            has_some.wait()
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                watched = list(self._watched)
                if not watched:
                    has_some.clear()
            for cancellation in watched:
                cancellation.look()


_watcher: Final = _Watcher()
