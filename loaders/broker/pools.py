"""Where the files of a broker load are read: processes of this host, or Spark's executors.

Spark starts in some ten seconds, so a load that a few processes can read in about that time does not go
there.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

from loaders.broker.file_task import FileResult, FileTask, run_task
from loaders.spark.requirements import missing_requirement
from store.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_BYTES_MIN: Final = 2**30
_POLL_SECONDS: Final = 0.2


class Cancelled(Exception):
    """Somebody asked the job to end. Never leaves the package."""


def choose_engine(asked: str, size: int) -> str:
    """`spark` or `local`.

    Raises:
        InvalidInputError: Spark was asked for and cannot run here.
    """
    if asked == "local" or (asked == "auto" and size < SPARK_BYTES_MIN):
        return "local"
    missing = missing_requirement()
    if missing is None:
        return "spark"
    if asked == "spark":
        raise InvalidInputError(f"engine spark: {missing}", kind="no_spark")
    return "local"


def run_locally(
    tasks: Sequence[FileTask],
    processes: int,
    on_count: Callable[[int], None],
    check: Callable[[], None],
) -> list[FileResult]:
    """Runs tasks in processes of this host, in order of the tasks.

    Args:
        processes: how many at once; 0 means one a core.
        on_count: told how many tasks are done as their number grows.
        check: called every now and then; raises to end the job.
    """
    if len(tasks) == 1:
        check()
        result = run_task(tasks[0])
        on_count(1)
        return [result]
    results: dict[int, FileResult] = {}
    workers = min(processes or os.cpu_count() or 1, len(tasks))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run_task, task): i for i, task in enumerate(tasks)}
        try:
            while waiting:
                done, _ = wait(waiting, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    i = waiting.pop(future)
                    results[i] = future.result()
                on_count(len(results))
                check()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [results[i] for i in range(len(tasks))]


def run_on_spark(
    spark: SparkSession,
    tasks: Sequence[FileTask],
    label: str,
    on_count: Callable[[int], None],
    check: Callable[[], None],
) -> list[FileResult]:
    """Runs tasks in executors, in order of the tasks.

    Args:
        label: what Spark's pages show the job as.
        on_count, check: as in `run_locally`.
    """
    context = spark.sparkContext
    results: list[FileResult] = []
    failed: list[BaseException] = []

    def collect() -> None:
        context.setJobGroup(label, f"seqstore broker load {label}", interruptOnCancel=True)
        try:
            results.extend(context.parallelize(tasks, len(tasks)).map(run_task).collect())
        except BaseException as error:  # handed to the thread that waits
            failed.append(error)

    thread = threading.Thread(target=collect, name=f"spark {label}")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
            check()
            on_count(_tasks_done(spark, label))
    except BaseException:
        context.cancelJobGroup(label)
        thread.join()
        raise
    if failed:
        raise failed[0]
    return results


def _tasks_done(spark: SparkSession, label: str) -> int:
    tracker = spark.sparkContext.statusTracker()
    done = 0
    for job_id in tracker.getJobIdsForGroup(label):
        job = tracker.getJobInfo(job_id)
        stages = [tracker.getStageInfo(stage) for stage in job.stageIds] if job is not None else []
        done += sum(stage.numCompletedTasks for stage in stages if stage is not None)
    return done


@contextmanager
def spark_session(label: str) -> Iterator[SparkSession]:
    """The active session, or one of its own that ends with the job. Its master and settings are those of
    `spark-submit`, of SPARK_CONF_DIR, or local."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.appName(f"seqstore {label}").getOrCreate()
    try:
        yield session
    finally:
        session.stop()
