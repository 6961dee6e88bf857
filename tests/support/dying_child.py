"""A child process that works until it is killed, by the parent or at a failpoint of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_SECONDS_MAX: Final = 120


def run_until_dead(
    program: str, directory: Path, first: int, *, failpoint: str = "", kill_after: int = 0
) -> list[str]:
    """Runs a program that prints `ready` and then a line for each step; returns the steps' lines.

    Args:
        program: gets the data directory and the number of the first step; modules beside the data directory
            can be imported.
        failpoint: where the child stops itself, as `runtime.failpoint` understands it.
        kill_after: the parent kills the child once it has told so many steps.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), str(directory.parent)])}
    if failpoint:
        environment["SEQSTORE_FAILPOINT"] = failpoint
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(directory), str(first)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline() == "ready\n", child.stderr.read()
    told: list[str] = []
    while not failpoint and len(told) < kill_after:
        told.append(child.stdout.readline().strip())
    if not failpoint:
        child.send_signal(signal.SIGKILL)
    rest, errors = child.communicate(timeout=_SECONDS_MAX)
    assert child.returncode == -signal.SIGKILL, errors
    return told + rest.split("\n")[:-1]
