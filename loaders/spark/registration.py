"""Making the data source known to a Spark session."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from seqstore.loaders.spark.py4j_access import active_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seqstore.loaders.spark.counters import LoadCounters


# By application, as accumulators are: later registrations need not know the counters.
_counters: dict[str, LoadCounters] = {}


def register(spark: SparkSession, counters: LoadCounters | None = None) -> None:
    """Makes `format("seqstore")` known to a session and lets filters reach it; see `loaders.spark.source`.

    Args:
        counters: raised from now on by publishes of `df.write`, `writeStream` and broker loads on Spark. None
            keeps the earlier counters of the application.
    """
    from seqstore.loaders.spark.source import SeqstoreSource  # its classes extend pyspark's

    use_this_python()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    if counters is not None:
        _counters[spark.sparkContext.applicationId] = counters
    elif _counters:  # a Spark Connect session has no application
        counters = _counters.get(spark.sparkContext.applicationId)
    spark.dataSource.register(SeqstoreSource.counting(counters))


def registered_counters() -> LoadCounters | None:
    """Returns the counters of this process's application."""
    if not _counters:
        return None
    context = active_context()
    return None if context is None else _counters.get(context.applicationId)


def use_this_python() -> None:
    """Sets the driver's Python for workers on this host, unless PYSPARK_PYTHON names one.

    Spark would start the first python3 of PATH, which has no seqstore where its environment is not activated.
    """
    context = active_context()  # Spark Connect has none
    if context is not None and context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
