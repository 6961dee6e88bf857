"""The Spark session, with the data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from seqstore.loaders.spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """Spark's session, in which the format `seqstore` is registered."""
    register(spark)
    return spark
