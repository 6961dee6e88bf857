"""foreachBatch: an epoch is loaded once, whatever Spark runs again."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqstore import (
    Column,
    InvalidInputError,
    LabelExistsError,
    LoadRejectedError,
    NotFoundError,
    Store,
    TableSchema,
    parse_type,
)
from seqstore.cli.demo.spark_run import forget_last_epoch
from seqstore.loaders.spark import EpochReport, Feed, LoadCounters, foreach_batch_sink
from tests.support.changes.messages import canal, envelope, maxwell
from tests.support.children import MODULES
from tests.support.spark.places import at
from tests.support.streams.avro import change, envelope_schema, framed
from tests.support.streams.registry import RegistryServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_ID = "sql.streaming.queryId"
ROOT = Path(__file__).parents[3]
ANY_SIZE = 10**30  # Spark does not know how large frames made of Python's rows are


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A store with two tables of one shape; no sequence, so that a second load of an epoch would show."""
    schema = TableSchema.create(
        [
            Column("id", parse_type("BIGINT"), nullable=False),
            Column("value", parse_type("VARCHAR(20)")),
        ],
        ["id"],
    )
    with Store.open(tmp_path / "data") as store:
        store.create_database("db")
        store.create_table("db.one", schema)
        store.create_table("db.two", schema)
    return tmp_path / "data"


@pytest.fixture
def in_query(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, as an epoch of query "q" sees it."""
    spark.sparkContext.setLocalProperty(QUERY_ID, "q")
    yield spark
    spark.sparkContext.setLocalProperty(QUERY_ID, None)


def frame(spark: SparkSession, *rows: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), "id bigint, value string")


def rows_of(data_dir: Path, table: str = "db.one") -> dict[int, str]:
    with Store.open(data_dir) as store:
        rows = store.table(table).scan(["id", "value"]).read_all()
    return dict(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def write_file(directory: Path, number: int, rows: dict[int, str]) -> None:
    """One file of a stream; Spark takes them by time, those of one millisecond in any order."""
    directory.mkdir(exist_ok=True)
    file = directory / f"{number:03d}.parquet"
    pq.write_table(pa.table({"id": list(rows), "value": list(rows.values())}), file)
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def run_query(
    spark: SparkSession, files: Path, checkpoint: Path, data_dir: Path, table: str = "db.one"
) -> list[EpochReport]:
    reports: list[EpochReport] = []
    sink = foreach_batch_sink(at(data_dir), table)
    query = (
        spark.readStream.schema("id bigint, value string")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(files))
        .writeStream.foreachBatch(lambda df, epoch: reports.append(sink(df, epoch)))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return reports


@pytest.mark.spark
def test_a_replayed_epoch_is_reported_and_skipped(
    in_query: SparkSession, data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = foreach_batch_sink(at(data_dir), "db.one")
    first = sink(frame(in_query, (1, "a"), (2, "b")), 0)
    second = sink(frame(in_query, (2, "c")), 1)
    with caplog.at_level(logging.WARNING):
        again = sink(frame(in_query, (1, "a"), (2, "b")), 0)
    assert (first.version, second.version) == (2, 3)
    assert first.metrics is not None
    assert first.metrics.rows_total == 2
    assert again.is_replay
    assert (again.label, again.version) == (first.label, first.version)
    assert "epoch 0 of query q is version 2 already: skipped" in caplog.text
    assert rows_of(data_dir) == {1: "a", 2: "c"}


@pytest.mark.spark
def test_epochs_of_another_query_are_loaded(in_query: SparkSession, data_dir: Path) -> None:
    sink = foreach_batch_sink(at(data_dir), "db.one")
    sink(frame(in_query, (1, "a")), 0)
    in_query.sparkContext.setLocalProperty(QUERY_ID, "another")
    report = sink(frame(in_query, (1, "b")), 0)
    assert not report.is_replay
    assert rows_of(data_dir) == {1: "b"}


@pytest.mark.spark
def test_one_query_may_feed_two_tables_of_a_database(in_query: SparkSession, data_dir: Path) -> None:
    """X16: labels are unique per database, so the table is part of the label."""
    for table in ("db.one", "db.two"):
        assert not foreach_batch_sink(at(data_dir), table)(frame(in_query, (1, table)), 0).is_replay
    assert rows_of(data_dir, "db.one") == {1: "db.one"}
    assert rows_of(data_dir, "db.two") == {1: "db.two"}


@pytest.mark.spark
def test_an_epoch_that_is_still_running_elsewhere_is_no_replay(
    in_query: SparkSession, data_dir: Path
) -> None:
    """LS5: only VISIBLE means done; here another load of this process holds the label in PREPARE."""
    with Store.open(data_dir) as store:
        table = store.table("db.one")
        with table.begin_load(label=f"spark-q-0-{table.id}"), pytest.raises(LabelExistsError) as raised:
            foreach_batch_sink(at(data_dir), "db.one")(frame(in_query, (1, "a")), 0)
    assert raised.value.status == "PREPARE"
    assert rows_of(data_dir) == {}


@pytest.mark.spark
def test_load_options_reach_the_load(in_query: SparkSession, data_dir: Path) -> None:
    foreach_batch_sink(at(data_dir), "db.one")(frame(in_query, (1, "a"), (2, "b")), 0)
    foreach_batch_sink(at(data_dir), "db.one", merge_type="DELETE")(frame(in_query, (1, "")), 1)
    assert rows_of(data_dir) == {2: "b"}


@pytest.mark.spark
def test_an_empty_epoch_changes_nothing(in_query: SparkSession, data_dir: Path) -> None:
    sink = foreach_batch_sink(at(data_dir), "db.one")
    sink(frame(in_query, (1, "a")), 0)
    report = sink(frame(in_query), 1)
    assert report.metrics is not None
    assert report.metrics.rows_total == 0
    assert rows_of(data_dir) == {1: "a"}


@pytest.mark.spark
def test_outside_of_a_query_there_is_no_epoch(spark: SparkSession, data_dir: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"hand the sink to writeStream\.foreachBatch"):
        foreach_batch_sink(at(data_dir), "db.one")(frame(spark, (1, "a")), 0)


@pytest.mark.spark
def test_a_missing_table_fails_the_epoch(in_query: SparkSession, data_dir: Path) -> None:
    with pytest.raises(NotFoundError, match="Unknown table"):
        foreach_batch_sink(at(data_dir), "db.three")(frame(in_query, (1, "a")), 0)
    with pytest.raises(NotFoundError, match="no store here"):
        foreach_batch_sink(data_dir / "elsewhere", "db.one")(frame(in_query, (1, "a")), 0)


@pytest.mark.spark
def test_spark_types_arrive_as_they_are(in_query: SparkSession, tmp_path: Path) -> None:
    """A `timestamp` is stored as the session shows it, a `timestamp_ntz` as it is."""
    declared = {
        "id": "INT",
        "flag": "BOOLEAN",
        "price": "DECIMAL(9,2)",
        "zoned": "DATETIME(6)",
        "plain": "DATETIME(6)",
        "tags": "ARRAY<STRING>",
        "calls": "ARRAY<DATETIME>",
    }
    columns = [Column(name, parse_type(text), nullable=name != "id") for name, text in declared.items()]
    with Store.open(tmp_path) as store:
        store.create_database("db")
        store.create_table("db.t", TableSchema.create(columns, ["id"]))
    in_query.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    try:
        df = in_query.sql(
            """SELECT 1 AS id, true AS flag, CAST(12.50 AS decimal(9,2)) AS price,
            timestamp'2024-01-02 03:04:05.678901' AS zoned,
            timestamp_ntz'2024-01-02 03:04:05.678901' AS plain,
            array('a', NULL) AS tags, array(timestamp'2024-01-02 03:04:05') AS calls"""
        )
        foreach_batch_sink(at(tmp_path), "db.t")(df, 0)
    finally:
        in_query.conf.set("spark.sql.session.timeZone", "UTC")
    with Store.open(tmp_path) as store:
        rows = store.table("db.t").scan().read_all().to_pylist()
    moment = datetime(2024, 1, 2, 3, 4, 5, 678901)
    assert rows == [
        {
            "id": 1,
            "flag": True,
            "price": Decimal("12.50"),
            "zoned": moment,
            "plain": moment,
            "tags": ["a", None],
            "calls": [datetime(2024, 1, 2, 3, 4, 5)],
        }
    ]


@pytest.mark.spark
@pytest.mark.parametrize("driver_bytes_max", [0, ANY_SIZE], ids=["executors", "driver"])
def test_a_variant_is_refused(in_query: SparkSession, data_dir: Path, driver_bytes_max: int) -> None:
    """Spark hands it out as two byte strings."""
    sink = foreach_batch_sink(at(data_dir), "db.one", driver_bytes_max=driver_bytes_max)
    with pytest.raises(InvalidInputError, match=r"VARIANT.*to_json\(value\)"):
        sink(in_query.sql("SELECT 1L AS id, parse_json('{}') AS value"), 0)


@pytest.mark.spark
def test_an_epoch_published_but_not_checkpointed_is_loaded_once(
    spark: SparkSession, data_dir: Path, tmp_path: Path
) -> None:
    """What a crash leaves between the store's commit and Spark's note: planned, loaded, not committed."""
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    write_file(files, 0, {1: "a", 2: "b"})
    write_file(files, 1, {2: "c"})
    reports = run_query(spark, files, checkpoint, data_dir)
    assert [(report.epoch, report.is_replay) for report in reports] == [(0, False), (1, False)]
    with Store.open(data_dir) as store:  # somebody else goes on: a second load of epoch 1 would undo this
        store.table("db.one").upsert(pa.table({"id": [2], "value": ["later"]}))
    forget_last_epoch(checkpoint)

    write_file(files, 2, {3: "d"})
    reports = run_query(spark, files, checkpoint, data_dir)
    assert [(report.epoch, report.is_replay) for report in reports] == [(1, True), (2, False)]
    assert rows_of(data_dir) == {1: "a", 2: "later", 3: "d"}


_KILLED_DRIVER = """
import os, signal, sys
from pathlib import Path
from seqstore.cli.demo.spark_run import spark_session
from seqstore.loaders.spark import foreach_batch_sink

data_dir, files, checkpoint, work = map(Path, sys.argv[1:])
work.mkdir()
sink = foreach_batch_sink(data_dir, "db.one")

def load_and_die(df, epoch):
    sink(df, epoch)
    if epoch == 1:
        os.kill(os.getpid(), signal.SIGKILL)

with spark_session(work) as spark:
    stream = spark.readStream.schema("id bigint, value string").option("maxFilesPerTrigger", 1)
    query = stream.parquet(str(files)).writeStream.foreachBatch(load_and_die)
    query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.crash
def test_a_driver_killed_right_after_a_load_repeats_nothing(
    spark: SparkSession, data_dir: Path, tmp_path: Path
) -> None:
    files, checkpoint = tmp_path / "files", tmp_path / "checkpoint"
    for number, rows in enumerate([{1: "a"}, {2: "b"}, {3: "c"}]):
        write_file(files, number, rows)
    arguments = [str(path) for path in (data_dir, files, checkpoint, tmp_path / "work")]
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED_DRIVER, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": MODULES},
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert rows_of(data_dir) == {1: "a", 2: "b"}
    with Store.open(data_dir) as store:
        store.table("db.one").upsert(pa.table({"id": [2], "value": ["later"]}))

    reports = run_query(spark, files, checkpoint, data_dir)
    assert [(report.epoch, report.is_replay) for report in reports] == [(1, True), (2, False)]
    assert rows_of(data_dir) == {1: "a", 2: "later", 3: "c"}
    with Store.open(data_dir) as store:
        assert store.table("db.one").check() == []


@pytest.mark.spark
def test_large_epochs_are_staged_by_executors(
    spark: SparkSession, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly once on that way too: the last epoch runs again and is skipped."""
    files = tmp_path / "files"
    write_file(files, 0, {k: f"a{k}" for k in range(3_000)})
    write_file(files, 1, {k: f"b{k}" for k in range(2_000, 4_000)})
    monkeypatch.setattr(
        "pyspark.sql.DataFrame.toArrow", lambda self: pytest.fail("the rows came to the driver")
    )
    sent: list[EpochReport] = []
    for _ in range(2):
        sink = foreach_batch_sink(at(data_dir), "db.one", driver_bytes_max=0)
        query = (
            spark.readStream.schema("id bigint, value string")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(files))
            .writeStream.foreachBatch(lambda df, epoch, sink=sink: sent.append(sink(df, epoch)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        if len(sent) == 2:
            forget_last_epoch(tmp_path / "checkpoint")
    assert [(report.epoch, report.version, report.is_replay) for report in sent] == [
        (0, 2, False),
        (1, 3, False),
        (1, 3, True),
    ]
    assert sent[1].metrics is not None
    assert (sent[1].metrics.rows_total, sent[1].metrics.rows_replaced) == (2_000, 1_000)
    assert rows_of(data_dir) == {k: f"a{k}" if k < 2_000 else f"b{k}" for k in range(4_000)}


@pytest.mark.spark
def test_executors_check_epochs_of_a_table_with_column_groups_and_the_load_merges_them(
    in_query: SparkSession, data_dir: Path
) -> None:
    """SM4, SM6"""
    names = ["id", "value", "s", "other", "t"]
    kinds = ["BIGINT", "VARCHAR(20)", "INT", "INT", "INT"]
    columns = [Column(n, parse_type(k), nullable=n != "id") for n, k in zip(names, kinds, strict=True)]
    groups = {"sequence_mapping.s": "value", "sequence_mapping.t": "other"}
    with Store.open(data_dir) as store:
        store.create_table("db.grouped", TableSchema.create(columns, ["id"], properties=groups))
    sink = foreach_batch_sink(at(data_dir), "db.grouped", driver_bytes_max=0)
    rows = [(1, "b", 2, None, None), (1, "a", 1, None, None), (1, None, None, 7, 7)]
    report = sink(in_query.createDataFrame(rows, "id bigint, value string, s int, other int, t int"), 0)
    assert report.version == 2
    with Store.open(data_dir) as store:
        assert store.table("db.grouped").scan().read_all().to_pylist() == [
            {"id": 1, "value": "b", "s": 2, "other": 7, "t": 7}
        ]


def two_tables(data_dir: Path, **options: Any) -> Callable[[DataFrame, int], EpochReport]:
    """Of each epoch, even ids go to one table, and every id's length of value to the other."""
    feeds: dict[str, Callable[[Any], Any] | Feed] = {
        "db.one": lambda df: df.where("id % 2 = 0"),
        "db.two": Feed(lambda df: df.selectExpr("id", "cast(length(value) as string) as value")),
    }
    return foreach_batch_sink(at(data_dir), feeds, **options)


@pytest.mark.spark
@pytest.mark.parametrize(
    "driver_bytes_max",
    [pytest.param(0, id="executors", marks=pytest.mark.telling), pytest.param(ANY_SIZE, id="driver")],
)
def test_several_tables_of_an_epoch_change_in_one_commit_and_once(
    in_query: SparkSession, data_dir: Path, driver_bytes_max: int
) -> None:
    """Scenario 49: both tables exactly once."""
    counters = LoadCounters(in_query)
    sink = two_tables(data_dir, driver_bytes_max=driver_bytes_max, counters=counters)
    rows = [(1, "a"), (2, "bb"), (4, "cccc")]
    report = sink(frame(in_query, *rows), 0)
    assert report.versions == {"db.one": 2, "db.two": 2}
    again = sink(frame(in_query, *rows), 0)
    assert again.is_replay
    assert again.versions == report.versions
    assert rows_of(data_dir, "db.one") == {2: "bb", 4: "cccc"}
    assert rows_of(data_dir, "db.two") == {1: "1", 2: "2", 4: "4"}
    with Store.open(data_dir) as store:
        infos = [store.table(name).history()[-1] for name in ("db.one", "db.two")]
    assert {info.label for info in infos} == {report.label}
    assert counters.values()["versions"] == 2
    assert counters.values()["rows_loaded"] == 5
    assert in_query.sparkContext.getLocalProperty("spark.job.description") is None
    tracker = in_query.sparkContext._jsc.sc().statusStore()
    described = [job.description().get() for job in _jobs(tracker) if job.description().isDefined()]
    assert "seqstore: epoch 0 into db.one, db.two" in described


@pytest.mark.spark
def test_a_replayed_epoch_of_several_tables_without_rows_is_skipped(
    in_query: SparkSession, data_dir: Path
) -> None:
    """X16: a commit that changed nothing keeps its label."""
    sink = two_tables(data_dir)
    report = sink(frame(in_query), 0)
    again = sink(frame(in_query), 0)
    assert (report.is_replay, again.is_replay) == (False, True)
    assert again.versions == report.versions == {"db.one": 1, "db.two": 1}


def _jobs(tracker: Any) -> list[Any]:
    jobs = tracker.jobsList(None)
    return [jobs.apply(i) for i in range(jobs.size())]


@pytest.mark.spark
def test_a_setting_of_the_session_says_what_comes_to_the_driver(
    in_query: SparkSession, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "seqstore.loaders.spark.sink.stage_frame", lambda *given: pytest.fail("executors staged it")
    )
    in_query.conf.set("spark.seqstore.driverBytesMax", "100000000t")
    try:
        foreach_batch_sink(at(data_dir), "db.one")(frame(in_query, (1, "a")), 0)
    finally:
        in_query.conf.unset("spark.seqstore.driverBytesMax")
    assert rows_of(data_dir) == {1: "a"}


@pytest.mark.spark
def test_when_one_table_refuses_an_epoch_the_other_has_nothing_of_it(
    in_query: SparkSession, data_dir: Path
) -> None:
    sink = two_tables(data_dir, driver_bytes_max=0)
    too_long = frame(in_query, *((k, "x" * 30 if k == 6 else "y") for k in range(5_000)))
    with pytest.raises(LoadRejectedError, match="1 of 2500"):
        sink(too_long, 0)
    with Store.open(data_dir) as store:
        assert [store.table(name).version for name in ("db.one", "db.two")] == [1, 1]
    assert [path for path in (data_dir / "tables").rglob("*") if path.is_file()] == []
    assert not sink(frame(in_query, (2, "b")), 0).is_replay  # its label is free again


@pytest.mark.spark
@pytest.mark.parametrize("driver_bytes_max", [0, ANY_SIZE], ids=["executors", "driver"])
def test_partial_updates_of_an_epoch_keep_the_other_columns(
    in_query: SparkSession, data_dir: Path, driver_bytes_max: int
) -> None:
    """P6; with flexible columns F9."""
    columns = [Column("id", parse_type("BIGINT"), nullable=False)]
    columns += [Column(name, parse_type("INT")) for name in ("a", "b")]
    properties = {"enable_unique_key_skip_bitmap_column": "true"}
    with Store.open(data_dir) as store:
        made = store.create_table("db.wide", TableSchema.create(columns, ["id"], properties=properties))
        made.upsert(pa.table({"id": [1, 2], "a": [10, 20], "b": [100, 200]}))
    fixed = foreach_batch_sink(
        at(data_dir), "db.wide", driver_bytes_max=driver_bytes_max, partial_columns=True
    )
    fixed(in_query.createDataFrame([(1, 101), (3, 300)], "id bigint, b int"), 0)
    flexible = foreach_batch_sink(
        data_dir,
        "db.wide",
        driver_bytes_max=driver_bytes_max,
        unique_key_update_mode="UPDATE_FLEXIBLE_COLUMNS",
        supplied_columns="given",
    )
    rows = [(1, 11, 0, ["a"]), (2, 0, 202, ["b"])]
    flexible(in_query.createDataFrame(rows, "id bigint, a int, b int, given array<string>"), 1)
    with Store.open(data_dir) as store:
        found = store.table("db.wide").scan(["id", "a", "b"]).read_all().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(1, 11, 101), (2, 20, 202), (3, None, 300)]


@pytest.mark.spark
def test_50_of_two_queries_on_one_checkpoint_one_commits_a_batch_and_the_other_is_told(
    in_query: SparkSession, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 50: both looked before either committed; the second fails, its retry is a reported skip."""
    sink, other = (foreach_batch_sink(at(data_dir), "db.one", driver_bytes_max=ANY_SIZE) for _ in range(2))
    df, late = frame(in_query, (1, "first")), frame(in_query, (1, "second"))
    to_arrow = type(df).toArrow

    def overtaken(self: DataFrame) -> pa.Table:
        monkeypatch.undo()
        assert not sink(df, 7).is_replay
        return to_arrow(self)

    monkeypatch.setattr(type(df), "toArrow", overtaken)
    with pytest.raises(LabelExistsError):
        other(late, 7)
    assert other(late, 7).is_replay
    assert not other(frame(in_query, (2, "next")), 8).is_replay
    in_query.sparkContext.setLocalProperty(QUERY_ID, "another")
    assert not other(frame(in_query, (3, "another")), 7).is_replay
    assert rows_of(data_dir) == {1: "first", 2: "next", 3: "another"}


@pytest.mark.spark
def test_every_format_of_change_streams_is_read(
    in_query: SparkSession, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CS1, AV1: one insert of each."""
    fields = [{"name": "id", "type": "long"}, {"name": "value", "type": "string"}]
    with RegistryServer() as registry:
        monkeypatch.setenv("SEQSTORE_SCHEMA_REGISTRIES", registry.url)
        schema = envelope_schema(fields, "one")
        number = registry.put("one-value", schema)
        messages: dict[str, Any] = {
            "debezium_json": json.dumps(envelope("c", 1, after={"id": 1, "value": "a"})).encode(),
            "canal_json": json.dumps(canal("INSERT", 2, [{"id": 2, "value": "b"}])).encode(),
            "maxwell_json": json.dumps(maxwell("insert", 3, {"id": 3, "value": "c"})).encode(),
            "debezium_avro": framed(number, schema, change("c", 4, None, {"id": 4, "value": "d"})),
        }
        for epoch, (file_format, value) in enumerate(messages.items()):
            sink = foreach_batch_sink(data_dir, "db.one", format=file_format, timezone="UTC")
            sink(in_query.createDataFrame([(value,)], "value binary"), epoch)
    assert rows_of(data_dir) == {1: "a", 2: "b", 3: "c", 4: "d"}


@pytest.mark.spark
def test_messages_of_a_change_stream_are_read_on_the_driver(in_query: SparkSession, data_dir: Path) -> None:
    """CS1: keys, deletes, heartbeats and bad messages of a frame as the Kafka source makes it."""
    messages = [
        (None, json.dumps(envelope("c", 1, after={"id": 1, "value": "a"}))),
        (None, json.dumps(envelope("c", 2, after={"id": 2, "value": "b"}))),
        (json.dumps({"id": 1}), json.dumps(envelope("d", 3))),
        (json.dumps({"id": 1}), None),
        (None, json.dumps({"ts_ms": 5})),
    ]
    df = in_query.createDataFrame(messages, "key string, value string")
    sink = foreach_batch_sink(at(data_dir), "db.one", format="debezium_json", timezone="UTC")
    assert sink(df.selectExpr("cast(key as binary) key", "cast(value as binary) value"), 0).version == 2
    assert rows_of(data_dir) == {2: "b"}
    assert sink(df.where("value like '{\"ts_ms%'"), 1).is_replay is False
    with pytest.raises(LoadRejectedError, match="1 of 1, max_filter_ratio is 0"):
        sink(in_query.createDataFrame([("x", "{}{")], "key string, value string"), 2)
    with pytest.raises(InvalidInputError, match="needs the column value"):
        sink(df.select("key"), 3)
    with pytest.raises(InvalidInputError, match="expected one of debezium_json"):
        foreach_batch_sink(at(data_dir), "db.one", format="csv")
