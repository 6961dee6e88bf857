"""Broker loads whose processes are killed: they go on from the start or are cancelled, and load once.

The jobs run as LOAD LABEL runs them, in processes of their own, with processes under them that read files.
"""

from __future__ import annotations

import io
import os
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pymysql
import pytest
from rich.console import Console

from seqstore import Settings, Store
from seqstore.cli.demo.broker_run import kill_in_the_middle, run_broker, wait_for
from seqstore.cli.demo.flights import event_stream, read_flights
from seqstore.cli.demo.screen import Screen
from seqstore.loaders.broker.job import ATTEMPTS_MAX, FINISHED, LOADING, PENDING, LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.broker.worker import resume, submit
from seqstore.store.catalog.job_record import CANCELLED
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.runtime.process_identity import this_process
from tests.support.forks.forked import run_forked
from tests.support.http_server import ServerProcess

CREATE = "CREATE TABLE {} (k BIGINT, v VARCHAR(10)) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)"
pytestmark = [pytest.mark.crash, *(pytest.mark.sql(CREATE.format(name)) for name in ("one", "two"))]
ROWS = 120_000  # of a file: enough to be in the middle of it
FEW_ROWS = 2_000  # of a file where a failpoint says when the job is killed


@pytest.fixture
def rows() -> int:
    """Of each file."""
    return ROWS


@pytest.fixture
def files(tmp_path: Path, rows: int) -> Path:
    """Two files for each of two tables."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("one", "two"):
        for part in range(2):
            keys = range(part * rows, (part + 1) * rows)
            (folder / f"{name}{part}.csv").write_text("".join(f"{k},{name}\n" for k in keys))
    return folder


@pytest.fixture
def settings(files: Path) -> Settings:
    return Settings(load_paths=(str(files),), auto_compaction=0)


def spec(files: Path, label: str = "job") -> LoadSpec:
    descriptions = tuple(
        DataDescription(name, (f"{files}/{name}*.csv",), column_separator=",") for name in ("one", "two")
    )
    return LoadSpec("db", label, descriptions, {"load_parallelism": "2"})


def counts(store: Store) -> tuple[int, int]:
    return store.table("db.one").count(), store.table("db.two").count()


def assert_loaded_once(store: Store, rows: int = ROWS) -> None:
    """Both tables have all rows, of one version under one label, and no file is left of other attempts."""
    assert counts(store) == (2 * rows, 2 * rows)
    for name in ("one", "two"):
        table = store.table(f"db.{name}")
        assert [info.label for info in table.history() if info.label] == ["job"]
        assert table.check() == []
    code = (
        "import sys; from seqstore import Store; Store.open(sys.argv[1]).close()"  # sweeps what the dead left
    )
    run_forked("-c", code, str(store.path)).check_returncode()
    live = {
        live.segment.meta.file_id
        for name in ("one", "two")
        for live in store.table(f"db.{name}").state().segments.values()
    }
    found = [path for path in (store.path / "tables").rglob("*") if path.is_file()]
    assert {path.stem for path in found} <= live


@pytest.mark.long
def test_a_job_killed_while_it_reads_is_run_again_by_the_next_server(store: Store, files: Path) -> None:
    """Its readers end with it; nothing of it is seen before the second run has ended."""
    job_id = submit(store, spec(files), [str(files)], "root")
    jobs = LoadJobs(store.catalog)
    job = wait_for(jobs, job_id, lambda job: job.percent > 0)
    readers = psutil.Process(job.owner[0]).children(recursive=True)
    assert readers
    kill_in_the_middle(jobs, job_id)
    _, alive = psutil.wait_procs(readers, timeout=60)
    assert not alive
    assert counts(store) == (0, 0)
    assert resume(store) == [job_id]
    ended = wait_for(jobs, job_id, lambda job: job.has_ended)
    assert (ended.state, ended.error, ended.attempts, ended.loaded) == (FINISHED, "", 2, 4 * ROWS)
    assert_loaded_once(store)
    assert resume(store) == []


@pytest.mark.torture
def test_a_killed_job_that_nobody_resumes_is_cancelled_and_its_label_free(store: Store, files: Path) -> None:
    jobs = LoadJobs(store.catalog)
    job_id = submit(store, spec(files), [str(files)], "root")
    kill_in_the_middle(jobs, job_id)
    job = jobs.all()[job_id]
    assert job.state == CANCELLED
    assert "the process that ran it ended" in job.error
    again = submit(store, spec(files), [str(files)], "root")
    assert wait_for(jobs, again, lambda job: job.has_ended).state == FINISHED
    assert_loaded_once(store)


@pytest.mark.family(1)
@pytest.mark.parametrize("rows", [FEW_ROWS], ids=["few rows"])
@pytest.mark.parametrize(
    ("failpoint", "is_published"), [("publish.before_commit", False), ("publish.after_commit", True)]
)
def test_killed_around_the_commit_point_rows_label_and_state_agree(
    store: Store, files: Path, rows: int, failpoint: str, is_published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FINISHED is in the same commit as the rows: a job is never both visible and cancelled."""
    jobs = LoadJobs(store.catalog)
    monkeypatch.setenv("SEQSTORE_FAILPOINT", failpoint)
    job_id = submit(store, spec(files), [str(files)], "root")
    monkeypatch.delenv("SEQSTORE_FAILPOINT")
    if is_published:
        job = wait_for(jobs, job_id, lambda job: job.has_ended)
        assert job.state == FINISHED
        assert resume(store) == []
    else:
        wait_for(jobs, job_id, lambda _: job_id in jobs.abandoned())
        assert counts(store) == (0, 0)
        assert resume(store) == [job_id]
        assert wait_for(jobs, job_id, lambda job: job.has_ended).state == FINISHED
    assert_loaded_once(store, rows)


@pytest.mark.torture
def test_a_waiting_job_that_is_killed_waits_again(store: Store, files: Path) -> None:
    """PENDING: two others run."""
    jobs = LoadJobs(store.catalog)
    running = LoadJob(spec(files, "other"), LOADING, this_process(), now_ms())
    blockers = [jobs.add(running) for _ in range(2)]
    job_id = submit(store, spec(files), [str(files)], "root")
    job = jobs.get(job_id)
    assert job.state == PENDING
    os.kill(job.owner[0], signal.SIGKILL)
    wait_for(jobs, job_id, lambda _: job_id in jobs.abandoned())
    assert resume(store) == [job_id]
    for blocker in blockers:
        jobs.change(blocker, LoadJob.finished)
    assert wait_for(jobs, job_id, lambda job: job.has_ended).state == FINISHED
    assert counts(store) == (2 * ROWS, 2 * ROWS)


def test_a_job_that_ends_every_process_is_given_up(store: Store, files: Path) -> None:
    jobs = LoadJobs(store.catalog)
    dead = replace(
        LoadJob(spec(files), LOADING, (2**22 + 1, 1), now_ms()), attempts=ATTEMPTS_MAX, allowed=(str(files),)
    )
    job_id = jobs.add(dead)
    assert resume(store) == []
    job = jobs.get(job_id)
    assert (job.state, job.error) == (
        CANCELLED,
        f"type:LOAD_RUN_FAIL; msg:every process that ran it ended, {ATTEMPTS_MAX} times",
    )


@pytest.mark.long
def test_a_server_killed_with_its_jobs_goes_on_with_them(store: Store, files: Path, tmp_path: Path) -> None:
    """LOAD LABEL over MySQL, then kill -9 of server and job, then another server."""
    config = tmp_path / "conf.toml"
    config.write_text(f'[store]\nload_paths = ["{files}"]\n')
    jobs = LoadJobs(store.catalog)
    with_server(store, config, load_over_mysql, files)
    (job_id,) = jobs.abandoned()
    with_server(store, config, wait_over_mysql, files)
    assert jobs.get(job_id).attempts == 2
    assert_loaded_once(store)


def with_server(store: Store, config: Path, step: object, files: Path) -> None:
    """Runs a step against a server process, then kills it."""
    server = ServerProcess(store.path, "--config", str(config))
    try:
        with pymysql.connect(
            host="127.0.0.1", port=server.mysql_port, user="root", database="db"
        ) as connection:
            assert callable(step)
            step(store, connection, files)
    finally:
        server.kill()


def load_over_mysql(store: Store, connection: pymysql.Connection, files: Path) -> None:
    described = ", ".join(
        f'DATA INFILE ("{files}/{name}*.csv") INTO TABLE {name} COLUMNS TERMINATED BY ","'
        for name in ("one", "two")
    )
    with connection.cursor() as cursor:
        cursor.execute(f'LOAD LABEL db.job ({described}) WITH LOCAL () PROPERTIES ("load_parallelism" = "2")')
    jobs = LoadJobs(store.catalog)
    (job_id,) = jobs.all()
    kill_in_the_middle(jobs, job_id)


def wait_over_mysql(store: Store, connection: pymysql.Connection, files: Path) -> None:
    jobs = LoadJobs(store.catalog)
    (job_id,) = jobs.all()
    wait_for(jobs, job_id, lambda job: job.has_ended)
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("SHOW LOAD WHERE LABEL = 'job'")
        (line,) = cursor.fetchall()
    assert (line["State"], line["Progress"], line["ErrorMsg"]) == ("FINISHED", "100.00% (4/4)", None)


@pytest.mark.long
@pytest.mark.spark
def test_flights_through_a_broker_load_on_spark_that_is_killed_end_as_the_source(tmp_path: Path) -> None:
    """The driver dies with kill -9, and Spark with it. Late, shuffled, repeated events as files of two
    formats, two tables under one label."""
    stream = event_stream(read_flights(5_000), batches=8, seed=7)
    with Store.open(tmp_path / "data") as opened:
        opened.create_database("flights")
        screen = Screen(Console(file=io.StringIO(), highlight=False))
        job = run_broker(opened, stream, screen, engine="spark")
    assert (job.state, job.attempts, job.files) == (FINISHED, 2, 16)
