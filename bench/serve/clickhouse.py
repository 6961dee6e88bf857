"""ClickHouse (chdb) taking the loads of `bench.serve`, in a process and perhaps an environment of its own.

    PYTHON bench/serve/clickhouse.py FOLDER --clients N --seconds S

Every client inserts the CSV files of the folder in turn, durably; prints the seconds of each insert as JSON.
An engine in the process takes one statement at a time, so clients wait for each other.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

_TABLE = (
    "CREATE TABLE small (k Int64, city String, cost Float64, price Int32, note String) "
    "ENGINE = ReplacingMergeTree ORDER BY k SETTINGS fsync_after_insert = 1, fsync_part_directory = 1"
)


def _run(folder: Path, clients: int, seconds: float) -> list[float]:
    engine: Any = importlib.import_module("chdb.session")
    with tempfile.TemporaryDirectory(dir=folder.parent) as data:
        session = engine.Session(data)
        session.query(_TABLE)
        bodies = [file.read_text() for file in sorted(folder.glob("*.csv"))]
        one_at_a_time = threading.Lock()
        times: list[float] = []
        until = time.monotonic() + seconds

        def client(number: int) -> None:
            while (began := time.monotonic()) < until:
                with one_at_a_time:
                    session.query(
                        f"INSERT INTO small FORMAT CSV {bodies[(len(times) + number) % len(bodies)]}"
                    )
                times.append(time.monotonic() - began)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        session.close()
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    try:
        print(json.dumps(_run(given.folder, given.clients, given.seconds)))
    except ImportError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
