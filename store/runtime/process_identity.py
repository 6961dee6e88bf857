"""Identity of a process: its id with its start time, for an id may be used again."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Final

_ENDED: Final = (b"Z", b"X", b"x")  # zombie, dead


def this_process() -> tuple[int, int]:
    """Identity of this process; a later process with the same id differs in its start time."""
    return _own_identity(os.getpid())


def identity_of(pid: int) -> tuple[int, int]:
    """Identity of another process of this host."""
    return pid, _start_time(pid)


@lru_cache(maxsize=1)
def _own_identity(pid: int) -> tuple[int, int]:
    return identity_of(pid)


def _start_time(pid: int) -> int:
    """Clock ticks from boot to the start of a process, 0 when there is none, or only what its parent has not
    waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    # The name in parentheses may hold anything; the state and, 19 fields on, the start time come after it.
    commit_info = stat.rpartition(b")")[2].split()
    return 0 if commit_info[0] in _ENDED else int(commit_info[19])


def is_alive(owner: tuple[int, int]) -> bool:
    """Whether the process that owns a record still runs."""
    return owner[1] != 0 and _start_time(owner[0]) == owner[1]
