"""The same events through PySpark: Structured Streaming over files, a version per epoch."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from seqstore.cli.demo.flights import CREATE_TABLE, EventStream
from seqstore.cli.demo.flights_run import show_comparison
from seqstore.cli.demo.screen import Screen
from seqstore.cli.demo.spark_process import start_job
from seqstore.loaders.spark import EpochReport, foreach_batch_sink, missing_requirement
from seqstore.store import Store, Table
from seqstore.store.sql import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATABASE: Final = "flights"
TABLE: Final = "flights_from_spark"
LOCAL_MASTER: Final = "local[2]"
_FILES_PER_EPOCH: Final = 3
_KILLED_AFTER: Final = 1
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"

_LOG_CONFIG: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def run_spark(store: Store, stream: EventStream, screen: Screen) -> bool:
    """Streams every batch as a file and compares the table with the source.

    Returns:
        False where Spark cannot run; the demo has printed the reason.

    Raises:
        StoreError: the table differs from the source.
    """
    screen.title("5. The same events through PySpark's foreachBatch")
    missing = missing_requirement()
    if missing is not None:
        screen.say(f"skipped: {missing}")
        return False
    create = CREATE_TABLE.replace("flights.flights (", f"{DATABASE}.{TABLE} (")
    list(Session(store).execute(create))
    table = store.table(f"{DATABASE}.{TABLE}")
    screen.say("Starting the job, Spark on local[2] in a process of its own; some ten seconds.")
    with tempfile.TemporaryDirectory(prefix="seqstore-demo-") as directory:
        events = Path(directory) / "events"
        events.mkdir()
        for batch in range(stream.batch_count):
            pq.write_table(stream.rows(batch), events / f"{batch:03d}.parquet", coerce_timestamps="us")
        checkpoint = Path(directory) / "checkpoint"
        last = run_until_killed(store, table.name, events, checkpoint)
        screen.say(
            f"Killed (SIGKILL, driver and JVM) as epoch {last} had become visible. Starting again, in this "
            "process."
        )
        with spark_session(Path(directory)) as spark:
            started = time.perf_counter()
            reports = stream_files(spark, events, checkpoint, store.path, table.name)
            seconds = time.perf_counter() - started
            forget_last_epoch(checkpoint)
            replayed = stream_files(spark, events, checkpoint, store.path, table.name)
    show_epochs(table, screen)
    left = sum(report.metrics.rows_total for report in reports if report.metrics is not None)
    screen.say(
        f"{stream.row_count:,} rows, {_FILES_PER_EPOCH} files an epoch; the second run loaded {left:,} of "
        f"them: {seconds:.1f} s. Every epoch is one version, whoever ran it."
    )
    for report in replayed:
        outcome = "its label is known: skipped" if report.is_replay else f"loaded as version {report.version}"
        screen.say(
            "Then, as after a crash between the store's commit and Spark's checkpoint, "
            f"epoch {report.epoch} ran again; {outcome}."
        )
    show_comparison(table, stream.flights, screen)
    return True


def run_until_killed(store: Store, table: str, events: Path, checkpoint: Path) -> int:
    """Runs the job in a process that is killed after some epochs; returns the last visible one."""
    seen = -1
    with start_job(store.path, table, events, checkpoint, LOCAL_MASTER) as job:
        for epoch in job.epochs():
            seen = epoch["epoch"]
            if seen == _KILLED_AFTER:
                job.kill()
    return seen


def show_epochs(table: Table, screen: Screen) -> None:
    """Shows one line for each epoch."""
    loaded = [info for info in table.history() if info.label.startswith("spark-")]
    screen.table(
        ["epoch", "version", "rows", "superseded", "late", "ms in the store"],
        [
            (
                info.label.rsplit("-", 2)[1],
                str(info.version),
                info.metrics.rows_total,
                info.metrics.rows_superseded,
                info.metrics.rows_late,
                info.metrics.milliseconds,
            )
            for info in loaded
        ],
    )


def forget_last_epoch(checkpoint: Path) -> None:
    """Leaves the state of a crash between the commit of an epoch and Spark's checkpoint."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def stream_files(
    spark: SparkSession,
    events: Path,
    checkpoint: Path,
    store: Path,
    table: str,
    *,
    on_epoch: Callable[[EpochReport], None] = lambda report: None,
    **sink_options: Any,
) -> list[EpochReport]:
    """Runs a query over every file there is, then ends; one report an epoch.

    Args:
        on_epoch: called for each epoch when its rows are visible, before Spark's checkpoint has it.
        sink_options: of `foreach_batch_sink`.
    """
    reports: list[EpochReport] = []
    sink = foreach_batch_sink(store, table, **sink_options)

    def load(df: DataFrame, epoch: int) -> None:
        reports.append(sink(df, epoch))
        on_epoch(reports[-1])

    query = (
        spark.readStream.schema(spark.read.parquet(str(events)).schema)
        .option("maxFilesPerTrigger", _FILES_PER_EPOCH)
        .parquet(str(events))
        .writeStream.foreachBatch(load)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return reports


@contextmanager
def spark_session(
    directory: Path, master: str = LOCAL_MASTER, more: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yields a quiet session whose files stay under `directory`.

    Args:
        master: as Spark writes it; executors in processes of their own import modules from the paths of this
            process.
        more: further settings.
    """
    log_config = directory / "log4j2.properties"
    log_config.write_text(_LOG_CONFIG)
    more = dict(more or {})
    options = [more.pop(_DRIVER_OPTIONS, ""), f'-Dlog4j2.configurationFile="{log_config}"']
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        _DRIVER_OPTIONS: " ".join(options),
        **more,
    }
    with (
        # No configuration of others; a folder with files keeps a JVM from an archive of classes.
        _launch_environment("SPARK_CONF_DIR", str(directory / "no-conf")),
        _launch_environment("PYSPARK_PYTHON", sys.executable),  # its workers import what this process does
        warnings.catch_warnings(),
    ):
        # Spark warns of a pandas newer than it knows; no pandas is used here.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        from pyspark.sql import SparkSession  # here: other demos must not wait for the import

        builder = SparkSession.builder.master(master).appName("seqstore demo")
        spark = builder.config(map=settings).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _launch_environment(name: str, value: str) -> Iterator[None]:
    """Yields an environment variable that only the launch of Spark is to see."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
