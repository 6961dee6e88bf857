"""What tasks, executors and drivers that fail, run twice or are killed leave behind: the table is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cli.demo.flights import CREATE_TABLE, event_stream, read_flights
from cli.demo.flights_run import differing_rows
from cli.demo.spark_process import start_job
from cli.demo.spark_run import stream_files
from store import Column, Settings, Store, Table, TableSchema, parse_type
from store.sql import Session
from tests.support.spark_cluster import STANDALONE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FAILS, FAILS_ALWAYS = "fails", "fails always"
EXECUTOR_DIES, HAS_A_TWIN = "executor dies", "has a twin"
PARTITIONS = 4


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with Store.open(tmp_path / "data", settings=Settings(auto_compaction=0)) as store:
        store.create_database("db")
        columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("VARCHAR(40)"))]
        made = store.create_table("db.t", TableSchema.create(columns, ["k"]))
        yield made


def write(spark: SparkSession, table: Table, tmp_path: Path, fault: str, rows: int = 40_000) -> None:
    from tests.support.spark_faults import FaultySource

    spark.dataSource.register(FaultySource)
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr("id AS k", "concat('row number ', id) AS v")
    writer = frame.write.format("faulty").mode("append").option("path", str(tmp_path / "data"))
    writer.options(table="db.t", fault=fault, marker=str(tmp_path / "marker")).save()


def check_written(table: Table, tmp_path: Path) -> None:
    """One version with every row once, and no file of a share that was not taken."""
    assert (tmp_path / "marker").exists(), "nothing went wrong"
    assert table.version == 2
    rows = table.scan().read_all()
    assert rows.num_rows == pc.count_distinct(rows["k"]).as_py() == 40_000
    assert table.history()[-1].rows_total == 40_000
    assert table.check() == []
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


@pytest.mark.crash
@pytest.mark.telling
@pytest.mark.timeout(900)
def test_a_stream_of_flights_killed_in_the_middle_ends_equal_to_the_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The driver and its JVM are killed while executors stage an epoch; the next driver goes on."""
    stream = event_stream(read_flights(20_000), batches=12, seed=11)
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
        assert sum(info.rows_total for info in table.history()) == stream.row_count
        assert differing_rows(table, stream.flights) == 0


def staged_files(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "data" / "tables").rglob("*") if path.is_file()}


def named_files(table: Table) -> set[str]:
    segments = [live.segment.meta for live in table.state().segments.values()]
    return {f"{meta.id}.{end}" for meta in segments if meta.home != "inline" for end in (meta.home, "keys")}
