"""The Spark tests once more where executors are processes of their own: local-cluster and standalone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark.spark_cluster import CLUSTERS, STANDALONE, VARIABLE

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]


# What uses the run's session; tests of the routine load are marked `spark` for the jars of their broker.
TESTS = ("tests/loaders/spark", "tests/loaders/broker", "tests/cli/test_demo.py")


def run_tests(master: str, marked: str, seconds: int) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--timeout=900",
            "-m",
            marked,
            *TESTS,
        ],
        cwd=ROOT,
        env=os.environ | {VARIABLE: master},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:]
    assert " passed" in done.stdout


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.executors("local[2]")
def test_the_telling_tests_pass_on_a_cluster() -> None:
    """On a master and two workers; both kinds of cluster run the whole suite under `make torture`."""
    run_tests(STANDALONE, "spark and telling and not crash", 800)


@pytest.mark.torture
@pytest.mark.executors("local[2]")
@pytest.mark.parametrize("master", CLUSTERS)
def test_the_whole_suite_passes(master: str) -> None:
    run_tests(master, "spark", 3_000)
