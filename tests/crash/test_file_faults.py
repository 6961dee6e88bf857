"""Every kind of work with a fault in one of its file operations: a kill, a loss of power, a failing disk.

Afterwards everything acknowledged is there, the step in flight is whole or absent, the process goes on when
the fault is gone, and no file is left. `tests/support/faults/file_faults.py` has the faults, `file_works.py`
the work.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faults.file_faults import FAULTS, FaultServer, compiled, fault_server
from tests.support.faults.file_works import works
from tests.weight import by_form, torture_minutes

POINTS = by_form(1, 5)
WORKS = list(works(Path("inbox")))
pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = compiled(tmp_path_factory.mktemp("shim"))
    if found is None:
        pytest.skip("no C compiler (gcc) for the shim that fails file operations")
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[FaultServer]:
    with fault_server(tmp_path_factory.mktemp("faults"), library) as started:
        yield started


def points_of(kinds: list[str], fault: str) -> list[int]:
    """The operations that a fault can hit, by number."""
    return [number for number, kind in enumerate(kinds, 1) if kind in FAULTS[fault].kinds]


@pytest.mark.parametrize("work", WORKS)
def test_a_fault_in_a_file_operation_loses_and_halves_nothing(server: FaultServer, work: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    chosen = random.Random(seed)
    plain = server.run(work)
    assert plain.faults == []
    for fault in FAULTS:
        points = points_of(plain.kinds, fault)
        for number in chosen.sample(points, min(POINTS, len(points))):
            found = server.run(work, fault, number)
            assert found.faults == [], f"seed {seed}: {work}, {fault} at {number} ({plain.kinds[number - 1]})"


def test_the_grid_notices_a_missing_sync(tmp_path: Path, library: Path) -> None:
    with fault_server(tmp_path, library, planted=True) as planted:
        kinds = planted.run("load").kinds
        points = points_of(kinds, "power")
        assert any(planted.run("load", "power", number).faults for number in reversed(points))


@pytest.mark.torture
@pytest.mark.parametrize("work", WORKS)
def test_all_points_of_the_grid(server: FaultServer, work: str) -> None:
    ends = time.monotonic() + 60 * torture_minutes()
    kinds = server.run(work).kinds
    grid = [(fault, number) for fault in FAULTS for number in points_of(kinds, fault)]
    random.shuffle(grid)
    failed = []
    for fault, number in grid:
        if time.monotonic() > ends:
            break
        failed += [(fault, number, each) for each in server.run(work, fault, number).faults]
    assert failed == []
