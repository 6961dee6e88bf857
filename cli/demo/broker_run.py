"""The same events as files: one broker load into two tables, whose process is killed in the middle."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from seqstore.cli.demo.flights import CREATE_TABLE, EventStream, to_csv
from seqstore.cli.demo.flights_run import show_comparison
from seqstore.cli.demo.screen import Screen
from seqstore.loaders.broker.job import FINISHED, LoadJob
from seqstore.loaders.broker.jobs import LoadJobs
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.broker.worker import resume, submit
from seqstore.store import Store, StoreError
from seqstore.store.sql import Session

DATABASE: Final = "flights"
TABLE: Final = "flights_by_broker"
AIRCRAFT: Final = "aircraft"
LABEL: Final = "flights-from-files"
_CREATE_AIRCRAFT: Final = f"""\
CREATE TABLE {DATABASE}.{AIRCRAFT} (
    tailnum     VARCHAR(6) NOT NULL,
    event_time  DATETIME   NOT NULL COMMENT "when it was last heard of",
    carrier     VARCHAR(2) NOT NULL
)
UNIQUE KEY(tailnum)
DISTRIBUTED BY HASH(tailnum) BUCKETS AUTO
PROPERTIES("function_column.sequence_col" = "event_time")"""
_POLL_SECONDS: Final = 0.05
_WAIT_SECONDS: Final = 600.0


def run_broker(store: Store, stream: EventStream, screen: Screen, *, engine: str) -> LoadJob:
    """Loads every batch as a file, with a kill in the middle, and compares both tables with the source.

    Args:
        engine: `spark` or `local`.

    Returns:
        The finished job.

    Raises:
        StoreError: the job did not finish, or a table differs from the source.
    """
    screen.title("6. The same events as files, through broker load, killed in the middle")
    create = CREATE_TABLE.replace("flights.flights (", f"{DATABASE}.{TABLE} (")
    list(Session(store).execute(f"{create}; {_CREATE_AIRCRAFT}"))
    jobs = LoadJobs(store.catalog)
    with tempfile.TemporaryDirectory(prefix="seqstore-demo-") as directory:
        files = Path(directory)
        write_files(stream, files)
        screen.say(
            f"One label, two tables, {2 * stream.batch_count} files, CSV and Parquet; engine {engine}."
        )
        job_id = submit(store, flights_spec(files, engine), [directory], "root")
        killed = kill_in_the_middle(jobs, job_id)
        counts = [store.table(f"{DATABASE}.{name}").count() for name in (TABLE, AIRCRAFT)]
        screen.say(
            f"Its process was killed at {killed.percent} %, {killed.files_done} of {killed.files} files "
            f"read: the tables have {counts[0]} and {counts[1]} rows."
        )
        if any(counts):
            raise StoreError("a load that was killed has left rows", kind="demo_differs")
        resume(store)  # as `seqstore serve` does when it starts
        job = wait_for(jobs, job_id, lambda job: job.has_ended)
    if job.state != FINISHED:
        raise StoreError(f"the load ended as {job.state}: {job.error}", kind="demo_differs")
    screen.say(f"Run again: {job.state}, {job.loaded:,} rows; attempt {job.attempts}.")
    show_comparison(store.table(f"{DATABASE}.{TABLE}"), stream.flights, screen)
    different = differing_aircraft(store, stream)
    if different:
        raise StoreError(f"{different:,} rows of {AIRCRAFT} differ from the events", kind="demo_differs")
    screen.say(f"{DATABASE}.{AIRCRAFT} has the last event of every aircraft, all equal.")
    return job


def write_files(stream: EventStream, files: Path) -> None:
    """Writes a file per batch, alternately CSV and Parquet."""
    for batch in range(stream.batch_count):
        if batch % 2:
            pq.write_table(stream.rows(batch), files / f"{batch:03d}.parquet", coerce_timestamps="us")
        else:
            (files / f"{batch:03d}.csv").write_bytes(to_csv(stream.rows(batch)))


def flights_spec(files: Path, engine: str) -> LoadSpec:
    """Returns the job: the same files for both tables."""
    paths = (f"{files}/*.csv", f"{files}/*.parquet")
    columns = (*_columns_of_events(files),)
    flights = DataDescription(TABLE, paths, columns=columns, order_by="event_time")
    aircraft = replace(flights, table=AIRCRAFT, where="tailnum IS NOT NULL")
    return LoadSpec(DATABASE, LABEL, (flights, aircraft), {"engine": engine})


def _columns_of_events(files: Path) -> list[str]:
    return list(pq.read_schema(next(files.glob("*.parquet"))).names)


def kill_in_the_middle(jobs: LoadJobs, job_id: int) -> LoadJob:
    """Kills the process of a job once it has read something; returns the job as it was then."""
    job = wait_for(jobs, job_id, lambda job: job.percent > 0 or job.has_ended)
    if job.has_ended:
        raise StoreError(f"the load ended as {job.state} before it could be killed: {job.error}", kind="demo")
    os.kill(job.owner[0], signal.SIGKILL)
    return wait_for(jobs, job_id, lambda _: job_id in jobs.abandoned())


def wait_for(jobs: LoadJobs, job_id: int, is_so: Callable[[LoadJob], bool]) -> LoadJob:
    """Polls a job until a condition holds: jobs send no notifications.

    Raises:
        StoreError: it has not become so for ten minutes.
    """
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        job = jobs.get(job_id)
        if is_so(job):
            return job
        time.sleep(_POLL_SECONDS)
    raise StoreError(f"the load is still {job.state} after {_WAIT_SECONDS:g} s", kind="demo")


def differing_aircraft(store: Store, stream: EventStream) -> int:
    """Counts the aircraft whose last event differs from the event stream, or that only one side has."""
    table = store.table(f"{DATABASE}.{AIRCRAFT}")
    batches = pa.concat_tables([stream.rows(batch) for batch in range(stream.batch_count)])
    with duckdb.connect() as connection:
        connection.register("ours", table.scan(["tailnum", "event_time"]).read_all())
        connection.register("events", batches.select(["tailnum", "event_time"]))
        connection.execute(
            """CREATE TABLE theirs AS SELECT tailnum, max(event_time) AS event_time FROM events
            WHERE tailnum IS NOT NULL GROUP BY tailnum"""
        )
        counted = connection.execute(
            """SELECT (SELECT count(*) FROM (FROM ours EXCEPT ALL FROM theirs))
            + (SELECT count(*) FROM (FROM theirs EXCEPT ALL FROM ours))"""
        ).fetchall()
    return int(counted[0][0])
