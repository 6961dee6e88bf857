"""Leases: the versions that processes hold and vacuum must keep.

Each process has one small file, `DATA_DIR/readers/<pid>-<start time>`, mapped and shared: an array of slots,
(table id, version) each, version 0 meaning free. To acquire or release a lease is a store into memory, so a
read costs no commit and never waits for a writer. Vacuum, which reads the files, ignores and removes those of
processes that have ended.

A slot of table 0 has a moment instead of a version, in milliseconds of Unix time. It holds, of every table,
the version that was the newest at the moment, and all later ones.

A reader and a vacuum cannot miss each other:

1. The reader acquires the lease, then reads from the catalog whether the version is still readable, and
   releases it if not.
2. Vacuum reads the slots, moves the first readable version, and reads the slots again before it deletes a
   file. A reader of an older version in between either finds the version gone in 1, or is found in 2.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime.durable_directory import make_directory
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.process_identity import is_alive, this_process

_SLOT: Final = struct.Struct("<QQ")
_SLOT_TYPE: Final = np.dtype([("table", "<u8"), ("version", "<u8")])
_SLOTS: Final = 4096
_EVERY_TABLE: Final = 0  # ids of tables start at 1
_lock = new_lock()
_of_directory: dict[Path, Leases] = {}


class Lease:
    """Holds a version for this process until its last reference is dropped, or `release`."""

    __slots__ = ("_key", "_leases", "_pid")

    def __init__(self, leases: Leases, key: tuple[int, int]) -> None:
        self._leases: Leases | None = leases
        self._key = key
        self._pid = os.getpid()

    def release(self) -> None:
        """Releases the version."""
        leases, self._leases = self._leases, None
        if leases is not None and self._pid == os.getpid():  # a forked child holds nothing of its parent
            leases.release(self._key)

    def __del__(self) -> None:
        with suppress(Exception):  # modules may be gone when the interpreter and its process end
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
        """Holds a version; check afterwards whether it is readable.

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

    def acquire_moment(self) -> Lease:
        """Holds, of every table, the version that is the newest now, and all later ones.

        Raises:
            UnavailableError: this process holds too many versions.
        """
        return self.acquire(_EVERY_TABLE, int(time.time() * 1000))

    def moments(self) -> set[int]:
        """Returns the moments that live processes hold, in milliseconds of Unix time."""
        return self.held(_EVERY_TABLE)

    def holds(self, table: int, version: int) -> bool:
        """Returns whether this process holds a version."""
        return self._pid == os.getpid() and (table, version) in self._slots

    def release(self, key: tuple[int, int]) -> None:
        """Decrements the number of holders of a version. Never waits.

        The garbage collector may call it at any point, even in a thread that holds the lock. The holder of
        the lock then processes the release before it unlocks.
        """
        self._released.append(key)
        while self._released and self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Processes the queued releases; the caller holds the lock."""
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
        """Returns the versions of a table that live processes hold."""
        found: set[int] = set()
        for path in sorted(self._directory.glob("*-*")) if self._directory.is_dir() else ():
            pid, _, started = path.name.partition("-")
            if not (pid.isdigit() and started.isdigit()):
                continue
            if not is_alive((int(pid), int(started))):
                with suppress(OSError):  # the next vacuum removes it
                    path.unlink(missing_ok=True)
                continue
            try:
                slots = path.read_bytes()
            except FileNotFoundError:  # another vacuum removed it
                continue
            except OSError as error:
                raise UnavailableError(f"{path}: cannot be read: {error}", kind="disk") from error
            taken = np.frombuffer(slots, _SLOT_TYPE, len(slots) // _SLOT.size)
            found.update(taken["version"][(taken["table"] == table) & (taken["version"] != 0)].tolist())
        return found

    def _open(self) -> None:
        """Opens this process's file, before its first lease; after a fork the child's own."""
        pid, started = this_process()
        path = self._directory / f"{pid}-{started}"
        try:
            make_directory(self._directory)
            with path.open("w+b") as file:
                # A store into a hole of a mapped file ends the process when the disk is full (SIGBUS).
                os.posix_fallocate(file.fileno(), 0, _SLOTS * _SLOT.size)
                self._map = mmap.mmap(file.fileno(), _SLOTS * _SLOT.size)
        except OSError as error:
            raise UnavailableError(f"{path}: cannot be written: {error}", kind="disk") from error
        self._pid = os.getpid()
        self._slots = {}
        self._released.clear()
        self._free = list(range(_SLOTS))


def leases_of(data_dir: Path) -> Leases:
    """Returns the leases of a data directory, by its real path; one object per process and directory."""
    with _lock:
        found = _of_directory.get(data_dir)
        if found is None:
            found = _of_directory[data_dir] = Leases(data_dir / "readers")
        return found
