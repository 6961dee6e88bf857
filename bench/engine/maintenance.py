"""What many small loads cost in the long run, compaction beside them.

    python -m bench.engine.maintenance [LOADS]

1. Load 1M rows, then LOADS times 1,000 rows whose keys are drawn from twice as many; with compaction after
   loads, and again without it (a fifth as many loads), for the latency of loads.
2. Load the rows that are left at once into another table, and compare scan and an upsert of 100k rows: as the
   last load left the table, and when `Store.maintain`, which `serve` calls all the time, has nothing more to
   do for it.
3. Read the change feed of one version of 100k rows out of 10M.

Prints one line of JSON. Space is that of the segment files, as a multiple of those of the newest version;
nothing is vacuumed meanwhile, for versions are kept for a day.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore import Column, Settings, Store, Table, TableSchema, parse_type

BASE_ROWS: Final = 1_000_000
LOAD_ROWS: Final = 1_000
UPSERT_ROWS: Final = 100_000
FEED_ROWS: Final = 10_000_000
SETTLE_SECONDS_MAX: Final = 300.0
DEAD_SHARE_LEFT: Final = 0.0001  # with fewer dead rows, maintenance has nothing more to do


def rows(keys: Any, number: int) -> pa.Table:
    """Rows of about 100 bytes."""
    count = len(keys)
    values = {f"v{i}": np.full(count, number + i) for i in range(6)}
    texts = pa.array(np.char.add("text-of-some-length-", (keys % 100_000).astype(str)))
    return pa.table({"k": keys, **values, "t": texts})


def make(store: Store, name: str) -> Table:
    """An empty table."""
    columns = [Column("k", parse_type("bigint"), False)]
    columns += [Column(f"v{i}", parse_type("bigint")) for i in range(6)]
    columns.append(Column("t", parse_type("varchar(40)")))
    return store.create_table(name, TableSchema.create(columns, ["k"]))


def small_loads(store: Store, table: Table, loads: int) -> dict[str, float]:
    """Latency of loads in milliseconds, and what was written."""
    rng = np.random.default_rng(7)
    table.upsert(rows(np.arange(BASE_ROWS), 0))
    times = []
    most, segments = 0, 0
    for number in range(loads):
        data = rows(rng.choice(2 * BASE_ROWS, LOAD_ROWS, replace=False), number)
        started = time.perf_counter()
        table.upsert(data)
        times.append((time.perf_counter() - started) * 1000)
        most = max(most, len(table.state().segments))
        segments += len(table.state().segments)
    store.maintainer.wait()
    history = table.history()
    return {
        "median_ms": round(statistics.median(times), 2),
        "p99_ms": round(float(np.percentile(times, 99)), 2),
        "last_tenth_median_ms": round(statistics.median(times[-max(loads // 10, 1) :]), 2),
        "segments_most": most,
        "segments_mean": round(segments / max(loads, 1), 1),
        "segments_end": len(table.state().segments),
        "compactions": sum(not info.has_data_change for info in history),
        "write_amplification": write_amplification(table),
    }


def write_amplification(table: Table) -> float:
    """Bytes written in all for each that a load wrote."""
    history = table.history()
    loaded = sum(info.metrics.bytes_written for info in history if info.has_data_change)
    moved = sum(info.metrics.bytes_written for info in history if not info.has_data_change)
    return round(float((loaded + moved) / max(loaded, 1)), 2)


def seconds(work: Callable[[], Any], times: int = 3) -> float:
    """Median of some runs."""
    measured = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        measured.append(time.perf_counter() - started)
    return statistics.median(measured)


def touch(table: Table) -> int:
    """Reads every value of a scan: rows in place cost nothing until somebody looks at them."""
    total = 0
    for batch in table.scan():
        for name in batch.schema.names[:-1]:
            total += int(pc.sum(batch.column(name)).as_py())
        total += int(pc.sum(pc.binary_length(batch.column("t"))).as_py())
    return total


def scan_seconds(table: Table) -> float:
    """Of a scan that looks at every value."""
    return round(seconds(lambda: touch(table)), 4)


def reads_and_upserts(*tables: Table) -> list[dict[str, float]]:
    """Scans and upserts of tables as they are, in turns, so that a busy moment meets all of them."""
    rng = np.random.default_rng(11)
    scans: list[list[float]] = [[] for _ in tables]
    upserts: list[list[float]] = [[] for _ in tables]
    for _ in range(5):
        for table, took in zip(tables, scans, strict=True):
            took.append(seconds(partial(touch, table), times=1))
    for _ in range(5):
        data = rows(rng.choice(2 * BASE_ROWS, UPSERT_ROWS, replace=False), 1)
        for table, took in zip(tables, upserts, strict=True):
            took.append(seconds(partial(table.upsert, data), times=1))
    return [
        {"scan_s": round(statistics.median(scan), 4), "upsert_100k_s": round(statistics.median(upsert), 4)}
        for scan, upsert in zip(scans, upserts, strict=True)
    ]


def settle(store: Store, table: Table) -> dict[str, float]:
    """Lets maintenance go on as in a server until it has nothing more to do; how long that took."""
    started = time.monotonic()
    state = table.state()
    share = 0.0
    while time.monotonic() - started < SETTLE_SECONDS_MAX:
        store.maintain()
        state = table.state()
        rows = sum(live.segment.rows for live in state.segments.values())
        share = sum(live.deletes.hidden for live in state.segments.values()) / max(rows, 1)
        if share < DEAD_SHARE_LEFT:
            break
        time.sleep(1)
    return {
        "waited_s": round(time.monotonic() - started, 1),
        "segments": len(state.segments),
        "dead_share": round(share, 6),
        "write_amplification": write_amplification(table),
    }


def space(directory: Path, table: Table) -> float:
    """Bytes of all segment files as a multiple of those that the newest version has."""
    used = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    metas = [live.segment.meta for live in table.state().segments.values()]
    return round(used / max(sum(meta.data_bytes + meta.keys_bytes for meta in metas), 1), 2)


def change_feed(store: Store) -> dict[str, float]:
    """The feed of a version of 100k rows out of 10M."""
    table = make(store, "db.feed")
    table.upsert(rows(np.arange(FEED_ROWS), 0))
    rng = np.random.default_rng(5)
    version = table.upsert(rows(rng.choice(FEED_ROWS, UPSERT_ROWS, replace=False), 1)).version
    found = seconds(lambda: table.changes(version, version).read_all())
    return {"change_feed_100k_of_10m_s": round(found, 3)}


def run(loads: int, *, with_feed: bool) -> dict[str, Any]:
    """All of it; see the module."""
    directory = Path(tempfile.mkdtemp(prefix="seqstore-bench-"))
    answers: dict[str, Any] = {"loads": loads}
    try:
        with Store.open(directory / "on") as store:
            store.create_database("db")
            table = make(store, "db.small")
            answers["with_compaction"] = small_loads(store, table, loads)
            files = directory / "on" / table.loader.directory
            answers["space_amplification"] = space(files, table)
            at_once = make(store, "db.once")
            at_once.upsert(table.scan())
            answers["as_left"] = {"scan_s": scan_seconds(table)}
            settled = settle(store, table)
            small, answers["loaded_once"] = reads_and_upserts(table, at_once)
            answers["settled"] = settled | small
            table.vacuum(retention_seconds=0)
            answers["space_amplification_after_vacuum"] = space(files, table)
            if with_feed:
                answers |= change_feed(store)
        with Store.open(directory / "off", settings=Settings(auto_compaction=0)) as store:
            store.create_database("db")
            answers["without_compaction"] = small_loads(store, make(store, "db.small"), max(loads // 5, 1))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return answers


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(json.dumps(run(count, with_feed=True)))
