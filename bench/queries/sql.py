"""Queries over 10M rows, 5 % of them deleted: through our SQL, and by DuckDB on Parquet and on its own table.

    python -m bench.queries.sql [rows]

Each query runs in turn on the three, eleven rounds; medians are of the same minutes. The first run of each
is told apart: it makes what later ones find in memory. Point queries go over the MySQL protocol too.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seqstore import Store
from seqstore.store.sql import Session

_ROUNDS: Final = 11
_CITIES: Final = 50
_PIECE: Final = 2_000_000
_COLUMNS: Final = "k BIGINT, city VARCHAR(20), v DOUBLE, n INT, note VARCHAR(50)"
_QUERIES: Final = {
    "group by with filter": "SELECT city, count(*) c, sum(v) s FROM {} WHERE n < 500 GROUP BY 1 ORDER BY 1",
    "count": "SELECT count(*) c FROM {} WHERE n >= 0",
    "count of a range": "SELECT count(*) c FROM {} WHERE k BETWEEN {low} AND {high} + 1000000 AND n < 900",
    "smallest and largest": "SELECT min(k) a, max(k) b, min(n) c, max(n) d FROM {} WHERE n > 7",
    "1 % range of keys": "SELECT count(*) c, sum(v) s FROM {} WHERE k BETWEEN {low} AND {high}",
    "1 % range of values": "SELECT count(*) c, sum(v) s FROM {} WHERE n BETWEEN 100 AND 109",
    "20 rows from a key on": "SELECT k, v, n FROM {} WHERE k >= {low} ORDER BY k LIMIT 20",
    "point by key": "SELECT k, city, v, n, note FROM {} WHERE k = {low}",
}


def main() -> None:
    """Loads, checks that all give the same answer, and prints medians in milliseconds."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    place = Path(tempfile.mkdtemp(prefix="bench-sql-", dir="."))
    try:
        with Store.open(place / "data") as store, Session(store) as session:
            _load(store, session, rows)
            _compare(session, place, rows)
            _over_the_wire(store, rows)
    finally:
        shutil.rmtree(place)


def _load(store: Store, session: Session, rows: int) -> None:
    list(session.execute(f"CREATE DATABASE b; USE b; CREATE TABLE t ({_COLUMNS}) UNIQUE KEY(k)"))
    table, random = store.table("b.t"), np.random.default_rng(7)
    for start in range(0, rows, _PIECE):
        table.upsert(_rows(np.arange(start, min(start + _PIECE, rows)), random))
    table.upsert(_rows(random.choice(rows, rows // 20, replace=False), random), merge_type="DELETE")


def _rows(keys: np.ndarray, random: np.random.Generator) -> pa.Table:
    count = len(keys)
    cities = pa.array([f"city {i}" for i in range(_CITIES)])
    return pa.table(
        {
            "k": keys,
            "city": cities.take(pa.array(random.integers(0, _CITIES, count))),
            "v": random.random(count),
            "n": pa.array(random.integers(0, 1000, count), pa.int32()),
            "note": pa.array(np.char.add("note ", (keys % 100_000).astype(str))),
        }
    )


def _compare(session: Session, place: Path, rows: int) -> None:
    connection = duckdb.connect()
    parquet = place / "t.parquet"
    pq.write_table(session.store.table("b.t").snapshot().scan().read_all(), parquet)
    connection.execute(f"CREATE TABLE own AS SELECT * FROM '{parquet}'")
    list(session.execute("SELECT 1 + 1"))  # makes the evaluator, which no query should be blamed for
    low = rows // 2
    print(f"medians of {_ROUNDS} rounds in ms; the first run of a query alone; ratios round by round")
    print(
        f"{'':24}{'ours':>9}{'first':>9}{'Parquet':>9}{'first':>9}{'own table':>10}"
        f"{'/ Parquet':>10}{'/ own':>8}"
    )
    for name, query in _QUERIES.items():
        texts = [query.format(t, low=low, high=low + rows // 100) for t in ("t", f"'{parquet}'", "own")]
        runs: list[Callable[[], pa.Table]] = [
            lambda text=texts[0]: next(iter(session.execute(text))).rows,  # type: ignore[misc]
            lambda text=texts[1]: connection.sql(text).to_arrow_table(),  # type: ignore[misc]
            lambda text=texts[2]: connection.sql(text).to_arrow_table(),  # type: ignore[misc]
        ]
        firsts = [_timed(run) for run in runs]
        assert len({answer for _, answer in firsts}) == 1, f"{name}: different answers"
        rounds = [[_timed(run)[0] for run in runs] for _ in range(_ROUNDS)]
        ours, plain, own = (statistics.median(taken) for taken in zip(*rounds, strict=True))
        print(
            f"{name:24}{ours:9.1f}{firsts[0][0]:9.1f}{plain:9.1f}{firsts[1][0]:9.1f}{own:10.1f}"
            f"{statistics.median(r[0] / r[1] for r in rounds):10.2f}"
            f"{statistics.median(r[0] / r[2] for r in rounds):8.2f}"
        )


def _timed(run: Callable[[], pa.Table]) -> tuple[float, str]:
    """Milliseconds, and the answer."""
    started = time.perf_counter()
    rows = run()
    taken = time.perf_counter() - started
    return taken * 1000, str([_rounded(row) for row in rows.to_pylist()])


def _rounded(row: dict[str, object]) -> list[object]:
    """Sums of floats depend on the order of rows in their last digits."""
    return [round(value, 3) if isinstance(value, float) else value for value in row.values()]


def _over_the_wire(store: Store, rows: int) -> None:
    import pymysql

    from seqstore.cli.mysql import MysqlServer

    with MysqlServer(store) as server:
        connection = pymysql.connect(
            host="127.0.0.1", port=server.port, user="root", database="b", autocommit=True
        )
        taken = []
        with connection, connection.cursor() as cursor:
            for i in range(500):
                started = time.perf_counter()
                cursor.execute(f"SELECT * FROM t WHERE k = {i * 7919 % rows}")
                cursor.fetchall()
                taken.append(time.perf_counter() - started)
    cuts = statistics.quantiles(taken, n=100)
    print(f"point query over MySQL   p50 {cuts[49] * 1000:.2f}  p99 {cuts[98] * 1000:.2f} ms")


if __name__ == "__main__":
    main()
