"""The feeds demo: three processes update their own columns of one table at once; the end is the source."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pyarrow as pa

from seqstore.cli.demo.feed import DATABASE, FEEDS, TABLE, schedule_rows, send
from seqstore.cli.demo.flights_run import show_comparison
from seqstore.cli.demo.screen import Screen
from seqstore.store import Store, StoreError, Table
from seqstore.store.sql import Session

CREATE_TABLE: Final = """\
CREATE TABLE flights.feeds (
    time_hour       DATETIME    NOT NULL,
    carrier         VARCHAR(2)  NOT NULL,
    flight          INT         NOT NULL,
    origin          VARCHAR(3)  NOT NULL,
    year            SMALLINT    NULL,
    month           TINYINT     NULL,
    day             TINYINT     NULL,
    sched_dep_time  SMALLINT    NULL,
    sched_arr_time  SMALLINT    NULL,
    dest            VARCHAR(3)  NULL,
    distance        SMALLINT    NULL,
    hour            TINYINT     NULL,
    minute          TINYINT     NULL,
    schedule_seen   DATETIME    NULL COMMENT "orders the schedule's columns",
    dep_time        SMALLINT    NULL,
    dep_delay       SMALLINT    NULL,
    dep_seen        DATETIME    NULL COMMENT "orders what the departures feed tells",
    arr_time        SMALLINT    NULL,
    arr_delay       SMALLINT    NULL,
    air_time        SMALLINT    NULL,
    arr_seen        DATETIME    NULL COMMENT "orders what the arrivals feed tells",
    tailnum         VARCHAR(6)  NULL,
    fleet_seen      DATETIME    NULL COMMENT "orders what the fleet feed tells"
)
UNIQUE KEY(time_hour, carrier, flight, origin)
DISTRIBUTED BY HASH(flight) BUCKETS AUTO
PROPERTIES(
    "sequence_mapping.schedule_seen" =
        "year,month,day,sched_dep_time,sched_arr_time,dest,distance,hour,minute",
    "sequence_mapping.dep_seen" = "dep_time,dep_delay",
    "sequence_mapping.arr_seen" = "arr_time,arr_delay,air_time",
    "sequence_mapping.fleet_seen" = "tailnum"
)"""
_FEED: Final = """
import sys
from pathlib import Path
from seqstore.cli.demo.feed import run_feed
run_feed(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
"""
_TIMEOUT_SECONDS: Final = 600


def run_feeds(store: Store, flights: pa.Table, screen: Screen) -> Table:
    """Sends the schedule, lets the feeds run beside each other, compares the end with the source.

    Args:
        flights: rows of `read_flights`.

    Raises:
        StoreError: a feed ended badly, or the table differs from the source.
    """
    screen.title("3. Three feeds in processes of their own, each updating its own columns")
    screen.say(
        "Departures, arrivals and fleet know a flight by its key and a few columns each. They tell one "
        "flight in ten twice, first a wrong guess, repeat some rows and shuffle all of it; "
        "partial_columns: true keeps what a feed does not name, and each group of columns is ordered by its "
        "own clock."
    )
    screen.prompt("sql>", CREATE_TABLE + ";")
    list(Session(store).execute(CREATE_TABLE))
    table = store.table(f"{DATABASE}.{TABLE}")
    rows = schedule_rows(flights)
    moment = pa.array([0] * len(rows), pa.timestamp("s"))
    started = time.perf_counter()
    send(store, rows.append_column("schedule_seen", moment), "schedule")
    _run_processes(store.path, len(flights))
    _show_loads(table, time.perf_counter() - started, screen)
    show_comparison(table, flights, screen)
    return table


def _run_processes(data_dir: Path, flights: int) -> None:
    """Starts a process for each feed, all at once, and waits for them."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", _FEED, str(data_dir), name, str(flights)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in FEEDS
    }
    failed = []
    try:
        for name, process in running.items():
            _, errors = process.communicate(timeout=_TIMEOUT_SECONDS)
            if process.returncode:
                failed.append(f"the feed {name} ended with {process.returncode}: {errors.strip()[-500:]}")
    finally:
        for process in running.values():  # none outlives an interrupt or the time-out of another one
            process.kill()
            process.wait()
    if failed:
        raise StoreError("; ".join(failed), kind="demo_failed")


def _show_loads(table: Table, seconds: float, screen: Screen) -> None:
    history = [line for line in table.history() if line.label]
    lines = []
    for name, feed in FEEDS.items():
        own = [line for line in history if line.label.startswith(f"{name}-")]
        versions = ", ".join(str(line.version) for line in own)
        lines.append((name, ", ".join(feed.columns), sum(line.metrics.rows_total for line in own), versions))
    screen.table(["feed", "its columns", "rows", "versions it made"], lines)
    sent = sum(line.metrics.rows_total for line in history)
    screen.say(
        f"{sent:,} rows in {seconds:.1f} s, the schedule's {history[0].metrics.rows_total:,} among them: "
        f"{sent / seconds:,.0f} rows a second, each process reading the source first."
    )
