"""The prepare lock before the catalog's write lock: one of several processes prepares while another commits.

A writer's plan must fit the newest version. A plan that is made before the wait for the write lock is
outdated by every writer ahead in the queue. A plan that is made under the write lock delays all other
writers. So:

1. A writer acquires the prepare lock; others wait for it.
2. With the prepare lock, it updates its plan while the process before it still writes and waits for the disk.
3. It acquires the write lock, releases the prepare lock, and has to catch up with one version at most.

Only speed depends on the lock: a process that cannot use the file continues without it, and so do writers
without a plan. The system releases the lock when its process ends in any way.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

_of_process: Final[weakref.WeakSet[PrepareLock]] = weakref.WeakSet()


class PrepareLock:
    """The prepare lock of one catalog. Use from one thread at a time.

    Args:
        path: of the lock file; created when absent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._close: weakref.finalize[Any, PrepareLock] | None = None
        _of_process.add(self)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Excludes other processes for the length of a block."""
        try:
            with suppress(OSError):
                fcntl.flock(self._opened(), fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):  # explicit, because a child forked meanwhile has the file open too
                fcntl.flock(self._opened(), fcntl.LOCK_UN)

    def _opened(self) -> int:
        if self._close is None:
            self._path.parent.mkdir(exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._close = weakref.finalize(self, os.close, self._file)
        return self._file

    def forget(self) -> None:
        """Closes the file in a forked child, whose parent may hold the lock."""
        if self._close is not None:
            self._close()
            self._close = None


def _forget_all() -> None:
    for prepare_lock in _of_process:
        prepare_lock.forget()


os.register_at_fork(after_in_child=_forget_all)
