"""Peak memory of one load, in a process of its own.

    python -m bench.engine.memory STORE --base N --batch M --seed S

Opens a store that holds a base of N rows (or makes one, N = 0), makes a batch of M rows, loads it, and prints
as JSON the process's resident and anonymous memory before the load and at its peak. Resident memory counts
mapped files as well, such as the key indexes of stored rows; the system may drop those pages at any time.
Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench.engine.site import NAME
from bench.inputs.orders import base_rows, table_schema, update_batch
from seqstore import Store

_STATUS: Final = Path("/proc/self/status")
_SAMPLE_SECONDS: Final = 0.002


def is_available() -> bool:
    """Does this system tell what has to be known?"""
    return _STATUS.exists()


def measure_load(store: Path, *, base: int, batch: int, seed: int) -> dict[str, int]:
    """Runs this module in a process of its own; returns what it printed, sizes in bytes."""
    arguments = [str(store), "--base", str(base), "--batch", str(batch), "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.engine.memory", *arguments],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    figures: dict[str, int] = json.loads(done.stdout)
    return figures


def _load_and_watch(store: Store, rows: pa.Table) -> dict[str, int]:
    table = store.table(NAME)
    table.count()  # the state of the table is not part of the load
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    before = sizes()
    with AnonymousPeak() as peak:
        table.upsert(rows)
    after = sizes()
    return {
        "batch": rows.nbytes,
        "resident_before": before["VmRSS"],
        "resident_peak": after["VmHWM"],
        "anonymous_before": before["RssAnon"],
        "anonymous_peak": max(peak.value, after["RssAnon"]),
    }


def sizes() -> dict[str, int]:
    """This process's figures of /proc/self/status that are sizes, in bytes."""
    lines = (line.split() for line in _STATUS.read_text().splitlines() if line.endswith(" kB"))
    return {name.rstrip(":"): int(value) * 1024 for name, value, _ in lines}


class AnonymousPeak:
    """Samples anonymous memory, of which the system keeps no high-water mark."""

    def __init__(self) -> None:
        self.value = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            self.value = max(self.value, sizes()["RssAnon"])

    def __enter__(self) -> AnonymousPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def _main() -> None:
    parser = argparse.ArgumentParser(description="Peak memory of one load.")
    parser.add_argument("store", type=Path)
    parser.add_argument("--base", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    with Store.open(given.store) as store:
        if given.base:
            rows = update_batch(given.base, given.batch, 1, given.seed)
        else:
            rows = base_rows(given.batch, given.seed)
            store.create_database("bench")
            store.create_table(NAME, table_schema())
        print(json.dumps(_load_and_watch(store, rows)))


if __name__ == "__main__":
    _main()
