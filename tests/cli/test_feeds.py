"""The feeds of the demo: what they send is partly wrong and shuffled, and the end is the source."""

from __future__ import annotations

import io
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from seqstore import Store, StoreError
from seqstore.cli.demo import feeds_run
from seqstore.cli.demo.feed import FEEDS, feed_rows
from seqstore.cli.demo.feeds_run import run_feeds
from seqstore.cli.demo.flights import KEY, read_flights
from seqstore.cli.demo.screen import Screen


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return read_flights(3000)


def screen() -> tuple[Screen, io.StringIO]:
    printed = io.StringIO()
    return Screen(Console(file=printed, highlight=False)), printed


@pytest.mark.parametrize("name", FEEDS)
def test_a_feed_guesses_first_repeats_and_shuffles(flights: pa.Table, name: str) -> None:
    """The newest row of a flight by the feed's clock is the source's; a guess is wrong and older."""
    feed = FEEDS[name]
    key, columns = ", ".join(KEY), ", ".join(feed.columns)
    with duckdb.connect() as connection:
        connection.register("sent", feed_rows(flights, feed))
        connection.register("flights", flights)
        connection.execute(
            f"CREATE TABLE ranked AS "
            f"SELECT *, {feed.clock} = max({feed.clock}) OVER (PARTITION BY {key}) AS newest FROM sent"
        )

        def count(query: str) -> int:
            found = connection.execute(f"SELECT count(*) FROM ({query})").fetchone()
            assert found is not None
            return int(found[0])

        source = f"SELECT {key}, {columns} FROM flights"
        newest, guesses = (
            f"SELECT {key}, {columns} FROM ranked WHERE {is_newest}" for is_newest in ("newest", "NOT newest")
        )
        assert count(f"{newest} EXCEPT {source}") == 0
        assert count(f"{guesses} INTERSECT {source}") == 0
        assert 0.07 < count(guesses) / count("FROM sent") < 0.11
        assert count("FROM sent") - count("SELECT DISTINCT * FROM sent") > 100
    clock = np.asarray(feed_rows(flights, feed)[feed.clock].cast(pa.int64()))
    assert (np.diff(clock) < 0).mean() > 0.4


@pytest.mark.long
def test_three_processes_end_in_the_source(flights: pa.Table, tmp_path: Path) -> None:
    shown, printed = screen()
    with Store.open(tmp_path / "data") as store:
        store.create_database("flights")
        table = run_feeds(store, flights, shown)
        labels = {line.label.partition("-")[0] for line in table.history() if line.label}
        assert labels == {"schedule", *FEEDS}
        assert table.check() == []
    assert "3,000 rows, 57,000 values, all equal." in " ".join(printed.getvalue().split())


def test_a_feed_that_fails_is_told(
    flights: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_run, "FEEDS", {"weather": FEEDS["fleet"]})
    with Store.open(tmp_path / "data") as store:
        store.create_database("flights")
        with pytest.raises(StoreError, match=r"(?s)the feed weather ended with 1: .*KeyError: 'weather'"):
            run_feeds(store, flights, screen()[0])
