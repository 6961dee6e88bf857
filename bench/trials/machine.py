"""Facts of the machine and the software, to be read beside every number."""

from __future__ import annotations

import mmap
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.limits.floors import SyncedFile

_PACKAGES: Final = ("seqstore", "pyarrow", "numpy", "duckdb", "lmdb", "pyroaring", "xxhash", "deltalake")
_SYNCS: Final = 101
_TOUCHED_BYTES: Final = 2**28
_TOUCHED_STEP: Final = 2**20
_ZEROS: Final = bytes(_TOUCHED_STEP)


def commit_info(work: Path) -> dict[str, Any]:
    """What runs where.

    Args:
        work: a directory on the disk that is measured.
    """
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "fsync_seconds": _fsync_seconds(work),
        "new_memory_seconds_per_gib": _new_memory_seconds(),
    }


def sentence(found: dict[str, Any]) -> str:
    """The facts in one line of text."""
    packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    return (
        f"{found['date'][:10]}: {found['cores']} cores ({found['processor']}), "
        f"{found['memory_bytes'] / 2**30:.0f} GiB, {found['system']}, Python {found['python']}, {packages}; "
        f"write and fsync of 4 KiB {found['fsync_seconds'] * 1e3:.2f} ms (median), "
        f"touching new memory {found['new_memory_seconds_per_gib']:.1f} s/GiB"
    )


def _fsync_seconds(work: Path) -> float:
    path = work / f"fsync-{os.getpid()}"
    file = SyncedFile(path)
    taken = []
    for _ in range(_SYNCS):
        started = time.perf_counter()
        file.append()
        taken.append(time.perf_counter() - started)
    file.close()
    path.unlink()
    return median(taken)


def _new_memory_seconds() -> float:
    """Seconds to touch a GiB of memory that the process did not have before."""
    with mmap.mmap(-1, _TOUCHED_BYTES) as memory:
        started = time.perf_counter()
        for start in range(0, _TOUCHED_BYTES, _TOUCHED_STEP):
            memory[start : start + _TOUCHED_STEP] = _ZEROS
        return (time.perf_counter() - started) * 2**30 / _TOUCHED_BYTES


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
