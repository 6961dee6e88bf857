"""The demo: what its events are, and that both stories end as they should."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from seqstore import AlreadyExistsError, InvalidInputError, Store, StoreError
from seqstore.cli.demo import flights as source
from seqstore.cli.demo import run
from seqstore.cli.demo.flights import (
    ARRIVED,
    CANCELLED,
    CREATE_TABLE,
    DEPARTED,
    FLIGHT_COLUMNS,
    KEY,
    SCHEDULED,
    EventStream,
    event_stream,
    flights_csv,
    read_flights,
    to_csv,
    to_json_lines,
)
from seqstore.cli.demo.flights_run import differing_rows, flight_with_late_departure, run_flights
from seqstore.cli.demo.screen import Screen
from seqstore.cli.demo.spark_run import forget_last_epoch, stream_files
from seqstore.cli.demo.worked_example import STEPS, Statement, run_worked_example
from seqstore.store.sql import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def stream() -> EventStream:
    return event_stream(read_flights())


@pytest.fixture(scope="module")
def small() -> EventStream:
    return event_stream(read_flights(2000), batches=8, seed=7)


def screen() -> tuple[Screen, io.StringIO]:
    printed = io.StringIO()
    return Screen(Console(file=printed, highlight=False)), printed


def query(sql: str, **tables: pa.Table) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.execute(sql).fetchall()


def sent(stream: EventStream) -> pa.Table:
    """Flight, kind and batch of every row sent."""
    return pa.table({"flight": stream.flight, "kind": stream.kind, "batch": stream.batch})


# The source


def test_key_is_unique_in_the_package_data(tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_bytes(flights_csv())
    counted = query(f"SELECT count(*), count(DISTINCT ({', '.join(KEY)})) FROM '{file}'")
    assert counted == [(336_776, 336_776)]


def test_a_doubled_flight_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = flights_csv()
    first_line_ends = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    monkeypatch.setattr(
        source, "flights_csv", lambda: whole + whole[whole.index(b"\n") + 1 : first_line_ends]
    )
    with pytest.raises(InvalidInputError, match="336,777 flights have 336,776 keys"):
        read_flights()


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidInputError, match=r"pip install 'seqstore\[demo\]'"):
        read_flights()


# The events


def test_every_flight_is_told_by_the_events_it_had(stream: EventStream) -> None:
    flights = stream.flights
    flew, landed = pc.is_valid(flights["dep_time"]), pc.is_valid(flights["arr_time"])
    kinds = dict(query("SELECT kind, count(DISTINCT flight) FROM sent GROUP BY kind", sent=sent(stream)))
    assert kinds == {
        SCHEDULED: flights.num_rows,
        DEPARTED: pc.sum(flew).as_py(),
        ARRIVED: pc.sum(landed).as_py(),
        CANCELLED: pc.sum(pc.invert(flew)).as_py(),
    }
    assert sum(kinds.values()) == stream.event_count


def test_a_tenth_of_the_events_is_late(stream: EventStream) -> None:
    late = query(
        """
        WITH event AS (SELECT flight, kind, min(batch) AS batch FROM sent GROUP BY flight, kind)
        SELECT count(*) FROM event AS e
        WHERE batch > (SELECT min(batch) FROM event AS l WHERE l.flight = e.flight AND l.kind > e.kind)
        """,
        sent=sent(stream),
    )
    assert late == [(stream.late_count,)]
    assert stream.late_count / stream.event_count == pytest.approx(0.10, abs=0.0001)


def test_a_twentieth_of_the_events_is_sent_twice(stream: EventStream) -> None:
    times = Counter(query("SELECT count(*) FROM sent GROUP BY flight, kind", sent=sent(stream)))
    assert times == {(1,): stream.event_count - stream.repeated_count, (2,): stream.repeated_count}
    assert stream.repeated_count / stream.event_count == pytest.approx(0.05, abs=0.0001)


def test_event_times_of_a_flight_follow_its_events(stream: EventStream) -> None:
    by_time = np.lexsort((stream.kind, stream.time, stream.flight))
    flight, kind = stream.flight[by_time], stream.kind[by_time]
    assert (np.diff(kind)[np.diff(flight) == 0] >= 0).all()


def test_batches_are_shuffled(stream: EventStream) -> None:
    first = stream.time[stream.batch == 0]
    assert 0.45 < np.mean(np.diff(first) > 0) < 0.55


def test_rows_tell_only_what_was_known(stream: EventStream) -> None:
    rows = stream.rows(3)
    known = query(
        """
        SELECT event, count(tailnum) > 0, count(dep_time) > 0, count(dep_delay) > 0,
               count(arr_time) > 0, count(arr_delay) > 0, count(air_time) > 0, count(distance) = count(*)
        FROM rows GROUP BY event ORDER BY event
        """,
        rows=rows,
    )
    assert known == [
        ("arrived", True, True, True, True, True, True, True),
        ("cancelled", True, False, False, False, False, False, True),
        ("departed", True, True, True, False, False, False, True),
        ("scheduled", False, False, False, False, False, False, True),
    ]


def test_last_events_are_the_source(stream: EventStream) -> None:
    """The end the table must reach, found without the engine: per key the row of the largest event time."""
    rows = pa.concat_tables([stream.rows(batch) for batch in range(stream.batch_count)])
    columns = ", ".join(FLIGHT_COLUMNS)
    last = f"""SELECT {columns} FROM rows
        QUALIFY row_number() OVER (PARTITION BY {", ".join(KEY)} ORDER BY event_time DESC) = 1"""
    different = query(
        f"""SELECT (SELECT count(*) FROM (({last}) EXCEPT ALL SELECT {columns} FROM flights))
        + (SELECT count(*) FROM (SELECT {columns} FROM flights EXCEPT ALL ({last})))""",
        rows=rows,
        flights=stream.flights,
    )
    assert rows.num_rows == stream.row_count
    assert different == [(0,)]


def test_a_seed_gives_one_stream() -> None:
    flights = read_flights(500)
    first, again, other = (event_stream(flights, batches=5, seed=seed) for seed in (3, 3, 4))
    assert first.rows(2).equals(again.rows(2))
    assert not first.rows(2).equals(other.rows(2))


def test_csv_and_json_lines_carry_the_rows(small: EventStream, tmp_path: Path) -> None:
    rows = small.rows(1)
    (tmp_path / "rows.csv").write_bytes(to_csv(rows))
    (tmp_path / "rows.json").write_bytes(to_json_lines(rows))
    types = "{" + ", ".join(f"'{f.name}': '{duck_type(f.type)}'" for f in rows.schema) + "}"
    read_csv = (
        f"read_csv('{tmp_path}/rows.csv', header = false, delim = '\t', nullstr = '\\N', columns = {types})"
    )
    read_json = f"read_json('{tmp_path}/rows.json', format = 'newline_delimited', columns = {types})"
    for read in (read_csv, read_json):
        assert query(f"SELECT count(*) FROM (FROM {read} EXCEPT ALL FROM rows)", rows=rows) == [(0,)]
        assert query(f"SELECT count(*) FROM (FROM rows EXCEPT ALL FROM {read})", rows=rows) == [(0,)]


def duck_type(arrow: pa.DataType) -> str:
    if pa.types.is_timestamp(arrow):
        return "TIMESTAMP_S"
    return {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER"}.get(str(arrow), "VARCHAR")


# The runs


def test_engine_counts_what_a_plain_model_counts(small: EventStream, tmp_path: Path) -> None:
    """SO1, SO6: what every load superseded, found late and replaced, against a dict of newest events."""
    with Store.open(tmp_path / "data") as store:
        table = run_flights(store, small, screen()[0])
        told = [
            (
                info.metrics.rows_total,
                info.metrics.rows_superseded,
                info.metrics.rows_late,
                info.metrics.rows_replaced,
            )
            for info in table.history()
            if info.label
        ]
    newest: dict[int, int] = {}
    expected = []
    for batch in range(small.batch_count):
        here = small.batch == batch
        winners: dict[int, int] = {}
        for flight, time in zip(small.flight[here].tolist(), small.time[here].tolist(), strict=True):
            winners[flight] = max(time, winners.get(flight, time))
        late = sum(newest.get(flight, time) > time for flight, time in winners.items())
        replaced = sum(flight in newest and newest[flight] <= time for flight, time in winners.items())
        rows = int(here.sum())
        expected.append((rows, rows - len(winners), late, replaced))
        newest |= {flight: max(time, newest.get(flight, time)) for flight, time in winners.items()}
    assert told == expected


@pytest.mark.long
def test_a_small_run_tells_both_stories(tmp_path: Path) -> None:
    shown, printed = screen()
    run(tmp_path / "data", flights=1500, with_spark=False, screen=shown)
    text = " ".join(printed.getvalue().split())
    assert "All 4 answers are those the documentation prints." in text
    assert "1,500 rows, 28,500 values, all equal." in text
    assert "CREATE ROUTINE LOAD flights.events ON flights_from_files" in text
    assert "flights.flights_from_files against the package's own flights.csv" in text
    assert "flights.flights_from_changes against the package's own flights.csv" in text
    assert "test.test_table: sound." in text
    assert "delta-rs" in text
    assert "pyiceberg" in text
    assert "All of them read the same" in text


def test_a_directory_with_databases_is_left_alone(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.create_database("test")
    with pytest.raises(AlreadyExistsError, match="holds the database 'test'"):
        run(tmp_path, screen=screen()[0])
    with Store.open(tmp_path) as store:
        assert store.databases() == ["test"]


def test_another_answer_than_the_documented_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list(STEPS)
    last = steps[-1]
    assert isinstance(last, Statement)
    steps[-1] = replace(last, answer=last.answer.replace("| w ", "| c "))
    monkeypatch.setattr("seqstore.cli.demo.worked_example.STEPS", steps)
    with Store.open(tmp_path) as store, pytest.raises(StoreError, match="differs from the documentation's"):
        run_worked_example(store, screen()[0])


def test_comparison_counts_a_changed_value(small: EventStream, tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        table = run_flights(store, small, screen()[0])
        assert differing_rows(table, small.flights) == 0
        row = table.scan().read_all().slice(17, 1)
        changed = row.set_column(
            row.schema.get_field_index("dest"), row.schema.field("dest"), pa.array(["XXX"])
        )
        table.upsert(changed)
        assert differing_rows(table, small.flights) == 2  # ours and theirs


def test_the_flight_of_the_story_departed_after_it_arrived(stream: EventStream) -> None:
    flight = flight_with_late_departure(stream)
    first: dict[str, int] = {}
    for batch, event in stream.events_of(flight):
        first.setdefault(event, batch)
    assert first["scheduled"] < first["arrived"] < first["departed"]


def test_where_spark_is_missing_its_part_is_skipped_with_the_reason(
    tmp_path: Path, small: EventStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqstore.cli.demo import spark_run

    monkeypatch.setattr(spark_run, "missing_requirement", lambda: "no Java was found; install it")
    shown, printed = screen()
    with Store.open(tmp_path) as store:
        assert spark_run.run_spark(store, small, shown) is False
        assert store.databases() == []
    assert "skipped: no Java was found; install it" in printed.getvalue()


@pytest.mark.spark
def test_the_demo_streams_its_events_and_replays_the_last_epoch(spark: SparkSession, tmp_path: Path) -> None:

    stream = event_stream(read_flights(1000), batches=5)
    events = tmp_path / "events"
    events.mkdir()
    for batch in range(stream.batch_count):
        pq.write_table(stream.rows(batch), events / f"{batch}.parquet", coerce_timestamps="us")
    with Store.open(tmp_path / "data") as store:
        store.create_database("flights")
        list(Session(store).execute(CREATE_TABLE))
        table = store.table("flights.flights")
        reports = stream_files(spark, events, tmp_path / "checkpoint", store.path, table.name)
        forget_last_epoch(tmp_path / "checkpoint")
        replayed = stream_files(spark, events, tmp_path / "checkpoint", store.path, table.name)
        assert [report.epoch for report in reports] == [0, 1]
        assert [(report.epoch, report.is_replay) for report in replayed] == [(1, True)]
        assert differing_rows(table, stream.flights) == 0
