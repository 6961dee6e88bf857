"""Turns of short work: of the threads of a process, one at a time computes for a small load.

Python runs one thread at a time, and every call of Arrow or NumPy lets another one run. A small load makes
hundreds of them, so loads that compute at the same time hand the interpreter to each other all the time: each
of eight needs twice the processor time of one that is alone. So they take turns:

1. Staging waits at the door, then for the turn. One thread at most waits for the turn so.
2. Publishing, for which other loads wait, waits for the turn alone: behind one staging at most, and shortly.
3. A wait for the disk, for a lock of the catalog or for another load needs no turn.

Turns save time and protect nothing: work that waits for too long goes on without one. A turn that lasts is
not waited for again, also where an interrupt kept a thread from ending it.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Final

from seqstore.store.runtime.forks import new_lock

_DOOR_SECONDS: Final = 1.0  # as long as hundreds of small loads stage
_TURN_SECONDS: Final = 0.1
_PUBLISHING_SECONDS: Final = 0.005  # as long as one or two of them stage


class _Queue:
    """A lock that is replaced when its holder does not free it in time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = new_lock()

    def enter(self) -> threading.Lock:
        """Waits for the lock, or for the time; returns the lock that the caller holds then."""
        lock = self._lock
        if lock.acquire(timeout=self._seconds):
            return lock
        fresh = new_lock()
        fresh.acquire()
        if self._lock is lock:
            self._lock = fresh
        return fresh

    def enter_shortly(self, seconds: float) -> threading.Lock | None:
        """Waits for the lock; returns None when it is not free in time."""
        lock = self._lock
        return lock if lock.acquire(timeout=seconds) else None


_door = _Queue(_DOOR_SECONDS)
_turn = _Queue(_TURN_SECONDS)
_of_thread = threading.local()


class _Turn(AbstractContextManager[None]):
    """A turn of the thread; within another turn of the thread it is none."""

    def __init__(self, *, stages: bool) -> None:
        self._stages = stages
        self._held: list[threading.Lock] = []
        self._is_outer = False

    def __enter__(self) -> None:
        if getattr(_of_thread, "has_turn", False):
            return
        self._is_outer = _of_thread.has_turn = True
        if self._stages:
            self._held.append(_door.enter())
            self._held.append(_turn.enter())
        elif (lock := _turn.enter_shortly(_PUBLISHING_SECONDS)) is not None:
            self._held.append(lock)

    def __exit__(self, *_: object) -> None:
        if self._is_outer:
            while self._held:
                self._held.pop().release()
            self._is_outer = _of_thread.has_turn = False


def staging_turn() -> AbstractContextManager[None]:
    """Returns a block in which a small load is read, checked and staged."""
    return _Turn(stages=True)


def publishing_turn() -> AbstractContextManager[None]:
    """Returns a block in which small writes are planned and their records are made."""
    return _Turn(stages=False)
