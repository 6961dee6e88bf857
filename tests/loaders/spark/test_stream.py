"""readStream and writeStream of format("seqstore"): the change feed in, versions out, each exactly once."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from seqstore import (
    ClosedError,
    Column,
    InvalidInputError,
    Load,
    Store,
    Table,
    TableSchema,
    VersionExpiredError,
    parse_type,
)
from seqstore.cli.demo.spark_run import forget_last_epoch
from seqstore.loaders.spark.options import SourceOptions
from seqstore.store.load.write_task import StagedRows
from seqstore.store.sql import Session
from tests.support.clock import Clock
from tests.support.spark.places import place
from tests.support.spark.spark_cluster import run_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seqstore.loaders.spark.stream import BatchWriter, ChangeReader


pytestmark = [pytest.mark.spark, pytest.mark.settings(auto_compaction=0)]


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("db.t", schema())


def schema() -> TableSchema:
    columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("VARCHAR(20)"))]
    return TableSchema.create(columns, ["k"])


def rows(**values: str) -> pa.Table:
    return pa.table({"k": pa.array([int(k[1:]) for k in values], pa.int64()), "v": list(values.values())})


class Feed:
    """A query over the change feed whose batches are kept; it ends when everything there is was read."""

    def __init__(self, session: SparkSession, store: Store, checkpoint: Path, **options: str) -> None:
        self._session, self._store, self._checkpoint, self._options = session, store, checkpoint, options
        self.batches: list[list[tuple[Any, ...]]] = []

    def run(self) -> list[list[tuple[Any, ...]]]:
        """Batches that came this time: kind, key, value, version, sorted."""
        self.batches = []
        stream = (
            self._session.readStream.format("seqstore")
            .options(**place(self._store.path))
            .option("table", "db.t")
            .option("changes", "true")
            .options(**self._options)
            .load()
        )
        writer = (
            stream.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
        )
        run_stream(writer.start, lambda query: query.awaitTermination())
        return self.batches

    def _take(self, df: DataFrame, epoch: int) -> None:
        names = ["_change_type", "k", "v", "_commit_version"]
        self.batches.append(sorted(tuple(row[name] for name in names) for row in df.collect()))


def test_a_stream_starts_with_the_rows_and_goes_on_with_changes(
    session: SparkSession, store: Store, table: Table, tmp_path: Path
) -> None:
    table.upsert(rows(k1="a", k2="b"))
    table.upsert(rows(k2="c"))
    feed = Feed(session, store, tmp_path / "checkpoint")
    assert feed.run() == [[("+I", 1, "a", 3), ("+I", 2, "c", 3)]]
    table.upsert(rows(k1="x", k3="z"))
    table.delete(pa.table({"k": pa.array([2], pa.int64())}))
    changed = sorted(row for batch in feed.run() for row in batch)
    assert changed == [
        ("+I", 3, "z", 4),
        ("+U", 1, "x", 4),
        ("-D", 2, "c", 5),
        ("-U", 1, "a", 4),
    ]
    assert feed.run() == []


@pytest.mark.long
def test_a_stream_may_start_at_a_version_and_take_few_rows_at_a_time(
    session: SparkSession, store: Store, table: Table, tmp_path: Path
) -> None:
    for n in range(6):
        table.upsert(rows(**{f"k{n}": "a", f"k{n + 10}": "a"}))
    feed = Feed(session, store, tmp_path / "checkpoint", starting_version="4", max_rows_per_batch="5")
    batches = feed.run()
    assert sorted(row for batch in batches for row in batch) == sorted(
        ("+I", k, "a", n + 2) for n in range(2, 6) for k in (n, n + 10)
    )
    assert all(len(batch) <= 5 for batch in batches)
    assert len(batches) == 2


@pytest.mark.long
def test_a_stream_that_starts_at_the_first_version_has_all_changes(
    session: SparkSession, store: Store, table: Table, tmp_path: Path
) -> None:
    table.upsert(rows(k1="a"))
    table.upsert(rows(k1="b"))
    (batch,) = Feed(session, store, tmp_path / "checkpoint", starting_version="1").run()
    assert batch == [("+I", 1, "a", 2), ("+U", 1, "b", 3), ("-U", 1, "a", 3)]


def test_a_stream_of_some_columns_has_only_these(session: SparkSession, store: Store, table: Table) -> None:
    options = {**place(store.path), "table": "db.t", "changes": "true", "columns": "V"}
    stream = session.readStream.format("seqstore").options(**options).load()
    assert stream.columns == ["v", "_change_type", "_commit_version", "_commit_timestamp"]


@pytest.mark.long
def test_compactions_bring_nothing(session: SparkSession, store: Store, table: Table, tmp_path: Path) -> None:
    """Scenario 48, its last part."""
    for n in range(4):
        table.upsert(rows(**{f"k{n}": "a"}))
    feed = Feed(session, store, tmp_path / "checkpoint")
    assert len(feed.run()) == 1
    version = table.version
    table.optimize()
    assert table.version > version
    assert [row for batch in feed.run() for row in batch] == []
    table.upsert(rows(k1="b"))
    assert [row for batch in feed.run() for row in batch] == [
        ("+U", 1, "b", table.version),
        ("-U", 1, "a", table.version),
    ]


@pytest.mark.long
def test_a_schema_change_ends_the_stream_and_a_new_start_goes_on(
    session: SparkSession, store: Store, table: Table, tmp_path: Path
) -> None:
    """Scenario 48: what was before it is delivered, its version is named, nothing comes twice."""
    table.upsert(rows(k1="a"))
    feed = Feed(session, store, tmp_path / "checkpoint")
    feed.run()
    stream = (
        session.readStream.format("seqstore")
        .options(path=str(store.path), table="db.t", changes="true")
        .load()
    )
    seen: list[tuple[Any, ...]] = []

    def take(df: DataFrame, epoch: int) -> None:
        seen.extend((row["_change_type"], row["k"], row["_commit_version"]) for row in df.collect())

    writer = (
        stream.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
    )
    query = run_stream(writer.start, lambda query: query.processAllAvailable())
    try:
        table.upsert(rows(k2="b"))
        query.processAllAvailable()
        list(Session(store).execute("ALTER TABLE db.t ADD COLUMN extra INT NULL"))
        changed = table.version
        table.upsert(pa.table({"k": [3], "v": ["c"], "extra": [7]}))
        with pytest.raises(Exception, match=f"version {changed} of db.t changed its schema"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert seen == [("+I", 2, 3)]
    assert feed.run() == [[("+I", 3, "c", changed + 1)]]


@pytest.mark.long
def test_a_table_made_again_ends_the_stream_and_is_no_continuation_of_it(
    session: SparkSession, store: Store, table: Table, tmp_path: Path
) -> None:
    table.upsert(rows(k1="a"))
    stream = (
        session.readStream.format("seqstore")
        .options(path=str(store.path), table="db.t", changes="true")
        .load()
    )
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = run_stream(writer.start, lambda query: query.processAllAvailable())
    try:
        store.drop_table("db.t")
        store.create_table("db.t", schema()).upsert(rows(k1="b"))
        with pytest.raises(Exception, match=r"db\.t was dropped"):
            query.processAllAvailable()
    finally:
        query.stop()
    with pytest.raises(Exception, match="was dropped and made again since the stream began"):
        Feed(session, store, tmp_path / "checkpoint").run()


@pytest.mark.long
def test_a_stream_without_kinds_is_refused(
    session: SparkSession, store: Store, table: Table, tmp_path: Path
) -> None:
    stream = session.readStream.format("seqstore").options(path=str(store.path), table="db.t").load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception, match="set the option changes to true"):
        run_stream(writer.start, lambda query: query.processAllAvailable())


def test_batches_of_a_written_stream_are_versions_exactly_once(
    session: SparkSession, store: Store, table: Table, tmp_path: Path
) -> None:
    """Scenario 49: a crash between the version and Spark's checkpoint, then the batch again."""
    files = tmp_path / "files"
    files.mkdir()
    for n in range(3):
        pq.write_table(rows(**{f"k{n}": f"v{n}", "k9": f"v{n}"}), files / f"{n}.parquet")
        os.utime(files / f"{n}.parquet", (n, n))  # Spark takes files of one millisecond in any order

    def run() -> None:
        (
            session.readStream.schema("k bigint, v string")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(files))
            .writeStream.format("seqstore")
            .options(path=str(store.path), table="db.t", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    run()
    assert table.version == 4
    forget_last_epoch(tmp_path / "checkpoint")
    run()
    assert table.version == 4
    found = {row["k"]: row["v"] for row in table.scan().read_all().to_pylist()}
    assert found == {0: "v0", 1: "v1", 2: "v2", 9: "v2"}
    assert table.check() == []
    shutil.rmtree(tmp_path / "checkpoint")
    run()  # a new query: its batches are new
    assert table.version == 7


def batch_writer(store: Store, checkpoint: Path, *, overwrite: bool = False, **options: str) -> BatchWriter:
    """As Spark makes one for a query with that checkpoint."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    from seqstore.loaders.spark.stream import BatchWriter

    checkpoint.mkdir(exist_ok=True)
    (checkpoint / "metadata").write_text('{"id": "q"}')
    given = {**place(store.path), "table": "db.t", "checkpointLocation": str(checkpoint), **options}
    frame = StructType([StructField("k", LongType()), StructField("v", StringType())])
    return BatchWriter(frame, SourceOptions.parse(given), overwrite=overwrite)


def test_a_batch_that_runs_again_is_reported(
    store: Store, table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario 49."""
    for _ in range(2):
        share = batch_writer(store, tmp_path / "checkpoint").write(iter(rows(k1="a").to_batches()))
        batch_writer(store, tmp_path / "checkpoint").commit([share], 7)
    assert caplog.messages == ["db.t: epoch 7 of query q is version 2 already: skipped"]


def test_what_a_batch_loaded_is_logged(
    store: Store, table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = batch_writer(store, tmp_path / "checkpoint")
    with caplog.at_level("INFO", "seqstore.loaders.spark"):
        writer.commit([writer.write(iter(rows(k1="a").to_batches()))], 7)
    assert caplog.messages == ["db.t: epoch 7 of query q: 1 rows, 0 filtered, 0 superseded, version 2"]


def large_share(low: int) -> Iterator[pa.RecordBatch]:
    """Rows that do not go into the catalog."""
    keys = pa.array(range(low, low + 40_000), pa.int64())
    yield from pa.table({"k": keys, "v": pc.cast(keys, pa.string())}).to_batches()


def files_of(table: Table) -> list[str]:
    return table.loader.disk.list(table.loader.directory)


@pytest.mark.parametrize("ends", ["published", "published before", "aborted", "unknown to the writer"])
def test_tasks_of_a_batch_leave_nothing_behind_it(
    store: Store, table: Table, tmp_path: Path, ends: str
) -> None:
    """Attempts whose word was not taken, before the batch ends and behind it."""
    tasks = batch_writer(store, tmp_path / "checkpoint")
    share = tasks.write(large_share(0))
    tasks.write(large_share(0))
    assert len(files_of(table)) == 5
    if ends == "published before":
        table.upsert(rows(k1="a"), label=f"spark-q-7-{table.id}")
    ending = batch_writer(store, tmp_path / "checkpoint")
    if ends.startswith("published"):
        ending.commit([share], 7)
    else:
        ending.abort([share if ends == "aborted" else None], 7)
    with pytest.raises(ClosedError):
        tasks.write(large_share(0))
    assert len(files_of(table)) == (2 if ends == "published" else 0)
    assert table.count() == {"published": 40_000, "published before": 1}.get(ends, 0)
    following = batch_writer(store, tmp_path / "checkpoint")
    share = following.write(large_share(20_000))
    batch_writer(store, tmp_path / "checkpoint").commit([share], 8)
    assert table.count() == {"published": 60_000, "published before": 40_001}.get(ends, 40_000)
    assert table.check() == []


def test_a_committer_that_was_overtaken_by_a_new_start_ends_none_of_its_tasks(
    store: Store, table: Table, tmp_path: Path
) -> None:
    """One of a query that was stopped while it committed."""
    late = batch_writer(store, tmp_path / "checkpoint")
    tasks = batch_writer(store, tmp_path / "checkpoint")
    share = tasks.write(large_share(0))
    late.abort([None], 7)
    batch_writer(store, tmp_path / "checkpoint").commit([share], 7)
    assert table.count() == 40_000
    assert table.check() == []


def test_a_committer_whose_batch_was_ended_by_a_new_start_publishes_nothing(
    store: Store, table: Table, tmp_path: Path
) -> None:
    """Its files may be gone."""
    share = batch_writer(store, tmp_path / "checkpoint").write(large_share(0))
    late = batch_writer(store, tmp_path / "checkpoint")
    batch_writer(store, tmp_path / "checkpoint").abort([None], 7)
    with pytest.raises(ClosedError, match="its rows cannot be loaded any more"):
        late.commit([share], 7)
    assert table.version == 1
    assert files_of(table) == []
    assert table.check() == []


def test_a_batch_that_is_ended_while_it_is_committed_is_not_published(
    store: Store, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = batch_writer(store, tmp_path / "checkpoint").write(iter(rows(k1="a").to_batches()))
    late = batch_writer(store, tmp_path / "checkpoint")
    adopt = Load.adopt

    def end_and_adopt(load: Load, staged: StagedRows) -> None:
        batch_writer(store, tmp_path / "checkpoint").abort([None], 7)
        adopt(load, staged)

    monkeypatch.setattr(Load, "adopt", end_and_adopt)
    with pytest.raises(ClosedError, match="its rows cannot be loaded any more"):
        late.commit([share], 7)
    assert table.version == 1


def test_a_label_of_ones_own_is_refused_by_a_stream(store: Store, table: Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="option 'label' means nothing to writeStream"):
        batch_writer(store, tmp_path / "checkpoint", label="mine")


def test_a_stream_keeps_to_the_partitions_it_names(store: Store, table: Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"db\.t is not partitioned"):
        batch_writer(store, tmp_path / "checkpoint", partitions="p1")


def test_a_partial_update_is_no_complete_output(store: Store, table: Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="a partial update cannot overwrite"):
        batch_writer(store, tmp_path / "checkpoint", overwrite=True, partial_columns="true")


@pytest.mark.long
def test_complete_output_takes_the_place_of_all_rows(
    session: SparkSession, store: Store, table: Table, tmp_path: Path
) -> None:
    for n, keys in enumerate(([1, 1, 2], [7, 7, 7])):
        (tmp_path / "files").mkdir(exist_ok=True)
        pq.write_table(pa.table({"k": pa.array(keys, pa.int64())}), tmp_path / "files" / f"{n}.parquet")
        counted = session.readStream.schema("k bigint").parquet(str(tmp_path / "files")).groupBy("k").count()
        most = counted.orderBy("count", ascending=False).limit(1).selectExpr("k", "string(count) AS v")
        writer = most.writeStream.format("seqstore").outputMode("complete").trigger(availableNow=True)
        options = {**place(store.path), "table": "db.t", "checkpointLocation": str(tmp_path / "c")}
        writer.options(**options).start().awaitTermination()
    assert table.scan().read_all().to_pylist() == [{"k": 7, "v": "3"}]


def test_overwrite_replaces_all_rows_in_one_version(
    session: SparkSession, store: Store, table: Table
) -> None:
    table.upsert(rows(k1="a", k2="b"))
    frame = session.createDataFrame([(2, "new"), (5, "five")], "k bigint, v string")
    frame.write.format("seqstore").mode("overwrite").options(path=str(store.path), table="db.t").save()
    assert table.version == 3
    assert {row["k"]: row["v"] for row in table.scan().read_all().to_pylist()} == {2: "new", 5: "five"}


@pytest.fixture
def parted(store: Store) -> Table:
    """Partitions a and b by month, a row in each."""
    create = (
        "CREATE TABLE db.p (day DATE NOT NULL, k BIGINT NOT NULL, v VARCHAR(9) NULL) UNIQUE KEY (day, k) "
        "PARTITION BY RANGE (day) (PARTITION a VALUES LESS THAN ('2024-02-01'), "
        "PARTITION b VALUES LESS THAN ('2024-03-01')) DISTRIBUTED BY HASH (k)"
    )
    sql = Session(store)
    list(sql.execute(create))
    list(sql.execute("INSERT INTO db.p VALUES ('2024-01-05', 1, 'old'), ('2024-02-05', 1, 'old')"))
    return store.table("db.p")


def write_parted(session: SparkSession, store: Store, row: str, mode: str, partitions: str) -> None:
    writer = session.sql(row).write.format("seqstore").mode(mode).option("partitions", partitions)
    writer.options(path=str(store.path), table="db.p").save()


def parted_rows(table: Table) -> list[tuple[str, int, str]]:
    found = table.scan(["day", "k", "v"]).read_all().to_pylist()
    return sorted((str(row["day"]), row["k"], row["v"]) for row in found)


def test_overwrite_of_partitions_keeps_the_others(session: SparkSession, store: Store, parted: Table) -> None:
    write_parted(session, store, "SELECT DATE'2024-02-07' AS day, 7L AS k, 'new' AS v", "overwrite", "b")
    assert parted_rows(parted) == [("2024-01-05", 1, "old"), ("2024-02-07", 7, "new")]


@pytest.mark.family(1)
@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_rows_of_other_partitions_are_rejected(
    session: SparkSession, store: Store, parted: Table, mode: str
) -> None:
    with pytest.raises(Exception, match=r"this tuple: \(2024-01-05\) is not in partitions b"):
        write_parted(session, store, "SELECT DATE'2024-01-05' AS day, 1L AS k, 'new' AS v", mode, "b")
    assert parted_rows(parted) == [("2024-01-05", 1, "old"), ("2024-02-05", 1, "old")]


def test_an_unknown_partition_is_refused_before_a_task_runs(
    session: SparkSession, store: Store, parted: Table
) -> None:
    row = "SELECT DATE'2024-01-05' AS day, raise_error('a task ran') AS k, 'new' AS v"
    with pytest.raises(Exception, match="partition 'c' does not exist"):
        write_parted(session, store, row, "append", "c")


def reader(store: Store, **options: str) -> ChangeReader:
    """As Spark makes one for a query, of the columns the table has."""
    from seqstore.loaders.spark.stream import ChangeReader, feed_frame_schema

    given = {**place(store.path), "table": "db.t", "changes": "true", **options}
    return ChangeReader(feed_frame_schema(store.table("db.t")), SourceOptions.parse(given))


def test_batches_end_at_versions_that_are_kept(store: Store, table: Table) -> None:
    """Later batches begin there. A stream whose offset was thinned out is told the nearest versions."""
    from pyspark.sql.streaming.datasource import ReadMaxRows

    with Clock() as clock, Session(store) as session:
        for number in range(30):
            clock.tick(20)
            table.upsert(pa.table({"k": [number], "v": ["a"]}))
        list(session.execute("ALTER TABLE db.t SET ('version_thinning' = '60:60')"))
        table.vacuum()
    kept = table.kept_versions
    feed = reader(store, starting_version="2")
    offset, ends, seen = feed.initialOffset(), [], 0
    while True:
        end = feed.latestOffset(offset, ReadMaxRows(1))
        if end == offset:
            break
        parts = feed.partitions(offset, end)
        seen += sum(len(batch) for part in parts for batch in feed.read(part))
        ends.append(end["version"])
        offset = end
    assert set(ends) <= {version for version in range(1, table.version + 1) if version in kept}
    assert (ends[-1], seen) == (table.version, 30)
    gone = next(version for version in range(2, 20) if version not in kept)
    with pytest.raises(VersionExpiredError, match="the nearest versions that are kept are"):
        feed.partitions({**offset, "version": gone}, offset)
    feed.stop()


def test_many_changes_travel_by_files_that_go_with_their_batch(store: Store, table: Table) -> None:
    """A plan passes through the driver's JVM, which has not the memory for a large version."""
    keys = pa.array(range(400_000), pa.int64())
    table.upsert(pa.table({"k": keys, "v": ["some 20 characters !"] * len(keys)}))
    segments = files_of(table)
    feed = reader(store, starting_version="2")
    start, end = feed.initialOffset(), feed.reportLatestOffset()
    planned = [pickle.dumps(share) for share in feed.partitions(start, end)]
    assert sum(map(len, planned)) < 10 * 2**20
    assert len(files_of(table)) > len(segments) + 1
    Store.open(store.path).close()  # sweeps what is nobody's
    task = pickle.loads(pickle.dumps(feed))
    read = [batch["k"] for share in planned for batch in task.read(pickle.loads(share))]
    assert pc.count_distinct(pa.chunked_array(read)).as_py() == sum(map(len, read)) == len(keys)
    feed.commit(end)
    assert len(files_of(table)) == len(segments) + 1
    feed.partitions(start, end)
    feed.stop()
    assert files_of(table) == segments


def test_few_changes_travel_with_the_plan(store: Store, table: Table) -> None:
    table.upsert(rows(k1="a", k2="b"))
    before = files_of(table)
    feed = reader(store, starting_version="2")
    (share,) = feed.partitions(feed.initialOffset(), feed.reportLatestOffset())
    assert files_of(table) == before
    assert sum(batch.num_rows for batch in feed.read(share)) == 2


def test_a_stream_starts_no_later_than_at_what_comes_next(store: Store, table: Table) -> None:
    table.upsert(rows(k1="a"))
    assert reader(store, starting_version="3").initialOffset()["version"] == 2
    with pytest.raises(InvalidInputError, match=r"starting_version 4: the newest version of db\.t is 2"):
        reader(store, starting_version="4").initialOffset()


def test_a_schema_with_an_unknown_column_is_refused_before_a_task_runs(store: Store, table: Table) -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    from seqstore.loaders.spark.stream import ChangeReader

    frame = StructType([StructField("zz", LongType()), StructField("_change_type", StringType())])
    with pytest.raises(InvalidInputError, match="unknown column 'zz' in the stream's schema"):
        ChangeReader(frame, SourceOptions.parse({**place(store.path), "table": "db.t"}))
