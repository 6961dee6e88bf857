"""Making the data source known to a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes `format("seqstore")` known to a session and lets filters reach it; see `loaders.spark.source`."""
    from loaders.spark.source import SeqstoreSource  # its classes extend pyspark's

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(SeqstoreSource)
