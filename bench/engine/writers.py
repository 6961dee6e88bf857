"""Writers that share no key: threads and processes, on one table and on tables of their own.

Every load is small, and the measured part is the one commit point: processes check and stage side by
side, and take turns to plan, and to publish. The processes are started before the clock, and a round is long
enough for its beginning and end, when some of them have nothing to do, not to count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
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
# Kind, how many, tables of their own; the first is compared with the others.
_GRID: Final = (
    ("threads", 2, False),
    ("threads", 1, False),
    ("threads", 4, False),
    ("threads", 8, False),
    ("threads", 2, True),
    ("threads", 4, True),
    ("processes", 1, False),
    ("processes", 2, False),
    ("processes", 4, False),
    ("processes", 2, True),
    ("processes", 4, True),
)
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
        list(pool.map(_load, [(many, writer, 0, rows, 1, _NAME) for writer in range(_PROCESSES)]))
        solo = closing.enter_context(Store.open(alone))

        def together(number: int) -> None:
            jobs = [(many, writer, number, rows, loads, _NAME) for writer in range(_PROCESSES)]
            list(pool.map(_load, jobs))

        def one_after_another(number: int) -> None:
            for writer in range(_PROCESSES):
                _upsert(solo, writer, number, rows, loads, _NAME)

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


@contextmanager
def many_writers(site: Site, slow: bool) -> Iterator[Trial]:
    """Offers seconds a load by 2 threads on one table; yardsticks: one writer, other numbers and places."""
    del slow
    rows = min(site.sizes.small_batch, site.sizes.rows)
    loads = site.sizes.writer_loads
    rounds, warmups = site.sizes.rounds(9), min(1, site.sizes.rounds_max)
    with ExitStack() as closing:
        pool = closing.enter_context(ProcessPoolExecutor(_PROCESSES, get_context("spawn")))
        contenders = [
            _writers(site, closing, pool if kind == "processes" else None, many, own, rows, loads)
            for kind, many, own in _GRID
        ]
        yield Trial(contenders[0], contenders[1:], rounds=rounds, warmups=warmups, rows=rows)


def _writers(
    site: Site,
    closing: ExitStack,
    pool: ProcessPoolExecutor | None,
    many: int,
    own: bool,
    rows: int,
    loads: int,
) -> Contender:
    """Some threads, or processes of a pool; each writer has keys of its own, and a table if `own` says so."""
    directory = str(site.new_path("writers"))
    tables = [_own_name(writer) for writer in range(many)] if own else [_NAME]
    _make_table(directory, *tables)
    threads = closing.enter_context(ThreadPoolExecutor(many)) if pool is None else None
    solo = closing.enter_context(Store.open(directory)) if pool is None else None
    if pool is not None:
        list(pool.map(_open, [directory] * _PROCESSES * 2))

    def act(number: int) -> float:
        began = time.perf_counter()
        jobs = [
            (directory, writer, number, rows, loads, tables[writer % len(tables)]) for writer in range(many)
        ]
        if threads is not None and solo is not None:
            list(threads.map(lambda job: _upsert(solo, *job[1:]), jobs))
        elif pool is not None:
            list(pool.map(_load, jobs))
        return (time.perf_counter() - began) / (loads * many)

    kind = "thread" if pool is None else "process"
    plural = kind + ("es" if kind == "process" else "s")
    name = (
        f"seqstore, {many} {kind if many == 1 else plural}, {'tables of their own' if own else 'one table'}"
    )
    writers = 1 if own else many
    return Contender(
        name,
        act,
        check=lambda: [each for table in tables for each in _findings(directory, rows, table, writers)],
    )


def _own_name(writer: int) -> str:
    return f"{_NAME}_{writer}"


def _open(directory: str) -> None:
    if directory not in _opened:  # a writer opens its store once, as a service does
        _opened[directory] = Store.open(directory)


def _make_table(directory: str, *names: str) -> None:
    columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("BIGINT"))]
    with Store.open(directory) as store:
        store.create_database("bench")
        for name in names or (_NAME,):
            store.create_table(name, TableSchema.create(columns, ["k"]))


def _load(job: tuple[str, int, int, int, int, str]) -> None:
    directory, writer, number, rows, loads, name = job
    _open(directory)
    _upsert(_opened[directory], writer, number, rows, loads, name)


def _upsert(store: Store, writer: int, number: int, rows: int, loads: int, name: str) -> None:
    table = store.table(name)
    keys = pa.array(range(writer * rows, (writer + 1) * rows), pa.int64())
    for load in range(loads):
        value = pa.repeat(pa.scalar(number * loads + load, pa.int64()), rows)
        table.upsert(pa.table({"k": keys, "v": value}))


def _findings(directory: str, rows: int, name: str = _NAME, writers: int = _PROCESSES) -> list[str]:
    """Every key is there once, with one value a writer."""
    with Store.open(directory) as store:
        found = store.table(name).scan().read_all()
    values = pc.count_distinct(found.column("v")).as_py()
    keys = pc.count_distinct(found.column("k")).as_py()
    expected = rows * writers
    if len(found) == keys == expected and values == 1:
        return []
    return [f"{len(found)} rows, {keys} keys, {values} values; expected {expected}, {expected}, 1"]
