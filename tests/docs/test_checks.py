"""The workflow and the hooks run what `make` runs: no check exists in one place only."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.children import MODULES
from tests.support.documents import ROOT
from tests.support.forks.forked import ForkedPython, write_command
from tests.support.spark.class_archive import class_archive
from tests.weight import ALL, VARIABLE, form

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def _recipe(target: str) -> list[str]:
    """Commands of a target of the Makefile, from `.venv/bin`, without their setting of the environment."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return re.findall(r"\$\(BIN\)/(.*)", found[1])


def test_hooks_are_the_checks_of_make_lint() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"entry: \.venv/bin/(.*)", hooks) == _recipe("style") + _recipe("types")
    assert re.search(r"^lint: style types ", makefile, re.MULTILINE)
    (short,) = re.findall(r"^test: (.*\n(?:\t.*\n)+)", makefile, re.MULTILINE)
    assert short.startswith("style ")
    assert re.search(r"^test-all: lint ", makefile, re.MULTILINE)


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


def test_the_whole_check_runs_the_tests_at_their_full_weight() -> None:
    assert (ROOT / ".ci" / "run").read_text().endswith("exec make test-all\n")
    makefile = (ROOT / "Makefile").read_text()
    (short,) = re.findall(r"^test: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    (full,) = re.findall(r"^test-all: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert "$(PYTEST)" in short
    assert f"{VARIABLE}={ALL} $(PYTEST)" in full


def test_an_unknown_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "full")
    with pytest.raises(ValueError, match="SEQSTORE_TESTS is 'full'; expected one of short, all"):
        form()


def run_distributed(directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs the tests of a directory in two processes."""
    (directory / "conftest.py").write_text('pytest_plugins = ["tests.distribution"]\n')
    (directory / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\naddopts = --dist=loadgroup\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-v", "-p", "no:cacheprovider"],
        cwd=directory,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_tests_of_a_group_share_a_process(tmp_path: Path) -> None:
    """pytest 9.2 ignored the groups of pytest-xdist, and every process started servers of its own."""
    module = "import pytest\n{}\n@pytest.mark.parametrize('n', range(6))\ndef test_it(n): pass\n"
    for name, mark in [("a", ""), ("b", ""), ("c", "xdist_group('one')"), ("d", "xdist_group('one')")]:
        marked = f"pytestmark = pytest.mark.{mark}" if mark else ""
        (tmp_path / f"test_{name}.py").write_text(module.format(marked))
    done = run_distributed(tmp_path)
    ran = re.findall(r"\[(gw\d)\] .* PASSED test_(\w)\.py", done.stdout)
    assert len(ran) == 24, done.stdout + done.stderr
    processes = {name: {worker for worker, of in ran if of == name} for name in "abcd"}
    assert all(len(found) == 1 for found in processes.values()), processes
    assert processes["c"] == processes["d"]


def test_a_process_that_dies_leaves_its_tests_to_another(tmp_path: Path) -> None:
    """The run waited for ever: the finished groups of the dead process were handed out once more."""
    many = "import os, pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_it(n):\n    {}\n"
    for name in "abcdefgh":
        (tmp_path / f"test_{name}.py").write_text(
            many.format("os._exit(1) if n == 3 else None" if name == "f" else "pass")
        )
    done = run_distributed(tmp_path)
    assert "47 passed" in done.stdout, done.stdout + done.stderr
    assert re.search(r"crashed while running '\S*test_f.py::test_it\[3\]'", done.stdout)
    assert "1 failed" in done.stdout


SEEN = """
import json, os, sys
seen = [sys.argv[1:], os.getcwd(), os.environ["SEEN"], __name__, sys.path[0], "tests.conftest" in sys.modules]
print(json.dumps(seen), file=sys.stderr)
sys.exit(len(sys.stdin.read()))
"""


def test_a_fork_is_as_a_new_interpreter(tmp_path: Path) -> None:
    """Arguments, directory, environment, modules and streams are its own, and its end is told."""
    environment = {**os.environ, "PYTHONPATH": MODULES, "SEEN": "yes"}
    with (tmp_path / "errors").open("w+") as errors:
        process = ForkedPython(
            ["-c", SEEN, "one", "two"],
            environment=environment,
            directory=tmp_path,
            has_input=True,
            stderr=errors,
        )
        assert process.communicate("four") == ""
        assert process.wait() == 4
        errors.seek(0)
        assert json.load(errors) == [["one", "two"], str(tmp_path), "yes", "__main__", "", False]


def test_the_end_of_a_fork_by_a_signal_is_told() -> None:
    process = ForkedPython(["-c", "print('ready', flush=True); input()"], has_input=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.communicate()


def test_a_fork_refuses_a_library_that_it_would_not_load() -> None:
    """A shim that delays or fails file operations would be left out without a word."""
    with pytest.raises(ValueError, match="a fork of a running program does not follow LD_PRELOAD"):
        ForkedPython(["-c", ""], environment={"LD_PRELOAD": "shim.so"})


def test_a_command_of_an_example_ends_as_its_module_does(tmp_path: Path) -> None:
    command = tmp_path / "seqstore"
    write_command(command, "seqstore")

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command, "--data-dir", "data", "sql", "-e", text],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": MODULES},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run("CREATE DATABASE db; SELECT 1 + 1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "|     2 |" in done.stdout
    assert (tmp_path / "data").is_dir()
    assert run("SELECT nothing").returncode == 1


@pytest.mark.spark
@pytest.mark.executors("local[2]")
def test_spark_takes_its_classes_from_the_archive(spark: SparkSession) -> None:
    """A folder with files before Spark's jars, such as one with a log configuration, kept the JVM from it."""
    if "SharedArchiveFile" not in os.environ["JDK_JAVA_OPTIONS"] or sys.platform != "linux":
        pytest.skip("no archive: `make test` makes it")
    context = spark.sparkContext
    assert context._jvm is not None
    driver = context._jvm.java.lang.ProcessHandle.current().pid()
    assert str(class_archive()) in Path(f"/proc/{driver}/maps").read_text()


def test_workflow_tests_the_lowest_versions_and_builds_the_manual() -> None:
    assert "make test-lowest" in WORKFLOW
    assert "--resolution lowest-direct" in (ROOT / "Makefile").read_text()
    assert "make docs" in WORKFLOW


def test_licence_is_the_one_that_the_project_names() -> None:
    text = (ROOT / PROJECT["license-files"][0]).read_text()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in text.splitlines()[1]
    assert "END OF TERMS AND CONDITIONS" in text
