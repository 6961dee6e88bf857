"""`cli.quick_end`: a command ends as any program does, but for the interpreter's last collections."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import MODULES

PROGRAM = """
import atexit, sys, threading, time
from seqstore.cli.quick_end import run_and_end

class Kept:
    def __del__(self):
        print("taken apart", file=sys.stderr)

kept = Kept()

def command():
    {body}

run_and_end(command)
"""


def ended(body: str, stdout: int | None = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body.replace("\n", "\n    "))],
        env={**os.environ, "PYTHONPATH": MODULES, "PYTHONUNBUFFERED": ""},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(("given", "status"), [("0", 0), ("3", 3), ("None", 0), ("True", 1), ("256 + 4", 4)])
def test_the_status_is_that_of_the_command(given: str, status: int) -> None:
    assert ended(f"sys.exit({given})").returncode == status


def test_what_was_written_is_there_and_nothing_is_taken_apart() -> None:
    done = ended("print('out'); print('error', file=sys.stderr); sys.exit(0)")
    assert (done.stdout, done.stderr) == ("out\n", "error\n")


def test_threads_are_waited_for_before_the_functions_of_atexit_run() -> None:
    """The thread waits for the main thread, so it is still running when the command ends."""
    body = (
        "atexit.register(print, 'at exit')\n"
        "main = threading.main_thread()\n"
        "threading.Thread(target=lambda: (main.join(), print('thread'))).start()\n"
        "sys.exit(0)"
    )
    assert ended(body).stdout == "thread\nat exit\n"


def test_an_output_that_cannot_be_written_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = ended("print('out'); sys.exit(0)", stdout=full.fileno())
    assert done.returncode == 120
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ("raise KeyError('gone')", 1, "KeyError: 'gone'"),
        ("sys.exit('a message')", 1, "a message"),
        ("pass", 0, ""),
    ],
)
def test_other_ends_are_those_of_the_interpreter(body: str, status: int, told: str) -> None:
    done = ended(body)
    assert done.returncode == status
    assert told in done.stderr
    assert "taken apart" in done.stderr
