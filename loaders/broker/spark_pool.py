"""Files of a broker load read by Spark's executors.

An accumulator carries the end of each task to the driver: the bytes it read, or the error of a file that can
never be loaded, which ends the job at once. Spark itself retries other failures.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seqstore.loaders.broker.file_task import FileResult, FileTask
from seqstore.loaders.broker.pools import POLL_SECONDS, Watch
from seqstore.loaders.spark.py4j_access import active_context, cause_of
from seqstore.loaders.spark.registration import use_this_python
from seqstore.store.errors import StoreError, UnavailableError
from seqstore.store.runtime import memory_limit

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
    results: list[FileResult] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)

    def run(self, slices: int) -> list[FileResult]:
        ends = self.spark.sparkContext.accumulator({}, _merging_dicts())
        thread = threading.Thread(target=self._collect, args=(ends, slices), name=f"spark {self.group}")
        thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL_SECONDS)
                self._look(ends.value)
        except BaseException:
            self.spark.sparkContext.cancelJobGroup(self.group)
            thread.join()
            raise
        self._look(ends.value)
        if self.failed:
            raise UnavailableError(f"Spark: {cause_of(self.failed[0])}", kind="spark") from self.failed[0]
        return self.results

    def _look(self, ends: Ends) -> None:
        ended = dict(ends)
        for end in ended.values():
            if isinstance(end, StoreError):
                raise end
        self.watch(len(ended), sum(end for end in ended.values() if isinstance(end, int)))

    def _collect(self, ends: Accumulator[Ends], slices: int) -> None:
        """Runs the Spark job in the thread that its job group belongs to."""
        context = self.spark.sparkContext

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

        try:
            context.setJobGroup(self.group, f"{self.group}: {len(self.tasks)} files", interruptOnCancel=True)
            found = context.parallelize(list(enumerate(self.tasks)), slices).map(run).collect()
            self.results.extend(result for result in found if result is not None)
        except BaseException as error:  # handed to the thread that waits
            self.failed.append(error)


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


@dataclass
class _OwnSession:
    """The session that jobs of this process made, and how many of them use it."""

    session: SparkSession | None = None
    jobs: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


_own = _OwnSession()


@contextmanager
def spark_session(name: str, master: str) -> Iterator[SparkSession]:
    """Yields the session of this process, or one of its own that ends with the last job that uses it.

    Args:
        master: of its own; empty: that of `spark-submit` or SPARK_CONF_DIR, else local[*].
    """
    with _own.lock:
        if _own.session is None:
            session = running_session()
            if session is None:
                session = _own.session = _new_session(name, master)
        else:
            session = _own.session
        is_own = session is _own.session
        _own.jobs += is_own
    try:
        yield session
    finally:
        if is_own:
            _leave()


def _leave() -> None:
    with _own.lock:
        _own.jobs -= 1
        if not _own.jobs and _own.session is not None:
            session, _own.session = _own.session, None
            session.stop()


def running_session() -> SparkSession | None:
    """Returns the session of this process, whichever thread made it: a process has one SparkContext, and its
    stop ends every session."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()  # of this thread alone
    if active is not None:
        return active
    if active_context() is None:
        return None
    return SparkSession.builder.getOrCreate()  # on that context


def _new_session(name: str, master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).config("spark.ui.showConsoleProgress", "false")
    with memory_limit.lifted():  # the JVM is a process of its own
        return (builder.master(master) if master else builder).getOrCreate()
