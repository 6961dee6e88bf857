"""The process that compacts for others: a program of its own with lower priority, one for each directory.

`store.compactor` is its program. A writer with the setting `compaction_process` names the tables that need
maintenance, by datagrams to the socket `locks/compactor`. The writer waits for no reply. The process
decides by the policy, merges, and publishes as any other writer does, within the lock of the table
(maintenance.scheduler). So nothing is lost when it dies:

- An unpublished file is removed at the next vacuum or opening, as that of any dead process.
- Where no process listens, the writer compacts in its own threads, and starts another process at most
  every half minute. It holds the lock file `locks/compactor-alone` before it starts, so there is one of them.
- On a busy machine its low priority may starve it. When a table has four times as many small segments as the
  policy allows, threads of the writer compact too.
- The process ends within a second after the one that started it; others then start another one.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from seqstore.store.runtime.forks import new_lock
from seqstore.store.settings import Settings

AFTER_LOAD: Final = "load"  # a load may have made a table need compaction
MAINTAIN: Final = "maintain"  # the table is compacted and vacuumed as `Store.maintain` does it

NAME: Final = "compactor"  # of the socket

_PROGRAM: Final = "seqstore.store.compactor"
_START_EVERY_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0


class CompactionProcess:
    """The way of one store handle to the process, which it starts when none listens.

    Args:
        data_dir: of the store.
        settings: with which the process opens it.
    """

    def __init__(self, data_dir: Path, settings: Settings) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._lock = new_lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._started_by = 0
        self._started_at = -_START_EVERY_SECONDS

    def ask(self, what: str, table: str) -> bool:
        """Sends the name of a table to the process; returns False, and starts one, where none listens."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            try:
                with short_path(self._data_dir / "locks") as path:
                    sender.sendto(f"{what} {table}".encode(), path)
            except BlockingIOError:
                return True  # it has more to do than it can look at
            except OSError:
                self._start()
                return False
        return True

    def _start(self) -> None:
        with self._lock:
            is_own = self._started_by == os.getpid()
            if is_own and self._child is not None and self._child.poll() is None:
                return  # it does not listen yet
            if is_own and time.monotonic() - self._started_at < _START_EVERY_SECONDS:
                return
            if self._is_closed:
                return
            self._started_by, self._started_at = os.getpid(), time.monotonic()
            with suppress(OSError):  # without a process, threads compact
                self._start_alone()

    def _start_alone(self) -> None:
        """Starts the process unless another one runs. It inherits the lock, which ends with it.

        Raises:
            OSError: another one runs, or none can be started.
        """
        locks = self._data_dir / "locks"
        locks.mkdir(exist_ok=True)
        with (locks / f"{NAME}-alone").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._child = subprocess.Popen(
                [sys.executable, "-m", _PROGRAM, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[lock.fileno()],
            )
        assert self._child.stdin is not None
        with self._child.stdin as pipe:
            pickle.dump((self._data_dir, self._settings), pipe)

    def close(self) -> None:
        """Ends the process if this handle has started it; a compaction stops between two segments."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None or self._started_by != os.getpid():
            return
        child.terminate()
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """Yields an address of the socket in a directory, whose own path may be longer than addresses may be."""
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{NAME}"
    finally:
        os.close(handle)
