"""Locks across a fork.

A child made by `os.fork` has the one thread that forked. A lock that another thread held at that moment is
held for ever in the child, so locks that live longer than a call are made here: the child finds them free.
What such a lock guards must be sound between any two steps of the interpreter, as an assignment is.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final

_renewed: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """A lock that is free in a forked child."""
    lock = threading.Lock()
    _renewed.add(lock)
    return lock


def new_rlock() -> threading.RLock:
    """A reentrant lock that is free in a forked child."""
    lock = threading.RLock()
    _renewed.add(lock)
    return lock


def _free_all() -> None:
    for lock in _renewed:
        lock._at_fork_reinit()  # noqa: SLF001 - the only way; `logging` frees its own locks by it


os.register_at_fork(after_in_child=_free_all)
