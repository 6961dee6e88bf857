"""How cost grows with the rows stored: the same work on tables of ours of several sizes, in turns.

Our engine is the largest table, the yardsticks are the smaller ones (`Sizes.growth`), so that a ratio tells
how much the work grew. The tables are shared, and run together the workloads stand in the order of `GROWTH`.
The rows to load are mapped files, and no base is ever in memory: 100M rows need 40 GB of disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.engine.memory import AnonymousPeak, sizes
from bench.engine.site import GrowingTable, Site
from bench.engine.workload import Workload
from bench.inputs.orders import KEY, Keys, key_count
from bench.limits import floors
from bench.trials.trial import Contender, Goal, Trial

_FLAT: Final = Goal("1.3x", 1.3, "ratio")
_CHECKED_KEYS: Final = 10_000
_CHECK: Final = 1_000_000  # numbers the keys of checks apart from those of rounds
_UNIT_ROWS: Final = 1_000_000

Act = Callable[[int], Any]


def _contenders(
    site: Site, act: Callable[[GrowingTable], Act], *, is_whole: bool = False, goal: Goal | None = _FLAT
) -> tuple[Contender, list[Contender]]:
    """Our engine on the largest table, and on each of the smaller ones.

    Args:
        act: makes the work on a table.
        is_whole: every row is compared at the end, not those of some keys.
    """
    made = []
    for table in site.growing:
        keys = None if is_whole else _keys(site, table, _CHECK, _CHECKED_KEYS)
        is_largest = table is site.growing[-1]
        made.append(
            Contender(
                "seqstore" if is_largest else f"seqstore at {table.base_size / 1e6:g} M stored",
                act(table),
                check=partial(_differences, table, keys),
                settle=partial(_settle, table),
                goal=None if is_largest else goal,
                facts=partial(_facts, table),
            )
        )
    return made[-1], made[:-1]


def _settle(table: GrowingTable) -> None:
    table.store.maintainer.wait()


def _maintain(table: GrowingTable) -> None:
    """Does what a server does once the rows of a load were looked at: merges segments that overlap."""
    table.table.get(pa.table({KEY: [0]}))
    table.store.maintain()
    table.store.maintainer.wait()
    table.table.vacuum(retention_seconds=0)


def _differences(table: GrowingTable, keys: Keys | None) -> list[str]:
    try:
        return table.differences(keys)
    finally:
        table.forget_base()


def _facts(table: GrowingTable) -> dict[str, Any]:
    files = sum(file.stat().st_size for file in table.path.rglob("*") if file.is_file())
    state = table.table.state()
    return {"base_rows": table.base_size, "disk_bytes": files, "segments": len(state.segments)}


def _keys(site: Site, table: GrowingTable, number: int, many: int) -> Keys:
    """Keys of a round, one in twenty of them without a row."""
    rng = np.random.default_rng((site.seed, number, table.base_size))
    return rng.choice(key_count(table.base_size), min(many, table.base_size), replace=False)


@contextmanager
def _bulk_load(site: Site, slow: bool) -> Iterator[Trial]:
    peaks: dict[int, int] = {}

    def load(table: GrowingTable, _: int) -> float:
        before = sizes()["RssAnon"]
        started = time.perf_counter()
        with AnonymousPeak() as peak:
            table.load_base()
        seconds = time.perf_counter() - started
        peaks[table.base_size] = peak.value - before
        table.forget_base()
        return seconds / table.base_size * _UNIT_ROWS

    ours, others = _contenders(site, lambda table: partial(load, table))
    for contender, table in zip((*others, ours), site.growing, strict=True):
        contender.facts = partial(_bulk_facts, table, peaks)
        contender.settle = partial(_maintain, table)
    yield Trial(ours, others, rounds=1, warmups=0, rows=_UNIT_ROWS, goals=[Goal("0.25 s", 0.25, "value")])


def _bulk_facts(table: GrowingTable, peaks: dict[int, int]) -> dict[str, Any]:
    return {**_facts(table), "anonymous_peak": peaks[table.base_size]}


@contextmanager
def _upsert(site: Site, slow: bool, *, rows: int, rounds: int, is_last: bool) -> Iterator[Trial]:
    rounds, warmups = site.sizes.rounds(rounds), min(2, site.sizes.rounds_max)
    _fill(site)

    def upsert(table: GrowingTable) -> Act:
        size = min(rows, table.base_size)
        batches = list(islice(site.batches(size, base=table.base_size), warmups + rounds))
        return lambda number: _no_value(table.upsert(batches[number]))

    ours, others = _contenders(site, upsert, is_whole=is_last)
    yield Trial(ours, others, rounds=rounds, warmups=warmups, rows=min(rows, site.sizes.rows))


@contextmanager
def _look_up(site: Site, slow: bool, *, keys: int, rounds: int) -> Iterator[Trial]:
    rounds, warmups = site.sizes.rounds(rounds), min(20, site.sizes.rounds_max)
    _fill(site)

    def look_up(table: GrowingTable) -> Act:
        wanted = [pa.table({KEY: _keys(site, table, i, keys)}) for i in range(warmups + rounds)]
        return lambda number: _no_value(table.table.get(wanted[number]))

    ours, others = _contenders(site, look_up)
    yield Trial(ours, others, rounds=rounds, warmups=warmups, rows=keys)


@contextmanager
def _scan(site: Site, slow: bool) -> Iterator[Trial]:
    _fill(site)

    def scan(table: GrowingTable, _: int) -> float:
        started = time.perf_counter()
        rows = floors.consume(table.table.scan())
        return (time.perf_counter() - started) / rows * _UNIT_ROWS

    ours, others = _contenders(site, lambda table: partial(scan, table))
    yield Trial(ours, others, rounds=site.sizes.rounds(3), warmups=1, rows=_UNIT_ROWS)


@contextmanager
def _open(site: Site, slow: bool) -> Iterator[Trial]:
    _fill(site)
    ours, others = _contenders(site, lambda table: lambda _: table.reopen(), goal=None)
    yield Trial(ours, others, rounds=site.sizes.rounds(5), warmups=1)


def _fill(site: Site) -> None:
    """Loads the bases that `growth_bulk_load` has not."""
    for table in site.growing:
        if not table.is_loaded:
            table.load_base()
            table.forget_base()
            _maintain(table)


def _no_value(_: object) -> None:
    """For a timed call whose result is of no interest: the time it took is what counts."""


def _workload(name: str, title: str, prepare: Callable[..., Any]) -> Workload:
    return Workload(f"growth_{name}", title, prepare, group="growth with the rows stored", is_usual=False)


GROWTH: Final = {
    workload.name: workload
    for workload in (
        _workload("bulk_load", "bulk load, a million rows", _bulk_load),
        _workload(
            "upsert_100k",
            "upsert of 100k rows",
            partial(_upsert, rows=100_000, rounds=11, is_last=False),
        ),
        _workload("upsert_1k", "upsert of 1k rows", partial(_upsert, rows=1_000, rounds=61, is_last=True)),
        _workload("lookup_1", "one look-up", partial(_look_up, keys=1, rounds=301)),
        _workload("lookup_10k", "10k look-ups", partial(_look_up, keys=10_000, rounds=15)),
        _workload("scan", "scan, a million rows", _scan),
        _workload("open", "opening the store and reading a row", _open),
    )
}
