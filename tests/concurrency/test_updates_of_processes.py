"""Eight processes update disjoint and overlapping columns of the same 1,000 keys; nothing is lost or mixed.

Each process logs what it committed, with the version it was told. Afterwards the published history is
replayed in the order of its versions on plain dictionaries, and the tables must be what that gives.
"""

from __future__ import annotations

import os
import pickle
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seqstore import Store, Table
from tests.seeds import new_seed
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython
from tests.support.groups.group_events import assert_agrees
from tests.support.groups.group_model import GroupModel
from tests.support.partial_model import PartialModel, assert_partial
from tests.support.replays.updater import PROCESSES, Committed, make_models, make_tables, settings
from tests.weight import by_form

CHILD = "from tests.support.replays.updater import main; main({!r}, {}, {}, {})"


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(by_form(15, 40), id="short"),
        pytest.param(500, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(1_800)]),
    ],
)
def test_the_end_is_the_replay_of_the_published_history(tmp_path: Path, count: int) -> None:
    """C1-C7, SM4: fixed, flexible and group updates."""
    seed = new_seed(2**31)
    print("seed", seed)
    directory = tmp_path / "data"
    with Store.open(directory, settings=settings()) as store:
        make_tables(store)
    committed = run(directory, count, seed)
    by_process = Counter(load.label.partition("-")[0] for load in committed)
    assert by_process == {str(number): count for number in range(PROCESSES)}
    models = make_models()
    with Store.open(directory, create=False, settings=settings()) as store:
        for name, model in models.items():
            table = store.table(name)
            replay(table, model, [load for load in committed if load.table == name])
            if isinstance(model, GroupModel):
                assert_agrees(table, model)
            else:
                assert_partial(table, model)


def run(directory: Path, count: int, seed: int) -> list[Committed]:
    environment = {**os.environ, "PYTHONPATH": MODULES}
    children = [
        ForkedPython(
            ["-c", CHILD.format(str(directory), number, count, seed)],
            environment=environment,
            has_input=True,
            stderr=subprocess.STDOUT,
        )
        for number in range(PROCESSES)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:  # all at once
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            told = child.communicate(timeout=200 + 3 * count)
            assert child.returncode == 0, told
    finally:
        for child in children:
            child.kill()
    return [load for number in range(PROCESSES) for load in read_log(Path(f"{directory}.{number}.log"))]


def read_log(path: Path) -> Iterator[Committed]:
    with path.open("rb") as log:
        while log.peek(1):
            yield pickle.load(log)


def replay(table: Table, model: PartialModel | GroupModel, committed: list[Committed]) -> None:
    """Applies the loads in the order of their versions; those that made none must have changed nothing."""
    history = table.history()
    labels = {info.version: info.label for info in history if info.label}  # compactions have none
    made = {load.label: load for load in committed if labels.get(load.version) == load.label}
    assert sorted(made) == sorted(labels.values()), "every version is somebody's, and everybody's is there"
    without: dict[int, list[Committed]] = {}
    for load in committed:
        if load.label not in made:
            without.setdefault(load.version, []).append(load)
    for version in (info.version for info in history):
        if version in labels:
            apply(model, made[labels[version]])
        for load in without.get(version, []):
            after = copied(model)
            apply(after, load)
            assert after.rows == model.rows, load


def copied(model: PartialModel | GroupModel) -> PartialModel | GroupModel:
    if isinstance(model, GroupModel):
        return replace(model, rows={key: list(registers) for key, registers in model.rows.items()})
    return replace(model, rows=dict(model.rows))


def apply(model: PartialModel | GroupModel, load: Committed) -> None:
    if isinstance(model, GroupModel):
        model.apply(load.rows)
    else:
        model.apply(load.rows, load.mode)
