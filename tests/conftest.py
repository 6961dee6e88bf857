"""What all tests share: how Hypothesis works, and one Spark session for the run, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from seqstore.loaders.spark import missing_requirement
from seqstore.store.maintenance.scheduler import Maintainer
from tests.support.spark_cluster import CLUSTERS, spark_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says nothing on a machine that does other things too.
settings.register_profile(
    "seqstore", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("seqstore")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unfit = [item for item in items if not _fits_master(item)]
    if unfit:  # no master is at fault for what it is not
        config.hook.pytest_deselected(items=unfit)
        items[:] = [item for item in items if _fits_master(item)]
    marked = [item for item in items if item.get_closest_marker("spark")]
    missing = missing_requirement() if marked else None
    if missing is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=missing))


def _fits_master(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("executors")
    return marker is None or spark_master() in (marker.args or CLUSTERS)


@pytest.fixture(autouse=True)
def only_asked_for_compactions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are compacted after loads only in tests marked `maintenance`: the others count versions."""
    if not request.node.get_closest_marker("maintenance"):
        monkeypatch.setattr(Maintainer, "after_load", lambda self, table, state: None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A quiet session on the master of SEQSTORE_SPARK_MASTER; tests that use it are marked `spark`."""
    from tests.support.spark_cluster import session_on

    with session_on(spark_master(), tmp_path_factory.mktemp("spark")) as session:
        yield session
