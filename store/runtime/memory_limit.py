"""The memory limit of a server process: work that does not fit fails, the process stays.

DuckDB counts the memory of sorts, joins and aggregates, and writes it to disk beyond its limit. It does not
count the values that functions build, and neither do Python and Arrow count theirs. So the system bounds the
private writable mappings of the process (RLIMIT_DATA), and anonymous memory is never more than these:

1. The bound is never above `_HARD_SHARE` of the limit, and the rest of the limit is for mapped files.
   An allocation beyond the bound fails where it is requested, as an error of its statement.
2. The bound is lower as a rule, `_SOFT_SHARE`. One thread looks twenty times a second: while nearly all
   is used, it adds `_STEP_BYTES`. Small allocations of other statements succeed then, and large ones fail.
3. Meanwhile it cancels statements, one at a time: the one whose thread touched the most new memory since the
   last look. If none did, one that touched much before, or runs for long, the youngest of the user with the
   most of them. New queries wait for room (`wait_for_room`).
4. Threads use little of their stacks, and of the room for frames of Python (`call_room`). The rest is added
   to the bound while a thread runs (`start_thread`), and `_STEP_BYTES` while it begins.
5. Freed memory must leave the mappings, or it would count for ever: `cli.server.memory` sets the allocators.

The limit works on Linux; other systems have only that of DuckDB.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import logging
import math
import os
import resource
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import cancellation
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.freed_memory import release_freed_memory

OUT_OF_MEMORY: Final = "out_of_memory"  # kind of the error
_T = TypeVar("_T")
_log: Final = logging.getLogger("seqstore.memory")

_LOOK_SECONDS: Final = 0.05
_HARD_SHARE: Final = 0.85  # of the limit
_SOFT_SHARE: Final = 0.7
_WAIT_SHARE: Final = 0.5
_STEP_BYTES: Final = 16 << 20
_ROOM_SECONDS_MAX: Final = 5.0
_CANCEL_SECONDS: Final = 0.1  # for a cancelled statement to free its memory
_COLLECT_SECONDS: Final = 1.0  # after a shortage
_COLLECT_SHORT_SECONDS: Final = 5.0  # of a shortage that goes on
_SHORT_SECONDS: Final = 10.0
_SMALL_SECONDS: Final = 2.0
_STACK_BYTES: Final = 4 << 20  # 1,000 nested expressions, the most that DuckDB computes, need 1 to 2 MiB
_STACK_USED_BYTES: Final = 256 << 10
_ROOM_BYTES: Final = 448 << 10  # of a block of 512 KiB, what few threads use
_PAGE: Final = resource.getpagesize()
_CGROUP_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_SHARE_OF_MACHINE: Final = 0.8


@functools.cache  # sessions without a limit ask before each query
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
        self._soft = int(limit_bytes * _SOFT_SHARE)
        self._bound = self._soft  # without stacks
        self._stacks = 0
        self._before = resource.getrlimit(resource.RLIMIT_DATA)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self._lock = new_lock()
        self._waiting: deque[threading.Event] = deque()  # queries that wait for room, the first one first
        self._used = 0
        self._suspended = 0
        self._cancelled_at = 0.0
        self._collect_at = self._collect_by = math.inf

    def start(self) -> None:
        global _limit
        if sys.platform == "linux":
            _limit = self
            self.add_stacks(len(os.listdir("/proc/self/task")) - 1)  # that of the first counts apart
            self.add_room(threading.active_count())
            self.look()
            if self._used > self._soft / 2:
                _log.warning(
                    "memory_bytes_max is %d MiB, and the server takes %d MiB without a statement: raise it",
                    self.limit_bytes >> 20,
                    self._used >> 20,
                )
            self._thread.start()

    def stop(self) -> None:
        global _limit
        if _limit is self:
            _limit = None
            self._ending.set()
            self._thread.join()
            resource.setrlimit(resource.RLIMIT_DATA, self._before)

    def look(self) -> None:
        """Sets the bound, and cancels a statement when nearly all of it is used."""
        with self._lock:
            used = self._used = _data_bytes() - self._stacks
            is_short = used + _STEP_BYTES > self._soft
            self._bound = min(used + _STEP_BYTES, self._hard) if is_short else self._soft
            self._set()
            if not is_short:
                self._admit(len(self._waiting) if used < self.limit_bytes * _WAIT_SHARE else 1)
        now = time.monotonic()
        if is_short:
            release()
            self._collect_at = now + _COLLECT_SECONDS
            self._collect_by = min(self._collect_by, now + _COLLECT_SHORT_SECONDS)
        if now > min(self._collect_at, self._collect_by):  # errors and frames of statements form cycles
            self._collect_at = self._collect_by = math.inf
            gc.collect()
            release_freed_memory()
        if is_short and now > self._cancelled_at + _CANCEL_SECONDS:
            self._cancelled_at = now
            self._cancel_one(now)

    def wait_for_room(self) -> None:
        """Waits until much of the memory is free, for some seconds at the most.

        While less is free, waiting queries begin one by one.
        """
        if self._used < self.limit_bytes * _WAIT_SHARE:
            return
        mine = threading.Event()
        end = time.monotonic() + _ROOM_SECONDS_MAX
        with self._lock:
            self._waiting.append(mine)
        try:
            with cancellation.waiting():
                while time.monotonic() < end and not mine.wait(_LOOK_SECONDS):
                    cancellation.check()
        finally:
            with self._lock, suppress(ValueError):
                self._waiting.remove(mine)

    def _admit(self, count: int) -> None:
        for _ in range(min(count, len(self._waiting))):
            self._waiting.popleft().set()

    def add_stacks(self, count: int) -> None:
        """Adds the unused part of stacks to the bound; a negative count subtracts it."""
        with self._lock:
            self._stacks += count * (_STACK_BYTES - _STACK_USED_BYTES)
            self._set()

    def add_room(self, count: int) -> None:
        """Adds the unused part of threads' room for frames to the bound; a negative count subtracts it."""
        with self._lock:
            self._stacks += count * _ROOM_BYTES
            self._set()

    def add_starts(self, count: int) -> None:
        """Adds memory for threads that begin to the bound; a negative count subtracts it."""
        with self._lock:
            self._stacks += count * _STEP_BYTES
            self._set()

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Removes the limit for a block that starts another program, which would inherit it."""
        with self._lock:
            self._suspended += 1
            self._set()
        try:
            yield
        finally:
            with self._lock:
                self._suspended -= 1
                self._set()

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            with suppress(MemoryError, OSError, ValueError):
                self.look()

    def _set(self) -> None:
        soft, hard = self._before
        if self._suspended:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
            return
        most = [bound for bound in (soft, hard) if bound != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([self._bound + self._stacks, *most]), hard))

    def _cancel_one(self, now: float) -> None:
        working = [each for each in cancellation.running() if each.error is None and not each.is_waiting]
        counts = Counter(each.owner for each in working)
        touched = {each: each.touched_bytes() for each in working}
        found = (
            [each for each in working if touched[each] > _STEP_BYTES]
            or [each for each in working if each.touched_before > _STEP_BYTES]
            or [each for each in working if now > each.since + _SHORT_SECONDS]
        )
        if found:
            chosen = max(found, key=lambda each: (touched[each] >> 24, counts[each.owner], each.number))
            chosen.cancel(out_of_memory("the statement was ended: the server is at its memory limit"))


_limit: MemoryLimit | None = None
_releases: Final[list[weakref.WeakMethod[Callable[[], None]]]] = []


def limit_bytes() -> int:
    """Returns the memory limit of this process; without one, the share of the machine that it may use."""
    return _limit.limit_bytes if _limit is not None else default_limit()


def resident_bytes() -> int | None:
    """Returns the memory of this process, None on systems without /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def on_shortage(method: Callable[[], None]) -> None:
    """Has a method called while memory is short, which frees what its object can do without.

    The method does not keep its object alive.
    """
    _releases.append(weakref.WeakMethod(method))


def release() -> None:
    """Calls the methods of `on_shortage`. One that fails for memory changes nothing for the others."""
    for reference in list(_releases):
        method = reference()
        with suppress(Exception):
            if method is None:
                _releases.remove(reference)
            else:
                method()


def wait_for_room() -> None:
    """Waits, in a server, until much of its memory is free."""
    if _limit is not None:
        _limit.wait_for_room()


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread whose stack is beside the limit; `end_thread` must be the last call of the thread.

    Raises:
        RuntimeError: the system has no memory, or place, for a thread for two seconds.
    """
    end = time.monotonic() + _SMALL_SECONDS
    while True:
        count_stack()
        try:
            thread.start()
        except RuntimeError:
            end_thread()
            if time.monotonic() > end:
                raise
            time.sleep(_LOOK_SECONDS)
        else:
            return


def end_thread() -> None:
    """Subtracts the stack of a thread that is about to end."""
    if _limit is not None:
        _limit.add_stacks(-1)


def count_stack() -> None:
    """Adds the stack of this thread to the memory beside the limit, until `end_thread`."""
    if _limit is not None:
        _limit.add_stacks(1)


def count_room() -> None:
    """Adds this thread's room for frames to the memory beside the limit, until `end_room`."""
    if _limit is not None:
        _limit.add_room(1)


def end_room() -> None:
    """Subtracts the room of a thread that is about to end."""
    if _limit is not None:
        _limit.add_room(-1)


@contextmanager
def while_a_thread_begins() -> Iterator[None]:
    """Adds memory to the limit for the block, so that a thread that begins in it finds stack and room."""
    limit = _limit
    if limit is None:
        yield
        return
    limit.add_starts(1)
    try:
        yield
    finally:
        limit.add_starts(-1)


def set_stack_size() -> None:
    """Gives new threads, also those of libraries, stacks of the size that the limit counts."""
    threading.stack_size(_STACK_BYTES)
    attributes = ctypes.create_string_buffer(256)  # larger than any pthread_attr_t
    library = ctypes.CDLL(None)
    if library.pthread_attr_init(attributes) == 0:
        library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(_STACK_BYTES))
        library.pthread_setattr_default_np(attributes)


def with_memory(build: Callable[[], _T]) -> _T:
    """Calls a function that allocates little; while it finds no memory, again for two seconds.

    Raises:
        UnavailableError: there is no memory for so long.
    """
    end = time.monotonic() + _SMALL_SECONDS
    while True:
        try:
            return build()
        except MemoryError as error:
            if time.monotonic() > end:
                raise out_of_memory("the request found no memory") from error
        time.sleep(_LOOK_SECONDS)


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
        f"{reason}{most}; read fewer rows or shorter values at once, or run it later", kind=OUT_OF_MEMORY
    )


def _data_bytes() -> int:
    """Returns the size of the private writable mappings of the process, as RLIMIT_DATA counts them."""
    return int(Path("/proc/self/statm").read_bytes().split()[5]) * _PAGE
