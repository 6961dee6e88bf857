"""The parts of a Spark session that pyspark has no public name for."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession


def active_context() -> SparkContext | None:
    """Returns the context of this process, whichever thread made it; Spark Connect has none."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def jvm_of(session: SparkSession) -> Any:
    """Returns py4j's view of the driver's JVM."""
    return session.sparkContext._jvm


def is_stopped(session: SparkSession) -> bool:
    return session.sparkContext._jsc is None


def has_died(session: SparkSession) -> bool:
    """Returns whether the JVM of a session ended without `stop`."""
    driver = getattr(session.sparkContext._gateway, "proc", None)
    return driver is not None and driver.poll() is not None


def forget(session: SparkSession) -> None:
    """Removes a session whose JVM has died from pyspark, which would reuse it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = session.sparkContext._gateway
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that it cannot be stopped cleanly
        with suppress(OSError):  # the first call ends at the dead socket, the second continues
            session.sparkContext.stop()
        session.sparkContext.stop()
    if SparkContext._gateway is gateway:
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def estimated_bytes(df: DataFrame) -> int:
    """Returns the planner's estimate of a frame's size; very much where it has no statistics."""
    return int(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def cause_of(error: BaseException) -> str:
    """Returns the error of a task without Spark's own trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line.startswith("seqstore.store.errors.")]
    if told:
        return told[0].partition(": ")[2]
    return next((line for line in lines if line), type(error).__name__)
