"""The end of a command, without the interpreter's last collections of garbage.

The interpreter collects all garbage several times before it ends, and takes its modules apart: 0.2 s for
those of a command, a quarter of a short one. The operating system frees the same memory at once.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress


def run_and_end(command: Callable[[], object]) -> None:
    """Runs a command that ends by `SystemExit`; the process ends then as quickly as it can.

    1. Threads that are no daemons are waited for.
    2. The functions of `atexit` run, which flush logs and end processes.
    3. The streams are flushed. If one cannot be, the interpreter ends as usual, and says so.
    4. The process ends with the status of the command.

    `multiprocessing` ends its processes in the same way. A command that ends by another exception, or with a
    message for a status, ends as usual.
    """
    try:
        command()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _end(ended.code or 0)
        raise


def _end(status: int) -> None:
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    with suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(status)
