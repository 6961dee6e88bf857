"""One feed of the demo; each runs in a process of its own (cli.demo.feeds_run).

The feeds know a flight by its key and a few columns each: the departures and arrivals that the tower saw, and
the aircraft that the fleet office sent. A feed reports one flight in ten twice, first a guess and then the
truth, and sends some rows again. Then all rows are shuffled, so a guess is often last. The feed's own time
marks the newer row. Stream loads carry the batches, with the columns of the feed and no others.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from seqstore.cli.demo.flights import ARRIVED, DEPARTED, KEY, SCHEDULED, events, read_flights
from seqstore.loaders.reply import StreamLoadReply
from seqstore.loaders.stream_load import stream_load
from seqstore.store import Store, StoreError

DATABASE: Final = "flights"
TABLE: Final = "feeds"
SCHEDULE: Final = (
    "year",
    "month",
    "day",
    "sched_dep_time",
    "sched_arr_time",
    "dest",
    "distance",
    "hour",
    "minute",
)
_BATCH_ROWS: Final = 80_000
_GUESSED: Final = 0.10
_REPEATED: Final = 0.05
_GUESS_EARLIER_SECONDS: Final = 1_200
_GUESS_OFF_BY: Final = 9


@dataclass(frozen=True)
class Feed:
    """The columns of a feed.

    Attributes:
        columns: its columns of the table.
        clock: the column whose larger value marks the newer of two rows.
        kind: the event of a flight that it reports.
    """

    columns: tuple[str, ...]
    clock: str
    kind: int


FEEDS: Final = {
    "departures": Feed(("dep_time", "dep_delay"), "dep_seen", DEPARTED),
    "arrivals": Feed(("arr_time", "arr_delay", "air_time"), "arr_seen", ARRIVED),
    "fleet": Feed(("tailnum",), "fleet_seen", SCHEDULED),
}


def schedule_rows(flights: pa.Table) -> pa.Table:
    """Returns the columns of all flights that are known from the start."""
    return flights.select([*KEY, *SCHEDULE])


def feed_rows(flights: pa.Table, feed: Feed, seed: int = 20130101) -> pa.Table:
    """Returns all rows of a feed in the order they are sent: key, columns, clock."""
    random = np.random.default_rng((seed, feed.kind))
    flight, kind, time = events(flights)
    told = kind == feed.kind
    flight, time = flight[told], time[told]
    if feed.kind == SCHEDULED:  # the fleet office does not know every aircraft
        known = flights[feed.columns[0]].is_valid().to_numpy()[flight]
        flight, time = flight[known], time[known]
    guessed = random.choice(len(flight), round(_GUESSED * len(flight)), replace=False)
    again = random.choice(len(flight), round(_REPEATED * len(flight)), replace=False)
    sent = np.concatenate([np.arange(len(flight)), again, guessed])
    is_guess = np.arange(len(sent)) >= len(flight) + len(again)
    order = random.permutation(len(sent))
    sent, is_guess = sent[order], is_guess[order]
    rows = flights.select([*KEY, *feed.columns]).take(pa.array(flight[sent]))
    for name in feed.columns:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, pc.if_else(pa.array(is_guess), _guess(rows[name]), rows[name]))
    clock = time[sent] - is_guess * _GUESS_EARLIER_SECONDS
    return rows.append_column(feed.clock, pa.array(clock).cast(pa.timestamp("s")))


def _guess(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns the feed's first guess, which is always wrong."""
    if pa.types.is_string(column.type):
        return pc.binary_replace_slice(column, start=0, stop=1, replacement="?")
    return pc.add(column, pa.scalar(_GUESS_OFF_BY, column.type))


def send(store: Store, rows: pa.Table, label: str) -> StreamLoadReply:
    """Sends one batch by stream load: its own columns only.

    Raises:
        StoreError: the reply is not a success.
    """
    body = io.BytesIO()
    with ipc.new_stream(body, rows.schema) as writer:
        writer.write_table(rows)
    body.seek(0)
    headers = {
        "label": label,
        "format": "arrow",
        "partial_columns": "true",
        "columns": ",".join(rows.schema.names),
    }
    reply = stream_load(store, DATABASE, TABLE, body, headers)
    if reply["Status"] != "Success":
        raise StoreError(f"stream load {label}: {reply['Message']}", kind="demo_failed")
    return reply


def run_feed(data_dir: Path, name: str, flights: int | None) -> None:
    """Sends all batches of a feed."""
    rows = feed_rows(read_flights(flights), FEEDS[name])
    with Store.open(data_dir, create=False) as store:
        for number, start in enumerate(range(0, len(rows), _BATCH_ROWS)):
            send(store, rows.slice(start, _BATCH_ROWS), f"{name}-{number:02d}")
