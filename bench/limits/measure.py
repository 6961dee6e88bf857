"""The limits of the machine on the rows of a run: memory, Arrow and Parquet files, a sync."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
import pyarrow.parquet as pq

from bench.inputs.orders import base_rows
from bench.limits import floors

_MEMORY_BYTES: Final = 1 << 28
_ROUNDS: Final = 3
_SYNCS: Final = 51


def limits(work: Path, rows: int, seed: int) -> dict[str, float]:
    """What each takes or reaches; names carry the unit.

    Args:
        work: on the disk to be measured.
        rows: orders that the files hold.
    """
    given = base_rows(rows, seed)
    megabytes = given.nbytes / 1e6
    place = Path(tempfile.mkdtemp(prefix="run-limits-", dir=work))
    try:
        arrow, parquet = place / "arrow", place / "parquet"
        found = {
            "memory read, GB/s": _MEMORY_BYTES / 1e9 / _memory(lambda a, b: a.sum()),
            "memory copy, GB/s": _MEMORY_BYTES / 1e9 / _memory(np.copyto),
            "Arrow files written and synced, MB/s": megabytes
            / _best(lambda: floors.write_arrow(arrow, [given])),
            "Arrow files read, MB/s": megabytes / _best(lambda: floors.consume(floors.read_batches(arrow))),
            "Parquet written and synced, MB/s": megabytes
            / _best(lambda: floors.write_parquet(parquet, [given])),
            "Parquet read, MB/s": megabytes / _best(lambda: [pq.read_table(f) for f in parquet.iterdir()]),
        }
        file = floors.SyncedFile(place / "synced")
        found["write and fsync of 4 KiB, ms"] = median(_seconds(file.append) for _ in range(_SYNCS)) * 1e3
        file.close()
    finally:
        shutil.rmtree(place)
    return found


def _memory(work: Callable[[np.ndarray, np.ndarray], object]) -> float:
    first, second = (np.ones(_MEMORY_BYTES // 8) for _ in range(2))
    return _best(lambda: work(first, second))


def _best(work: Callable[[], object]) -> float:
    """Seconds of the best of some runs: a limit is what can be reached."""
    return min(_seconds(work) for _ in range(_ROUNDS))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
