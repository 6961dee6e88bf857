"""What this process uses, for tests that watch for leaks."""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes() -> int:
    """Memory of the process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    """Files and sockets that the process has open."""
    return len(os.listdir("/proc/self/fd"))
