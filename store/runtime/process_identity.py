"""Identity of a process: its id with its start time, because the system reuses ids."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Final

_ENDED: Final = (b"Z", b"X", b"x")  # zombie, dead


def this_process() -> tuple[int, int]:
    """Returns the identity of this process. A later process with the same id has another start time."""
    return _own_identity(os.getpid())


def identity_of(pid: int) -> tuple[int, int]:
    """Returns the identity of another process of this host."""
    return pid, _start_time(pid)


@lru_cache(maxsize=1)
def _own_identity(pid: int) -> tuple[int, int]:
    return identity_of(pid)


def _start_time(pid: int) -> int:
    """Returns the clock ticks from boot to the start of a process, 0 if it does not exist or has ended, its
    exit status unread."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    # The name in parentheses may hold any byte; the state follows it, the start time stands 19 fields later.
    fields = stat.rpartition(b")")[2].split()
    return 0 if fields[0] in _ENDED else int(fields[19])


def is_alive(owner: tuple[int, int]) -> bool:
    """Returns whether the process that owns a record still runs."""
    return owner[1] != 0 and _start_time(owner[0]) == owner[1]
