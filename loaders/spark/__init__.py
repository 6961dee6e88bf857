"""Rows from PySpark. Importing this needs neither pyspark nor Java; using it does: `missing_requirement`."""

from loaders.spark.registration import register
from loaders.spark.requirements import missing_requirement
from loaders.spark.sink import EpochReport, foreach_batch_sink

__all__ = ["EpochReport", "foreach_batch_sink", "missing_requirement", "register"]
