"""A program that has imported the package and forks what tests start: an import takes most of a short life.

It reads a request for each process from a socket, with its streams and a pipe for its end; programs that are
no child of the tests connect to a second socket. Each process is a fork of a fork: the one between waits for
it, because only a parent learns how a process ended. This program opens no store and starts no thread of its
own, so a fork of it is as a new interpreter with modules.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import types
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from seqstore.cli.quick_end import run_and_end
from tests.weight import ALL, form

ENGINE: Final = (
    "cryptography.fernet",
    "numpy.ma",  # pyarrow imports it late, and sqlglot its dialects
    "seqstore.loaders.routine.statements",
    "seqstore.store.repair.repair",
    "seqstore.store.sql",
    "seqstore.store.store",
    "sqlglot.dialects.duckdb",
)
SERVERS: Final = (
    "seqstore.cli.main",
    "seqstore.cli.mysql",
    "seqstore.cli.scan.thrift_server",
    "seqstore.cli.serve",
    "seqstore.cli.server.mysql_service",
    "seqstore.cli.server.scan_services",
    "seqstore.cli.server.service",
    "seqstore.cli.sql",
    "seqstore.loaders.broker.worker",
    "seqstore.loaders.routine.runner",
)
NUMBER: Final = struct.Struct("=i")
REQUEST_BYTES_MAX: Final = 2**17
_STREAMS: Final = 3


def preload(modules: Iterable[str] = ENGINE) -> None:
    """Imports modules that forks of this process need, and keeps collections of garbage off them."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:  # the extra `server` may be missing
            continue
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # else nanobind takes what is left at the end of a process for leaks


def serve(control: socket.socket, listener: socket.socket) -> None:
    """Forks for each request, until `control` is closed; returns in each fork, with its program's end."""
    signal.signal(signal.SIGCHLD, _reap)
    waiting = select.poll()  # `select` takes no number beyond 1,023
    waiting.register(control, select.POLLIN)
    waiting.register(listener, select.POLLIN)
    while True:
        ready = {file for file, _ in waiting.poll()}
        asking = control if control.fileno() in ready else listener.accept()[0]
        request, files, _, _ = socket.recv_fds(asking, REQUEST_BYTES_MAX, _STREAMS + 1)
        if asking is not control:
            asking.close()
        elif not request:
            return
        if not request:
            continue
        if not _fork():
            control.close()
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attend(json.loads(request), files[:_STREAMS], files[_STREAMS])
            return
        for file in files:
            os.close(file)


def _reap(*_: object) -> None:
    """Waits for forks that have ended: their processor time adds up in this process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _fork() -> int:
    with warnings.catch_warnings():  # of the threads that numpy and jemalloc have: both know of forks
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _attend(request: dict[str, Any], streams: list[int], told: int) -> None:
    """Runs the program in one more fork; tells its process id, and then its end."""
    process = _fork()
    if not process:
        os.close(told)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _run_and_end(request)
        return
    for stream in streams:
        os.close(stream)
    os.write(told, NUMBER.pack(process))
    _, status = os.waitpid(process, 0)
    os.write(told, NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _run_and_end(request: dict[str, Any]) -> None:
    """Runs the program; in the short form of the tests it ends quickly, which saves 0.2 s of each process."""

    def program() -> None:
        _run(**request)
        sys.exit()

    if form() == ALL:
        _run(**request)
    else:
        run_and_end(program)


def _run(arguments: list[str], environment: dict[str, str], directory: str) -> None:
    """Does what `python ARGUMENTS` does: `-c` and a program, or `-m` and a module."""
    os.chdir(directory)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(environment)
    given = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = ["", *given, *(path for path in sys.path[1:] if path not in inherited)]
    kind, program, *rest = arguments
    sys.argv = [kind if kind == "-c" else program, *rest]
    if kind == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), main.__dict__)
    else:
        sys.path[0] = directory
        sys.modules.pop(program, None)  # it runs once more, as `__main__`
        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    preload((*ENGINE, *SERVERS))
    serve(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
