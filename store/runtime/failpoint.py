"""Named points where a test may stop the process: the seam of the crash tests.

`SEQSTORE_FAILPOINT=name` (or `name:k`) in the environment makes the k-th pass of that point end the process
with SIGKILL, as a power cut would. Without the variable a point costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal

_passes = 0


def hit(name: str) -> None:
    """Passes the point; ends the process there if the environment says so."""
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
