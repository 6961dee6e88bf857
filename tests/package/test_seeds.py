"""The seeds of random tests: the same in each run where that is asked for."""

from __future__ import annotations

import pytest

from tests import seeds
from tests.seeds import VARIABLE, new_seed


def drawn(monkeypatch: pytest.MonkeyPatch, given: str, test: str, count: int = 3) -> list[int]:
    """What a test draws at the beginning of a run."""
    monkeypatch.setenv(VARIABLE, given)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", f"{test} (call)")
    seeds._drawn.clear()
    return [new_seed() for _ in range(count)]


def test_a_test_draws_the_same_seeds_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, "1", "a") == drawn(monkeypatch, "1", "a")


def test_tests_draw_seeds_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = drawn(monkeypatch, "1", "a") + drawn(monkeypatch, "1", "b") + drawn(monkeypatch, "2", "a")
    assert len(set(found)) == len(found)


def test_without_a_number_each_run_draws_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, "", "a", 8) != drawn(monkeypatch, "", "a", 8)
