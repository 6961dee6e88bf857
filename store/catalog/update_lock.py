"""The lock that makes UPDATE, DELETE and MERGE of one table wait for each other (U2).

One file a table, locked with `flock`: the system frees it when its holder dies, whatever way. It excludes
threads of a process as well as processes. They get it in the order in which they asked (locks.lock_queue),
and owners that would wait for each other without an end are found. Three states of a table's updates, decided
by the setting `enable_concurrent_update` unless a statement names one:

- *serial*: the lock is held from snapshot to publish. Updates never conflict with each other; loads neither
  wait nor are waited for.
- *optimistic*: no lock, conflicts are found when committing (conflict.conflict).
  A statement that runs again after one takes the retry lock: a second lock, for which only such statements
  wait, and none longer than `_RETRY_LOCK_SECONDS`.
- *unchecked*: no lock, no check: the later version wins. Only by asking for it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

from seqstore.store.catalog.environment import Catalog
from seqstore.store.errors import InvalidInputError, UnavailableError
from seqstore.store.locks.lock_queue import BUSY, LockOwner, LockQueue, open_lock_file
from seqstore.store.runtime import cancellation
from seqstore.store.runtime.disk_errors import disk_error
from seqstore.store.runtime.forks import new_lock

CONFIG_NAME: Final = "enable_concurrent_update"
_RETRY_LOCK_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.002
_BUSY: Final = (
    "There is an update operation in progress for the current table. Please try again later, or set "
    "enable_concurrent_update in fe.conf to true"
)
_held: dict[int, object] = {}  # descriptor -> the context that opened it
_held_lock = new_lock()


class ConcurrencyMode(StrEnum):
    """The way in which updates of a table exclude each other; see the module."""

    SERIAL = "serial"
    OPTIMISTIC = "optimistic"
    UNCHECKED = "unchecked"


def update_mode(catalog: Catalog, default: bool, wanted: str | None) -> ConcurrencyMode:
    """Returns the way in which updates of a table exclude each other.

    Args:
        default: `enable_concurrent_update` of the settings; ADMIN SET FRONTEND CONFIG overrules it.
        wanted: the mode that the statement names.

    Raises:
        InvalidInputError: no such mode.
    """
    if wanted is not None:
        try:
            return ConcurrencyMode(wanted)
        except ValueError:
            known = ", ".join(ConcurrencyMode)
            raise InvalidInputError(
                f"concurrency {wanted!r}: expected one of {known}", kind="bad_concurrency"
            ) from None
    chosen = catalog.recall(CONFIG_NAME, lambda tx: tx.get("config", CONFIG_NAME.encode()))
    is_concurrent = default if chosen is None else chosen == "true"
    return ConcurrencyMode.OPTIMISTIC if is_concurrent else ConcurrencyMode.SERIAL


def lock_directory(catalog: Catalog) -> Path:
    """Returns the directory of the lock files of a store."""
    return catalog.path.parent / "locks"


@contextmanager
def update_lock(
    directory: Path, table_id: int, seconds: float, owner: LockOwner | None = None, about: str = ""
) -> Iterator[None]:
    """Holds the lock of a table.

    Args:
        seconds: how long to wait for it; 0 fails at once.
        owner: that may hold several locks; None for one that holds only this.
        about: the table, for messages.

    Raises:
        UnavailableError: it is not free in time, with the text of U4.
        ConflictError: a deadlock, and the owner is the youngest in it.
    """
    with _locked(directory, f"{table_id}.update", about or f"table {table_id}", owner, seconds):
        yield


@contextmanager
def retry_lock(directory: Path, table_id: int) -> Iterator[bool]:
    """Holds the lock of the statements that run again; yields False when it is not free in time."""
    with ExitStack() as held:
        name = f"{table_id}.again"
        try:
            held.enter_context(_locked(directory, name, name, None, _RETRY_LOCK_SECONDS))
        except UnavailableError as error:
            if error.kind != BUSY:  # the statement was ended
                raise
            yield False
        else:
            yield True


@contextmanager
def _locked(
    directory: Path, name: str, about: str, owner: LockOwner | None, seconds: float
) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    with ExitStack() as held:
        try:
            held.enter_context(LockQueue(directory).place(name, about, owner, seconds))
            handle = held.enter_context(_opened(directory / name))
            _acquire(handle, deadline)
        except BlockingIOError as error:
            raise UnavailableError(_BUSY, kind=BUSY) from error
        except UnavailableError as error:
            if error.kind != BUSY:  # the statement was ended
                raise
            raise UnavailableError(_BUSY, kind=BUSY) from error
        yield


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Opens a lock file for the block; closing it releases the lock. In a child that was forked within the
    block the file is closed already, and its descriptor may be that of another file by now."""
    try:
        handle = open_lock_file(path)
    except OSError as error:
        raise disk_error(path, error) from error
    owner = object()
    with _held_lock:
        _held[handle] = owner
    try:
        yield handle
    finally:
        with _held_lock:
            is_open = _held.get(handle) is owner
            if is_open:
                del _held[handle]
        if is_open:
            os.close(handle)


def _acquire(handle: int, deadline: float) -> None:
    """Locks a file. It is free when the queue says so, unless a program without the queue has it."""
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            cancellation.check()
            time.sleep(_POLL_SECONDS)
        else:
            return


def _close_in_child() -> None:
    """Closes the lock files in a forked child, which must not keep its parent's locks alive."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)
