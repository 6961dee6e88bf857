"""A flip of one bit in a copy of a store, and a fork that looks at it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

_SECONDS_MAX: Final = 120


def flip(path: Path, copy: Path, name: str, offset: int, bit: int) -> None:
    """Copies a store anew, and flips a bit of one file of the copy."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    with (copy / name).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def in_a_fork(work: Callable[[], str]) -> str:
    """Returns the result of a call in a fork of this process, or the signal that ended the fork."""
    receive, send = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(receive)
        signal.alarm(_SECONDS_MAX)
        os.write(send, work().encode()[:4000])
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    return told if os.WIFEXITED(status) else f"signal {os.WTERMSIG(status)}"
