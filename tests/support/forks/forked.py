"""Processes that are forks of a program with the package imported; see `fork_server`."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import psutil

from tests.support.children import MODULES, ROOT
from tests.support.forks.fork_server import NUMBER

PRELOAD: Final = "LD_PRELOAD"  # what it names is loaded by a new interpreter only
_START_SECONDS: Final = 200


class ForkedPython:
    """A process as `python ARGUMENTS` starts one, with what tests use of `subprocess.Popen`.

    Args:
        arguments: `-c` and a program or `-m` and a module, and what follows.
        environment: of the process; that of this process if it is not given.
        has_input: `stdin` is a pipe.
        stdout: where its output goes; a pipe, which the attribute reads, if it is not given.
        stderr: where its errors go; to those of this process if it is not given, or `subprocess.STDOUT`.

    Attributes:
        returncode: None until `poll` or `wait` has seen the end; negative for a signal.

    Raises:
        ValueError: the environment has `LD_PRELOAD`, which a fork does not follow.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path = ROOT,
        has_input: bool = False,
        stdout: IO[Any] | None = None,
        stderr: IO[Any] | int | None = None,
    ) -> None:
        self.args = [sys.executable, *arguments]
        self.returncode: int | None = None
        self._lock = threading.Lock()
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        request = {
            "arguments": list(arguments),
            "environment": dict(os.environ if environment is None else environment),
            "directory": str(directory),
        }
        self._told, told = os.pipe()
        with ExitStack() as given:
            given.callback(os.close, told)
            if PRELOAD in request["environment"]:
                raise ValueError(f"a fork of a running program does not follow {PRELOAD}")
            if has_input:
                stdin, kept = os.pipe()
                self.stdin = os.fdopen(kept, "w", encoding="utf-8")
            else:
                stdin = os.open(os.devnull, os.O_RDONLY)
            given.callback(os.close, stdin)
            if stdout is None:
                kept, output = os.pipe()
                given.callback(os.close, output)
                self.stdout = os.fdopen(kept, encoding="utf-8")
            else:
                output = stdout.fileno()
            inherited = output if stderr == subprocess.STDOUT else 2
            errors = inherited if stderr is None or isinstance(stderr, int) else stderr.fileno()
            socket.send_fds(_server()[0], [json.dumps(request).encode()], [stdin, output, errors, told])
        self.pid = self._next_number(_START_SECONDS)

    def __del__(self) -> None:
        os.close(self._told)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self.stdin, self.stdout):
            if stream is not None:
                stream.close()
        self.wait()

    def _next_number(self, seconds: float | None) -> int:
        """Waits for what the program tells of the process."""
        if not _is_readable(self._told, seconds):
            raise subprocess.TimeoutExpired(self.args, seconds or 0)
        told = os.read(self._told, NUMBER.size)
        if not told:
            raise RuntimeError(f"the process that waits for {self.args} was killed")
        return int(NUMBER.unpack(told)[0])

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end.

        Raises:
            subprocess.TimeoutExpired: it takes longer.
        """
        if self.returncode is None:
            if not _is_readable(self._told, timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            with self._lock:  # threads may wait at once: one reads, and the others find the pipe at its end
                if self.returncode is None:
                    self.returncode = self._next_number(None)
        return self.returncode

    def communicate(self, given: str = "", timeout: float | None = None) -> str:
        """Sends input, reads the output to its end, waits for the process, and closes the pipes."""
        if self.stdin is not None and not self.stdin.closed:
            with suppress(BrokenPipeError):  # it has ended
                self.stdin.write(given)
            with suppress(BrokenPipeError):
                self.stdin.close()
        told = ""
        if self.stdout is not None and not self.stdout.closed:
            told = self.stdout.read()
            self.stdout.close()
        self.wait(timeout)
        return told

    def poll(self) -> int | None:
        """The return code if the process has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Sends a signal to a process that has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _is_readable(file: int, seconds: float | None) -> bool:
    """Waits for data or the end of a pipe, whose number may be beyond those that `select` takes."""
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else seconds * 1000))


def start_python(
    arguments: Sequence[str], *, environment: Mapping[str, str]
) -> ForkedPython | subprocess.Popen[str]:
    """Starts a process with pipes as its input and output, as a new interpreter where a fork does not do."""
    if PRELOAD not in environment:
        return ForkedPython(arguments, environment=environment, has_input=True)
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=ROOT,
        text=True,
    )


def run_forked(
    *arguments: str, environment: Mapping[str, str] | None = None, directory: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Runs a process to its end, as `subprocess.run` does; `PYTHONPATH` has the modules of this checkout."""
    given = {**os.environ, "PYTHONPATH": MODULES, **(environment or {})}
    with tempfile.TemporaryFile("w+") as errors:
        process = ForkedPython(arguments, environment=given, directory=directory, stderr=errors)
        output = process.communicate(timeout=_START_SECONDS)
        errors.seek(0)
        return subprocess.CompletedProcess(process.args, process.wait(), output, errors.read())


def write_command(path: Path, module: str) -> None:
    """Makes a command that runs a module with its arguments, streams, directory and environment."""
    program = Path(__file__).with_name("command.py").read_text()
    _server()
    path.write_text(f"#!{sys.executable} -IS\n{program}\nmain({_address()!r}, {module!r})\n")
    path.chmod(0o755)


def processor_seconds() -> float:
    """The processor time of all forks that have ended: for this process they are no children."""
    used = _server()[1].cpu_times()
    return float(used.user + used.system + used.children_user + used.children_system)


@cache
def _address() -> str:
    """The socket of the program, for commands; its directory is removed with this process."""
    directory = tempfile.TemporaryDirectory(prefix="seqstore-forks-")
    atexit.register(directory.cleanup)
    return str(Path(directory.name) / "socket")


@cache
def _server() -> tuple[socket.socket, psutil.Process]:
    """The socket and the process of the program, once started; it ends with this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(_address())
        listener.listen()
        sockets = its.fileno(), listener.fileno()
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forks.fork_server", *map(str, sockets)],
            pass_fds=sockets,
            env={**os.environ, "PYTHONPATH": MODULES},
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
        )

    def end() -> None:
        ours.close()
        program.wait()

    atexit.register(end)
    return ours, psutil.Process(program.pid)
