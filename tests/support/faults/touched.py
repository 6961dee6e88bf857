"""Plugin of pytest for `make mutants`: which lines of the product each test runs, and the choice of tests.

`SEQSTORE_TOUCHED` names a directory. `tests.jsonl` in it gets a line for each test, with its outcome, its
seconds and the lines of each module. A process that a test starts appends its lines to a file of its own at
once, because a kill may end it; `sitecustomize.py` of the copied repository starts the recording there.

`SEQSTORE_CHOSEN` names a file with the tests that run, one in a line, in their order. The first test that
fails is written to `SEQSTORE_NOTICED`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

TOUCHED: Final = "SEQSTORE_TOUCHED"
CHOSEN: Final = "SEQSTORE_CHOSEN"
NOTICED: Final = "SEQSTORE_NOTICED"
RECORD: Final = "tests.jsonl"
PRODUCT: Final = ("store", "loaders", "cli")
_ROOT: Final = Path(__file__).parents[3]


class Tracer:
    """Records the lines of the product that run in this process.

    Args:
        folder: gets the lines of processes that tests start.
        is_child: of a process that a test started.
    """

    def __init__(self, folder: Path, *, is_child: bool) -> None:
        self._folder = folder
        self._modules: dict[str, str] = {}
        self._lines: dict[CodeType, set[int]] = {}
        self._seen: set[tuple[str, int]] | None = set() if is_child else None
        self._file = -1

    def start(self) -> None:
        os.register_at_fork(after_in_child=self._forked)
        threading.settrace(self._called)
        sys.settrace(self._called)

    def next_test(self) -> dict[str, list[int]]:
        """Returns the lines by module since the last call."""
        lines, self._lines = self._lines, {}
        found: dict[str, set[int]] = {}
        for code, numbers in lines.items():
            found.setdefault(self._modules[code.co_filename], set()).update(numbers)
        return {module: sorted(numbers) for module, numbers in found.items()}

    def _forked(self) -> None:
        self._seen, self._file = set(), -1

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        module = self._modules.get(name)
        if module is None:
            module = self._modules[name] = module_of(name)
        return self._stepped if module else None

    def _stepped(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            code, line = frame.f_code, frame.f_lineno
            if self._seen is None:
                self._lines.setdefault(code, set()).add(line)
            elif (code.co_filename, line) not in self._seen:
                self._seen.add((code.co_filename, line))
                self._write(self._modules[code.co_filename], line)
        return self._stepped

    def _write(self, module: str, line: int) -> None:
        if self._file < 0:
            path = self._folder / f"{os.getpid()}.child"
            self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        os.write(self._file, f"{module}\t{line}\t{test}\n".encode())


def module_of(file: str) -> str:
    """Returns the path of a module of the product below the root, of both of its names; empty for others."""
    path = Path(file)
    if not path.is_relative_to(_ROOT):
        return ""
    parts = path.relative_to(_ROOT).parts
    if parts[:2] == (".package", "seqstore"):
        parts = parts[2:]
    return "/".join(parts) if parts[0] in PRODUCT else ""


def start_in_child() -> None:
    """Records the lines of a process that a test started."""
    if TOUCHED in os.environ:
        Tracer(Path(os.environ[TOUCHED]), is_child=True).start()


_tracer: Tracer | None = None
_outcome = ""


def begin() -> None:
    """Records the lines of this process, where the environment asks for it."""
    global _tracer
    if TOUCHED in os.environ and _tracer is None:
        _tracer = Tracer(Path(os.environ[TOUCHED]), is_child=False)
        _tracer.start()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    yield
    if CHOSEN in os.environ:
        order = {name: i for i, name in enumerate(Path(os.environ[CHOSEN]).read_text().splitlines())}
        items[:] = sorted(
            (item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid]
        )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _outcome
    _outcome, started = "passed", time.monotonic()
    if _tracer is not None:
        _tracer.next_test()
    try:
        return (yield)
    finally:
        if _tracer is not None:
            found = {"test": item.nodeid, "outcome": _outcome, "seconds": time.monotonic() - started}
            with Path(os.environ[TOUCHED], RECORD).open("a") as file:
                file.write(json.dumps({**found, "lines": _tracer.next_test()}) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    global _outcome
    if report.outcome != "passed":
        _outcome = report.outcome
    if report.failed and NOTICED in os.environ:
        with Path(os.environ[NOTICED]).open("a") as file:
            file.write(f"{report.nodeid}\n")
