"""OPTIMIZE whose segments Spark executors merge (store/maintenance/range_merge.py).

A task merges one range of key codes, of the rows of one segment: it reads the live rows of the range from all
chosen segments and writes new ones. The driver's host chooses the segments and commits their successors. Its
memory and time grow with the number of segments, and with the rows that loads hide meanwhile; so a table may
be larger than its memory and disk.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from seqstore.loaders.spark.grouped_job import run_grouped
from seqstore.loaders.spark.place import Place, StoreAt
from seqstore.loaders.spark.registration import use_this_python
from seqstore.loaders.spark.requirements import missing_requirement
from seqstore.loaders.spark.session import spark_session
from seqstore.store import InvalidInputError, Table
from seqstore.store.maintenance import compaction
from seqstore.store.maintenance.compaction import CompactionResult
from seqstore.store.maintenance.range_merge import MergeShare, RangeMerge, RunRanges
from seqstore.store.runtime import cancellation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger(__name__)


def optimize(
    spark: SparkSession,
    path: str | Path | StoreAt,
    table: str,
    *,
    where: pc.Expression | None = None,
    zorder_by: Sequence[str] = (),
    full: bool = False,
) -> CompactionResult:
    """Runs OPTIMIZE of a table in executors, whatever its size.

    Args:
        path: data directory, on the driver's host; executors reach its segments by the same path, or on an
            object store.
        table: `database.table`.
        where, zorder_by, full: as of `Table.optimize`.

    Raises:
        InvalidInputError: an unknown column; a store behind a server.
        ConflictError: the schema changed meanwhile; of a Z-order, an input was dropped meanwhile.
        UnavailableError: a task failed for good; the message has the reason, and nothing is left.
    """
    place = Place.of(path)
    if place.address is not None:
        raise InvalidInputError(
            "optimize needs the segment files, and the store is behind a server; run OPTIMIZE .. "
            'PROPERTIES ("engine" = "spark") there, or give the path on its host',
            kind="not_remote",
        )
    with place.open() as store:
        found, merging = store.table(table), merging_on(spark, table)
        return compaction.optimize(found, where=where, zorder_by=zorder_by, full=full, elsewhere=merging)


def optimize_here(
    table: Table,
    where: pc.Expression | None = None,
    *,
    zorder_by: Sequence[str] = (),
    full: bool = False,
    master: str = "",
) -> CompactionResult:
    """Runs OPTIMIZE of an open table in executors of this process's session, or of one that it starts.

    Args:
        master: of a session that it starts; see `session.spark_session`.

    Raises:
        InvalidInputError: Spark cannot run here; the message has the remedy.
        StoreError: as of `optimize`.
    """
    missing = missing_requirement()
    if missing is not None:
        raise InvalidInputError(f"engine spark: {missing}", kind="no_spark")
    with spark_session(f"seqstore OPTIMIZE {table.name}", master) as spark:
        merging = merging_on(spark, table.name)
        return compaction.optimize(table, where=where, zorder_by=zorder_by, full=full, elsewhere=merging)


def merging_on(spark: SparkSession, table: str) -> RunRanges:
    """Returns the function that runs the ranges of a merge as tasks of a session, one each.

    Args:
        table: its name, for Spark's pages.
    """

    def run(merge: RangeMerge) -> list[MergeShare]:
        context, count = spark.sparkContext, len(merge.ranges)
        use_this_python()
        shared = context.broadcast(merge)

        def collect() -> list[MergeShare]:
            numbers = context.parallelize(range(count), count)
            done: list[MergeShare] = numbers.map(lambda number: shared.value.run(number)).collect()
            return done

        title = f"seqstore: OPTIMIZE {table}"
        group, text = f"{title} ({merge.load.job})", f"{title}, {count} ranges"
        try:
            shares = run_grouped(context, group, text, collect, cancellation.check)
        finally:
            shared.destroy()
        _LOG.info("%s: %d segments merged in %d ranges", table, len(merge.inputs), count)
        return shares

    return run
