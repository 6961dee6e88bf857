"""All contests, by name."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.contests import sustained, tpch, ycsb
from bench.contests.scripted import scripted
from bench.engine.site import Site
from bench.inputs import cdc, flights, lake_loader, merges
from bench.inputs.script import Script

_MILLION: Final = 1_000_000


def _whole(site: Site, rows: int, rounds: int) -> Script:
    sizes = site.sizes
    return cdc.whole_keys(sizes.rows, min(rows, sizes.rows), sizes.rounds(rounds), site.seed)


def _composite(site: Site) -> Script:
    sizes = site.sizes
    return cdc.composite_keys(sizes.rows, min(sizes.batch, sizes.rows), sizes.rounds(5), site.seed)


def _partial(site: Site, columns: int) -> Script:
    sizes = site.sizes
    batch = min(sizes.batch, sizes.rows)
    return cdc.partial_updates(sizes.rows, batch, sizes.rounds(5), site.seed, columns=columns)


def _lake_loader(site: Site, pattern: lake_loader.Pattern) -> Script:
    return lake_loader.lake_loader(pattern, site.sizes.rows, site.sizes.rounds(10), site.seed)


def _refresh(site: Site) -> Script:
    return merges.refresh(site.sizes.rows, site.sizes.rounds(merges.REFRESHES), site.seed)


def _micro(site: Site) -> Script:
    return merges.micro(site.sizes.rows, site.sizes.rounds(12), site.seed)


def _flights(site: Site) -> Script:
    return flights.flights(site.sizes.flights, site.sizes.rounds(20) + 1, site.seed)


_FACT: Final = partial(_lake_loader, pattern="fact")
_DIMENSION: Final = partial(_lake_loader, pattern="dimension")
_EVENTS: Final = partial(_lake_loader, pattern="events")
_CDC: Final = "changes of our own mix"
_LAKE: Final = "lake-loader"
_MERGES: Final = "LHBench merges"

CONTESTS: Final = {
    workload.name: workload
    for workload in (
        scripted("cdc_1k", "changes, 1k rows a load", _CDC, partial(_whole, rows=1_000, rounds=20)),
        scripted("cdc_100k", "changes, 100k rows a load", _CDC, partial(_whole, rows=100_000, rounds=5)),
        scripted("cdc_1m", "changes, 1M rows a load", _CDC, partial(_whole, rows=_MILLION, rounds=2)),
        scripted("cdc_text_keys", "changes by a key of text and number, 100k rows a load", _CDC, _composite),
        scripted("cdc_partial_1", "new values of 1 of 8 columns", _CDC, partial(_partial, columns=1)),
        scripted("cdc_partial_4", "new values of 4 of 8 columns", _CDC, partial(_partial, columns=4)),
        scripted(
            "lake_fact", "fact table, updates of recent days", _LAKE, partial(_lake_loader, pattern="fact")
        ),
        scripted(
            "lake_dimension",
            "dimension table, updates all over",
            _LAKE,
            partial(_lake_loader, pattern="dimension"),
        ),
        scripted(
            "lake_events", "events, appended, some late", _LAKE, partial(_lake_loader, pattern="events")
        ),
        scripted("lhbench_refresh", "refreshes of 3 % of a sales table", _MERGES, _refresh),
        scripted("lhbench_micro", "merges of 0.0001 % to 0.1 %", _MERGES, _micro),
        scripted("flights", "the flights of 2013 as events", "flights", _flights),
        *sustained.workloads(),
        *ycsb.workloads(),
        *tpch.workloads(),
    )
}
