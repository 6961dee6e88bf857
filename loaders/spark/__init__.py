"""Rows from PySpark. Importing this needs neither pyspark nor Java; using it does: `missing_requirement`."""

from seqstore.loaders.spark.counters import LoadCounters
from seqstore.loaders.spark.optimize import optimize
from seqstore.loaders.spark.place import StoreAt
from seqstore.loaders.spark.read_table import held_table, read_table, read_tables
from seqstore.loaders.spark.registration import register
from seqstore.loaders.spark.requirements import missing_requirement
from seqstore.loaders.spark.sink import EpochReport, Feed, foreach_batch_sink
from seqstore.loaders.spark.write_frame import write_frame

__all__ = [
    "EpochReport",
    "Feed",
    "LoadCounters",
    "StoreAt",
    "foreach_batch_sink",
    "held_table",
    "missing_requirement",
    "optimize",
    "read_table",
    "read_tables",
    "register",
    "write_frame",
]
