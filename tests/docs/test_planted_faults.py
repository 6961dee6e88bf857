"""The faults that `make mutants` plants first: their modules have the text, and their tests exist."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import MODULES
from tests.support.documents import ROOT
from tests.support.faults.forked_pytest import ForkedPytest
from tests.support.faults.mutants import Planted, files_of_tests, planted_faults
from tests.support.faults.mutations import lines_of_functions, mutants_of

FAULTS = planted_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_fits_its_module_and_names_a_test(fault: Planted) -> None:
    ast.parse(fault.planted())
    assert fault.before != fault.after
    test_file, _, test = fault.test.partition("::")
    assert f"def {test.partition('[')[0]}(" in (ROOT / test_file).read_text()


def test_a_module_of_each_layer_has_mutants_and_tests() -> None:
    for module in {fault.module for fault in FAULTS if fault.module.startswith("store/publish")}:
        mutants = list(mutants_of(ROOT, module))
        assert len({mutant.name for mutant, _ in mutants}) == len(mutants) > 10
        before, after = (ROOT / module).read_text(), mutants[0][1]()
        assert ast.unparse(ast.parse(before)) != after
        assert files_of_tests(module)


def test_the_lines_of_functions_leave_out_their_definitions() -> None:
    """A test whose process only imported a module was taken for one that runs it, and the run ended."""
    text = "class Disk:\n    root: str\n\n    def read(self) -> int:\n        return 1\n\n\nLIMIT = 2\n"
    assert lines_of_functions(text) == {5}


@pytest.mark.long
def test_a_planted_fault_is_there_when_its_test_runs() -> None:
    """Functions kept their code where collected objects were frozen: most faults were never there."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.faults.mutants",
            "--planted",
            "that a repair made is not synced",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": MODULES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[1].partition(":")[0]) == (0, "noticed"), done.stderr


@pytest.mark.long
def test_a_test_that_was_not_collected_notices_no_fault(tmp_path: Path) -> None:
    """A test of a family that this run had not drawn did not run, and its fault was taken for noticed."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in (".package", "bench", "tests", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    name = "tests/docs/test_planted_faults.py"
    forked = ForkedPytest(folder, [name], tmp_path / "tests.log")
    assert f"{name}::test_a_module_of_each_layer_has_mutants_and_tests" in forked.tests
    with pytest.raises(SystemExit, match="none of 1 tests was collected"):
        forked.run([f"{name}::test_of_another_draw"], {})
    forked.close()
