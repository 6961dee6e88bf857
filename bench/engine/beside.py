"""Upserts of 1k rows while others read: one thread loads, one scans, one looks up single keys.

Each contender works for some seconds a round, alone on the machine. A value is the median of its loads; the
facts have the 99th percentile of loads, the look-ups, the scans, and the loads of a round without readers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.engine.site import Site
from bench.engine.yardsticks import KeyedDuckDB
from bench.inputs.orders import KEY
from bench.limits.floors import consume
from bench.trials.trial import Contender, Goal, Trial

_SECONDS: Final = 5.0  # of a round, times `Sizes.client_seconds`
_POOL: Final = 64
Seconds = list[float]


@dataclass
class _Reader:
    """What one store does in a round; each call is of one thread.

    Attributes:
        upsert: loads a batch.
        scan: reads every byte of the table.
        look_up: reads the row of one key.
    """

    upsert: Callable[[pa.Table], object]
    scan: Callable[[], object]
    look_up: Callable[[int], object]
    loads: Seconds = field(default_factory=list)
    loads_alone: Seconds = field(default_factory=list)
    scans: Seconds = field(default_factory=list)
    lookups: Seconds = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Seconds: quantiles of each kind of work."""
        return {
            "loads": _quantiles(self.loads),
            "loads_alone": _quantiles(self.loads_alone),
            "lookups": _quantiles(self.lookups),
            "scans": _quantiles(self.scans),
        }


@contextmanager
def upserts_beside_readers(site: Site, slow: bool) -> Iterator[Trial]:
    """Offers the trial; the peer is DuckDB with a primary key, a cursor for each thread."""
    del slow
    size = min(site.sizes.small_batch, site.sizes.rows)
    batches = list(islice(site.batches(size), _POOL))
    keys = [int(key) for key in site.wanted_keys(3, 10_000)]
    seconds = _SECONDS * site.sizes.client_seconds
    with ExitStack() as closing:
        ours = site.new_table(site.base)
        closing.callback(ours.close)
        keyed = KeyedDuckDB(site.new_path("beside.duckdb"), site.base)
        closing.callback(keyed.close)
        scanning, looking = keyed.beside(), keyed.beside()
        wanted = [pa.table({KEY: np.array([key])}) for key in keys]
        readers = (
            _Reader(
                ours.upsert,
                lambda: consume(ours.table.scan()),
                lambda number: ours.table.get(wanted[number % len(wanted)]),
            ),
            _Reader(
                keyed.upsert,
                lambda: consume(scanning.scan()),
                lambda number: looking.look_up_one(keys[number % len(keys)]),
            ),
        )
        mine, theirs = (
            Contender(name, _round(reader, batches, seconds), check=check, settle=settle, facts=reader.facts)
            for name, reader, check, settle in (
                (
                    "seqstore",
                    readers[0],
                    lambda: site.oracle(ours.loads).differences(ours.table.scan()),
                    ours.store.maintainer.wait,
                ),
                (
                    "DuckDB, primary key",
                    readers[1],
                    lambda: site.oracle(keyed.loads).differences(keyed.scan()),
                    None,
                ),
            )
        )
        yield Trial(
            mine, [theirs], rounds=site.sizes.rounds(3), warmups=0, goals=[Goal("5 ms", 5e-3, "value")]
        )


def _round(reader: _Reader, batches: list[pa.Table], seconds: float) -> Callable[[int], float]:
    numbers = count()

    def upsert() -> None:
        reader.upsert(batches[next(numbers) % len(batches)])

    def work(_: int) -> float:
        _repeat(upsert, reader.loads_alone, time.perf_counter() + seconds / 2)
        until, before, errors = time.perf_counter() + seconds, len(reader.loads), []

        def run(act: Callable[[], object], taken: Seconds) -> None:
            try:
                _repeat(act, taken, until)
            except BaseException as error:
                errors.append(error)

        looked = count()
        jobs = (
            (upsert, reader.loads),
            (reader.scan, reader.scans),
            (lambda: reader.look_up(next(looked)), reader.lookups),
        )
        threads = [threading.Thread(target=run, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return median(reader.loads[before:])

    return work


def _repeat(act: Callable[[], object], taken: Seconds, until: float) -> None:
    """Repeats a call, at least once, until the time is over."""
    while True:
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
        if time.perf_counter() >= until:
            return


def _quantiles(values: Seconds) -> dict[str, float]:
    cuts = np.quantile(values, (0.5, 0.99))
    return {"p50": float(cuts[0]), "p99": float(cuts[1]), "count": len(values)}
