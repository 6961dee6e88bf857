"""What the server counts, as Prometheus reads it."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from seqstore.loaders.group_commit import counts

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_ROWS: Final = {
    "loaded": "NumberLoadedRows",
    "filtered": "NumberFilteredRows",
    "unselected": "NumberUnselectedRows",
}


class Metrics:
    """Counters since the server started. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.time()
        self._running = 0
        self._by_status: dict[str, int] = {}
        self._rows = dict.fromkeys(_ROWS, 0)
        self._bytes = 0
        self._seconds = 0.0
        self._histogram = [0] * (len(_BUCKETS) + 1)

    def begin_load(self) -> None:
        with self._lock:
            self._running += 1

    def end_load(self) -> None:
        with self._lock:
            self._running -= 1

    def count_load(self, reply: dict[str, Any], seconds: float) -> None:
        """Adds a finished load."""
        with self._lock:
            status = reply["Status"]
            self._by_status[status] = self._by_status.get(status, 0) + 1
            self._bytes += reply["LoadBytes"]
            for name, field in _ROWS.items():
                self._rows[name] += reply[field]
            self._seconds += seconds
            self._histogram[bisect_left(_BUCKETS, seconds)] += 1

    def to_text(self) -> str:
        """In Prometheus's text format."""
        with self._lock:
            lines: list[str] = []
            statuses = {f'status="{name}"': count for name, count in sorted(self._by_status.items())}
            rows = {f'outcome="{name}"': count for name, count in self._rows.items()}
            add_metric(lines, "stream_loads_total", "counter", "finished stream loads", statuses)
            add_metric(lines, "stream_load_rows_total", "counter", "rows of stream loads", rows)
            add_metric(lines, "stream_load_bytes_total", "counter", "bytes of bodies read", {"": self._bytes})
            running = {"": self._running}
            add_metric(lines, "stream_loads_running", "gauge", "stream loads on their way", running)
            self._add_histogram(lines)
            _add_groups(lines)
            started = {"": round(self._started, 3)}
            add_metric(lines, "start_time_seconds", "gauge", "Unix time of the start", started)
            if (resident := _resident_bytes()) is not None:
                add_metric(lines, "resident_memory_bytes", "gauge", "memory of the server", {"": resident})
            return "\n".join(lines) + "\n"

    def _add_histogram(self, lines: list[str]) -> None:
        name = "seqstore_stream_load_duration_seconds"
        lines += [f"# HELP {name} time from request to reply", f"# TYPE {name} histogram"]
        total = 0
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), self._histogram, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        lines += [f"{name}_sum {self._seconds:.6f}", f"{name}_count {total}"]


def _add_groups(lines: list[str]) -> None:
    publishes, loads = counts.publishes, dict(counts.loads)
    waited = {'waited_for="0"': loads.get(0, 0), 'waited_for="1"': loads.get(1, 0)}
    waited['waited_for="more"'] = sum(loads.values()) - sum(waited.values())
    text = "loads that were grouped, by the publishes they waited for before their own"
    add_metric(lines, "group_commit_loads_total", "counter", text, waited)
    text = "transactions made for groups of loads"
    add_metric(lines, "group_commit_publishes_total", "counter", text, {"": publishes})


def add_metric(lines: list[str], name: str, kind: str, text: str, values: Mapping[str, float]) -> None:
    """Adds one metric with a value for each set of labels."""
    lines += [f"# HELP seqstore_{name} {text}", f"# TYPE seqstore_{name} {kind}"]
    for labels, value in values.items():
        lines.append(f"seqstore_{name}{{{labels}}} {value}" if labels else f"seqstore_{name} {value}")


def _resident_bytes() -> int | None:
    """Memory of this process, None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
