"""Rows from PySpark. Importing this needs neither pyspark nor Java; using it does: `missing_requirement`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loaders.spark.requirements import missing_requirement
from loaders.spark.sink import EpochReport, foreach_batch_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["EpochReport", "foreach_batch_sink", "missing_requirement", "register"]


def register(spark: SparkSession) -> None:
    """Makes `format("seqstore")` known to a session and lets filters reach it; see `loaders.spark.source`."""
    from loaders.spark.source import SeqstoreSource  # its classes extend pyspark's

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(SeqstoreSource)
