"""A fault in a file operation of every worker, under loads: the fault grid of `serve --workers`.

Each worker is killed at its file operation of some number, or that operation fails; so is each replacement.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.cli.workers.conftest import make_store
from tests.cli.workers.test_life import CLIENTS, Loader, check_rows
from tests.cli.workers.worker_server import serving_workers
from tests.seeds import new_seed
from tests.support.children import MODULES
from tests.support.faults.file_faults import FAULTS, compiled
from tests.weight import ALL, form

# A worker has opened the store after some hundred operations. A load takes thirty, which joined loads share.
OPERATIONS = range(250, 400)
LOADS = 12
KINDS = ("kill", "eio", "short", "eintr")
pytestmark = pytest.mark.crash


class PatientLoader(Loader):
    """Repeats a load that a fault has refused, too.

    Attributes:
        refused: how many were.
    """

    refused = 0

    def load(self, body: str, label: str) -> None:
        while True:
            before = len(self.failures)
            super().load(body, label)
            if len(self.failures) == before:
                return
            assert self.failures.pop()
            self.refused += 1
            assert self.refused < 1000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = compiled(tmp_path_factory.mktemp("shim"))
    if found is None:
        pytest.skip("no C compiler (gcc) for the shim that fails file operations")
    return found


@pytest.mark.family(1)
@pytest.mark.parametrize("kind", KINDS if form() == ALL else KINDS[:2])
def test_a_fault_of_every_worker_loses_and_repeats_nothing(tmp_path: Path, library: Path, kind: str) -> None:
    seed = new_seed()
    number = random.Random(seed).choice(OPERATIONS)
    data, fault = tmp_path / "data", FAULTS[kind]
    make_store(data)
    environment = {
        **os.environ,
        "PYTHONPATH": MODULES,
        "LD_PRELOAD": str(library),
        "SEQSTORE_TESTS_FAULT": f"{number}:{fault.action}:{fault.error}:{data}",
    }
    with serving_workers(data, 2, environment=environment) as server:
        loaders: list[Loader] = [PatientLoader(server.client, each, LOADS, seed) for each in range(CLIENTS)]
        for each in loaders:
            each.start()
        for each in loaders:
            each.join()
    check_rows(data, loaders, seed)
    if kind == "kill":
        assert sum(each.broken for each in loaders), f"seed {seed}: no worker was killed at {number}"
