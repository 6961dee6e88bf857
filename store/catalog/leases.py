"""Versions that processes hold: what vacuum must leave alone.

Each process has one small file, `DATA_DIR/readers/<pid>-<start time>`, mapped and shared: an array of slots,
(table id, version) each, version 0 meaning free. Taking or leaving a version is a store into memory, so
reading costs no commit and never waits for a writer. Who reads the files (vacuum) leaves out those of
processes that are gone and removes them: a dead reader holds nothing.

How a reader and a vacuum cannot miss each other:

1. The reader takes the version, then asks the catalog whether it can still be read, and gives up if not.
2. Vacuum reads the slots, moves the first version that can be read, and reads the slots again before it
   deletes a file. Whoever took an older version in between either finds it gone in 1, or is found in 2.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.process_identity import is_alive, this_process

_SLOT: Final = struct.Struct("<QQ")
_SLOTS: Final = 4096
_lock = new_lock()
_of_directory: dict[Path, Leases] = {}


class Lease:
    """A version held by this process until the last reference goes, or `release`."""

    __slots__ = ("_key", "_leases", "_pid")

    def __init__(self, leases: Leases, key: tuple[int, int]) -> None:
        self._leases: Leases | None = leases
        self._key = key
        self._pid = os.getpid()

    def release(self) -> None:
        """Lets go of the version."""
        leases, self._leases = self._leases, None
        if leases is not None and self._pid == os.getpid():  # a forked child holds nothing of its parent
            leases.release(self._key)

    def __del__(self) -> None:
        with suppress(Exception):  # at the interpreter's end modules may be gone, and so is this process
            self.release()


class Leases:
    """The held versions of one data directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = new_lock()
        self._pid = 0
        self._map: mmap.mmap | None = None
        self._slots: dict[tuple[int, int], list[int]] = {}  # (table, version) -> [slot, how often]
        self._free: list[int] = []
        self._released: deque[tuple[int, int]] = deque()

    def acquire(self, table: int, version: int) -> Lease:
        """Holds a version; ask afterwards whether it can be read.

        Raises:
            UnavailableError: this process holds too many versions.
        """
        key = (table, version)
        with self._lock:
            if self._pid != os.getpid():
                self._open()
            held = self._slots.get(key)
            if held is not None:
                held[1] += 1
            else:
                if not self._free:
                    raise UnavailableError(
                        f"this process holds {_SLOTS} versions open; close snapshots that are done with",
                        kind="too_many_snapshots",
                    )
                slot = self._free.pop()
                assert self._map is not None
                _SLOT.pack_into(self._map, slot * _SLOT.size, table, version)
                self._slots[key] = [slot, 1]
            self._settle()
        return Lease(self, key)

    def holds(self, table: int, version: int) -> bool:
        """Whether this process holds a version."""
        return self._pid == os.getpid() and (table, version) in self._slots

    def release(self, key: tuple[int, int]) -> None:
        """Counts one holder of a version less. Never waits: the garbage collector may call it anywhere,
        also in a thread that holds the lock; then whoever has the lock does it before letting go."""
        self._released.append(key)
        while self._released and self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Does the releases that are waiting; with the lock held."""
        while self._released:
            key = self._released.popleft()
            held = self._slots.get(key)
            if held is None or self._map is None:
                continue
            held[1] -= 1
            if not held[1]:
                _SLOT.pack_into(self._map, held[0] * _SLOT.size, 0, 0)
                self._free.append(held[0])
                del self._slots[key]

    def held(self, table: int) -> set[int]:
        """Versions of a table that live processes hold."""
        found: set[int] = set()
        for path in sorted(self._directory.glob("*-*")) if self._directory.is_dir() else ():
            pid, _, started = path.name.partition("-")
            if not (pid.isdigit() and started.isdigit()):
                continue
            if not is_alive((int(pid), int(started))):
                path.unlink(missing_ok=True)
                continue
            with suppress(FileNotFoundError):  # a process that ends takes its file along
                found |= {v for t, v in _SLOT.iter_unpack(path.read_bytes()) if t == table and v}
        return found

    def _open(self) -> None:
        """This process's file, made before its first lease; after a fork the child's own."""
        pid, started = this_process()
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{pid}-{started}"
        try:
            with path.open("w+b") as file:
                file.truncate(_SLOTS * _SLOT.size)
                self._map = mmap.mmap(file.fileno(), _SLOTS * _SLOT.size)
        except OSError as error:
            raise UnavailableError(f"{path}: cannot be written: {error}", kind="disk") from error
        self._pid = os.getpid()
        self._slots = {}
        self._released.clear()
        self._free = list(range(_SLOTS))


def leases_of(data_dir: Path) -> Leases:
    """The leases of a data directory, by its real path; one object per process and directory."""
    with _lock:
        found = _of_directory.get(data_dir)
        if found is None:
            found = _of_directory[data_dir] = Leases(data_dir / "readers")
        return found
