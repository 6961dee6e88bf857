"""The Spark session, with the data source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from seqstore.loaders.spark import register
from tests.support.spark.places import elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """Spark's session, in which the format `seqstore` is registered."""
    register(spark)
    return spark


@pytest.fixture(autouse=True)
def place_of_stores(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stores are behind a server, `url` in the place of `path`, in the modules named `.._elsewhere`."""
    if not request.path.stem.endswith("_elsewhere"):
        yield
        return
    with elsewhere():
        yield


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leaves most tests of stores elsewhere to the long form: executors do the same there."""
    if item.path.stem.endswith("_elsewhere") and not item.get_closest_marker("telling"):
        item.add_marker(pytest.mark.long)
