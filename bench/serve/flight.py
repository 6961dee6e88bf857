"""All rows of a table to a client process, measured: `python -m bench.serve.flight`; some minutes.

The same table is read by ADBC over Arrow Flight SQL, by `Store.connect`, from a plain Flight server with the
same batches in memory, and by PyMySQL over the MySQL protocol (`--mysql-rows` of the rows, for it makes
Python objects; times are for as many as the others have). Each client is a process of its own, which counts
the rows and adds up one column; contenders take turns. Server and clients share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql
from adbc_driver_flightsql import dbapi
from pyarrow import flight

from bench.trials import machine
from seqstore import Store, TableSchema

_PIECE: Final = 1_000_000
_COLUMNS: Final = 8
_NAMES: Final = {
    "connect": "Store.connect",
    "adbc": "Arrow Flight SQL, ADBC",
    "plain": "plain Flight server",
    "mysql": "MySQL protocol, PyMySQL",
}


def batch(first: int, rows: int) -> pa.Table:
    """Rows of a key, a sequence and eight doubles."""
    keys = np.arange(first, first + rows)
    values = {f"v{number}": keys * (0.5 + number) for number in range(_COLUMNS)}
    return pa.table({"k": keys, "s": keys, **values})


def make_table(data: Path, rows: int) -> None:
    properties = {"function_column.sequence_col": "s"}
    with Store.open(data) as store:
        store.create_database("db")
        schema = TableSchema.from_arrow(batch(0, 1).schema, ["k"], properties=properties)
        table = store.create_table("db.t", schema)
        for first in range(0, rows, _PIECE):
            table.upsert(batch(first, min(_PIECE, rows - first)))


class _Plain(flight.FlightServerBase):  # type: ignore[misc] # pyarrow has no types
    """Sends the batches that it was given."""

    def __init__(self, rows: pa.Table) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._rows = rows

    def do_get(self, context: Any, ticket: Any) -> Any:
        return flight.RecordBatchStream(self._rows)


def read(way: str, port: int, rows: int) -> tuple[int, float]:
    """Reads as a client; returns the count of rows and the sum of a column."""
    found = _CLIENTS[way](port, rows)
    return found.num_rows, pc.sum(found["v0"]).as_py()


def _plain(port: int, _rows: int) -> pa.Table:
    return flight.connect(f"grpc://127.0.0.1:{port}").do_get(flight.Ticket(b"")).read_all()


def _adbc(port: int, _rows: int) -> pa.Table:
    with (
        dbapi.connect(f"grpc://127.0.0.1:{port}", {"username": "root", "password": ""}) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT * FROM db.t")
        return cursor.fetch_arrow_table()


def _connect(port: int, _rows: int) -> pa.Table:
    with Store.connect(f"seqstore://127.0.0.1:{port}", user="root", password="") as store:
        return store.table("db.t").scan().read_all()


def _mysql(port: int, rows: int) -> pa.Table:
    with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection:
        cursor = connection.cursor(pymysql.cursors.SSCursor)
        cursor.execute(f"SELECT * FROM db.t WHERE k < {rows}")
        found = cursor.fetchall()
    return pa.table({"v0": [row[2] for row in found]})


_CLIENTS: Final[dict[str, Callable[[int, int], pa.Table]]] = {
    "connect": _connect,
    "adbc": _adbc,
    "plain": _plain,
    "mysql": _mysql,
}


def measure(work: Path, rows: int, mysql_rows: int, rounds: int) -> Iterator[str]:
    """Yields the lines of a table."""
    make_table(work / "data", rows)
    with Store.open(work / "data") as store:
        plain = _Plain(store.table("db.t").scan().read_all())
    command = [sys.executable, "-m", "seqstore", "--data-dir", str(work / "data"), "serve"]
    ports = ("--http-port", "0", "--mysql-port", "0", "--flight-port", "0")
    serving = subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, text=True, env=_environment())
    try:
        assert serving.stdout is not None
        found = {}
        while (line := serving.stdout.readline()) not in ("ready\n", ""):
            scheme, _, place = line.removeprefix("listening on ").strip().partition("://")
            found[scheme] = int(place.rpartition(":")[2])
        at = {"mysql": found["mysql"], "adbc": found["grpc"], "connect": found["grpc"], "plain": plain.port}
        times: dict[str, list[float]] = {way: [] for way in _CLIENTS}
        for number in range(rounds):
            for way in (*_CLIENTS,) if number % 2 else (*reversed(_CLIENTS),):
                count = mysql_rows if way == "mysql" else rows
                times[way].append(_timed(way, at[way], count) * rows / count)
    finally:
        serving.terminate()
        serving.wait()
        plain.shutdown()
    yield "| client | seconds, median | beside the plain server | beside MySQL |"
    yield "| --- | --- | --- | --- |"
    for way, own in times.items():
        ratios = [
            statistics.median(a / b for a, b in zip(own, times[other], strict=True))
            for other in ("plain", "mysql")
        ]
        yield f"| {_NAMES[way]} | {statistics.median(own):.2f} | {ratios[0]:.2f}x | {ratios[1]:.3f}x |"


def _timed(way: str, port: int, rows: int) -> float:
    """Runs a client, which tells its seconds without those of its start."""
    command = [sys.executable, "-m", "bench.serve.flight", "--client", way, str(port), str(rows)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, env=_environment()).stdout)
    expected = rows * (rows - 1) / 4
    if told["rows"] != rows or abs(told["sum"] - expected) > expected * 1e-9:
        raise SystemExit(f"{_NAMES[way]}: wrong rows: {told}")
    seconds: float = told["seconds"]
    return seconds


def _environment() -> dict[str, str]:
    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{root / '.package'}{os.pathsep}{root}"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--mysql-rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path("bench/work/flight"))
    parser.add_argument("--client", nargs=3, metavar=("WAY", "PORT", "ROWS"), help="what a run starts")
    given = parser.parse_args()
    if given.client:
        way, port, rows = given.client
        began = time.perf_counter()
        count, total = read(way, int(port), int(rows))
        print(json.dumps({"seconds": time.perf_counter() - began, "rows": count, "sum": total}))
        return
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    print(machine.sentence(machine.commit_info(given.work)))
    for line in measure(given.work, given.rows, given.mysql_rows, given.rounds):
        print(line)
    shutil.rmtree(given.work)


if __name__ == "__main__":
    main()
