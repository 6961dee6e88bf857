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

from tests.seeds import new_seed
from tests.support.checkout import commit_of_checkout
from tests.support.faults import grid_progress
from tests.support.faults.file_faults import FAULTS, FaultServer, compiled, fault_server
from tests.support.faults.file_works import works
from tests.weight import by_form, torture_minutes

POINTS = by_form(1, 3)
FAULTS_DRAWN = by_form(3, len(FAULTS))  # of each work; the kill and the loss of power are always among them
ALWAYS = ("kill", "power")
WORKS = list(works(Path("inbox")))
STORED_EVERY = 20
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


@pytest.mark.family(8)
@pytest.mark.parametrize("work", WORKS)
def test_a_fault_in_a_file_operation_loses_and_halves_nothing(server: FaultServer, work: str) -> None:
    seed = new_seed()
    chosen = random.Random(seed)
    plain = server.run(work)
    assert plain.faults == []
    others = chosen.sample([fault for fault in FAULTS if fault not in ALWAYS], FAULTS_DRAWN - len(ALWAYS))
    for fault in (*ALWAYS, *others):
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
def test_all_points_of_the_grid(server: FaultServer) -> None:
    """Goes on with the points that no run of this commit has met, and says how many are left."""
    ends, chosen = time.monotonic() + 60 * torture_minutes(), random.Random()
    with grid_progress.progress_of(commit_of_checkout()) as (progress, store):
        for work in WORKS:
            if work not in progress.left:
                kinds = server.run(work).kinds
                progress.add(work, {fault: points_of(kinds, fault) for fault in FAULTS})
        while time.monotonic() < ends and (point := progress.draw(chosen)):
            progress.note(*point, server.run(*point).faults)
            if progress.done_count % STORED_EVERY == 0:
                store()
        print("\n".join(progress.lines()))
        assert progress.failed == []


@pytest.mark.long
def test_each_point_is_run_once_by_runs_that_go_on(tmp_path: Path) -> None:
    points = {"kill": [1, 2, 3], "eio": [2]}
    path, met = tmp_path / "progress.json", []
    for _ in range(4):
        with grid_progress.progress_of("abc", path) as (progress, _):
            progress.add("load", points)
            with pytest.raises(BlockingIOError), grid_progress.progress_of("abc", path):
                pass
            point = progress.draw(random.Random())
            assert point is not None
            met.append(point)
            progress.note(*point, [])
    with grid_progress.progress_of("abc", path) as (progress, _):
        assert progress.draw(random.Random()) is None
        assert list(progress.lines())[-1] == "4 points run, 0 left, 0 with faults"
    assert sorted(met) == sorted(("load", fault, number) for fault in points for number in points[fault])
