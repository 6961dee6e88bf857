"""Writers that share no key: four processes on one table against one that does all their loads.

Every load is small, and the measured part is the one commit point: processes check and stage side by
side, and take turns to plan, and to publish. The processes are started before the clock, and a round is long
enough for its beginning and end, when some of them have nothing to do, not to count.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from bench.engine.site import Site
from bench.trials.trial import Contender, Goal, Trial
from seqstore import Column, Store, TableSchema, parse_type

_PROCESSES: Final = 4
_NAME: Final = "bench.writers"
_opened: dict[str, Store] = {}  # of a writing process


@contextmanager
def disjoint_writers(site: Site, slow: bool) -> Iterator[Trial]:
    """Offers the trial; both ways write the same rows to a table of their own."""
    rows = min(site.sizes.small_batch, site.sizes.rows)
    loads = site.sizes.writer_loads
    rounds, warmups = site.sizes.rounds(15), min(2, site.sizes.rounds_max)
    with ExitStack() as closing:
        many, alone = str(site.new_path("writers4")), str(site.new_path("writers1"))
        for directory in (many, alone):
            _make_table(directory)
        pool = closing.enter_context(ProcessPoolExecutor(_PROCESSES, get_context("spawn")))
        list(pool.map(_load, [(many, writer, 0, rows, 1) for writer in range(_PROCESSES)]))
        solo = closing.enter_context(Store.open(alone))

        def together(number: int) -> None:
            jobs = [(many, writer, number, rows, loads) for writer in range(_PROCESSES)]
            list(pool.map(_load, jobs))

        def one_after_another(number: int) -> None:
            for writer in range(_PROCESSES):
                _upsert(solo, writer, number, rows, loads)

        yield Trial(
            Contender("seqstore, 4 processes", together, check=lambda: _findings(many, rows)),
            [
                Contender(
                    "seqstore, 1 process",
                    one_after_another,
                    check=lambda: _findings(alone, rows),
                    goal=Goal("as fast as one", 1.0, "ratio"),
                )
            ],
            rounds=rounds,
            warmups=warmups,
            rows=rows * loads * _PROCESSES,
        )


def _make_table(directory: str) -> None:
    columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("BIGINT"))]
    with Store.open(directory) as store:
        store.create_database("bench")
        store.create_table(_NAME, TableSchema.create(columns, ["k"]))


def _load(job: tuple[str, int, int, int, int]) -> None:
    directory, writer, number, rows, loads = job
    if directory not in _opened:  # a writer opens its store once, as a service does
        _opened[directory] = Store.open(directory)
    _upsert(_opened[directory], writer, number, rows, loads)


def _upsert(store: Store, writer: int, number: int, rows: int, loads: int) -> None:
    table = store.table(_NAME)
    keys = pa.array(range(writer * rows, (writer + 1) * rows), pa.int64())
    for load in range(loads):
        value = pa.repeat(pa.scalar(number * loads + load, pa.int64()), rows)
        table.upsert(pa.table({"k": keys, "v": value}))


def _findings(directory: str, rows: int) -> list[str]:
    """Every key is there once, with one value a writer."""
    with Store.open(directory) as store:
        found = store.table(_NAME).scan().read_all()
    values = pc.count_distinct(found.column("v")).as_py()
    keys = pc.count_distinct(found.column("k")).as_py()
    expected = rows * _PROCESSES
    if len(found) == keys == expected and values == 1:
        return []
    return [f"{len(found)} rows, {keys} keys, {values} values; expected {expected}, {expected}, 1"]
