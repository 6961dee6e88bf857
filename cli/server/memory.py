"""The return of the server's memory to the system.

A load allocates and frees blocks of many megabytes, in many threads. By default the C library raises the
size up to which it keeps freed blocks, in an arena for each thread. Arrow's own allocator keeps its share:
after a large upload the process would stay several times as large as it ever needed to be. So large blocks
are mapped, and unmapped when they are freed; Arrow allocates them there too.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

import pyarrow as pa

_M_TRIM_THRESHOLD: Final = -1  # of glibc's malloc.h
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BYTES: Final = 1 << 20
_KEPT_BYTES: Final = 8 << 20
_ARENAS: Final = 4


def keep_little_freed_memory() -> None:
    """Makes the process return large blocks as soon as they are freed; of no effect without glibc.

    Large loads release small ones (`runtime.freed_memory`).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return
    for option, value in (
        (_M_MMAP_THRESHOLD, _LARGE_BYTES),
        (_M_TRIM_THRESHOLD, _KEPT_BYTES),
        (_M_ARENA_MAX, _ARENAS),
    ):
        mallopt(option, value)
    pa.set_memory_pool(pa.system_memory_pool())
