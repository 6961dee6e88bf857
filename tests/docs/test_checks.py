"""The workflow and the hooks run what `make` runs: no check exists in one place only."""

from __future__ import annotations

import re
import tomllib

from tests.support.documents import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def _recipe(target: str) -> list[str]:
    """Commands of a target of the Makefile, from `.venv/bin`, without their setting of the environment."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return re.findall(r"\$\(BIN\)/(.*)", found[1])


def test_hooks_are_the_checks_of_make_lint() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"entry: \.venv/bin/(.*)", hooks) == _recipe("lint")


def test_hooks_download_nothing() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert set(re.findall(r"repo: (\S+)", hooks)) == {"local"}
    assert set(re.findall(r"language: (\S+)", hooks)) == {"system"}


def test_workflow_runs_the_whole_check_from_the_oldest_python() -> None:
    assert "run: .ci/run" in WORKFLOW
    found = re.search(r"python: \[(.*)\]", WORKFLOW)
    assert found is not None
    versions = re.findall(r'"3\.(\d+)"', found[1])
    oldest = PROJECT["requires-python"].removeprefix(">=3.")
    assert versions == [str(minor) for minor in range(int(oldest), int(versions[-1]) + 1)]


def test_workflow_tests_the_lowest_versions_and_builds_the_manual() -> None:
    assert "make test-lowest" in WORKFLOW
    assert "--resolution lowest-direct" in (ROOT / "Makefile").read_text()
    assert "make docs" in WORKFLOW


def test_licence_is_the_one_that_the_project_names() -> None:
    text = (ROOT / PROJECT["license-files"][0]).read_text()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in text.splitlines()[1]
    assert "END OF TERMS AND CONDITIONS" in text
