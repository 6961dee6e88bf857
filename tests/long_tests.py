"""Plugin: names the tests that have been running for minutes, while they run.

pytest-xdist shows only dots, so a run that is ended from outside would not tell what it was waiting for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import pytest

SECONDS: Final = 300.0  # between two looks, and of a test that is worth a line


class LongTests:
    """Notes which tests run, and writes those that run for long.

    Args:
        write_line: where the lines go.
        seconds: between two looks.
    """

    def __init__(self, write_line: Callable[[str], None], seconds: float = SECONDS) -> None:
        self._write_line = write_line
        self._seconds = seconds
        self._begun: dict[str, float] = {}
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="long-tests", daemon=True)

    def pytest_sessionstart(self) -> None:
        self._watcher.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begun[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._begun.pop(nodeid, None)

    def pytest_sessionfinish(self) -> None:
        self._ended.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._seconds):
            for line in self.lines(time.monotonic()):
                self._write_line(line)

    def lines(self, now: float) -> list[str]:
        """What runs at this time, or that nothing does though the run goes on."""
        begun = self._begun.copy()
        if not begun:
            return ["no test is running"]
        took = {name: now - since for name, since in begun.items()}
        return [f"running for {took[name]:.0f} s: {name}" for name in took if took[name] >= self._seconds]


@pytest.hookimpl(trylast=True)  # behind the terminal's own
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if config.getoption("numprocesses", None) and terminal is not None:
        config.pluginmanager.register(LongTests(lambda line: terminal.write_line(line)), "long-tests")
