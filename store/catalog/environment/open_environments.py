"""The open LMDB environments of this process: one for each path, closed before a fork or when long unused.

Transactions must not cross a fork, and the child must not close the environment that it inherits (that would
free its parent's reader slot). Environments are therefore closed before a fork, after their transactions have
ended; parent and child reopen them at the next use.

Opening an environment checks all its pages, so one without handles stays open for the next handle. It is
closed once 16 other environments were opened after its last handle was added or removed. A removed handle
still works: its next use opens the environment again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from seqstore.store.catalog.environment.data_file import DATA_FILE, identity_of
from seqstore.store.catalog.environment.environment import Environment
from seqstore.store.errors import UnavailableError
from seqstore.store.locks.file_lock import Patience

_log: Final = logging.getLogger(__name__)
_FORK_WAIT_SECONDS: Final = 10.0
_OPENED_SINCE_MAX: Final = 16  # other environments, before one without handles is closed
# By the real path of the directory; `environment` opens those that are not in it.
open_environments: Final[dict[str, Environment]] = {}
_lock: Final = threading.Lock()


class _Handles:
    """The handles of one path, and how many environments were opened before the last of them changed."""

    def __init__(self) -> None:
        self.of: weakref.WeakSet[object] = weakref.WeakSet()  # a handle may vanish without a word
        self.opened_before = 0


class _Usage:
    """The handles by the real path of the directory; the lock of the module guards it."""

    def __init__(self) -> None:
        self.of_path: dict[str, _Handles] = {}
        self._opened = 0

    def changed(self, path: str) -> _Handles:
        """Returns the handles of a path, of which one is about to be added or removed."""
        handles = self.of_path.setdefault(path, _Handles())
        handles.opened_before = self._opened
        return handles

    def opened(self, path: str) -> None:
        """Notes that the environment of a path was opened, and closes those that are long unused."""
        self._opened += 1
        self.changed(path)
        for other, handles in list(self.of_path.items()):
            if handles.of or self._opened - handles.opened_before <= _OPENED_SINCE_MAX:
                continue
            found = open_environments.get(other)
            if found is not None and (found.pid != os.getpid() or not found.close(0)):
                continue  # it is the parent's, or a transaction runs
            open_environments.pop(other, None)
            del self.of_path[other]


_usage: Final = _Usage()


def add_handle(path: str, handle: object) -> None:
    """Keeps the environment of a directory open while the handle is referenced, or until `remove_handle`."""
    with _lock:
        _usage.changed(path).of.add(handle)


def remove_handle(path: str, handle: object) -> None:
    """Lets the environment of a directory be closed when no other handle is left."""
    with _lock:
        _usage.changed(path).of.discard(handle)


def environment(path: str, bytes_max: int, patience: Patience, *, write: bool = False) -> Environment:
    """Returns the environment of a directory; opens it if necessary and enlarges its map to `bytes_max`.

    An environment whose commit failed beyond repair is replaced, and so is one for reading only, before a
    write.

    Args:
        path: the real path of the directory; created when absent.
        bytes_max: size of the map; an open map only grows.
        patience: for the write lock.
        write: a transaction that writes will follow.

    Raises:
        FormatError: the directory is not a store's, or a newer program wrote the catalog.
        CorruptionError: the catalog was cut, emptied or changed.
        UnavailableError: it cannot be opened.
    """
    found = open_environments.get(path)
    if found is not None and write and found.is_read_only:
        found.await_write_lock(patience)
    if found is None or found.bytes_max < bytes_max or found.must_be_replaced(write=write):
        with _lock:
            found = open_environments.get(path)
            if found is not None and found.must_be_replaced(write=write):
                _close(path, found)
                found = None
            if found is None:
                found = open_environments[path] = Environment(Path(path), bytes_max, patience)
                _usage.opened(path)
            else:
                found.grow(bytes_max)
    if found.pid != os.getpid():
        raise UnavailableError(
            f"{path}: this process was forked while a transaction of the catalog was running; "
            "start it afresh (spawn) and open the store there",
            kind="forked",
        )
    return found


def close(path: str) -> None:
    """Closes the environment of a directory, if it is open, for all handles of this process."""
    with _lock:
        found = open_environments.get(path)
        if found is not None:
            _close(path, found)


def _close(path: str, opened: Environment) -> None:
    """Closes an environment that is to be replaced."""
    if not opened.close(_FORK_WAIT_SECONDS):
        raise UnavailableError(
            f"{path}: the catalog must be opened anew, and transactions of this process are still running; "
            "try again",
            kind="catalog",
        )
    del open_environments[path]


def forget_replaced(path: str) -> None:
    """Closes the environment of a directory whose data file was replaced or removed."""
    with _lock:
        found = open_environments.get(path)
        if found is not None and found.identity != identity_of(Path(path) / DATA_FILE) and found.close(None):
            del open_environments[path]


def is_open(path: Path) -> bool:
    """Returns whether this process has the environment of a directory open."""
    return os.path.realpath(path) in open_environments


def _before_fork() -> None:
    """Closes all environments of this process. One whose transaction never ends delays none that is idle, and
    leaves every other one some time."""
    _lock.acquire()
    deadline = time.monotonic() + _FORK_WAIT_SECONDS
    _close_within(lambda: 0.0)
    _close_within(lambda: max(_FORK_WAIT_SECONDS / 10, deadline - time.monotonic()))
    for path, opened in open_environments.items():
        if opened.pid == os.getpid():
            _log.warning(
                "%s: transactions run while this process forks; the child cannot open the store", path
            )


def _close_within(wait_seconds: Callable[[], float]) -> None:
    for path, opened in list(open_environments.items()):
        if opened.pid == os.getpid() and opened.close(wait_seconds()):
            del open_environments[path]


def _after_fork() -> None:
    _lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
