"""The prepare lock before the catalog's write lock: one of several processes prepares while another commits.

A writer's plan must fit the newest version. A plan that is made before the wait for the write lock is
outdated by every writer ahead in the queue. A plan that is made under the write lock delays all other
writers. So:

1. A writer acquires the prepare lock; others wait for it.
2. With the prepare lock, it updates its plan while the process before it still writes and waits for the disk.
3. It acquires the write lock, releases the prepare lock, and has to catch up with one version at most.

Only speed depends on the lock: a process that cannot use the file, or for which it is not free in half of
its time, continues without it, and so do writers without a plan. The system releases the lock when its
process ends in any way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from seqstore.store.locks.file_lock import FileLock, Patience

_SECONDS_MAX: Final = 60.0


class PrepareLock:
    """The prepare lock of one catalog. Use from one thread at a time.

    Args:
        path: of the lock file; created when absent.
    """

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path)

    @contextmanager
    def inside(self, patience: Patience | None = None) -> Iterator[None]:
        """Excludes other processes for the length of a block, as far as the lock is free in time."""
        is_held = False
        try:
            with suppress(OSError):
                is_held = self._lock.acquire(_SECONDS_MAX if patience is None else patience.left / 2)
            yield
        finally:
            if is_held:
                self._lock.release()

    def give_up(self) -> None:
        """Ends the waits of this process."""
        self._lock.give_up()

    def forget(self) -> None:
        """Closes the file in a forked child, whose parent may hold the lock."""
        self._lock.forget()
