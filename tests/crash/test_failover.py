"""Hosts that are lost, and hosts that come back: each acknowledged load is there once, and no later one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.seeds import new_seed
from tests.support.checkout import commit_of_checkout
from tests.support.failover_rounds import add_rounds, rounds_so_far, run_rounds
from tests.support.object_store import WEED, object_store
from tests.weight import by_form

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URI of an empty bucket on a server of its own."""
    if not WEED.exists():
        pytest.skip("needs the object store of the extra test")
    with object_store(tmp_path_factory.mktemp("weed")) as uri:
        yield uri


def test_failovers_by_way_of_a_directory(tmp_path: Path) -> None:
    """The place and the segments are directories that all hosts reach."""
    seed = new_seed()
    print(f"seed {seed}")
    segments = f"file://{tmp_path}/segments"
    run_rounds(tmp_path, str(tmp_path / "shipped"), segments, by_form(6, 10), seed)


@pytest.mark.long
def test_failovers_by_way_of_an_object_store(tmp_path: Path, bucket: str) -> None:
    """Segments and catalog are in a bucket."""
    seed = new_seed()
    print(f"seed {seed}")
    run_rounds(tmp_path, bucket.format("shipped"), bucket.format("segments"), by_form(4, 10), seed)


@pytest.mark.torture
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["directory", "object store"])
def test_many_failovers(tmp_path: Path, bucket: str, kind: str) -> None:
    """100 rounds of each kind at one commit, in tens: a run goes on where the one before ended."""
    commit = commit_of_checkout()
    while rounds_so_far(commit, kind) < 100:
        seed = new_seed()
        name = f"rounds{rounds_so_far(commit, kind)}"
        print(f"{kind}, {name}, seed {seed}")
        if kind == "directory":
            places = str(tmp_path / name / "shipped"), f"file://{tmp_path}/{name}/segments"
        else:
            places = bucket.format(f"{name}-{seed}"), bucket.format(f"{name}-{seed}-segments")
        run_rounds(tmp_path / name, *places, 10, seed)
        add_rounds(commit, kind, 10)
