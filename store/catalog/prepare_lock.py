"""The turnstile before the catalog's write lock: of many processes one gets ready while another commits.

A writer's plan must be one for the newest version. Who makes it before waiting for the write lock finds it
outdated by everybody who was ahead; who makes it under the lock keeps all the others from theirs. So:

1. A writer passes the turnstile; others wait before it.
2. Inside, it brings its plan up to date while the process before it still writes and waits for the disk.
3. It takes the write lock, leaves the turnstile to the next, and has one version to catch up with at most.

Nothing depends on it but speed: who cannot use the file goes on without, and so do writers with no plan. The
lock goes with the process that held it, however that ends.
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
    """The turnstile of one catalog. Use from one thread at a time.

    Args:
        path: of the lock file; made when absent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._close: weakref.finalize[Any, PrepareLock] | None = None
        _of_process.add(self)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Keeps other processes out for the length of a block."""
        try:
            with suppress(OSError):
                fcntl.flock(self._opened(), fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):  # expressly: a child forked meanwhile has the file open as well
                fcntl.flock(self._opened(), fcntl.LOCK_UN)

    def _opened(self) -> int:
        if self._close is None:
            self._path.parent.mkdir(exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._close = weakref.finalize(self, os.close, self._file)
        return self._file

    def forget(self) -> None:
        """In a forked child, which may have been forked while its parent was inside: lets go of the file."""
        if self._close is not None:
            self._close()
            self._close = None


def _forget_all() -> None:
    for prepare_lock in _of_process:
        prepare_lock.forget()


os.register_at_fork(after_in_child=_forget_all)
