"""The workloads, by name. Each sets up its tables, then offers a trial: our engine and its yardsticks.

A workload is a context manager, so that what it made is closed and removed before the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from bench.engine import memory
from bench.engine.beside import upserts_beside_readers
from bench.engine.commands import first_query
from bench.engine.composite import composite_look_ups
from bench.engine.disk import disk_at_rest, disk_beside_loads
from bench.engine.site import OurTable, Site
from bench.engine.workload import Workload
from bench.engine.writers import disjoint_writers, many_writers
from bench.engine.yardsticks import FIRST_ROWS, AppendingDuckDB, DeltaTable, KeyedDuckDB, has_delta
from bench.inputs.oracle import LoadedRows
from bench.inputs.orders import KEY
from bench.inputs.price_changes import PRICE, price_changes, repriced
from bench.limits import floors
from bench.trials.trial import Contender, Goal, Trial
from seqstore import Session
from seqstore.store.check.write_modes import UpdateMode

_SLOW_ROUNDS: Final = 3


@contextmanager
def _bulk_load(site: Site, slow: bool) -> Iterator[Trial]:
    base, rounds = site.base, site.sizes.rounds(3)
    tables: list[OurTable] = []
    written: list[Path] = []

    def make_table(_: int) -> None:
        tables.append(site.new_table())

    def drop_all_but_last(_: int) -> None:
        if len(tables) > 1:
            _discard(site, tables.pop(0))

    def write(kind: Callable[[Path, list[pa.Table]], None], _: int) -> None:
        written.append(site.new_path("files"))
        kind(written[-1], [base])

    def remove_files(_: int) -> None:
        site.remove(written.pop())

    ours = Contender(
        "seqstore",
        lambda _: _no_value(tables[-1].upsert(base)),
        before=make_table,
        after=drop_all_but_last,
        check=lambda: _differences(site, tables[-1]),
    )
    yardsticks = [
        Contender("the rows as plain Arrow files", partial(write, floors.write_arrow), after=remove_files),
        Contender(
            "the rows as Parquet files (zstd)", partial(write, floors.write_parquet), after=remove_files
        ),
        Contender(
            "DuckDB, primary key",
            lambda _: site.keyed_duckdb.load_seconds,
            check=lambda: _differences(site, site.keyed_duckdb),
            rounds=1,
            warms_up=False,
        ),
    ]
    goal = Goal("2.5 M rows/s", 2.5e6, "rows_per_second")
    yield Trial(ours, yardsticks, rounds=rounds, warmups=0, rows=len(base), goals=[goal])
    _discard(site, tables[-1])


@contextmanager
def _upsert_large(site: Site, slow: bool) -> Iterator[Trial]:
    size = min(site.sizes.batch, site.sizes.rows)
    rounds, warmups = site.sizes.rounds(11), 2
    batches = list(islice(site.batches(size), warmups + rounds))
    with ExitStack() as closing:
        ours = _our_table(site, site.base, closing)
        appending = AppendingDuckDB(site.new_path("appending.duckdb"))
        closing.callback(appending.close)
        files = site.new_path("files")
        yardsticks = [
            Contender(
                "DuckDB append, no key",
                lambda i: appending.append(batches[i]),
                check=appending.findings,
                goal=Goal("1.25x", 1.25, "ratio"),
            ),
            Contender(
                "the batch as an Arrow file, synced",
                lambda i: floors.write_arrow(files / str(i), [batches[i]]),
                after=lambda i: site.remove(files / str(i)),
            ),
        ]
        if site.sizes.rows > site.sizes.small_rows:
            yardsticks.append(_at_small_size(site, size, warmups + rounds, closing))
        if slow:
            yardsticks += _slow_upserts(site, batches, closing)
        yield Trial(
            Contender(
                "seqstore",
                lambda i: _no_value(ours.upsert(batches[i])),
                check=lambda: _differences(site, ours),
            ),
            yardsticks,
            rounds=rounds,
            warmups=warmups,
            rows=size,
            goals=[Goal("1.2 M rows/s", 1.2e6, "rows_per_second")],
        )


def _at_small_size(site: Site, size: int, many: int, closing: ExitStack) -> Contender:
    """The same work on a small table of ours: how cost grows with the rows stored."""
    small = site.sizes.small_rows
    table = _our_table(site, site.small_base, closing)
    batches = list(islice(site.batches(size, base=small), many))
    return Contender(
        f"seqstore at {small / 1e6:g} M stored",
        lambda i: _no_value(table.upsert(batches[i])),
        check=lambda: _differences(site, table),
        goal=Goal("1.3x", 1.3, "ratio"),
    )


def _slow_upserts(site: Site, batches: list[pa.Table], closing: ExitStack) -> list[Contender]:
    keyed = KeyedDuckDB(site.new_path("upsert.duckdb"), site.base)
    closing.callback(keyed.close)
    contenders = [
        Contender(
            "DuckDB ON CONFLICT, primary key",
            lambda i: keyed.upsert(batches[i]),
            check=lambda: _differences(site, keyed),
            rounds=_SLOW_ROUNDS,
            warms_up=False,
        )
    ]
    if has_delta():
        delta = DeltaTable(site.new_path("delta"), site.base)
        contenders.append(
            Contender(
                "delta-rs MERGE (not synced)",
                lambda i: delta.upsert(batches[i]),
                check=lambda: _differences(site, delta),
                rounds=_SLOW_ROUNDS,
                warms_up=False,
            )
        )
    return contenders


@contextmanager
def _upsert_small(site: Site, slow: bool) -> Iterator[Trial]:
    size = min(site.sizes.small_batch, site.sizes.rows)
    rounds, warmups = site.sizes.rounds(61), min(5, site.sizes.rounds_max)
    batches = list(islice(site.batches(size), warmups + rounds))
    records = [floors.serialised(batch) for batch in batches]
    with ExitStack() as closing:
        ours = _our_table(site, site.base, closing)
        appending = AppendingDuckDB(site.new_path("appending.duckdb"))
        closing.callback(appending.close)
        catalog = floors.BareCatalog(site.new_path("lmdb"))
        closing.callback(catalog.close)
        synced = floors.SyncedFile(site.new_path("synced"))
        closing.callback(synced.close)
        yield Trial(
            Contender(
                "seqstore",
                lambda i: _no_value(ours.upsert(batches[i])),
                check=lambda: _differences(site, ours),
            ),
            [
                Contender("write and fsync of 4 KiB", synced.append),
                Contender("LMDB commit of the batch's bytes", lambda i: catalog.commit(i, records[i])),
                Contender(
                    "DuckDB append, no key", lambda i: appending.append(batches[i]), check=appending.findings
                ),
            ],
            rounds=rounds,
            warmups=warmups,
            rows=size,
            goals=[Goal("5 ms", 5e-3, "value")],
        )


@contextmanager
def _partial(site: Site, slow: bool) -> Iterator[Trial]:
    size = min(site.sizes.batch, site.sizes.rows)
    rounds, warmups = site.sizes.rounds(11), 2
    batches = [price_changes(site.sizes.rows, size, i, site.seed) for i in range(warmups + rounds)]
    with ExitStack() as closing:
        ours = _our_table(site, site.base, closing)
        keyed = KeyedDuckDB(site.new_path("update.duckdb"), site.base)
        closing.callback(keyed.close)

        def check(rows: Iterable[pa.RecordBatch], *, first: int = 0, last: int | None = None) -> list[str]:
            return site.oracle(repriced(site.base, batches[first:last])).differences(rows)

        def change(number: int) -> None:
            ours.table.upsert(batches[number], mode=UpdateMode.FIXED)

        yardsticks = [
            Contender(
                "DuckDB UPDATE, primary key",
                lambda i: keyed.change(batches[i], PRICE),
                check=lambda: check(keyed.scan()),
            )
        ]
        if slow and has_delta():
            delta = DeltaTable(site.new_path("delta"), site.base)
            few = min(_SLOW_ROUNDS, rounds)
            yardsticks.append(
                Contender(
                    "delta-rs MERGE (not synced)",
                    lambda i: delta.change(batches[i], PRICE),
                    check=lambda: check(delta.scan(), first=warmups, last=warmups + few),
                    rounds=few,
                    warms_up=False,
                )
            )
        yield Trial(
            Contender("seqstore", change, check=lambda: check(ours.table.scan())),
            yardsticks,
            rounds=rounds,
            warmups=warmups,
            rows=size,
            goals=[Goal("0.67 M rows/s", 0.67e6, "rows_per_second")],
        )


@contextmanager
def _scan(site: Site, slow: bool) -> Iterator[Trial]:
    ours, oracle = site.read_state, site.read_state_oracle
    rows = int(oracle.live.sum())
    files = site.new_path("live")
    floors.write_arrow(files, oracle.live_tables())
    duckdb = site.duckdb_read_state
    half = Goal("2x", 2.0, "ratio")
    yield Trial(
        Contender(
            "seqstore",
            lambda _: _no_value(floors.consume(ours.table.scan())),
            check=lambda: oracle.differences(ours.table.scan()),
        ),
        [
            Contender(
                "Arrow files, mapped",
                lambda _: _no_value(floors.consume(floors.mapped_batches(files))),
                check=lambda: oracle.differences(floors.mapped_batches(files)),
                goal=half,
            ),
            Contender(
                "Arrow files, read into memory",
                lambda _: _no_value(floors.consume(floors.read_batches(files))),
                goal=half,
            ),
            Contender(
                "DuckDB, primary key",
                lambda _: _no_value(floors.consume(duckdb.scan())),
                check=lambda: oracle.differences(duckdb.scan()),
            ),
        ],
        rounds=site.sizes.rounds(9),
        warmups=2,
        rows=rows,
    )
    site.remove(files)


@contextmanager
def _lookups(site: Site, slow: bool) -> Iterator[Trial]:
    ours, duckdb, oracle = site.read_state, site.duckdb_read_state, site.read_state_oracle

    def check(look_up: Callable[[pa.Table], pa.Table]) -> list[str]:
        found = look_up(site.wanted(0)).to_batches()
        return oracle.differences(found, among=site.wanted_keys(0, site.sizes.lookups))

    rounds, warmups = site.sizes.rounds(15), 2
    wanted = [site.wanted(i) for i in range(warmups + rounds)]
    yield Trial(
        Contender(
            "seqstore", lambda i: _no_value(ours.table.get(wanted[i])), check=lambda: check(ours.table.get)
        ),
        [
            Contender(
                "DuckDB, primary key",
                lambda i: _no_value(duckdb.look_up(wanted[i])),
                check=lambda: check(duckdb.look_up),
            )
        ],
        rounds=rounds,
        warmups=warmups,
        rows=len(wanted[0]),
        goals=[Goal("40 ms", 40e-3, "value")],
    )


@contextmanager
def _one_lookup(site: Site, slow: bool) -> Iterator[Trial]:
    ours, duckdb, oracle = site.read_state, site.duckdb_read_state, site.read_state_oracle
    rounds, warmups = site.sizes.rounds(301), min(20, site.sizes.rounds_max)
    keys = site.wanted_keys(1, warmups + rounds)
    wanted = [pa.table({KEY: keys[i : i + 1]}) for i in range(len(keys))]

    def check() -> list[str]:
        found = (batch for keys in wanted[:20] for batch in ours.table.get(keys).to_batches())
        return oracle.differences(found, among=keys[:20])

    yield Trial(
        Contender("seqstore", lambda i: _no_value(ours.table.get(wanted[i])), check=check),
        [
            Contender(
                "DuckDB, primary key",
                lambda i: _no_value(duckdb.look_up_one(int(keys[i]))),
            )
        ],
        rounds=rounds,
        warmups=warmups,
        rows=1,
        goals=[Goal("0.5 ms", 0.5e-3, "value")],
    )


@contextmanager
def _first_rows(site: Site, slow: bool) -> Iterator[Trial]:
    """The scan of YCSB's workload E: 20 rows from a random key on."""
    ours, duckdb, oracle = site.read_state, site.duckdb_read_state, site.read_state_oracle
    rounds, warmups = site.sizes.rounds(101), min(20, site.sizes.rounds_max)
    starts = [int(key) for key in site.wanted_keys(2, warmups + rounds)]

    def check(read: Callable[[int], pa.Table]) -> list[str]:
        for start in starts[:20]:
            keys = start + np.flatnonzero(oracle.live[start : start + 1_000])[:20]
            if read(start).column(KEY).to_pylist() != keys.tolist():
                return [f"other rows from {start} on"]
        return []

    with Session(ours.store, "bench") as session:

        def read(start: int) -> pa.Table:
            found = next(iter(session.execute(FIRST_ROWS.format(start)))).rows
            assert found is not None
            return found

        yield Trial(
            Contender("seqstore", lambda i: _no_value(read(starts[i])), check=lambda: check(read)),
            [
                Contender(
                    "DuckDB, primary key",
                    lambda i: _no_value(duckdb.first_rows(starts[i])),
                    check=lambda: check(duckdb.first_rows),
                )
            ],
            rounds=rounds,
            warmups=warmups,
            rows=20,
            goals=[Goal("5 ms", 5e-3, "value")],
        )


@contextmanager
def _count(site: Site, slow: bool) -> Iterator[Trial]:
    ours, duckdb = site.read_state, site.duckdb_read_state
    expected = int(site.read_state_oracle.live.sum())

    def check(count: Callable[[], int]) -> list[str]:
        found = count()
        return [] if found == expected else [f"counted {found} rows, expected {expected}"]

    yield Trial(
        Contender("seqstore", lambda _: _no_value(ours.table.count()), check=lambda: check(ours.table.count)),
        [
            Contender(
                "DuckDB, primary key", lambda _: _no_value(duckdb.count()), check=lambda: check(duckdb.count)
            )
        ],
        rounds=site.sizes.rounds(101),
        warmups=min(5, site.sizes.rounds_max),
    )


@contextmanager
def _memory_load(site: Site, slow: bool) -> Iterator[Trial]:
    size = min(site.sizes.memory_batch, site.sizes.rows)
    with ExitStack() as closing:
        ours = _our_table(site, site.base, closing)
        ours.loads += [LoadedRows(batch) for batch in islice(site.batches(size), 1)]
        figures = memory.measure_load(ours.path, base=site.sizes.rows, batch=size, seed=site.seed)
        yield _memory_trial(figures, rows=size, check=lambda: _differences(site, ours))


@contextmanager
def _memory_bulk(site: Site, slow: bool) -> Iterator[Trial]:
    path = site.new_path("ours")
    figures = memory.measure_load(path, base=0, batch=site.sizes.rows, seed=site.seed)
    ours = OurTable(path)
    ours.loads.append(LoadedRows(site.base))
    yield _memory_trial(figures, rows=site.sizes.rows, check=lambda: _differences(site, ours))
    _discard(site, ours)


def _memory_trial(figures: dict[str, int], *, rows: int, check: Callable[[], list[str]]) -> Trial:
    resident = figures["resident_peak"] - figures["resident_before"]
    anonymous = figures["anonymous_peak"] - figures["anonymous_before"]
    return Trial(
        Contender("seqstore", lambda _: resident, check=check),
        [
            Contender("the batch itself", lambda _: figures["batch"], goal=Goal("4x", 4.0, "ratio")),
            Contender("of it, not mapped from files", lambda _: anonymous),
        ],
        rounds=1,
        warmups=0,
        rows=rows,
        unit="bytes",
    )


def _our_table(site: Site, base: pa.Table, closing: ExitStack) -> OurTable:
    table = site.new_table(base)
    closing.callback(lambda: _discard(site, table))
    return table


def _discard(site: Site, table: OurTable) -> None:
    table.close()
    site.remove(table.path)


def _differences(site: Site, store: OurTable | KeyedDuckDB | DeltaTable) -> list[str]:
    batches = store.table.scan() if isinstance(store, OurTable) else store.scan()
    return site.oracle(store.loads).differences(batches)


def _no_value(_: object) -> None:
    """For a timed call whose result is of no interest: the time it took is what counts."""


_COMPOSITE_ONE: Final = partial(
    composite_look_ups, keys=1, rounds=301, goal=Goal("0.15 ms", 0.15e-3, "value")
)
_COMPOSITE_MANY: Final = partial(
    composite_look_ups, keys=10_000, rounds=15, goal=Goal("10 ms", 10e-3, "value")
)

WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload("bulk_load", "bulk load, random order", _bulk_load),
        Workload("upsert_100k", "upsert of 100k rows", _upsert_large),
        Workload("upsert_1k", "upsert of 1k rows", _upsert_small),
        Workload("writers", "small upserts of disjoint keys, 4 processes", disjoint_writers),
        Workload("partial_100k", "partial update of 1 of 8 columns, 100k rows", _partial),
        Workload("scan", "full scan, 5 % of the rows dead", _scan),
        Workload("lookup_10k", "10k look-ups in one call", _lookups),
        Workload("lookup_1", "one look-up", _one_lookup),
        Workload("first_rows", "20 rows from a key on, in its order", _first_rows),
        Workload("count", "count", _count),
        Workload(
            "upsert_1k_beside", "upsert of 1k rows beside a scanner and look-ups", upserts_beside_readers
        ),
        Workload("writers_grid", "upserts of 1k rows, threads and processes, seconds a load", many_writers),
        Workload("composite_lookup_1", "one look-up by a text and a number", _COMPOSITE_ONE),
        Workload("composite_lookup_10k", "10k look-ups by a text and a number", _COMPOSITE_MANY),
        Workload("disk_at_rest", "disk after OPTIMIZE", disk_at_rest),
        Workload("disk_beside_loads", "disk beside 50 loads of 1k rows a second", disk_beside_loads),
        Workload("first_query", "seqstore sql -e 'select 1'", first_query),
        Workload("memory_load", "peak memory of a load of 1M rows", _memory_load, memory.is_available),
        Workload("memory_bulk", "peak memory of the bulk load", _memory_bulk, memory.is_available),
    )
}
