"""What tasks, executors and drivers that fail, run twice or are killed leave behind: the table is right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from seqstore import Column, Settings, Store, Table, TableSchema, parse_type
from seqstore.cli.demo.flights import CREATE_TABLE, event_stream, read_flights
from seqstore.cli.demo.flights_run import differing_rows
from seqstore.cli.demo.spark_process import start_job
from seqstore.cli.demo.spark_run import stream_files
from seqstore.loaders.spark import register
from seqstore.store.runtime.process_identity import identity_of, is_alive
from seqstore.store.sql import Session
from tests.support.spark.spark_cluster import STANDALONE
from tests.weight import by_form

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.settings(auto_compaction=0)]
FAILS, FAILS_ALWAYS, IS_OVERTAKEN = "fails", "fails always", "is overtaken"
PARTITIONS = 4  # so many are waited for there
EXECUTOR_DIES, HAS_A_TWIN = "executor dies", "has a twin"
ROWS = 80_000  # shares too large for the catalog, so they are files
ROOT = Path(__file__).parents[3]


@pytest.fixture
def table(store: Store) -> Table:
    columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("VARCHAR(40)"))]
    # Versions are counted, and Spark's processes, which load too, have settings of their own.
    properties = {"disable_auto_compaction": "true"}
    return store.create_table("db.t", TableSchema.create(columns, ["k"], properties=properties))


def write(spark: SparkSession, table: Table, tmp_path: Path, fault: str, rows: int = ROWS) -> None:
    from tests.support.faults.spark_faults import FaultySource

    spark.dataSource.register(FaultySource)
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr("id AS k", "concat('row number ', id) AS v")
    writer = frame.write.format("faulty").mode("append").option("path", str(tmp_path / "data"))
    writer.options(table="db.t", fault=fault, marker=str(tmp_path / "marker")).save()


def check_written(table: Table, tmp_path: Path) -> None:
    """One version with every row once, and no file of a share that was not taken."""
    assert (tmp_path / "marker").exists(), "nothing went wrong"
    assert table.version == 2
    rows = table.scan().read_all()
    assert rows.num_rows == pc.count_distinct(rows["k"]).as_py() == ROWS
    assert table.history()[-1].metrics.rows_total == ROWS
    assert table.check() == []
    assert len(named_files(table)) == 2 * PARTITIONS
    assert staged_files(tmp_path) == named_files(table)


@pytest.mark.telling
@pytest.mark.executors
@pytest.mark.parametrize("fault", [FAILS, EXECUTOR_DIES])
def test_a_share_that_is_staged_again_counts_once(
    spark: SparkSession, table: Table, tmp_path: Path, fault: str
) -> None:
    """Its task failed, or its executor was killed, with the share staged: the task runs again."""
    write(spark, table, tmp_path, fault)
    check_written(table, tmp_path)


@pytest.mark.telling
@pytest.mark.executors(STANDALONE)  # Spark speculates on another host only
def test_of_two_attempts_at_once_one_counts(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """Speculation: both attempts have staged the share before either tells."""
    write(spark, table, tmp_path, HAS_A_TWIN)
    check_written(table, tmp_path)


@pytest.mark.telling
def test_a_write_that_fails_for_good_leaves_nothing(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"attempt \d fails"):
        write(spark, table, tmp_path, FAILS_ALWAYS)
    assert table.version == 1
    assert table.count() == 0
    assert staged_files(tmp_path) == set()


@pytest.mark.telling
def test_tasks_that_outlive_a_failed_write_leave_nothing(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """One stages its share when the write was aborted already: Spark does not wait for it."""
    with pytest.raises(Exception, match=r"attempt \d fails"):
        write(spark, table, tmp_path, IS_OVERTAKEN)
    at_work = list(tmp_path.glob("at work ?"))
    assert at_work
    for mark in at_work:
        ended = mark.with_name(mark.name.replace("at work", "ended"))
        # Spark kills them in the end, which may be before they have begun.
        while not ended.exists() and is_alive(identity_of(int(mark.read_text()))):
            time.sleep(0.05)
        assert not ended.exists() or ended.read_text() == "ClosedError"
    assert table.version == 1
    assert staged_files(tmp_path) == set()


@pytest.mark.family(1)
@pytest.mark.parametrize("fault", ["commit fails", "commit dies"])
def test_a_write_whose_commit_is_lost_behind_its_commit_point_is_whole(
    spark: SparkSession, table: Table, tmp_path: Path, fault: str
) -> None:
    """Spark takes it for failed and aborts it: what is published stays."""
    with pytest.raises(Exception, match=r"behind its commit point|[Cc]ommit|[Cc]rashed|EOF"):
        write(spark, table, tmp_path, fault)
    check_written(table, tmp_path)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.telling
@pytest.mark.timeout(900)
def test_a_stream_of_flights_killed_in_the_middle_ends_equal_to_the_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The driver and its JVM are killed while executors stage an epoch; the next driver goes on."""
    stream = event_stream(read_flights(by_form(8_000, 20_000)), batches=12, seed=11)
    events, checkpoint = tmp_path / "events", tmp_path / "checkpoint"
    events.mkdir()
    for batch in range(stream.batch_count):
        pq.write_table(stream.rows(batch), events / f"{batch:03d}.parquet", coerce_timestamps="us")
    with Store.open(tmp_path / "data", settings=Settings(auto_compaction=0)) as store:
        store.create_database("flights")
        list(Session(store).execute(CREATE_TABLE))
    master = spark.sparkContext.master
    seen = []
    with start_job(
        tmp_path / "data", "flights.flights", events, checkpoint, master, driver_bytes_max=0
    ) as job:
        for epoch in job.epochs():
            seen.append(epoch["epoch"])
            if len(seen) == 2:
                job.kill()
    assert seen[:2] == [0, 1]
    with Store.open(tmp_path / "data", settings=Settings(auto_compaction=0)) as store:
        table = store.table("flights.flights")
        assert table.check() == []
        loaded = table.version - 1
        assert loaded in (2, 3)  # epoch 2 may have made it
        rest = stream_files(spark, events, checkpoint, store.path, table.name, driver_bytes_max=0)
        assert [report.epoch for report in rest][-1] == 3
        assert table.version == 5
        assert sum(info.metrics.rows_total for info in table.history()) == stream.row_count
        assert differing_rows(table, stream.flights) == 0


_WRITING_JOB = """
import sys
from pathlib import Path
from seqstore.cli.demo.spark_run import spark_session
from tests.loaders.spark.test_faults import write_stream

data_dir, files, checkpoint, work, master = sys.argv[1:]
Path(work).mkdir()
with spark_session(Path(work), master) as spark:
    write_stream(spark, data_dir, files, checkpoint)
"""


def write_stream(spark: SparkSession, data_dir: str, files: str, checkpoint: str) -> None:
    """Every file there is, a version each."""
    register(spark)
    stream = spark.readStream.schema("k bigint, v string").option("maxFilesPerTrigger", 1).parquet(files)
    writer = stream.writeStream.format("seqstore").trigger(availableNow=True)
    writer.options(path=data_dir, table="db.t", checkpointLocation=checkpoint).start().awaitTermination()


@pytest.mark.crash
@pytest.mark.torture
@pytest.mark.timeout(1_800)
def test_a_written_stream_whose_driver_is_killed_repeats_nothing(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    """Whenever that is: the next driver goes on, and every file is one version."""
    files, count = tmp_path / "files", 8
    files.mkdir()
    for n in range(count):
        keys = range(n * 500, n * 500 + 1_000)  # half of them are written again by the next file
        rows = pa.table({"k": pa.array(keys, pa.int64()), "v": [f"file {n}"] * len(keys)})
        pq.write_table(rows, files / f"{n:02d}.parquet")
        os.utime(files / f"{n:02d}.parquet", (n, n))  # Spark takes files of one millisecond in any order
    arguments = [str(tmp_path / "data"), str(files), str(tmp_path / "checkpoint")]
    command = [
        sys.executable,
        "-c",
        _WRITING_JOB,
        *arguments,
        str(tmp_path / "work"),
        spark.sparkContext.master,
    ]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True) as job:
        try:
            while table.version < 4:
                assert job.poll() is None, "the job ended before it was killed"
                time.sleep(0.05)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
    assert table.check() == []
    write_stream(spark, *arguments)
    assert table.version == 1 + count
    assert sum(info.metrics.rows_total for info in table.history()) == count * 1_000
    found = table.scan(["k", "v"]).read_all().to_pylist()
    assert {row["k"]: row["v"] for row in found} == {
        k: f"file {min(k // 500, count - 1)}" for k in range(count * 500 + 500)
    }
    assert table.check() == []


def staged_files(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "data" / "tables").rglob("*") if path.is_file()}


def named_files(table: Table) -> set[str]:
    segments = [live.segment.meta for live in table.state().segments.values()]
    return {f"{meta.id}.{end}" for meta in segments if meta.home != "inline" for end in (meta.home, "keys")}
