"""Runs a kind of work with a fault in one of its file operations, and says what came of it.

Started as a program under LD_PRELOAD of `shim.c`, with a directory of its own. It opens no store itself: each
run is a fork, and so is the look at the store afterwards. It reads a request per line (work, fault, number of
the operation) and prints an `Answer` per line, both as JSON.
"""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from seqstore import CommitUnknownError, StoreError
from tests.support.faults import file_works
from tests.support.forks.fork_server import preload

ROOT: Final = Path(__file__).parents[3]
SHIM: Final = Path(__file__).with_name("shim.c")
FAIL, SHORT, KILL, LOSE = 1, 2, 3, 4
WRITES: Final = ("create", "write", "resize", "rename")
PLANTED: Final = "SEQSTORE_TESTS_NO_SYNC"  # the program syncs no file, which the grid must notice
_SECONDS_MAX: Final = 240  # of one fork, on a machine with other work
EVERY: Final = (*WRITES, "open", "read", "sync", "remove")


@dataclass(frozen=True)
class Fault:
    """A fault of file operations.

    Attributes:
        lasting: every later operation of these kinds fails too.
        kinds: of the operations that it may hit.
    """

    action: int
    error: int = 0
    lasting: bool = False
    kinds: tuple[str, ...] = EVERY


FAULTS: Final = {
    "kill": Fault(KILL),
    "power": Fault(LOSE),
    "eio": Fault(FAIL, errno.EIO),
    "broken": Fault(FAIL, errno.EIO, lasting=True),
    "enospc": Fault(FAIL, errno.ENOSPC, lasting=True, kinds=WRITES),
    "emfile": Fault(FAIL, errno.EMFILE, lasting=True, kinds=("open", "create")),
    "eintr": Fault(FAIL, errno.EINTR),
    "short": Fault(SHORT, kinds=("write",)),
    "short for good": Fault(SHORT, lasting=True, kinds=("write",)),
}


@dataclass
class Answer:
    """What came of a run.

    Attributes:
        counted: file operations of the work.
        faults: broken promises, in words; none if all is well.
        kinds: of the operations, in a run without a fault.
    """

    counted: int = 0
    faults: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)


# the side of the test


def compiled(directory: Path) -> Path | None:
    """Compiles the shim; None where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    library = directory / "shim.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-w", "-o", library, SHIM, "-ldl", "-lpthread"], check=True
    )
    return library


class FaultServer:
    """The program, started; `run` asks it."""

    def __init__(self, directory: Path, library: Path, *, planted: bool = False) -> None:
        path = os.pathsep.join([str(ROOT / ".package"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._errors = directory / "errors"
        environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": path}
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment | ({PLANTED: "1"} if planted else {}),
                cwd=ROOT,
            )

    def run(self, work: str, fault: str = "", number: int = 0) -> Answer:
        """Runs a kind of work with a fault at an operation; without one if no fault is named."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([work, fault, number]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._errors.read_text()
        return Answer(**json.loads(line))

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def fault_server(directory: Path, library: Path, *, planted: bool = False) -> Iterator[FaultServer]:
    server = FaultServer(directory, library, planted=planted)
    try:
        yield server
    finally:
        server.close()


# the side of the program


def _forked(work: Callable[[Callable[[Any], None]], None]) -> tuple[list[Any], bool]:
    """Runs a function in a fork; returns what it told, and whether it ended by itself."""
    receive, send = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(receive)
        signal.alarm(_SECONDS_MAX)
        try:
            work(lambda value: (os.write(send, json.dumps(value).encode() + b"\n"), None)[1])
        except BaseException:
            os.write(send, json.dumps({"raised": traceback.format_exc()[-2500:]}).encode() + b"\n")
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as pipe:
        told = [json.loads(line) for line in pipe if line.endswith("\n")]
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        told.append({"faults": [f"it hangs: {_SECONDS_MAX} s"]})
    return told, os.WIFEXITED(status)


class _Program:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._template = directory / "template"
        self._shim = ctypes.CDLL(None)
        self._shim.faults_disarm.restype = ctypes.c_long
        self._states: dict[str, list[Any]] = {}
        _forked(lambda _: file_works.make_store(self._template))
        self._works = file_works.works(file_works.inbox_of(self._template))

    def answer(self, work: str, fault: str, number: int) -> Answer:
        if work not in self._states:
            self._states[work] = self._run_steps(work)
        path = self._copy(work, f"{fault}-{number}")
        try:
            return self._answer(path, work, fault, number)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _copy(self, work: str, name: str) -> Path:
        path = self._directory / f"{work}-{name}"
        shutil.copytree(self._template, path)
        file_works.prepare(work, path)
        return path

    def _run_steps(self, work: str) -> list[Any]:
        """Returns the contents before the first step and after each."""
        before, path = self._copy(work, "before"), self._copy(work, "steps")

        def run(tell: Callable[[Any], None]) -> None:
            tell(file_works.contents(before))
            for step in self._works[work]:
                with file_works.opened_for(work, path) as target:
                    step(target)
                tell(file_works.contents(path))

        told, _ = _forked(run)
        shutil.rmtree(before)
        shutil.rmtree(path)
        if len(told) != len(self._works[work]) + 1 or "raised" in told[-1]:
            raise RuntimeError(f"{work} fails without a fault: {told[-1]}")
        return told

    def _answer(self, path: Path, work: str, fault: str, number: int) -> Answer:
        kinds = self._directory / "kinds"
        told, is_alive = _forked(lambda tell: self._work(path, work, FAULTS.get(fault), number, tell))
        answer = Answer()
        acknowledged = sum(each == "done" for each in told)
        raised = next((each for each in told if isinstance(each, dict) and "error" in each), None)
        for each in told:
            if isinstance(each, dict):
                answer.counted = each.get("counted", answer.counted)
                answer.faults += each.get("faults", [])
                answer.faults += [each["raised"]] if "raised" in each else []
        if not fault:
            answer.kinds = [line.split()[1] for line in kinds.read_text().splitlines()]
        if not is_alive and fault not in ("kill", "power"):
            answer.faults.append("the process was ended by a signal")
        if is_alive and told and fault:
            acknowledged = len(self._works[work])  # it went on and finished
        seen, _ = _forked(lambda tell: self._look(path, tell))
        states = self._states[work]
        allowed = states[acknowledged : acknowledged + 2]
        if not seen or "raised" in seen[0]:
            answer.faults.append(f"the store cannot be read afterwards: {seen}")
        else:
            found, unnamed = seen[0]
            if found not in allowed:
                answer.faults.append(
                    f"{acknowledged} steps were acknowledged, and {_difference(found, allowed)}"
                )
            if unnamed:
                answer.faults.append(f"files are left: {unnamed}")
        if answer.faults and raised:
            answer.faults.append(f"raised: {raised['error']}")
        return answer

    def _work(
        self, path: Path, work: str, fault: Fault | None, number: int, tell: Callable[[Any], None]
    ) -> None:
        """Works with the fault, then without: the process goes on when the fault is gone."""
        kinds = os.open(self._directory / "kinds", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        action = fault or Fault(0)
        operations = f",{','.join(action.kinds)},".encode()
        self._shim.faults_arm(
            str(path).encode(), ctypes.c_long(number if fault else 0), action.action, action.error,
            int(action.lasting), operations, -1 if fault else kinds,
        )  # fmt: skip
        done, faults, is_open_question = 0, list[str](), False
        try:
            with file_works.opened_for(work, path) as target:
                for step in self._works[work]:
                    step(target)
                    done += 1
                    tell("done")
        except StoreError as error:
            is_open_question = isinstance(error, CommitUnknownError)
            tell({"error": f"{type(error).__name__}: {error}"})
        except BaseException:
            faults.append(f"expected an error of the store, found {traceback.format_exc()[-2500:]}")
        tell({"counted": self._shim.faults_disarm(), "faults": faults})
        if fault is None:
            return
        states = self._states[work]
        found = file_works.contents(path)
        may_be_done = is_open_question or work in file_works.SEVERAL_COMMITS
        possible = states[done : done + 1 + may_be_done]
        if found not in possible:
            tell({"faults": [f"after {done} steps and an error {_difference(found, possible)}"]})
        done = states.index(found) if found in states else done
        if work in file_works.OFFLINE:  # done by the look at the contents, and now the store is open
            done = len(self._works[work])
        with file_works.opened_for(work, path) as target:
            for step in self._works[work][done:]:
                step(target)
        with file_works.open_store(path) as store:
            for name in store.tables("db"):
                store.table(f"db.{name}").vacuum(retention_seconds=10**6)
        unnamed = file_works.unnamed_files(path)
        if unnamed:
            tell({"faults": [f"files are left in the process that goes on: {unnamed}"]})

    @staticmethod
    def _look(path: Path, tell: Callable[[Any], None]) -> None:
        tell([file_works.contents(path), file_works.unnamed_files(path)])


def _difference(found: Any, allowed: list[Any]) -> str:
    """Names the parts of the contents that are neither those of the last step nor of the next."""
    wrong = [name for name in found if all(found[name] != each.get(name) for each in allowed)]
    missing = [name for each in allowed for name in each if name not in found]
    shown = {name: str(found[name])[:300] for name in wrong}
    return f"other contents were found: {shown or 'a mixture of states'}, missing {missing}"


def main(directory: Path) -> None:
    """Runs the program."""
    logging.disable()
    if os.environ.get(PLANTED):
        os.fsync = lambda fd: None
    preload()
    program = _Program(directory)
    for line in sys.stdin:
        print(json.dumps(asdict(program.answer(*json.loads(line)))), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
