"""What a table needs on disk: at rest after OPTIMIZE, and while small loads go on and versions thin out."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any, Final

import pyarrow as pa

from bench.engine.site import NAME, Site
from bench.inputs.oracle import LoadedRows
from bench.inputs.orders import table_schema
from bench.limits import floors
from bench.trials.trial import Contender, Goal, Trial
from seqstore import Settings, Store, Table

_UPSERTS: Final = 5
_SCANS: Final = 5
_STEADY_SECONDS: Final = 60.0  # times `Sizes.client_seconds`
_LOADS_A_SECOND: Final = 50
_POOL: Final = 64
# A day, of which all versions of the first hours stay, then fewer.
_KEPT: Final = {"version_retention_seconds": "30", "version_thinning": "2:1,10:10"}
_SETTINGS: Final = Settings(vacuum_seconds=5)
_KEPT_INPUT_SECONDS: Final = 10.0

_FORMS: Final = {
    "seqstore, compression = zstd": {"compression": "zstd"},
    "seqstore, as it is by default": {},
    "seqstore, storage_format = parquet": {"storage_format": "parquet"},
}


@contextmanager
def disk_at_rest(site: Site, slow: bool) -> Iterator[Trial]:
    """Offers bytes after OPTIMIZE FULL and VACUUM; yardsticks: other forms, and the rows as Parquet files."""
    del slow
    batch = min(site.sizes.batch, site.sizes.rows)
    changes = list(islice(site.batches(batch), _UPSERTS))
    loads = [LoadedRows(site.base), *map(LoadedRows, changes)]
    with ExitStack() as closing:
        contenders = []
        for name, properties in _FORMS.items():
            store = closing.enter_context(Store.open(site.new_path("rest")))
            store.create_database("bench")
            table = store.create_table(NAME, table_schema(**properties))
            for load in loads:
                table.upsert(load.rows)
            store.maintainer.wait()
            table.optimize(full=True)
            table.vacuum(retention_seconds=0)
            contenders.append(
                Contender(
                    name,
                    partial(_bytes_of, store.path),
                    check=partial(_differences, site, loads, table),
                    facts=partial(_scan_seconds, table),
                )
            )
        parquet = site.new_path("parquet")
        floors.write_parquet(parquet, site.oracle(loads).live_tables())
        ours, *others = contenders
        others.append(
            Contender(
                "the live rows as Parquet files (zstd)",
                partial(_bytes_of, parquet),
                goal=Goal("1.2x", 1.2, "ratio"),
            )
        )
        yield Trial(ours, others, rounds=1, warmups=0, unit="bytes")


@contextmanager
def disk_beside_loads(site: Site, slow: bool) -> Iterator[Trial]:
    """Offers bytes after a minute of 50 loads of 1k rows a second; a day of retention is 30 seconds here."""
    del slow
    rows = min(site.sizes.small_batch, site.sizes.rows)
    pool = list(islice(site.batches(rows), _POOL))
    seconds = _STEADY_SECONDS * site.sizes.client_seconds
    loads: list[LoadedRows] = [LoadedRows(site.base)]
    with ExitStack() as closing:
        store = closing.enter_context(Store.open(site.new_path("steady"), settings=_SETTINGS))
        store.create_database("bench")
        table = store.create_table(NAME, table_schema(**_KEPT))
        table.upsert(site.base)
        found: dict[str, float] = {}

        def act(_: int) -> int:
            found.update(_load_steadily(store, table, pool, loads, seconds))
            return _bytes_of(store.path, 0)

        def expected(_: int) -> int:
            live: int = sum(batch.nbytes for batch in table.scan())
            input_bytes = (
                sum(each.nbytes for each in pool) / len(pool) * _LOADS_A_SECOND * _KEPT_INPUT_SECONDS
            )
            return 2 * live + int(input_bytes)

        yield Trial(
            Contender(
                "seqstore", act, check=partial(_differences, site, loads, table), facts=lambda: dict(found)
            ),
            [
                Contender(
                    "twice the live rows and a third of the input of the retention",
                    expected,
                    goal=Goal("1x", 1.0, "ratio"),
                )
            ],
            rounds=1,
            warmups=0,
            unit="bytes",
        )


def _load_steadily(
    store: Store, table: Table, pool: list[pa.Table], loads: list[LoadedRows], seconds: float
) -> dict[str, float]:
    """Loads at the pace, with the maintenance that a server does; returns facts of it."""
    ended = threading.Event()

    def maintain() -> None:
        while not ended.wait(0.5):
            store.maintain()

    maintaining = threading.Thread(target=maintain)
    maintaining.start()
    started, most = time.perf_counter(), 0
    for number in count():
        due = started + number / _LOADS_A_SECOND
        if due - started >= seconds:
            break
        time.sleep(max(due - time.perf_counter(), 0.0))
        loads.append(LoadedRows(pool[number % len(pool)]))
        table.upsert(loads[-1].rows)
        if number % _LOADS_A_SECOND == 0:
            most = max(most, _bytes_of(store.path, 0))
    took = time.perf_counter() - started
    ended.set()
    maintaining.join()
    return {"loads_a_second": (len(loads) - 1) / took, "most_bytes": most}


def _bytes_of(path: Path, _: int) -> int:
    total = 0
    for file in path.rglob("*"):
        try:
            total += file.stat().st_blocks * 512
        except FileNotFoundError:  # removed meanwhile
            continue
    return total


def _differences(site: Site, loads: list[LoadedRows], table: Table) -> list[str]:
    return site.oracle(loads).differences(table.scan())


def _scan_seconds(table: Table) -> dict[str, Any]:
    taken = []
    for _ in range(_SCANS):
        started = time.perf_counter()
        floors.consume(table.scan())
        taken.append(time.perf_counter() - started)
    return {"scan_seconds": median(taken)}
