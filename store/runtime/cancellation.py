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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from seqstore.store.errors import StoreError, UnavailableError
from seqstore.store.runtime.forks import new_lock

_LOOK_SECONDS: Final = 0.1
_numbers: Final = itertools.count(1)


class Cancellation:
    """The cancellation of one statement; threads may share it.

    Args:
        look: called ten times a second while the statement runs, with the cancellation; it may cancel.
        owner: the user that runs the statement.

    Attributes:
        number: grows from statement to statement.
    """

    def __init__(self, look: Callable[[Cancellation], None] | None = None, owner: str = "") -> None:
        self._look = look
        self.owner = owner
        self.number = next(_numbers)
        self._error: StoreError | None = None
        self._interrupts: list[Callable[[], object]] = []
        self._lock = new_lock()

    @property
    def error(self) -> StoreError | None:
        """The reason of the cancellation, None while the statement may continue."""
        return self._error

    def cancel(self, error: StoreError) -> None:
        """Ends the statement with an error; the first reason counts."""
        self._error = self._error or error
        self._interrupt()

    def check(self) -> None:
        """Raises the reason if the statement was cancelled."""
        if self._error is not None:
            raise self._error

    def add(self, interrupt: Callable[[], object]) -> None:
        """Registers a call that ends a part of the statement; it may be called several times."""
        with self._lock:
            self._interrupts.append(interrupt)

    def remove(self, interrupt: Callable[[], object]) -> None:
        """Forgets a call; after the return no thread runs it."""
        with self._lock, suppress(ValueError):
            self._interrupts.remove(interrupt)

    def look(self) -> None:
        """Calls `look` of the statement, and repeats the interrupts if it was cancelled."""
        if self._look is not None:
            self._look(self)
        if self._error is not None:
            self._interrupt()

    def _interrupt(self) -> None:
        with self._lock:
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
def watched(cancellation: Cancellation) -> Iterator[Cancellation]:
    """Runs a statement that may be cancelled."""
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
