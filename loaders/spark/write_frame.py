"""Writing a frame from the driver's own process, for loads whose winners executors test.

Spark runs the commit of `df.write.format("seqstore")` in a process beside the driver, which has no session
and so can start no second job. `write_frame` stages a frame in the same way and commits it here.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seqstore.loaders.spark.counters import LoadCounters, tell_load
from seqstore.loaders.spark.options import LoadOptions
from seqstore.loaders.spark.place import Place, StoreAt, ending
from seqstore.loaders.spark.staging import stage_frame
from seqstore.loaders.spark.winner_tests import AUTO, check_choice, let_executors_test
from seqstore.loaders.spark.zones import without_zones
from seqstore.store.load.load import LoadResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG: Final = logging.getLogger(__name__)


def write_frame(
    df: DataFrame,
    path: str | Path | StoreAt,
    table: str,
    *,
    label: str | None = None,
    winner_test: str = AUTO,
    counters: LoadCounters | None = None,
    **load_options: Any,
) -> LoadResult:
    """Writes a frame as one version of a table: executors stage its rows, and test which of them win.

    Args:
        path: the store's data directory, on the driver's host; or a store elsewhere, also by its URL alone.
        table: `database.table`.
        label: makes the load idempotent: a second one with the same label is refused.
        winner_test: `executors`, `host`, or `auto`: executors from 10 million rows on
            (`spark.seqstore.winnerTestRowsMin`). A store elsewhere tests rows itself.
        counters: raised by the rows of the load.
        load_options: `sequence`, `merge_type`, `max_filter_ratio`, `partial_columns` and the others of
            loaders.spark.options for a load.

    Raises:
        InvalidInputError: an unknown option, or the columns do not fit the table.
        NotFoundError: no such store or table.
        LabelExistsError: the label names a running or finished load.
    """
    options = LoadOptions.named(load_options)
    place = Place.of(path)
    choice = check_choice(winner_test, is_elsewhere=place.path is None)
    given = {name: str(value) for name, value in load_options.items() if value is not None}
    with place.open() as store:
        target = store.table(table)
        if label is not None:
            target.refuse_label(label)
        staged = stage_frame(without_zones(df), path, table, given)
        with (
            ending(target, staged.task.load),
            target.begin_load(label=label, operation="SPARK WRITE", **options.beginning) as load,
        ):
            for share in staged.shares:
                load.adopt(share)
            if place.path is not None:
                let_executors_test(df.sparkSession, load.writers, choice)
            done = load.commit(max_filter_ratio=options.max_filter_ratio)
    tell_load(_LOG, table, done, counters)
    return done
