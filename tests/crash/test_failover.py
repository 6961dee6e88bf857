"""Hosts that are lost, and hosts that come back: each acknowledged load is there once, and no later one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.seeds import new_seed
from tests.support.failover_rounds import run_rounds
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
    run_rounds(tmp_path, str(tmp_path / "shipped"), segments, by_form(4, 10), seed)


def test_failovers_by_way_of_an_object_store(tmp_path: Path, bucket: str) -> None:
    """Segments and catalog are in a bucket."""
    seed = new_seed()
    print(f"seed {seed}")
    run_rounds(tmp_path, bucket.format("shipped"), bucket.format("segments"), by_form(2, 10), seed)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_many_failovers(tmp_path: Path, bucket: str) -> None:
    """200 rounds, half of them on an object store."""
    seed = new_seed()
    print(f"seed {seed}")
    segments = f"file://{tmp_path}/segments"
    run_rounds(tmp_path / "one", str(tmp_path / "shipped"), segments, 100, seed)
    run_rounds(tmp_path / "two", bucket.format("many"), bucket.format("many-segments"), 100, seed)
