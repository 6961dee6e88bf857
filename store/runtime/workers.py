"""A thread pool of this process for work that Arrow and NumPy do outside the interpreter lock.

The pool is created at its first use, and again after a fork. A task of the pool must not submit tasks to it:
all threads could wait for tasks that no thread is free to run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from seqstore.store.runtime.forks import new_lock

THREADS: Final = max(2, min(8, os.cpu_count() or 2))

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_lock = new_lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def pool() -> ThreadPoolExecutor:
    """Returns the pool of this process."""
    pid = os.getpid()
    found = _pools.get(pid)
    if found is None:
        with _lock:
            found = _pools.get(pid)
            if found is None:
                _pools.clear()  # pools of a parent process have no threads here
                found = _pools[pid] = ThreadPoolExecutor(THREADS, thread_name_prefix="seqstore")
    return found


def map_all(function: Callable[[_Item], _Result], items: Sequence[_Item], *, worth_it: bool) -> list[_Result]:
    """Applies `function` to every item, in order; in the pool if `worth_it`."""
    if not worth_it or len(items) < 2:
        return [function(item) for item in items]
    return list(pool().map(function, items))
