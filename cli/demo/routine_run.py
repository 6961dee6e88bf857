"""The routine load demo: a job that reads files as they arrive, each once; the end is the source."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Final

from seqstore.cli.demo.flights import CREATE_TABLE, EventStream, event_stream, read_flights, to_json_lines
from seqstore.cli.demo.flights_run import show_comparison
from seqstore.cli.demo.screen import Screen
from seqstore.loaders.routine import manage
from seqstore.loaders.routine.job import RoutineJob
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.routine.show import lag
from seqstore.loaders.routine.spec import FILES, RoutineSpec
from seqstore.store import Store, StoreError, Table
from seqstore.store.sql import Session

DATABASE: Final = "flights"
TABLE: Final = "flights_from_files"
_FLIGHTS: Final = 20_000  # enough to see it, and a matter of seconds
_BATCHES: Final = 9
_ARRIVALS: Final = 3


def run_routine(store: Store, stream: EventStream, flights: int | None, screen: Screen) -> Table:
    """Lets files arrive in three groups, the last of them first by name, and runs the job after each.

    Args:
        stream: the demo's events, sent again where they are few.
        flights: how many flights these are of; None means all.

    Raises:
        StoreError: the job did not load everything once, or the table differs from the source.
    """
    screen.title("4. A routine load: files that arrive, each loaded once")
    if flights is None or flights > _FLIGHTS:
        stream = event_stream(read_flights(_FLIGHTS), batches=_BATCHES)
    list(Session(store).execute(CREATE_TABLE.replace("flights.flights (", f"{DATABASE}.{TABLE} (")))
    with tempfile.TemporaryDirectory(prefix="seqstore-demo-") as directory:
        statement = (
            f'CREATE ROUTINE LOAD {DATABASE}.events ON {TABLE}\nFROM FILES("path" = "{directory}/*.json");'
        )
        screen.prompt("sql>", statement)
        spec = RoutineSpec(
            DATABASE, "events", TABLE, source=FILES, source_properties={"path": f"{directory}/*.json"}
        )
        job_id = manage.create(store, spec, allowed=[directory])
        started = time.perf_counter()
        jobs = [_arrive(store, job_id, stream, go, Path(directory)) for go in range(_ARRIVALS)]
        seconds = time.perf_counter() - started
    _show(jobs, seconds, screen)
    behind = sum(lag(jobs[-1]).values())
    if behind or jobs[-1].statistic.loaded_rows != stream.row_count:
        raise StoreError(f"the routine load loaded {jobs[-1].statistic}", kind="demo_failed")
    table = store.table(f"{DATABASE}.{TABLE}")
    show_comparison(table, stream.flights, screen)
    return table


def _arrive(store: Store, job_id: int, stream: EventStream, go: int, directory: Path) -> RoutineJob:
    """Adds every third batch, in the reverse order of their names, and runs the job."""
    for batch in range(go, stream.batch_count, _ARRIVALS):
        hidden = directory / f".{batch}"
        hidden.write_bytes(to_json_lines(stream.rows(batch)))
        hidden.rename(directory / f"{_ARRIVALS - go}-{batch:03d}.json")  # a file is whole when it is seen
    return RoutineRunner(store, names=[f"{DATABASE}.events"]).drain()[job_id]


def _show(jobs: list[RoutineJob], seconds: float, screen: Screen) -> None:
    screen.table(
        ["files read", "rows loaded", "bad rows", "files waiting"],
        [
            (
                sum(job.progress.values()),
                job.statistic.loaded_rows,
                job.statistic.error_rows,
                sum(lag(job).values()),
            )
            for job in jobs
        ],
    )
    screen.say(
        "Files and rows move in one transaction, so a crash at any moment loses and repeats nothing; later "
        "files had smaller names, and none was read twice. FROM KAFKA(...) does the same with a topic. "
        f"{seconds:.1f} s."
    )
