"""Waiting for what other threads, processes and servers do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_PAUSE_SECONDS: Final = 0.002


def until(holds: Callable[[], bool], seconds: float = 120) -> None:
    """Waits until something holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"nothing changed within {seconds:g} seconds"
        time.sleep(_PAUSE_SECONDS)
