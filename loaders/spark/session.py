"""The Spark session of jobs that statements and commands start: that of this process, or one of their own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seqstore.loaders.spark.py4j_access import active_context
from seqstore.store.runtime import memory_limit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
