"""Plugin: which tests share a process of pytest-xdist, and which of them begin first.

The group of a test is its marker `xdist_group`. The controller sees names of tests alone, so each worker
writes the groups into a directory of the controller. `--dist=loadgroup` would carry them within the names:
pytest 9.2 ignores that, and every test then runs where there is room.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

GROUPS = "seqstore_groups"  # of `workerinput`: the directory
_DIRECTORY = pytest.StashKey[Path]()
# What takes longest begins first, so that no process is alone with it at the end.
FIRST = ("kafka", "spark", "crash", "spark programs")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place_of)


@pytest.hookimpl(tryfirst=True)  # before xdist tells the controller that this worker is ready
def pytest_collection_finish(session: pytest.Session) -> None:
    told = getattr(session.config, "workerinput", {})
    if GROUPS in told:
        _write_groups(Path(told[GROUPS]), session.items)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    node.workerinput[GROUPS] = str(_groups_directory(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    if config.getoption("dist") != "loadgroup":
        return None
    return GroupScheduling(config, log, _groups_directory(config))


class GroupScheduling(LoadScopeScheduling):
    """Gives a group to one worker, in the order in which the groups were collected.

    Args:
        directory: where the workers write the groups.
    """

    def __init__(self, config: pytest.Config, log: Producer | None, directory: Path) -> None:
        config.option.loadscopereorder = False  # the number of tests says nothing about their length
        super().__init__(config, log)
        self._directory = directory
        self._groups: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:
            told = next(self._directory.glob("*.json"))
            self._groups = json.loads(told.read_text())
        return self._groups[nodeid]

    def remove_node(self, node: WorkerController) -> str | None:
        """Takes the groups of a process that has ended, and gives what it has not run to the others.

        xdist would give its finished groups too: a process that is sent no test by that waits for ever. It
        would also run the test again in which the process died.

        Returns:
            That test; None when there was none left.
        """
        workload = self.assigned_work.pop(node)
        left = [tests for tests in workload.values() if not all(tests.values())]
        if not left:
            return None
        crashed: str = next(test for test, is_done in left[0].items() if not is_done)
        left[0][crashed] = True
        self.workqueue.update((group, tests) for group, tests in workload.items() if not all(tests.values()))
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed


def _groups_directory(config: pytest.Config) -> Path:
    """Where the workers of this controller write the groups; removed with the run."""
    if _DIRECTORY not in config.stash:
        config.stash[_DIRECTORY] = Path(tempfile.mkdtemp(prefix="seqstore-groups-"))
        config.add_cleanup(lambda: shutil.rmtree(config.stash[_DIRECTORY], ignore_errors=True))
    return config.stash[_DIRECTORY]


def _write_groups(directory: Path, items: list[pytest.Item]) -> None:
    """Writes the groups of the collected tests; a file is whole or absent."""
    groups = {item.nodeid: _group_of(item) for item in items}
    written = directory / f"{os.getpid()}.tmp"
    written.write_text(json.dumps(groups))
    written.rename(written.with_suffix(".json"))


def _group_of(item: pytest.Item) -> str:
    """The name of the tests that one process runs: those of a module, or all that share a server.

    A Spark session, a Kafka broker or an object store in each process would cost more than it saves. Tests
    that kill processes run one after another, so that they do not starve each other.
    """
    named = item.get_closest_marker("xdist_group")
    if named is not None:
        return str(named.args[0])
    fixtures = getattr(item, "fixturenames", ())
    if "broker" in fixtures:
        return "kafka"
    if "spark" in fixtures:
        return "spark"
    if item.get_closest_marker("spark"):
        return "spark programs"
    if "bucket" in fixtures:
        return "object store"
    if item.get_closest_marker("crash"):
        return "crash"
    return item.nodeid.partition("::")[0]


def _place_of(item: pytest.Item) -> int:
    """Where the test's group stands among those that begin first."""
    group = _group_of(item)
    return FIRST.index(group) if group in FIRST else len(FIRST)
