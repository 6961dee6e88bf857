"""What a machine and its data directory lack for a server, and what to do."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from seqstore.cli.server.settings import ServerSettings

OK: Final = "ok"
WARNING: Final = "warning"
ERROR: Final = "error"
_FSYNCS: Final = 16
_SLOW_FSYNC_MS: Final = 20.0
_FSYNC_BYTES: Final = 4096
_CLOCK_SECONDS_MAX: Final = 5.0
_DESCRIPTORS_MIN: Final = 4096
_JAVA_MIN: Final = 17
# A map of a file is not the same on two hosts, and locks are not always kept.
_NETWORK_DISKS: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs", "glusterfs", "ceph")
_PACKAGES: Final = ("duckdb", "lmdb", "pyarrow", "sqlglot", "aiohttp", "prometheus-client", "pyspark")
_EXTRAS: Final = {"aiohttp": "server", "prometheus-client": "server", "pyspark": "spark"}


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        state: `ok`, `warning` or `error`.
        advice: what to do, empty where nothing needs to be done.
    """

    name: str
    state: str
    found: str
    advice: str = ""


def checks(directory: Path, settings: ServerSettings, address: str, ports: dict[str, int]) -> list[Check]:
    """Runs every check.

    Args:
        directory: the data directory, which may not exist yet.
        address: that the server is to listen on, at `ports` by their names.
    """
    return [
        *_of_disk(directory, settings),
        _descriptors(settings),
        _memory(settings),
        *[_port(name, address, port) for name, port in ports.items()],
        *_packages(),
        _java(),
        *_of_store(directory),
    ]


# ------------------------------------------------------------------------------------------ disk


def _of_disk(directory: Path, settings: ServerSettings) -> Iterator[Check]:
    place = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.is_dir())
    usage = shutil.disk_usage(place)
    text = f"{usage.free >> 20:,} MiB of {usage.total >> 20:,} MiB are free at {place}"
    if usage.free < settings.disk_free_bytes_min:
        advice = f"free some: disk_free_bytes_min is {settings.disk_free_bytes_min >> 20:,} MiB"
        yield Check("disk", ERROR, text, advice)
    else:
        yield Check("disk", OK, text)
    yield _disk_kind(place)
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=place) as folder:
            yield _fsync(Path(folder))
            yield _clock(Path(folder))
    except OSError as error:
        advice = f"let the user of the server ({os.getuid()}) write there"
        yield Check("write", ERROR, f"{place} cannot be written: {error.strerror}", advice)


def _disk_kind(place: Path) -> Check:
    kind = _file_system(place)
    if kind in _NETWORK_DISKS:
        advice = "put the data directory on a local disk; segments may go to an object store"
        return Check("filesystem", ERROR, f"{kind} is a disk of the network", advice)
    if kind in ("tmpfs", "ramfs"):
        return Check("filesystem", WARNING, f"{kind} is memory: a restart of the machine loses all data")
    return Check("filesystem", OK, kind or "not known on this system")


def _file_system(place: Path) -> str:
    """Returns the kind of the file system at a path, empty where it is not known."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    mounts = [line.split()[1:3] for line in lines]
    above = [(where, kind) for where, kind in mounts if place.resolve().is_relative_to(where)]
    return max(above, key=lambda each: len(each[0]), default=("", ""))[1]


def _fsync(folder: Path) -> Check:
    times = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(_FSYNCS):
            begun = time.perf_counter()
            file.write(b"\0" * _FSYNC_BYTES)
            os.fsync(file.fileno())
            times.append((time.perf_counter() - begun) * 1000)
    milliseconds = statistics.median(times)
    text = f"{milliseconds:.1f} ms, the median of {_FSYNCS} writes of {_FSYNC_BYTES} bytes"
    if milliseconds > _SLOW_FSYNC_MS:
        advice = "each load waits for a few: use a faster disk, larger loads, or group_commit"
        return Check("fsync", WARNING, text, advice)
    return Check("fsync", OK, text)


def _clock(folder: Path) -> Check:
    path = folder / "clock"
    path.touch()
    seconds = abs(path.stat().st_mtime - time.time())
    if seconds > _CLOCK_SECONDS_MAX:
        text = f"the disk and this machine differ by {seconds:.0f} s"
        return Check("clock", WARNING, text, "let one time server set both")
    return Check("clock", OK, f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC")


# ------------------------------------------------------------------------------------------ machine


def _descriptors(settings: ServerSettings) -> Check:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return Check("descriptors", OK, "no limit of open files")
    fitting = settings.fitting(hard)
    text = f"a process may open {hard:,} files"
    if fitting == settings and hard >= _DESCRIPTORS_MIN:
        return Check("descriptors", OK, text)
    text += f": at most {fitting.http_connections_max} HTTP and {fitting.mysql_connections_max} MySQL clients"
    return Check("descriptors", WARNING, text, "raise it: ulimit -Hn, or LimitNOFILE of the systemd unit")


def _memory(settings: ServerSettings) -> Check:
    from seqstore.store.runtime.memory_limit import default_limit

    usual = default_limit()
    wanted = settings.memory_bytes_max or usual
    text = f"the server may take {wanted >> 20:,} MiB"
    if wanted > usual:
        advice = "lower memory_bytes_max: the system may end the server"
        return Check("memory", WARNING, f"{text}; four fifths of the machine are {usual >> 20:,} MiB", advice)
    return Check("memory", OK, text)


def _port(name: str, host: str, port: int) -> Check:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        text = f"{host}:{port} cannot be listened on: {error.strerror}"
        return Check(f"{name} port", WARNING, text, f"a server runs there, or choose another --{name}-port")
    return Check(f"{name} port", OK, f"{host}:{port} is free")


def _packages() -> Iterator[Check]:
    yield Check("python", OK, platform.python_version())
    for name in _PACKAGES:
        try:
            yield Check(name, OK, metadata.version(name))
        except metadata.PackageNotFoundError:
            extra = _EXTRAS.get(name)
            if extra == "spark":
                yield Check(name, OK, "not installed; only jobs on Spark need the extra spark")
            else:
                wanted = f"seqstore[{extra}]" if extra else "seqstore"
                yield Check(name, ERROR, "not installed", f"pip install '{wanted}'")


def _java() -> Check:
    from seqstore.loaders.spark.requirements import java_version

    found = java_version()
    if found is None:
        return Check("java", OK, "not found; only jobs on Spark need it")
    if found < _JAVA_MIN:
        return Check("java", WARNING, f"Java {found}", f"Spark needs Java {_JAVA_MIN}: set JAVA_HOME")
    return Check("java", OK, f"Java {found}")


# ------------------------------------------------------------------------------------------ store


def _of_store(directory: Path) -> Iterator[Check]:
    from seqstore.store import Store, StoreError
    from seqstore.store.catalog.accounts import ROOT
    from seqstore.store.catalog.load_history import newest_transactions

    if not (directory / "catalog" / "data.mdb").exists():
        yield Check("catalog", OK, f"no store at {directory} yet; serve makes one")
        return
    try:
        with Store.open(directory, create=False) as store:
            tables = sum(len(store.tables(name)) for name in store.databases())
            yield Check("catalog", OK, f"{len(store.databases())} databases, {tables} tables")
            root = store.accounts.find(ROOT)
            if root is None or not root.has_password:
                advice = "SET PASSWORD FOR root = PASSWORD('...')"
                yield Check("root", WARNING, "user root has an empty password", advice)
            with store.catalog.read() as tx:
                newest = next(newest_transactions(tx), None)
            ahead = newest.begun_ms / 1000 - time.time() if newest is not None else 0
            if ahead > _CLOCK_SECONDS_MAX:
                text = f"the newest load began {ahead:.0f} s from now: the clock was set back"
                yield Check("load times", WARNING, text, "set the clock; labels expire later")
    except (StoreError, OSError) as error:
        advice = "see docs/server.md, Repair; seqstore check lists every fault"
        yield Check("catalog", ERROR, str(error), advice)
