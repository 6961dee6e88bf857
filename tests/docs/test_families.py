"""Families: the short form runs some parameters of a test, the same in all processes; the full one all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.families import drawn
from tests.support.documents import ROOT
from tests.weight import ALL, SHORT, VARIABLE

TESTS = """
import pytest

@pytest.mark.family(3)
@pytest.mark.parametrize("number", range(20))
def test_one_of_many(number):
    pass

@pytest.mark.family(3)
@pytest.mark.parametrize("number", range(2))
def test_one_of_few(number):
    pass

def test_alone():
    pass
"""


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    pytester.makeini("[pytest]\nmarkers =\n    family(number): of many\n")
    return pytester.getitems(TESTS)


def names(items: list[pytest.Item]) -> list[str]:
    return [item.name for item in items]


def test_some_of_each_family_and_whatever_has_none_are_drawn(items: list[pytest.Item]) -> None:
    found = names(drawn(items, "1"))
    assert len(found) == 3 + 2 + 1
    assert {"test_one_of_few[0]", "test_one_of_few[1]", "test_alone"} < set(found)
    assert found == [name for name in names(items) if name in found], "in their order"


def test_a_seed_draws_the_same_and_others_draw_others(items: list[pytest.Item]) -> None:
    found = [tuple(names(drawn(items, seed))) for seed in ("1", "1", "2", "3", "4")]
    assert found[0] == found[1]
    assert len(set(found)) > 1


def test_a_test_that_is_named_is_drawn(items: list[pytest.Item]) -> None:
    for item in items:
        assert drawn([item], "1") == [item]


@pytest.mark.parametrize(("form", "count"), [(SHORT, 3 + 2 + 1), (ALL, 20 + 2 + 1)])
def test_the_processes_of_a_run_draw_the_same_without_a_seed(tmp_path: Path, form: str, count: int) -> None:
    """Else pytest-xdist refuses to run."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.families"]\n')
    (tmp_path / "test_named.py").write_text(TESTS)
    marker = "markers =\n    family(number): of many\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT} {ROOT / '.package'}\n{marker}")
    left = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SEQ"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**left, VARIABLE: form},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"(\d+) passed", done.stdout) == [str(count)]
