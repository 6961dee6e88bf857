"""A child process that works until it is killed, by the parent or at a failpoint of its own."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython

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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([MODULES, str(directory.parent)])}
    if failpoint:
        environment["SEQSTORE_FAILPOINT"] = failpoint
    with tempfile.TemporaryFile("w+") as errors:
        arguments = ["-c", program, str(directory), str(first)]
        child = ForkedPython(arguments, environment=environment, stderr=errors)
        told: list[str] = []
        # Every line comes from one buffer: communicate() reads the pipe, and would lose what the buffer has.
        with child, end_at_the_latest(child), child.stdout as output:  # type: ignore[union-attr]
            ready = output.readline()
            while ready and not failpoint and len(told) < kill_after:
                told.append(output.readline())
            if not failpoint:
                child.send_signal(signal.SIGKILL)
            told += output.readlines()
        errors.seek(0)
        assert ready == "ready\n", errors.read()
        assert child.returncode == -signal.SIGKILL, errors.read()
    # A line that the kill has cut off was not told.
    return [line.rstrip("\n") for line in told if line.endswith("\n")]


@contextmanager
def end_at_the_latest(child: ForkedPython) -> Iterator[None]:
    """Ends a child that never ends, by SIGTERM: its return code differs from that of a kill."""
    timer = threading.Timer(_SECONDS_MAX, child.terminate)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
