"""Locks across a fork.

A child of `os.fork` has one thread: the thread that forked. A lock that another thread held at that moment
stays held in the child for ever. This module therefore creates all locks that live longer than a call, and
frees them in the child.
A fork may happen between any two steps of the interpreter. State behind such a lock must be consistent at
each of them, as it is after a single assignment.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final

_renewed: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """Creates a lock that is free in a forked child."""
    lock = threading.Lock()
    _renewed.add(lock)
    return lock


def new_rlock() -> threading.RLock:
    """Creates a reentrant lock that is free in a forked child."""
    lock = threading.RLock()
    _renewed.add(lock)
    return lock


def _free_all() -> None:
    for lock in _renewed:
        lock._at_fork_reinit()  # noqa: SLF001 - the only way; `logging` frees its own locks by it


os.register_at_fork(after_in_child=_free_all)
