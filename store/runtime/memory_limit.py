"""The memory limit of a server process: work that does not fit fails, the process stays.

DuckDB counts the memory of sorts, joins and aggregates, and writes it to disk beyond its limit. It does not
count the values that functions build, and neither do Python and Arrow count theirs. So one thread looks at
the anonymous memory of the process twenty times a second:

1. It sets the soft limit RLIMIT_DATA to the present size plus the room that is left. A larger allocation
   fails where it is requested, as an error of its statement.
2. Memory that was requested in the last half minute counts as used, also if it was not touched yet.
3. Beyond `_CANCEL_SHARE` of the limit it cancels statements, one at a time: the youngest of the user with
   the most of them. New queries wait for room (`wait_for_room`).

The limit works on Linux; other systems have only that of DuckDB.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import cancellation
from seqstore.store.runtime.forks import new_lock

_LOOK_SECONDS: Final = 0.05
_HARD_SHARE: Final = 0.9  # of the limit: what is allocated between two looks has the rest
_CANCEL_SHARE: Final = 0.8  # of that
_WAIT_SHARE: Final = 0.6
_RESERVE_SHARE: Final = 0.03  # small allocations succeed, whatever is used
_UNTOUCHED_SECONDS: Final = 30.0
_ROOM_SECONDS_MAX: Final = 10.0
_CANCEL_SECONDS: Final = 0.5  # for a cancelled statement to free its memory
_PAGE: Final = resource.getpagesize()
_CGROUP_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_SHARE_OF_MACHINE: Final = 0.8


def machine_bytes() -> int:
    """Returns the memory that the process may use: that of the machine, or of its control group."""
    found = os.sysconf("SC_PHYS_PAGES") * _PAGE
    for name in _CGROUP_FILES:
        with suppress(OSError, ValueError):
            found = min(found, int(Path(name).read_text()))
    return found


def default_limit() -> int:
    """Returns the limit of a server that none is set for."""
    return int(machine_bytes() * _SHARE_OF_MACHINE)


class MemoryLimit:
    """The limit of one process; `start` begins and `stop` ends it.

    Args:
        limit_bytes: of anonymous memory. Mapped files do not count: the system takes their pages back.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._hard = int(limit_bytes * _HARD_SHARE)
        self._untouched: deque[tuple[float, int]] = deque()
        self._before = resource.getrlimit(resource.RLIMIT_DATA)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._has_room = threading.Condition(new_lock())
        self._used = 0
        self._suspended = 0
        self._cancelled_at = 0.0

    def start(self) -> None:
        global _limit
        if sys.platform == "linux":
            _limit = self
            self._thread.start()

    def stop(self) -> None:
        global _limit
        if _limit is self:
            _limit = None
            self._ending.set()
            self._thread.join()
            resource.setrlimit(resource.RLIMIT_DATA, self._before)

    def look(self) -> None:
        """Sets the room of the process, and cancels statements that take too much of it."""
        anonymous, data = _sizes()
        now = time.monotonic()
        self._untouched.append((now, data - anonymous))
        while self._untouched[0][0] < now - _UNTOUCHED_SECONDS:
            self._untouched.popleft()
        requested = data - anonymous - min(size for _, size in self._untouched)
        room = max(self._hard - anonymous - requested, int(self.limit_bytes * _RESERVE_SHARE))
        with self._has_room:
            self._used = anonymous
            if not self._suspended:
                self._set(data + room)
            if anonymous < self._hard * _WAIT_SHARE:
                self._has_room.notify_all()
        if anonymous > self._hard * _CANCEL_SHARE and now > self._cancelled_at + _CANCEL_SECONDS:
            self._cancelled_at = now
            self._cancel_one()

    def wait_for_room(self) -> None:
        """Waits until much of the memory is free, for ten seconds at the most."""
        end = time.monotonic() + _ROOM_SECONDS_MAX
        with self._has_room:
            while self._used >= self._hard * _WAIT_SHARE and time.monotonic() < end:
                self._has_room.wait(_LOOK_SECONDS)
                cancellation.check()

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Removes the limit for a block that starts another program, which would inherit it."""
        with self._has_room:
            self._suspended += 1
            self._set(self._before[0])
        try:
            yield
        finally:
            with self._has_room:
                self._suspended -= 1

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            with suppress(MemoryError, OSError, ValueError):
                self.look()

    def _set(self, size: int) -> None:
        soft, hard = self._before
        most = [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
        size = size if size != resource.RLIM_INFINITY else max([*most, -1])
        resource.setrlimit(resource.RLIMIT_DATA, (min([size, *most]), hard))

    def _cancel_one(self) -> None:
        running = [each for each in cancellation.running() if each.error is None]
        if not running:
            return
        counts: dict[str, int] = {}
        for each in running:
            counts[each.owner] = counts.get(each.owner, 0) + 1
        chosen = max(running, key=lambda each: (counts[each.owner], each.number))
        chosen.cancel(out_of_memory("the statement was ended: the server is at its memory limit"))


_limit: MemoryLimit | None = None


def limit_bytes() -> int:
    """Returns the memory limit of this process; without one, the share of the machine that it may use."""
    return _limit.limit_bytes if _limit is not None else default_limit()


def wait_for_room() -> None:
    """Waits, in a server, until much of its memory is free."""
    if _limit is not None:
        _limit.wait_for_room()


@contextmanager
def lifted() -> Iterator[None]:
    """Starts another program without the memory limit of this process."""
    if _limit is None:
        yield
        return
    with _limit.lifted():
        yield


def lift() -> None:
    """Removes the limit that a process inherited from the server that started it."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def out_of_memory(reason: str) -> UnavailableError:
    """Builds the error of a statement that found no memory."""
    most = f" ({_limit.limit_bytes >> 20} MiB, the setting memory_bytes_max)" if _limit is not None else ""
    return UnavailableError(
        f"{reason}{most}; read fewer rows or shorter values at once, or run it later", kind="out_of_memory"
    )


def _sizes() -> tuple[int, int]:
    """Returns the anonymous memory of the process, and the size of its private writable mappings."""
    fields = Path("/proc/self/statm").read_bytes().split()
    resident, shared, data = (int(fields[i]) * _PAGE for i in (1, 2, 5))
    return resident - shared, data
