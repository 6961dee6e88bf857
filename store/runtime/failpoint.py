"""Failpoints: named points at which a test ends the process; the crash tests use them.

`SEQSTORE_FAILPOINT=name` (or `name:k`) in the environment ends the process with SIGKILL at the k-th pass of
that point, as a power failure would. Without the variable a point costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal

_passes = 0


def hit(name: str) -> None:
    """Passes a point and ends the process there if the environment names it."""
    wanted = os.environ.get("SEQSTORE_FAILPOINT")
    if wanted is None:
        return
    point, _, count = wanted.partition(":")
    if point != name:
        return
    global _passes
    _passes += 1
    if _passes >= int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
