"""The winner test of large loads in executors (store/publish/range_test.py).

After the rows of a load are staged, a second job compares their keys with those of the table: a task for each
range of key codes, against the segment files. The tasks return the positions to hide, and the driver's host
commits them: its memory and time grow with the rows that are hidden, not with the keys of the load and of the
table.

Which loads are tested so, by the argument or property `winner_test`:

    auto        those of at least `spark.seqstore.winnerTestRowsMin` rows, 10 million by default
    executors   all that can be
    host        none

Rows of partial updates and column groups, duplicate tables and overwrites depend on more than the comparison
of keys: the host prepares them whatever is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from seqstore.loaders.spark.py4j_access import cause_of
from seqstore.store import InvalidInputError
from seqstore.store.errors import UnavailableError
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.publish.tested_write import begin_test, end_test

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTO: Final = "auto"
EXECUTORS: Final = "executors"
HOST: Final = "host"
CHOICES: Final = (AUTO, EXECUTORS, HOST)
ROWS_MIN_SETTING: Final = "spark.seqstore.winnerTestRowsMin"
# A host tests so many rows in a few seconds; the tasks of a job take one until all of them run.
ROWS_MIN: Final = 10_000_000
_ROWS_A_RANGE: Final = 1_000_000
_LOG: Final = logging.getLogger(__name__)


def check_choice(given: str, *, is_elsewhere: bool = False) -> str:
    """Returns the choice of `winner_test`.

    Args:
        is_elsewhere: the store is behind a server, whose segment files executors do not reach.

    Raises:
        InvalidInputError: no such choice, or executors of a store elsewhere.
    """
    if given not in CHOICES:
        raise InvalidInputError(
            f"winner_test: expected one of {', '.join(CHOICES)}, found {given!r}", kind="bad_option"
        )
    if is_elsewhere and given == EXECUTORS:
        raise InvalidInputError(
            "winner_test executors needs the segment files: the store is behind a server, which tests the "
            "rows itself; leave it out, or load by path on the host of the store",
            kind="bad_option",
        )
    return HOST if is_elsewhere else given


def let_executors_test(spark: SparkSession, writers: Sequence[TableWriter], choice: str) -> None:
    """Prepares the writes of one commit whose winners are to be tested in executors.

    Args:
        writers: their rows are staged; the others are left to the commit.
        choice: of `winner_test`.

    Raises:
        InvalidInputError: the setting is no number of rows.
        ConflictError: rows that were read have changed.
        UnavailableError: a task failed for good; the message has the reason.
    """
    if choice == HOST:
        return
    least = 0 if choice == EXECUTORS else _rows_min(spark)
    for writer in writers:
        rows = sum(segment.rows for segment in writer.pending.row_segments)
        if rows >= least:
            _test(spark, writer, rows)


def _rows_min(spark: SparkSession) -> int:
    """Returns how many rows a load has at least whose winners executors test by themselves."""
    given = spark.conf.get(ROWS_MIN_SETTING, None)
    if given is None:
        return ROWS_MIN
    if not given.strip().isdecimal():
        raise InvalidInputError(
            f"{ROWS_MIN_SETTING}: expected a number of rows, found {given!r}", kind="bad_option"
        )
    return int(given)


def _test(spark: SparkSession, writer: TableWriter, rows: int) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context = spark.sparkContext
    ranges = max(context.defaultParallelism, -(-rows // _ROWS_A_RANGE))
    held = begin_test(writer, ranges)
    if held is None:
        _LOG.info("%s: prepared on the driver's host, not by a winner test", writer.table.name)
        return
    shared = context.broadcast(held.test)
    try:
        numbers = context.parallelize(range(ranges), ranges)
        shares = numbers.map(lambda number: shared.value.run(number)).collect()
    except (Py4JError, PySparkException) as error:
        raise UnavailableError(f"Spark: {cause_of(error)}", kind="spark") from error
    finally:
        shared.destroy()
    end_test(writer, held, shares)
    _LOG.info("%s: winners of %d rows tested in %d ranges", writer.table.name, rows, ranges)
