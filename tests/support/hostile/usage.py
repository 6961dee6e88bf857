"""What this process uses, for tests that watch for leaks."""

from __future__ import annotations

import os
import re
from pathlib import Path


def resident_bytes() -> int:
    """Memory of the process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def private_bytes() -> int:
    """Private writable mappings of the process, used or not: what the memory limit of a server bounds."""
    found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def descriptors() -> int:
    """Files and sockets that the process has open."""
    return len(os.listdir("/proc/self/fd"))
