"""Broker load on Spark: the same answers as on this host's own processes."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqstore import Store
from seqstore.loaders.broker.job import FINISHED, LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.spark import session
from seqstore.store.catalog.job_record import CANCELLED
from seqstore.store.sql import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TABLES = """
CREATE TABLE one (k BIGINT NOT NULL, v VARCHAR(10) NULL, s INT NULL) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)
    PROPERTIES ('function_column.sequence_col' = 's');
CREATE TABLE two (id BIGINT NOT NULL AUTO_INCREMENT, w VARCHAR(10) NULL) UNIQUE KEY (id)
    DISTRIBUTED BY HASH (id)
"""
pytestmark = [pytest.mark.spark, pytest.mark.sql(TABLES)]


@pytest.fixture(autouse=True)
def written_files(files: Path) -> None:
    """Four files whose keys overlap, each with a bad line, and one file of the other table."""
    for i in range(4):
        lines = [f"{k},v{k % 7},{(k * 7 + i) % 11}" for k in range(i * 100, i * 100 + 200)]
        (files / f"{i}.csv").write_text("\n".join([*lines, f"bad{i},x,1", ""]))
    pq.write_table(pa.table({"w": ["a", "b", "c" * 20]}), files / "w.parquet")


def spec(files: Path, label: str, engine: str, **properties: str) -> LoadSpec:
    """Two tables of one label: one whose rows executors stage, one whose rows the driver gives ids to."""
    fields = ("k", "v", "s")
    rows = DataDescription(
        "one", (f"{files}/*.csv",), column_separator=",", columns=fields, where="v != 'v3'"
    )
    two = DataDescription("two", (f"{files}/w.parquet",), columns=("w",))
    given = {"engine": engine, "max_filter_ratio": "0.1", **properties}
    return LoadSpec("db", label, (rows, two), given)


def contents(store: Store) -> tuple[list[tuple[int, str, int]], list[str]]:
    one = store.table("db.one").scan().read_all().to_pylist()
    two = store.table("db.two").scan(["w"]).read_all().to_pylist()
    return sorted((row["k"], row["v"], row["s"]) for row in one), sorted(row["w"] for row in two)


@pytest.mark.parametrize("winner_test", ["host", "executors"])
def test_spark_loads_what_local_processes_load(
    spark: SparkSession, store: Store, tmp_path: Path, winner_test: str
) -> None:
    """Rows, counts and bad rows with their file and line are the same; the progress goes up to the end."""
    files = tmp_path / "files"
    _, local = BrokerLoad(store, spec(files, "local", "local", load_parallelism="1"), [str(files)]).run()
    expected = contents(store)
    for name in ("one", "two"):
        list(Session(store).execute(f"TRUNCATE TABLE db.{name}"))
    seen: list[int] = []
    load = BrokerLoad(
        store,
        spec(files, "spark", "spark", winner_test=winner_test),
        [str(files)],
        on_progress=lambda job: seen.append(job.percent),
    )
    _, job = load.run()
    assert (job.state, job.error) == (FINISHED, "")
    assert contents(store) == expected
    assert (job.files, job.loaded, job.filtered, job.unselected) == (
        5,
        local.loaded,
        local.filtered,
        local.unselected,
    )
    assert local.filtered == 5
    log = Path(job.url).read_text()
    assert sorted(log.splitlines()) == sorted(Path(local.url).read_text().splitlines())
    assert f"line 201: Reason: {files}/2.csv:" in log
    assert seen == sorted(seen)
    assert seen[-1] == 100


def test_a_load_in_another_thread_leaves_the_session_alone(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """Each thread has an active session of its own; the SparkContext is that of the process."""
    files = tmp_path / "files"
    ended: list[LoadJob] = []

    def load() -> None:
        ended.append(BrokerLoad(store, spec(files, "job", "spark"), [str(files)]).run()[1])

    name = spark.conf.get("spark.app.name")
    thread = threading.Thread(target=load)
    thread.start()
    thread.join(120)
    assert [(job.state, job.error) for job in ended] == [(FINISHED, "")]
    assert spark.range(3).count() == 3
    assert spark.conf.get("spark.app.name") == name


def test_a_session_of_their_own_ends_with_the_last_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first to end must not take it from the other."""
    said: list[str] = []

    class Session:
        def stop(self) -> None:
            said.append("stopped")

    def begin(name: str, master: str) -> Session:
        said.append(f"{name} on {master}")
        return Session()

    monkeypatch.setattr(session, "running_session", lambda: None)
    monkeypatch.setattr(session, "_new_session", begin)
    first, second = (session.spark_session(name, "local[1]") for name in ("first", "second"))
    assert first.__enter__() is second.__enter__()
    first.__exit__(None, None, None)
    assert said == ["first on local[1]"]
    second.__exit__(None, None, None)
    assert said == ["first on local[1]", "stopped"]
    with session.spark_session("third", ""):
        assert said[2:] == ["third on "]
    assert said[3:] == ["stopped"]


def test_a_job_on_spark_is_cancelled_and_leaves_nothing(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """B17: Spark's own job ends too."""
    files = tmp_path / "files"
    (files / "big.csv").write_text("".join(f"{k},a,1\n" for k in range(2_000_000)))
    jobs = LoadJobs(store.catalog)
    asked = threading.Event()

    def cancel(job: LoadJob) -> None:
        if job.files and not asked.is_set():
            asked.set()
            jobs.cancel("db", "job")

    _, job = BrokerLoad(store, spec(files, "job", "spark"), [str(files)], on_progress=cancel).run()
    assert asked.is_set()
    assert (job.state, job.error) == (CANCELLED, "type:USER_CANCEL; msg:user cancel")
    assert contents(store) == ([], [])
    tracker = spark.sparkContext.statusTracker()
    while tracker.getActiveJobsIds():  # Spark tells of the end of a job a little later than it ends
        time.sleep(0.05)


def test_a_file_that_is_none_ends_the_job_on_spark(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    """B18: without trying again; the file is named."""
    files = tmp_path / "files"
    (files / "w.parquet").write_bytes(b"not parquet")
    _, job = BrokerLoad(store, spec(files, "job", "spark"), [str(files)]).run()
    assert job.state == CANCELLED
    assert job.error.startswith(f"type:LOAD_RUN_FAIL; msg:{files}/w.parquet: ")
    assert contents(store) == ([], [])
