"""The process that a Spark job belongs to.
Spark runs the planning and committing halves of a Python data source in short-lived Python processes beside
the driver. Files that executors stage must outlive them but not the application, so they are named after the
driver's JVM, the nearest Java process above.
"""

from __future__ import annotations

import os
from pathlib import Path

from seqstore.store.runtime.process_identity import identity_of, this_process


def driver_process() -> tuple[int, int]:
    """Process id and start time of the driver's JVM, or of this process when no JVM is above it."""
    pid = os.getpid()
    while pid > 1:
        if _name(pid) == "java":
            return identity_of(pid)
        pid = _parent(pid)
    return this_process()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name in parentheses may hold blanks; the parent is the second field after it.
    return int(stat.rpartition(")")[2].split()[1])
