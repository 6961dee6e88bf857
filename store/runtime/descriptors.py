"""File descriptors of the process: their limit, and whether some are free."""

from __future__ import annotations

import os
import resource
from typing import Final

from seqstore.store.errors import UnavailableError

_WANTED: Final = 1 << 20  # more are of no use, and some systems allow billions
_NEEDED_BY_DUCKDB: Final = 16


def raise_limit() -> int:
    """Raises the limit of open files as far as the system allows; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft


def require_for_duckdb() -> None:
    """Checks that DuckDB can open a database: it ends the process when it finds no free descriptor.

    Raises:
        UnavailableError: too many files are open.
    """
    opened: list[int] = []
    try:
        while len(opened) < _NEEDED_BY_DUCKDB:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise UnavailableError(
            f"too many open files: expected {_NEEDED_BY_DUCKDB} free descriptors, found {len(opened)}; raise "
            "the limit of the process (ulimit -n)",
            kind="open_files",
        ) from error
    finally:
        for each in opened:
            os.close(each)
