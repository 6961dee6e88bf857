"""Files of a broker load read by Spark's executors.

An accumulator carries the end of each task to the driver: the bytes it read, or the error of a file that can
never be loaded, which ends the job at once. Spark itself retries other failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqstore.loaders.broker.file_task import FileResult, FileTask
from seqstore.loaders.broker.pools import Watch
from seqstore.loaders.spark.grouped_job import run_grouped
from seqstore.loaders.spark.registration import use_this_python
from seqstore.store.errors import StoreError, UnavailableError

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

Ends = dict[int, "int | StoreError"]  # by task: bytes read, or why it never can be


@dataclass
class _SparkRun:
    """Tasks of one job on their way through Spark."""

    spark: SparkSession
    tasks: Sequence[FileTask]
    group: str
    watch: Watch

    def run(self, slices: int) -> list[FileResult]:
        context = self.spark.sparkContext
        ends = context.accumulator({}, _merging_dicts())
        return run_grouped(
            context,
            self.group,
            f"{self.group}: {len(self.tasks)} files",
            lambda: self._collect(ends, slices),
            lambda: self._look(ends.value),
        )

    def _look(self, ends: Ends) -> None:
        ended = dict(ends)
        for end in ended.values():
            if isinstance(end, StoreError):
                raise end
        self.watch(len(ended), sum(end for end in ended.values() if isinstance(end, int)))

    def _collect(self, ends: Accumulator[Ends], slices: int) -> list[FileResult]:
        """Runs the Spark job."""

        def run(numbered: tuple[int, FileTask]) -> FileResult | None:
            number, task = numbered
            try:
                result = task.run()
            except UnavailableError:
                raise  # Spark tries again
            except StoreError as error:
                ends.add({number: error})
                return None
            ends.add({number: task.file.size})
            return result

        context = self.spark.sparkContext
        found = context.parallelize(list(enumerate(self.tasks)), slices).map(run).collect()
        return [result for result in found if result is not None]


def run_on_spark(
    spark: SparkSession, tasks: Sequence[FileTask], parallelism: int, group: str, watch: Watch
) -> list[FileResult]:
    """Runs tasks in executors, in order of the tasks.

    Args:
        parallelism: how many at once; 0 means as many as there are cores.
        group: name of the job on Spark's pages; unique in the application.

    Raises:
        StoreError: of a file that cannot be loaded.
        UnavailableError: Spark failed; the message has the reason.
    """
    use_this_python()
    return _SparkRun(spark, tasks, group, watch).run(min(parallelism or len(tasks), len(tasks)))


def _merging_dicts() -> Any:
    """Returns the sum of ends. A task that ran twice has one entry, so it counts once."""
    from pyspark.accumulators import AccumulatorParam

    class MergingDicts(AccumulatorParam[Ends]):
        def zero(self, value: Ends) -> Ends:
            return {}

        def addInPlace(self, value1: Ends, value2: Ends) -> Ends:
            value1.update(value2)
            return value1

    return MergingDicts()
