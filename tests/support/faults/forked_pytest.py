"""A pytest that collects tests once, and runs chosen ones in a fork for each request.

The process imports the product and the tests, which needs seconds; most tests need milliseconds. It runs no
test itself, so it has opened no store when it forks. Before the tests of a fork run, the functions of a
module get the code of its file, which may have changed since: a fault of a function is there at once, in
every place that has the function. Processes that the tests start read the changed file.

Functions that ran while the modules were imported may have left their results there, so a fork is no proof
that no test notices their faults (`ForkedPytest.ran_at_import`).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest
from _pytest.main import pytest_runtestloop as run_tests

from tests import seeds
from tests.support.faults import touched

PIPES: Final = "SEQSTORE_FORKED_PIPES"
ARGUMENTS: Final = (
    "-q", "-p", "no:cacheprovider", "-p", "tests.support.faults.touched", "-n", "0", "--timeout=120",
)  # fmt: skip
_WAIT_SECONDS: Final = 300
_RECORD_SECONDS: Final = 3600
FAILED: Final = 1
NO_TESTS: Final = 5
UNFIT: Final = 6  # the code of a function cannot be changed in place


class ForkedPytest:
    """The process that forks.

    Args:
        folder: the repository that it works in.
        test_files: the tests that it collects.
        log: gets its output.

    Attributes:
        tests: the names of those that were collected.
    """

    def __init__(self, folder: Path, test_files: Sequence[str], log: Path) -> None:
        self.log = log
        requests, answers = os.pipe(), os.pipe()
        environment = environment_of(folder) | {PIPES: f"{requests[0]},{answers[1]}"}
        command = [sys.executable, "-m", "pytest", *ARGUMENTS, f"--basetemp={folder.parent / 'tmp'}"]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "-p", "tests.support.faults.forked_pytest", *test_files],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(requests[0], answers[1]),
            )
        os.close(requests[0])
        os.close(answers[1])
        self._requests, self._answers = os.fdopen(requests[1], "w"), os.fdopen(answers[0])
        collected = self._answer()
        self.tests: Final = frozenset(collected["tests"])
        self._at_import = {tuple(each) for each in collected["at_import"]}

    def ran_at_import(self, module: str, function: str) -> bool:
        """Whether a function, by its name within a module, ran while the modules were imported."""
        return (module, function) in self._at_import

    def run(
        self,
        tests: Sequence[str],
        environment: Mapping[str, str],
        *,
        changed: str = "",
        cpu_seconds: float = 0,
        stops: bool = True,
    ) -> int | None:
        """Runs tests in a fork; returns 0, `FAILED`, `UNFIT`, or None where they did not end in time.

        Args:
            changed: a module whose functions get the code of its file.
            cpu_seconds: of the processor that the run may use, 0 for no limit. A fault that never ends burns
                it, and other work on the machine does not count. One that waits for ever has its time by the
                clock.
            stops: at the first failure.
        """
        request = {
            "tests": list(tests),
            "environment": dict(environment),
            "changed": changed,
            "cpu_seconds": cpu_seconds,
            "seconds": _WAIT_SECONDS if changed else _RECORD_SECONDS,
            "stops": stops,
        }
        print(json.dumps(request), file=self._requests, flush=True)
        code: int | None = self._answer()
        if code == NO_TESTS:
            raise SystemExit(f"none of {len(tests)} tests was collected, such as {tests[0]}")
        return code

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line:
            shown = self.log.read_text(errors="replace")[-3000:]
            raise SystemExit(f"the process that runs the tests has ended:\n{shown}")
        return json.loads(line)

    def close(self) -> None:
        self._requests.close()
        self._process.wait()
        self._answers.close()


def environment_of(folder: Path) -> dict[str, str]:
    """Returns the environment of a pytest that works in a copy of the repository.

    Every one draws the same tests of a family and the same examples, as those of `make test`.
    """
    path = f"{folder}/.package:{folder}"
    return {seeds.VARIABLE: "20261124", **os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


# Within the process that forks.

_at_import: set[tuple[str, str]] = set()
_functions: dict[str, dict[str, list[FunctionType]]] = {}


def pytest_configure(config: pytest.Config) -> None:
    if PIPES in os.environ:
        sys.setprofile(_note)


def _note(frame: Any, event: str, argument: Any) -> None:
    if event == "call" and (module := _module_of(frame.f_code)):
        _at_import.add((module, frame.f_code.co_qualname))


def _module_of(code: CodeType) -> str:
    """Returns the module of the product that has a function, empty for others."""
    return code.co_filename.partition("/.package/seqstore/")[2]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Serves requests in place of running the tests."""
    pipes = os.environ.pop(PIPES, None)
    if pipes is None:
        return None
    sys.setprofile(None)
    gc.unfreeze()  # the conftest of all tests has frozen what it collected: `get_objects` leaves that out
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and (module := _module_of(each.__code__)):
            _functions.setdefault(module, {}).setdefault(each.__code__.co_qualname, []).append(each)
    gc.freeze()
    requests, answers = (int(number) for number in pipes.split(","))
    with os.fdopen(requests) as given, os.fdopen(answers, "w") as answered:
        collected = {"tests": [item.nodeid for item in session.items], "at_import": sorted(_at_import)}
        print(json.dumps(collected), file=answered, flush=True)
        for line in given:
            request = json.loads(line)
            child = os.fork()
            if not child:
                _child(session, request)
            print(json.dumps(_outcome(child, request["seconds"])), file=answered, flush=True)
    return True


def _child(session: pytest.Session, request: dict[str, Any]) -> None:
    """Runs tests in the fork, which never returns."""
    code = FAILED
    try:
        os.setsid()
        os.environ.update(request["environment"])
        config: Any = session.config
        config._env_timeout = request["seconds"]
        if request["cpu_seconds"]:
            limit = round(request["cpu_seconds"])
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        config.option.maxfail = 1 if request["stops"] else 0
        order = {name: i for i, name in enumerate(request["tests"])}
        chosen = [
            (place, item) for item in session.items if (place := _place(item.nodeid, order)) is not None
        ]
        session.items = [item for _, item in sorted(chosen, key=lambda each: each[0])]
        if request["changed"] and not _change(request["changed"]):
            code = UNFIT
        elif not session.items:
            code = NO_TESTS
        else:
            touched.begin()
            with contextlib.suppress(session.Failed):
                run_tests(session)
            code = FAILED if session.testsfailed else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _place(name: str, order: Mapping[str, int]) -> int | None:
    """Returns the place of a test in the order, by its name, that of its function or that of its file."""
    return next((order[each] for each in (name, name.partition("[")[0], name.partition("::")[0])
                 if each in order), None)  # fmt: skip


def _change(module: str) -> bool:
    """Gives the functions of a module the code of its file; returns whether all of them fit."""
    known = _functions.get(module)
    if known is None:
        return True  # it is imported later
    path = next(iter(known.values()))[0].__code__.co_filename
    found: dict[str, list[CodeType]] = {}
    for code in _codes(compile(Path(path).read_text(), path, "exec")):
        found.setdefault(code.co_qualname, []).append(code)
    for name, functions in known.items():
        lines = sorted({function.__code__.co_firstlineno for function in functions})
        codes = found.get(name, [])
        if len(codes) != len(lines):
            if any(function.__code__.co_name != "<lambda>" for function in functions):
                return False
            continue
        by_line = dict(zip(lines, codes, strict=True))
        for function in functions:
            try:
                function.__code__ = by_line[function.__code__.co_firstlineno]
            except ValueError:  # another number of free variables
                return False
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _outcome(child: int, seconds: float) -> int | None:
    """Waits for a run and ends the processes that it left."""
    end, status = time.monotonic() + seconds, None
    while status is None and time.monotonic() < end:
        found, code = os.waitpid(child, os.WNOHANG)
        if found:
            status = code
        else:
            time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
        return None
    exit_code = os.waitstatus_to_exitcode(status)
    return exit_code if exit_code in (0, NO_TESTS, UNFIT) else FAILED
