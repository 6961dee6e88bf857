"""The allocators of the server: freed memory returns to the system, and stacks are small.

A load allocates and frees blocks of many megabytes, in many threads. By default the C library raises the
size up to which it keeps freed blocks, in an arena for each thread. Arrow's and DuckDB's own allocators keep
address space that they may use again, which the memory limit must count (`runtime.memory_limit`). So large
blocks are mapped, and unmapped when they are freed; Arrow allocates them there too.

The allocator of DuckDB keeps no caches of threads: a thread whose cache found no memory ends the process with
SIGSEGV when it becomes idle (jemalloc's `thread.idle`, DuckDB 2.0).
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # of glibc's malloc.h
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 1 << 20
_KEPT_BYTES: Final = 8 << 20
_ARENAS: Final = 4
# The libraries read these when they are loaded.
_ENVIRONMENT: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "DUCKDB_JE_MALLOC_CONF": "retain:false,tcache:false",
}


def keep_little_freed_memory() -> None:
    """Makes the process return large blocks as soon as they are freed; of no effect without glibc.

    Large loads release small ones (`runtime.freed_memory`). Call it before Arrow and DuckDB are loaded.
    """
    os.environ.update(_ENVIRONMENT)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return
    for option, value in (
        (_M_MMAP_THRESHOLD, _LARGE_BYTES),
        (_M_TRIM_THRESHOLD, _KEPT_BYTES),
        (_M_ARENA_MAX, _ARENAS),
    ):
        mallopt(option, value)
    import pyarrow as pa

    from seqstore.store.runtime.memory_limit import set_stack_size

    set_stack_size()
    pa.set_memory_pool(pa.system_memory_pool())
