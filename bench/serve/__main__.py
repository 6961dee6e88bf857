"""Stream load over HTTP, measured: `python -m bench.serve`; a few minutes, gigabytes in `bench/work`.

1. CSV uploads of `--megabytes` into an empty table and into one of `--rows` rows, MB/s, beside Arrow's CSV
   reader on the same bytes (median of three) and the copying of them into a durable file.
2. The same of `--json-megabytes` of JSON, as lines and as one array (`bench.serve.json_lines`, doubles of 17
   digits).
3. Loads of 1,000 rows by 1, 8 and 64 clients for `--seconds` each: loads a second, median and 99th percentile
   of the time one takes; grouped and not; beside DuckDB (one process, a thread for each client, the same CSV
   inserted durably into a table without a key) and ClickHouse (chdb, a ReplacingMergeTree that syncs each
   part; `bench.serve.clickhouse`), which may be of another environment: `--chdb-python`.

Server and clients share the machine. After each part the rows are counted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv

from bench.serve import json_lines
from seqstore import Column, Store, TableSchema, parse_type

_TYPES: Final = {
    "k": "BIGINT",
    "city": "VARCHAR(20)",
    "cost": "DOUBLE",
    "price": "INT",
    "note": "VARCHAR(60)",
}
_JSON_TABLES: Final = {"json_lines": {}, "json_array": {"strip_outer_array": "true"}}
_HEADERS: Final = {"column_separator": ",", "Authorization": "Basic " + b64encode(b"root:").decode()}
_BLOCK_ROWS: Final = 100_000
_SMALL_ROWS: Final = 1_000


def _csv(first: int, rows: int, rng: np.random.Generator) -> bytes:
    """Rows with ascending numbers spread over the keys, as CSV."""
    keys = (np.arange(first, first + rows) * 2_654_435_761) % (1 << 40)
    cities = np.array(["Berlin", "Paris", "Rome", "Oslo"])[rng.integers(0, 4, rows)]
    notes = [f"note number {n} of an event" for n in rng.integers(0, 10**6, rows).tolist()]
    table = pa.table(
        {
            "k": keys,
            "city": cities,
            "cost": rng.random(rows).round(4),
            "price": rng.integers(0, 1000, rows),
            "note": notes,
        }
    )
    sink = io.BytesIO()
    pa.csv.write_csv(table, sink, pa.csv.WriteOptions(include_header=False, quoting_style="none"))
    return sink.getvalue()


def _schema(types: Mapping[str, str]) -> TableSchema:
    columns = [Column(name, parse_type(kind), nullable=name != "k") for name, kind in types.items()]
    return TableSchema.create(columns, key=["k"])


class Server:
    """`seqstore serve` on a fresh directory."""

    def __init__(self, work: Path) -> None:
        self.path = work / "data"
        with Store.open(self.path) as store:
            store.create_database("db")
            for name in ("empty", "filled", "small"):
                store.create_table(f"db.{name}", _schema(_TYPES))
            for name in _JSON_TABLES:
                store.create_table(f"db.{name}", _schema(json_lines.TYPES))
        command = [sys.executable, "-m", "seqstore.cli.main", "--data-dir", str(self.path), "serve"]
        self._process = subprocess.Popen(
            [*command, "--http-port", "0", "--mysql-port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline().rpartition(":")[2])
        while self._process.stdout.readline() not in ("ready\n", ""):
            pass

    def connect(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self._port, timeout=600)

    def load(self, connection: HTTPConnection, table: str, body: Any, **headers: str) -> bytes:
        connection.request("PUT", f"/api/db/{table}/_stream_load", body, {**_HEADERS, **headers})
        answer = connection.getresponse().read()
        if b'"Status": "Success"' not in answer:
            raise RuntimeError(answer.decode())
        return answer

    def peak_megabytes(self) -> int:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _uploads(server: Server, work: Path, megabytes: int, rows: int) -> Iterator[str]:
    rng = np.random.default_rng(1)
    file = work / "upload.csv"
    first = 0
    with file.open("wb") as sink:
        while sink.tell() < megabytes << 20:
            sink.write(_csv(first, _BLOCK_ROWS, rng))
            first += _BLOCK_ROWS
    size = file.stat().st_size / 2**20
    options = pa.csv.ReadOptions(column_names=list(_TYPES))
    parsed = statistics.median(_rate(size, lambda: pa.csv.read_csv(file, options)) for _ in range(3))
    yield f"| Arrow's CSV reader | {parsed:.0f} MB/s | |"
    yield f"| copied into a synced file | {_rate(size, lambda: _copy(file, work / 'copy')):.0f} MB/s | |"
    while first < rows + megabytes * 10_000 and rows:
        with Store.open(server.path) as store:
            body = _csv(10**9 + first, 10 * _BLOCK_ROWS, rng)
            read = pa.csv.read_csv(io.BytesIO(body), pa.csv.ReadOptions(column_names=list(_TYPES)))
            store.upsert("db.filled", read)
            first += 10 * _BLOCK_ROWS
            if store.table("db.filled").count() >= rows:
                break
    for table in ("empty", "filled") if rows else ("empty",):

        def upload(table: str = table) -> None:
            with file.open("rb") as body:
                server.load(server.connect(), table, body)

        rate = _rate(size, upload)
        yield f"| seqstore, into the {table} table | {rate:.0f} MB/s | {rate / parsed:.2f} of Arrow's |"
    yield f"| peak memory of the server | {server.peak_megabytes()} MB | |"


def _json_uploads(server: Server, megabytes: int) -> Iterator[str]:
    lines = json_lines.json_lines("doubles of 17 digits", megabytes << 20)
    for table, headers in _JSON_TABLES.items():
        body = json_lines.array_of(lines) if headers else lines

        def upload(table: str = table, body: bytes = body, headers: dict[str, str] = headers) -> None:
            server.load(server.connect(), table, body, format="json", **headers)

        rate = _rate(len(body) / 2**20, upload)
        yield f"| seqstore, {table.replace('_', ' ')} | {rate:.0f} MB/s | |"
    yield f"| peak memory of the server | {server.peak_megabytes()} MB | |"


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        os.fsync(writer.fileno())


def _rate(size: float, work: Callable[[], Any]) -> float:
    """Megabytes a second."""
    started = time.monotonic()
    work()
    return size / (time.monotonic() - started)


def _small(name: str, clients: int, seconds: float, make: Callable[[], Callable[[bytes], None]]) -> str:
    """Clients that load as fast as they can."""
    times: list[list[float]] = [[] for _ in range(clients)]
    start = threading.Barrier(clients + 1)
    until = [0.0]

    def client(number: int) -> None:
        load, rng, first = make(), np.random.default_rng(number), (number + 1) * 10**7
        bodies = [_csv(first + i * _SMALL_ROWS, _SMALL_ROWS, rng) for i in range(20)]
        start.wait()
        while time.monotonic() < until[0]:
            began = time.monotonic()
            load(bodies[len(times[number]) % len(bodies)])
            times[number].append(time.monotonic() - began)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    until[0] = time.monotonic() + 3600
    start.wait()
    began = time.monotonic()
    until[0] = began + seconds
    for thread in threads:
        thread.join()
    return _line(name, clients, [taken for each in times for taken in each], time.monotonic() - began)


def _line(name: str, clients: int, times: list[float], seconds: float) -> str:
    p50, p99 = np.quantile(times, [0.5, 0.99]) * 1000
    return f"| {name} | {clients} | {len(times) / seconds:.0f} | {p50:.1f} ms | {p99:.1f} ms |"


def _small_loads(server: Server, work: Path, seconds: float, python: Path) -> Iterator[str]:
    def ours(**headers: str) -> Callable[[], Callable[[bytes], None]]:
        def make() -> Callable[[bytes], None]:
            connection = server.connect()
            return lambda body: _nothing(server.load(connection, "small", body, **headers))

        return make

    for clients in (1, 8, 64):
        yield _small("seqstore", clients, seconds, ours())
        yield _small("seqstore, group_commit", clients, seconds, ours(group_commit="sync_mode"))
    database = duckdb.connect(str(work / "peer.duckdb"))
    kinds = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
    database.execute(f"CREATE TABLE small ({kinds})")

    def duck() -> Callable[[bytes], None]:
        cursor = database.cursor()

        def load(body: bytes) -> None:
            rows = pa.csv.read_csv(io.BytesIO(body), pa.csv.ReadOptions(column_names=list(_TYPES)))
            cursor.register("rows", rows)
            cursor.execute("INSERT INTO small SELECT * FROM rows")

        return load

    for clients in (1, 8, 64):
        yield _small("DuckDB, no key, in process", clients, seconds, duck)
    database.close()
    yield from _clickhouse(python, work, seconds)


def _clickhouse(python: Path, work: Path, seconds: float) -> Iterator[str]:
    """The same loads by ClickHouse, in a process of its own."""
    folder = work / "bodies"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.csv").write_bytes(
            _csv(number * _SMALL_ROWS, _SMALL_ROWS, np.random.default_rng(number))
        )
    script = Path(__file__).parent / "clickhouse.py"
    for clients in (1, 8, 64):
        options = ["--clients", str(clients), "--seconds", str(seconds)]
        command = [str(python), str(script), str(folder), *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            yield f"| ClickHouse (chdb): not run: {done.stderr.strip().rpartition(chr(10))[2]} | | | | |"
            return
        yield _line("ClickHouse (chdb), no lookups, in process", clients, json.loads(done.stdout), seconds)


def _nothing(_: Any) -> None:
    """Drops a value."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--json-megabytes", type=int, default=80)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--work", type=Path, default=Path("bench/work/serve"))
    parser.add_argument(
        "--chdb-python", type=Path, default=sys.executable, help="an interpreter that has the package chdb"
    )
    given = parser.parse_args()
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    server = Server(given.work)
    try:
        print("| upload | | |\n| --- | --- | --- |")
        for line in _uploads(server, given.work, given.megabytes, given.rows):
            print(line, flush=True)
        for line in _json_uploads(server, given.json_megabytes):
            print(line, flush=True)
        print("\n| loads of 1,000 rows | clients | loads/s | p50 | p99 |\n| --- | --- | --- | --- | --- |")
        for line in _small_loads(server, given.work, given.seconds, given.chdb_python):
            print(line, flush=True)
    finally:
        server.stop()
        shutil.rmtree(given.work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
