"""The Spark session that reads Kafka: one for the process, with Spark's own Kafka connector.

1. A running session is used, and must have the connector.
2. Else this module starts one, local without SPARK_CONF_DIR. `spark.jars.packages` names the connector: of
   Spark's own version, or of the version in SEQSTORE_KAFKA_CONNECTOR.
3. Where that version is not available, one of the same major version is tried that is known to run under it.
   Versions that Ivy has fetched before are tried first: a failed fetch lasts seconds.

Dependencies of the connector that Spark ships are not fetched again. After the death of a driver the next
call starts another session.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seqstore.loaders.spark.py4j_access import forget, has_died, is_stopped, jvm_of
from seqstore.loaders.spark.requirements import missing_requirement
from seqstore.loaders.spark.session import running_session
from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import memory_limit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR_VARIABLE: Final = "SEQSTORE_KAFKA_CONNECTOR"
_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_RUNS_UNDER: Final = {"4": "4.0.0"}  # major version of Spark, version of the connector
_SHIPPED: Final = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.lz4:lz4-java",
    "at.yawk.lz4:lz4-java",
    "org.xerial.snappy:snappy-java",
    "com.github.luben:zstd-jni",
    "org.slf4j:slf4j-api",
    "com.google.code.findbugs:jsr305",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
)
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.jars.excludes": ",".join(_SHIPPED),
}
_READERS: Final = 8
_log: Final = logging.getLogger(__name__)
_lock: Final = threading.Lock()
_started: list[SparkSession] = []
# Python threads that talk to the JVM have a thread there, which outlives them: so few, and always the same.
readers: Final = ThreadPoolExecutor(_READERS, thread_name_prefix="kafka reader")


def kafka_session() -> SparkSession:
    """Returns the Spark session that reads Kafka; the module describes the choice.

    Raises:
        UnavailableError: Spark cannot run here, or not with the connector.
    """
    missing = missing_requirement()
    if missing is not None:
        raise UnavailableError(f"FROM KAFKA: {missing}", kind="no_spark")
    with _lock:
        if _started and has_died(_started[0]):
            forget(_started.pop())
        if not _started or is_stopped(_started[0]):  # another part of the process stopped it
            _started[:] = [_begin()]
        return _started[0]


def _begin() -> SparkSession:
    running = running_session()
    if running is None and "SPARK_CONF_DIR" not in os.environ:
        running = _with_packages()
    if running is None:
        running = _launched({})
    try:
        loader = jvm_of(running).java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider")
    except Exception as error:  # py4j's
        raise UnavailableError(
            f"FROM KAFKA: the Spark session of this process has no Kafka connector; expected {_CONNECTOR} of "
            f"Spark's version among spark.jars.packages, before it starts",
            kind="no_spark",
        ) from error
    return running


def _with_packages() -> SparkSession:
    """Steps 2 and 3 of the module."""
    import pyspark
    from pyspark.errors import PySparkRuntimeError

    version = str(pyspark.__version__)
    given = os.environ.get(CONNECTOR_VARIABLE)
    known = _RUNS_UNDER.get(version.partition(".")[0], version)
    versions = (
        [given] if given else sorted({version, known}, key=lambda v: (not _is_fetched(v), v != version))
    )
    for found in versions:
        try:
            return _launched({"spark.jars.packages": f"{_CONNECTOR}:{found}"})
        except PySparkRuntimeError as error:
            _log.warning("Spark does not start with %s:%s: %s", _CONNECTOR, found, error)
    raise UnavailableError(
        f"FROM KAFKA: Spark does not start with {_CONNECTOR} in version {' or '.join(versions)}; its log "
        f"has the reason. {CONNECTOR_VARIABLE} names another version, SPARK_CONF_DIR another configuration",
        kind="no_spark",
    )


def _is_fetched(version: str) -> bool:
    """Returns whether Ivy has the connector of a version from an earlier start."""
    jar = f"{_CONNECTOR.replace(':', '_')}-{version}.jar"
    return any(Path.home().glob(f".ivy2*/jars/{jar}"))


def _launched(settings: dict[str, str]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with warnings.catch_warnings():
        # Spark warns of a pandas newer than it knows; no pandas is used here.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder
        with memory_limit.lifted():  # the JVM is a process of its own
            builder = builder.appName("seqstore routine load").config(map={**SETTINGS, **settings})
            started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started
