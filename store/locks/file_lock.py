"""A lock between processes with a time limit: `flock` on a file, which the system frees when its holder ends.

LMDB's own write lock has no limit. A process that was stopped inside a commit (SIGSTOP, a frozen container)
would block every other writer for ever, in a call that no signal interrupts. So writers acquire a file lock
first, and wait for LMDB's lock only when no process of this program holds it.

1. A free lock costs one system call.
2. A held one is tried again for some milliseconds, with short pauses. Most commits end within them, and a
   thread that is started and woken costs more than the pauses.
3. After that a thread waits in `flock`, and the caller waits for the thread, with its time limit. The kernel
   hands the lock over at once: no further polling.
4. A caller whose time is over leaves its thread behind. When that one gets the lock, it gives it to the
   caller that waits by then, or frees it.

The holder writes its process id and the time into the file, for messages only. `waiting_at_most` bounds all
waits of a block, such as those of a load with a timeout; `Patience` is what is left.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from seqstore.store.errors import UnavailableError

_TRIES_SECONDS: Final = 0.01  # before a thread waits
_PAUSES: Final = (0.00003, 0.0002)  # seconds between two tries: the first, and the longest
_HOLDER: Final = struct.Struct("<QQ")  # process id, Unix time in nanoseconds
_of_process: Final[weakref.WeakSet[FileLock]] = weakref.WeakSet()
_block_ends: Final[ContextVar[float | None]] = ContextVar("block_ends", default=None)


@contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Bounds the time for which writers of a block wait for the catalog's write lock, all waits together."""
    ends = time.monotonic() + max(seconds, 0.0)
    outer = _block_ends.get()
    token = _block_ends.set(ends if outer is None else min(outer, ends))
    try:
        yield
    finally:
        _block_ends.reset(token)


class Patience:
    """The time for which a writer still waits; it starts when the object is made.

    Args:
        seconds: at most, and no longer than the block of `waiting_at_most`.
    """

    def __init__(self, seconds: float) -> None:
        self._began = time.monotonic()
        block_ends = _block_ends.get()
        self._ends = self._began + seconds
        if block_ends is not None:
            self._ends = min(self._ends, block_ends)

    @property
    def left(self) -> float:
        """Seconds, 0 when the time is over."""
        return max(self._ends - time.monotonic(), 0.0)

    @property
    def waited(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._began


class FileLock:
    """One lock file. Use from one thread at a time; a thread may release what another acquired.

    Args:
        path: created when absent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._close: weakref.finalize[Any, FileLock] | None = None
        self._changed = threading.Condition()
        self._has_thread = False
        self._is_wanted = False
        self._is_granted = False
        self._is_given_up = False
        _of_process.add(self)

    def acquire(self, patience: Patience, share: float = 1.0) -> bool:
        """Acquires the lock; False when it is not free in time.

        Args:
            share: of the time that the caller still waits for all its locks.

        Raises:
            OSError: the file cannot be used.
        """
        with self._changed:
            file = self._opened()
            if not self._has_thread and (
                _is_free(file) or _is_free_within(file, min(patience.left * share, _TRIES_SECONDS))
            ):
                return True
            seconds = patience.left * share
            if not self._has_thread:
                if seconds <= 0 or self._is_given_up:
                    return False
                self._has_thread = True
                threading.Thread(target=self._wait, args=(file,), name="file lock", daemon=True).start()
            self._is_wanted = True
            try:
                self._changed.wait_for(lambda: self._is_granted or self._is_given_up, seconds)
            except BaseException:
                if self._is_granted:
                    self.release()
                self._is_wanted = self._is_granted = False
                raise
            self._is_wanted = False
            granted, self._is_granted = self._is_granted, False
            return granted

    def _wait(self, file: int) -> None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        with self._changed:
            self._has_thread = False
            if self._is_wanted:
                self._is_granted = True
                self._changed.notify_all()
            else:
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)

    def release(self) -> None:
        """Frees the lock."""
        with suppress(OSError):  # explicit, because a child forked meanwhile has the file open too
            fcntl.flock(self._opened(), fcntl.LOCK_UN)

    @contextmanager
    def inside(self, patience: Patience, share: float = 0.5) -> Iterator[None]:
        """Holds the lock for the length of a block, as far as it is free in time.

        Args:
            share: as `acquire` has it; without the lock the block runs all the same.
        """
        is_held = False
        try:
            with suppress(OSError):
                is_held = self.acquire(patience, share)
            yield
        finally:
            if is_held:
                self.release()

    def give_up(self) -> None:
        """Ends the waits of this process, and refuses further ones: the process is about to end."""
        with self._changed:
            self._is_given_up = True
            self._changed.notify_all()

    def sign(self) -> None:
        """Writes into the file which process holds the lock since when."""
        with suppress(OSError):
            os.pwrite(self._file, _HOLDER.pack(os.getpid(), time.time_ns()), 0)

    def holder(self) -> str:
        """Describes the process that holds the lock, for messages."""
        with suppress(OSError):
            data = os.pread(self._opened(), _HOLDER.size, 0)
            if len(data) == _HOLDER.size:
                pid, since = _HOLDER.unpack(data)
                seconds = max(time.time_ns() - since, 0) / 1e9
                return f"process {pid} has held it for {seconds:.1f} seconds ({_state_of(pid)})"
        return "its holder is not known"

    def _opened(self) -> int:
        if self._close is None:
            self._path.parent.mkdir(exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._close = weakref.finalize(self, os.close, self._file)
            self._close.atexit = False  # a thread may wait for the lock until the process has ended
        return self._file

    def forget(self) -> None:
        """Closes the file in a forked child, whose parent may hold the lock."""
        if self._close is not None:
            self._close()
            self._close = None
        self._changed = threading.Condition()
        self._has_thread = self._is_wanted = self._is_granted = False


def _is_free(file: int) -> bool:
    """Tries to lock a file; states whether it did."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _is_free_within(file: int, seconds: float) -> bool:
    """Tries to lock a file again until the time is over; states whether it did."""
    ends = time.monotonic() + seconds
    pause, longest = _PAUSES
    while time.monotonic() < ends:
        time.sleep(pause)
        if _is_free(file):
            return True
        pause = min(pause * 1.5, longest)
    return False


def _state_of(pid: int) -> str:
    """Returns the state of a process in words."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return "it does not run on this host"
    words = {b"T": "stopped by a signal", b"t": "stopped by a debugger", b"D": "waiting for a disk"}
    return words.get(state, "running")


def busy(path: Path, lock: FileLock, patience: Patience) -> UnavailableError:
    """Returns the error of a writer whose time is over.

    Args:
        path: of the catalog.
    """
    return UnavailableError(
        f"{path}: the catalog's write lock was not free within {patience.waited:.1f} seconds: "
        f"{lock.holder()}; continue or end that process, or wait longer (setting commit_wait_seconds)",
        kind="writer_busy",
    )


def _forget_all() -> None:
    for lock in _of_process:
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)
