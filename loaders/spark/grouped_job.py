"""Jobs of Spark that end when the Python code that waits for them does.

A Python thread that waits for the JVM cannot be interrupted. So the job runs in a thread of its own, in a job
group, and the caller looks around meanwhile: an exception there cancels the group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from seqstore.loaders.spark.py4j_access import cause_of
from seqstore.store.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
_LOOK_SECONDS: Final = 0.2


def run_grouped(
    context: SparkContext, group: str, description: str, work: Callable[[], T], look: Callable[[], None]
) -> T:
    """Runs a function that starts Spark jobs; returns its result.

    Args:
        group: names the jobs on Spark's pages; unique in the application.
        look: called several times a second; its exception cancels the jobs and is raised.

    Raises:
        UnavailableError: Spark failed; the message has the reason.
    """
    results: list[T] = []
    failed: list[BaseException] = []

    def collect() -> None:
        try:
            context.setJobGroup(group, description, interruptOnCancel=True)  # of this thread alone
            results.append(work())
        except BaseException as error:  # handed to the thread that waits
            failed.append(error)

    thread = threading.Thread(target=collect, name=f"spark {group}")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
            look()
        look()  # the thread may have ended since
    except BaseException:
        context.cancelJobGroup(group)
        thread.join()
        raise
    if failed:
        raise UnavailableError(f"Spark: {cause_of(failed[0])}", kind="spark") from failed[0]
    return results[0]
