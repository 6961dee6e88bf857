"""The change stream demo: messages of a database, whose table makes itself; the end is the source.

Each event is a message as Debezium writes it of PostgreSQL: the key, the new row with the types of its
columns, and the position in the log, which is the event's time here. An event that
brings the departure of a flight deletes its row and inserts it anew, so the stream has deletes too.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from seqstore.cli.demo.flights import KEY, EventStream, event_stream, read_flights
from seqstore.cli.demo.flights_run import show_comparison
from seqstore.cli.demo.screen import Screen
from seqstore.loaders.routine import manage
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.loaders.routine.spec import FILES, RoutineSpec
from seqstore.store import Store, StoreError, Table

DATABASE: Final = "flights"
TABLE: Final = "flights_from_changes"
_FLIGHTS: Final = 1_000  # a message is thirty times as long as its row
_PROPERTIES: Final = {"format": "debezium_json", "auto_create": "true", "timezone": "UTC"}
_DELETED_AT: Final = "departed"


def run_changes(store: Store, stream: EventStream, flights: int | None, screen: Screen) -> Table:
    """Loads messages in the order in which the events arrive: late, twice and shuffled.

    Args:
        stream: the demo's events, made again where they are many.
        flights: how many flights these are of; None means all.

    Raises:
        StoreError: the job did not load everything, or the table differs from the source.
    """
    screen.title("7. A change stream: the messages of a database, whose table makes itself")
    if flights is None or flights > _FLIGHTS:
        stream = event_stream(read_flights(_FLIGHTS), batches=4)
    with tempfile.TemporaryDirectory(prefix="seqstore-demo-") as directory:
        for batch in range(stream.batch_count):
            (Path(directory) / f"{batch:03d}.json").write_text("".join(_messages(stream.rows(batch))))
        pairs = ", ".join(f'"{name}" = "{value}"' for name, value in _PROPERTIES.items())
        source = f'FROM FILES("path" = "{directory}/*.json")'
        screen.prompt("sql>", f"CREATE ROUTINE LOAD {DATABASE}.changes PROPERTIES({pairs})\n{source};")
        spec = RoutineSpec(
            DATABASE,
            "changes",
            "",
            source=FILES,
            source_properties={"path": f"{directory}/*.json"},
            properties=_PROPERTIES,
        )
        job_id = manage.create(store, spec, allowed=[directory])
        started = time.perf_counter()
        job = RoutineRunner(store, names=[f"{DATABASE}.changes"]).drain()[job_id]
        seconds = time.perf_counter() - started
    if job.statistic.error_rows or job.statistic.loaded_rows < stream.row_count:
        raise StoreError(f"the routine load loaded {job.statistic}", kind="demo_failed")
    table = store.table(f"{DATABASE}.{TABLE}")
    screen.say(
        f"{job.statistic.loaded_rows:,} changes, deletes among them, in the order in which they arrive; the "
        f"table has the key of the messages, {', '.join(table.schema.key)}, and their position as its "
        f"sequence. From Kafka the same job follows a whole database. {seconds:.1f} s."
    )
    show_comparison(table, stream.flights, screen)
    return table


def _messages(rows: pa.Table) -> list[str]:
    """Returns lines of key, tab and value; an event with a departure deletes the old row first."""
    names = [name for name in rows.schema.names if not name.startswith("event")]
    schema = json.dumps(_schema(rows.select(names).schema)).replace("'", "''")
    update, delete = _payload("u", "after", names, ""), _payload("d", "before", names, " - 1")
    head = f"""to_json({_object(KEY)}) || chr(9) || '{{"schema":{schema},"payload":'"""
    tail = "'}' || chr(10)"
    gone = f"SELECT {head} || {delete} || {tail} FROM rows WHERE event = '{_DELETED_AT}'"
    query = f"SELECT {head} || {update} || {tail} FROM rows UNION ALL {gone}"
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        return [str(line) for (line,) in connection.sql(query).fetchall()]


def _payload(operation: str, image: str, names: Sequence[str], earlier: str) -> str:
    """Returns the SQL of an envelope; the position leaves room for a delete just before."""
    position = f"(2 * epoch(event_time){earlier})::BIGINT"
    source = f"{{connector: 'postgresql', \"table\": '{TABLE}', lsn: {position}}}"
    return f"to_json({{op: '{operation}', {image}: {_object(names)}, source: {source}}})"


def _object(names: Sequence[str]) -> str:
    """Returns the SQL of an object of columns; moments are milliseconds, as Debezium writes them."""
    values = {name: "epoch_ms(time_hour)" if name == "time_hour" else name for name in names}
    return f"{{{', '.join(f'{name}: {value}' for name, value in values.items())}}}"


def _schema(rows: pa.Schema) -> dict[str, Any]:
    """Returns the schema of an envelope, as Kafka Connect's converter adds it to each message."""
    fields: list[dict[str, Any]] = []
    for field in rows:
        kind: dict[str, Any] = {"type": "string"}
        if pa.types.is_integer(field.type):
            kind = {"type": str(field.type)}
        elif pa.types.is_timestamp(field.type):
            kind = {"type": "int64", "name": "io.debezium.time.Timestamp"}
        fields.append({"field": field.name, "optional": field.name not in KEY, **kind})
    return {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": fields}]}
