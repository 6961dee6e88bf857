"""`seqstore routine-load`, with the job in conf/routine, and killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from seqstore import Store
from seqstore.cli.main import app
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.jobs import RoutineJobs
from seqstore.store.sql import Session
from tests.seeds import new_seed
from tests.support.children import MODULES
from tests.support.forks.forked import ForkedPython, run_forked
from tests.support.http_server import ServerProcess
from tests.weight import by_form

ROOT = Path(__file__).parents[2]
CLICKS = ROOT / "conf" / "routine" / "clicks.toml"
POINTS = ["disk.written", "load.staged", "publish.before_commit", "publish.after_commit"]
LABELS = 'database="db",job="events"'
JOB = """
database = "db"
name = "events"
table = "events"
order_by = "s"
[properties]
max_batch_interval = {}
max_error_number = 1000
[files]
path = "in/*.json"
"""


def managed(data: Path, action: str, *arguments: str) -> Result:
    """Runs a `routine-load` command that ends by itself, in this process: it takes a second to start one."""
    return CliRunner().invoke(app, ["--data-dir", str(data), "routine-load", action, *arguments])


def seqstore(data: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ("-m", "seqstore.cli.main", "--data-dir", str(data), *arguments)
    return run_forked(*command, environment=environment)


def create(data: Path, columns: str, properties: str = "") -> None:
    with Store.open(data) as store, Session(store) as session:
        database, _, table = columns.partition(".")
        properties = f"PROPERTIES ({properties})" if properties else ""
        list(
            session.execute(f"CREATE DATABASE {database}; USE {database}; CREATE TABLE {table} {properties}")
        )


def ask(data: Path, statement: str) -> list[tuple[Any, ...]]:
    with Store.open(data) as store, Session(store) as session:
        (result,) = session.execute(statement)
        assert result.rows is not None
        return [tuple(row.values()) for row in result.rows.to_pylist()]


def test_the_example_job_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    create(
        data,
        "shop.clicks (click_id BIGINT, page VARCHAR(100), at DATETIME) UNIQUE KEY (click_id) "
        "DISTRIBUTED BY HASH (click_id)",
        "'function_column.sequence_col' = 'at'",
    )
    made = seqstore(data, "routine-load", "create", str(CLICKS))
    assert json.loads(made.stdout)["State"] == "NEED_SCHEDULE", made.stderr
    run = seqstore(data, "routine-load", "start", "--once")
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert {name: told[name] for name in ("LoadedRows", "FilteredRows", "UnselectedRows")} == {
        "LoadedRows": 5,
        "FilteredRows": 1,
        "UnselectedRows": 1,
    }
    assert ask(data, "SELECT click_id, page FROM shop.clicks ORDER BY click_id") == [(1, "/"), (4, "/pay")]
    for action, state in (("pause", "PAUSED"), ("resume", "NEED_SCHEDULE"), ("stop", "STOPPED")):
        done = managed(data, action, "shop.clicks")
        assert done.exit_code == 0, done.stderr
        shown = managed(data, "show", "shop.clicks", "--all", "--format", "json")
        assert f'"{state}"' in shown.stdout
    refused = managed(data, "resume", "shop.clicks")
    assert (refused.exit_code, "Could not transform STOPPED" in refused.stderr) == (1, True)


def test_the_example_of_many_tables_runs(tmp_path: Path) -> None:
    """R3"""
    data = tmp_path / "data"
    create(data, "shop.customers (k BIGINT, name STRING) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)")
    columns = "k BIGINT, customer BIGINT, total DECIMAL(10, 2)"
    with Store.open(data) as store, Session(store) as session:
        list(session.execute(f"CREATE TABLE shop.orders ({columns}) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)"))
    made = managed(data, "create", str(CLICKS.with_name("feed.toml")))
    assert made.exit_code == 0, made.stderr
    run = seqstore(data, "routine-load", "start", "--once")
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert (told["LoadedRows"], told["FilteredRows"], told["CommittedTasks"]) == (6, 1, 1)
    assert ask(data, "SELECT k, name FROM shop.customers ORDER BY k") == [(1, "Ann"), (2, "Bob")]
    found = ask(data, "SELECT k, cast(total AS STRING) FROM shop.orders ORDER BY k")
    assert found == [(100, "27.50"), (101, "8.00"), (102, "3.10")]


def job_of(data: Path) -> RoutineJob:
    with Store.open(data) as store:
        (job,) = RoutineJobs(store.catalog).all().values()
        return job


class Feed:
    """Files of events and what the table must hold when all of them were loaded once."""

    def __init__(self, folder: Path, seed: int, *, keys: int = 200, events: int = 50) -> None:
        self._folder = folder
        self._keys, self._events = keys, events
        self._random = random.Random(seed)
        self._files = 0
        self.rows = 0
        self.newest: dict[int, int] = {}

    def put(self, files: int) -> None:
        for _ in range(files):
            events = [
                (self._random.randrange(self._keys), self._random.randrange(10**6))
                for _ in range(self._events)
            ]
            for key, sequence in events:
                self.newest[key] = max(self.newest.get(key, -1), sequence)
            text = "".join(f'{{"k": {key}, "s": {sequence}}}\n' for key, sequence in events)
            hidden = self._folder / ".next"
            hidden.write_text(text)
            # names do not grow with time: late files come before ones that were read
            hidden.rename(self._folder / f"{self._random.randrange(10**6):06}-{self._files}.json")
            self._files += 1
            self.rows += len(events)

    def check(self, data: Path) -> None:
        """R11: the table, the counts and the progress tell of the same files."""
        assert dict(ask(data, "SELECT k, s FROM db.events")) == self.newest
        job = job_of(data)
        assert (job.statistic.loaded_rows, dict(job.progress)) == (self.rows, {"0": self._files})


@pytest.fixture
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A store with the job; its interval is a second, or the parameter."""
    path = tmp_path / "data"
    create(
        path,
        "db.events (k BIGINT, s BIGINT) UNIQUE KEY (k) DISTRIBUTED BY HASH (k)",
        "'function_column.sequence_col' = 's'",
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "job.toml").write_text(JOB.format(getattr(request, "param", 1)))
    assert managed(path, "create", str(tmp_path / "job.toml")).exit_code == 0
    return path


@pytest.mark.crash
def test_serve_runs_the_jobs_that_were_running(data: Path, tmp_path: Path) -> None:
    """R11: the server is killed -9 and started again; lag and counts are in /metrics."""
    feed = Feed(tmp_path / "in", seed=3)
    feed.put(3)
    server = ServerProcess(data)
    wait_for_metric(server, f'routine_load_rows_total{{{LABELS},outcome="loaded"}} {feed.rows}')
    server.kill()
    feed.put(2)
    server = ServerProcess(data)
    wait_for_metric(server, f'routine_load_rows_total{{{LABELS},outcome="loaded"}} {feed.rows}')
    wait_for_metric(server, f'routine_load_lag{{{LABELS},partition="0"}} 0')
    assert server.stop() == 0
    feed.check(data)


def wait_for_metric(server: ServerProcess, wanted: str) -> None:
    """Asks until the server tells it; only users that log in see routine loads."""
    deadline = time.monotonic() + 200
    while (text := server.client.request("GET", "/metrics").body.decode()).count(wanted) == 0:
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


@pytest.mark.crash
@pytest.mark.parametrize("data", [60], indirect=True)  # a slow machine reads all files in one batch
@pytest.mark.parametrize("point", POINTS)
def test_rows_and_offsets_survive_a_kill_together(data: Path, tmp_path: Path, point: str) -> None:
    """R11, R12: killed at a point of the commit, then run again: each file is loaded once."""
    feed = Feed(tmp_path / "in", seed=7, keys=10**9, events=10_000)  # too many for the catalog itself
    feed.put(3)
    killed = seqstore(data, "routine-load", "start", "--once", SEQSTORE_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = job_of(data)
    moved = 3 if point == "publish.after_commit" else 0
    assert (before.progress, before.statistic.loaded_rows) == ({"0": moved}, moved * 10_000)
    feed.put(2)
    again = seqstore(data, "routine-load", "start", "--once")
    assert again.returncode == 0, again.stderr
    feed.check(data)


def wait_for_commit(data: Path, before: int) -> None:
    """Until another process has committed: the catalog is where one sees it."""
    deadline = time.monotonic() + 200
    while job_of(data).statistic.committed_tasks == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.crash
def test_a_runner_killed_at_random_moments_loses_and_repeats_nothing(data: Path, tmp_path: Path) -> None:
    """R11, R12, R13: kills -9 of a running `routine-load start` while files keep coming: at any moment
    from its start on, or soon after a commit."""
    seed = new_seed(10**9)
    print(f"seed {seed}")
    random_moment = random.Random(seed)
    feed = Feed(tmp_path / "in", seed)
    command = ["-m", "seqstore.cli.main", "--data-dir", str(data), "routine-load", "start"]
    for number in range(by_form(3, 6)):
        feed.put(3)
        before = job_of(data).statistic.committed_tasks
        runner = ForkedPython(command, environment={**os.environ, "PYTHONPATH": MODULES})
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
        if number % 2:
            wait_for_commit(data, before)
            feed.put(2)
        time.sleep(random_moment.uniform(0.0, 0.5))
        runner.kill()
        runner.communicate()
        job = job_of(data)
        assert job.statistic.loaded_rows == job.progress.get("0", 0) * 50
    again = seqstore(data, "routine-load", "start", "--once")
    assert again.returncode == 0, again.stderr
    feed.check(data)
