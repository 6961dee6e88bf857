"""A thread pool of this process for work that Arrow and NumPy do outside the interpreter lock.

The pool is created at its first use, and again after a fork. A task of the pool must not submit tasks to it:
all threads could wait for tasks that no thread is free to run.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from seqstore.store.runtime.forks import new_lock

THREADS: Final = max(2, min(8, os.cpu_count() or 2))

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
