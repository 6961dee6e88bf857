"""The load counts of Spark jobs, as accumulators of the driver.

    counters = LoadCounters(spark)
    query = events.writeStream.foreachBatch(foreach_batch_sink(path, "shop.orders", counters=counters))
    counters.values()                # {"rows_total": 1200, "rows_loaded": 1198, ...}, while the query runs
    register(spark, counters)        # df.write, writeStream and broker loads of this session raise them too

Accumulators raised by tasks count a share as often as it was staged. These are raised when a version was
published: once, whatever Spark ran twice. A data source publishes in a process beside the driver, whose
accumulators Spark brings home when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog.version_record import VersionMetrics
from seqstore.store.load.load import LoadResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES: Final = (
    "rows_total",
    "rows_loaded",
    "rows_filtered",
    "rows_superseded",
    "rows_late",
    "rows_replaced",
    "rows_deleted",
    "bytes_written",
)


class LoadCounters:
    """Accumulators named as the figures of a version (`Table.history`), and `versions` that were made."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self.versions = context.accumulator(0)
        self.rows = {name: context.accumulator(0) for name in NAMES}

    def count(self, figures: Mapping[str, VersionMetrics]) -> None:
        """Adds the published figures, by table."""
        for each in figures.values():
            self.add(each)

    def add(self, load: VersionMetrics | LoadResult) -> None:
        """Adds the figures of one load on one table."""
        for name, accumulator in self.rows.items():
            accumulator.add(getattr(load, name))
        self.versions.add(1 if load.rows_total else 0)

    def values(self) -> dict[str, int]:
        """Returns the current values."""
        return {"versions": self.versions.value, **{name: each.value for name, each in self.rows.items()}}


def tell_load(log: logging.Logger, what: str, done: LoadResult, counters: LoadCounters | None) -> None:
    """Logs a published load, and raises the counters if there are any.

    Args:
        what: the table, and the part of it.
    """
    log.info(
        "%s: %d rows, %d filtered, %d superseded, version %d",
        what,
        done.rows_total,
        done.rows_filtered,
        done.rows_superseded,
        done.version,
    )
    if counters is not None:
        counters.add(done)
