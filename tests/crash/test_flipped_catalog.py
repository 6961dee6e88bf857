"""Every byte class of the catalog is flipped: right rows or `CorruptionError`, and no segment file is lost.

One flipped bit in a page header of LMDB hid records without an error, and the next open deleted the segment
files that they had named; others ended the process by an assertion of LMDB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.seeds import new_seed
from tests.support.children import MODULES
from tests.support.faults.flipped_catalog import make_store, places
from tests.weight import by_form

SHORT_STEP = 900
MAKE = f"""
import sys
from pathlib import Path
from {make_store.__module__} import make_store
make_store(Path(sys.argv[1]))
"""
pytestmark = pytest.mark.crash


def run(*arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        input=given,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": MODULES},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store whose process has ended: its files are only kept by the catalog."""
    run("-c", MAKE, str(tmp_path / "data"))
    return tmp_path / "data"


def faults(directory: Path, flips: Iterable[tuple[int, int]]) -> tuple[list[str], set[str]]:
    """Returns the lines of flips with any other outcome than the allowed ones, and all outcomes."""
    given = [f"{offset}:{bit}" for offset, bit in flips]
    told = run("-m", "tests.support.faults.flipped_catalog", str(directory), given="\n".join(given) + "\n")
    lines = told.splitlines()
    assert len(lines) == len(given)
    outcomes = [line.partition(" ")[2] for line in lines]
    wrong = [line for line, told in zip(lines, outcomes, strict=True) if told not in ("right", "corruption")]
    return wrong, set(outcomes)


def test_flips_are_right_rows_or_corruption(directory: Path) -> None:
    seed = new_seed(SHORT_STEP)
    print("seed", seed)
    wrong, outcomes = faults(directory, places(directory, seed, SHORT_STEP))
    assert wrong == []
    assert outcomes == {"right", "corruption"}


def test_flips_in_the_heads_are_right_rows_or_corruption(directory: Path) -> None:
    """Bytes of both meta pages: LMDB chooses the version to read by them."""
    heads = [(page + within, within % 8) for page in (0, 4096) for within in range(0, 168, by_form(14, 7))]
    wrong, _ = faults(directory, heads)
    assert wrong == []


@pytest.mark.torture
@pytest.mark.parametrize("bit", range(8))
def test_every_flip_is_right_rows_or_corruption(directory: Path, bit: int) -> None:
    wrong, _ = faults(directory, ((offset, bit) for offset, _ in places(directory, 0, 1)))
    assert wrong == []
