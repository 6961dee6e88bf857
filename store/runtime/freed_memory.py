"""Memory that was freed and that the C library still keeps.

Many threads free many small blocks while a large load is parsed; glibc keeps them in its arenas for the next
ones, and they stay part of the process.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def give_back_freed_memory() -> None:
    """Gives it back to the system, which takes some milliseconds; of no effect without glibc."""
    if _trim is not None:
        _trim(ctypes.c_size_t(0))
