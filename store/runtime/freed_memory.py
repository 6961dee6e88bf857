"""Freed memory that the C library still holds.

Many threads free many small blocks while a large load is parsed. glibc keeps these blocks in its arenas for
later allocations, and they stay part of the process.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def release_freed_memory() -> None:
    """Releases freed memory to the operating system.

    Costs some milliseconds; without glibc it has no effect.
    """
    if _trim is not None:
        _trim(ctypes.c_size_t(0))
