"""`seqstore demo`: the worked example of the documentation, then a year of real flights as messy events.

worked_example.py   statements and the answers the documentation prints
flights.py          the flights and the events made of them
flights_run.py      uploads, comparison with the source, one flight by version
feed.py             a process that updates some columns of every flight
feeds_run.py        three of them at once, comparison with the source
routine_run.py      the same events as files that a routine load reads
spark_run.py        the same events through PySpark
broker_run.py       the same events as files, by a broker load that is killed in the middle
changes_run.py      the same events as the change stream of a database, whose table makes itself
open_run.py         delta-rs, pyiceberg and Spark read the flights from the files of the store
spark_job.py        that as a job of its own
spark_process.py    which is started, and killed in the middle
screen.py           the printed output
"""

from __future__ import annotations

import time
from pathlib import Path

from seqstore.cli.demo.broker_run import run_broker
from seqstore.cli.demo.changes_run import run_changes
from seqstore.cli.demo.feeds_run import run_feeds
from seqstore.cli.demo.flights import event_stream, read_flights
from seqstore.cli.demo.flights_run import run_flights
from seqstore.cli.demo.open_run import run_open
from seqstore.cli.demo.routine_run import run_routine
from seqstore.cli.demo.screen import Screen
from seqstore.cli.demo.spark_run import run_spark
from seqstore.cli.demo.worked_example import run_worked_example
from seqstore.store import AlreadyExistsError, CorruptionError, Settings, Store

__all__ = ["run"]


def run(
    data_dir: Path, *, flights: int | None = None, with_spark: bool = True, screen: Screen | None = None
) -> None:
    """Runs the demo in a directory that holds no database yet, and leaves its tables there to look at.

    Args:
        flights: so many of the 336,776 flights, spread over the year; None means all.
        with_spark: False leaves the Spark part out.
        screen: where to print; standard output when None.

    Raises:
        AlreadyExistsError: the directory has databases; nothing was touched.
        StoreError: an answer was not the expected one.
    """
    screen = screen or Screen()
    started = time.perf_counter()
    settings = Settings(columns_not_null_by_default=True)  # as the worked example of Doris's manual prints
    with Store.open(data_dir, settings=settings) as store:
        present = store.databases()
        if present:
            raise AlreadyExistsError(
                f"{data_dir} holds the database {present[0]!r}; the demo wants a directory of its own: "
                "choose another --data-dir or remove this one",
                kind="not_empty",
            )
        compared = run_worked_example(store, screen)
        screen.say(f"\nAll {compared} answers are those the documentation prints.")
        stream = event_stream(read_flights(flights))
        run_flights(store, stream, screen)
        run_feeds(store, stream.flights, screen)
        run_routine(store, stream, flights, screen)
        has_spark = with_spark and run_spark(store, stream, screen)
        run_broker(store, stream, screen, engine="spark" if has_spark else "local")
        run_changes(store, stream, flights, screen)
        run_open(store, screen, with_spark=has_spark)
        check_tables(store, screen)
    screen.say(f"\nDone in {time.perf_counter() - started:.0f} s; the tables are in {data_dir}. Try:")
    screen.say(f"  seqstore --data-dir {data_dir} history flights.flights")


def check_tables(store: Store, screen: Screen) -> None:
    """Reads back everything stored.

    Raises:
        CorruptionError: with the first finding.
    """
    names = [f"{database}.{table}" for database in store.databases() for table in store.tables(database)]
    findings = [f"{name}: {finding}" for name in names for finding in store.table(name).check()]
    if findings:
        raise CorruptionError(findings[0], kind="check")
    screen.say(f"check: {', '.join(names)}: sound.")
