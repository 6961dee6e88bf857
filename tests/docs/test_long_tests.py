"""A run that hangs tells what it waits for."""

from __future__ import annotations

import time

from tests.long_tests import LongTests


def test_tests_that_run_for_long_are_named() -> None:
    watch = LongTests(print, seconds=60)
    watch.pytest_runtest_logstart("tests/a.py::test_slow")
    watch.pytest_runtest_logstart("tests/b.py::test_quick")
    watch.pytest_runtest_logfinish("tests/b.py::test_quick")
    now = time.monotonic()
    assert watch.lines(now) == []
    assert watch.lines(now + 61) == ["running for 61 s: tests/a.py::test_slow"]


def test_a_run_without_a_running_test_says_so() -> None:
    assert LongTests(print, seconds=60).lines(time.monotonic()) == ["no test is running"]
