"""LMDB environments: opened once per path and process, checked when opened, never used across a fork.

Opening:

1. A directory that has other files and no catalog is refused, and so is a store that lost its catalog.
2. A data file shorter than its own header states is read through once: LMDB maps it, and an access to a
   missing page would end the process. Pages that were freed before they were ever written may be missing.
   If no other page is (catalog.page_check), the file is lengthened and every record is read.
3. Another format number than this program's is refused.

A commit has two parts, so that processes wait for each other's disk half as long. LMDB writes a transaction's
pages durably and then its head, both under its lock. The head is made durable after the lock is released,
before the commit returns. Other processes may see the version in between; their next commit makes it durable
first. A process that deletes files because of the catalog's content calls `make_durable` before.

The map grows while no transaction of this process runs: after another process has enlarged it, and when a
catalog is opened with a larger limit.

A fork: transactions must not cross it, and the child must not close the environment that it inherits (that
would free its parent's reader slot). Environments are therefore closed before a fork, after their
transactions have ended; parent and child reopen them at the next use.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import lmdb

from seqstore.store.catalog.commit_group import CommitQueue
from seqstore.store.catalog.page_check import check_pages
from seqstore.store.catalog.prepare_lock import PrepareLock
from seqstore.store.errors import (
    CommitUnknownError,
    CorruptionError,
    FormatError,
    StoreError,
    UnavailableError,
)
from seqstore.store.runtime import records

DATA_FILE: Final = "data.mdb"
_LOCK_FILE: Final = "lock.mdb"
_READERS_MAX: Final = 1024
_FORK_WAIT_SECONDS: Final = 10.0
_open: dict[str, Environment] = {}
_open_lock = threading.Lock()


def environment(path: str, databases: Sequence[str], bytes_max: int) -> Environment:
    """Returns the environment of a directory; opens it if necessary and enlarges its map to `bytes_max`.

    Args:
        path: the real path of the directory; created when absent.
        databases: names of the databases inside.
        bytes_max: size of the map; an open map only grows.

    Raises:
        FormatError: the directory is not a store's, or a newer program wrote the catalog.
        CorruptionError: the catalog was cut, emptied or changed.
        UnavailableError: it cannot be opened.
    """
    found = _open.get(path)
    if found is None or found.bytes_max < bytes_max:
        with _open_lock:
            found = _open.get(path)
            if found is None:
                found = _open[path] = Environment(Path(path), databases, bytes_max)
            else:
                found.grow(bytes_max)
    if found.pid != os.getpid():
        raise UnavailableError(
            f"{path}: this process was forked while a transaction of the catalog was running; "
            "start it afresh (spawn) and open the store there",
            kind="forked",
        )
    return found


def forget_replaced(path: str) -> None:
    """Closes the environment of a directory whose data file was replaced or removed."""
    with _open_lock:
        found = _open.get(path)
        if found is not None and found.identity != _identity(Path(path) / DATA_FILE) and found.close(None):
            del _open[path]


class Environment:
    """One open LMDB environment of this process; made by `environment`.

    Attributes:
        env, databases: LMDB's handles.
        bytes_max: the map is at least as large.
        pid: the process that opened it.
        identity: device and number of the data file.
        queue: of its writers.
    """

    def __init__(self, path: Path, databases: Sequence[str], bytes_max: int) -> None:
        _refuse_foreign(path)
        self.databases: dict[str, Any]
        self.bytes_max = bytes_max
        self.pid = os.getpid()
        self._path = path
        self._active = 0
        self._is_closed = False
        self._idle = threading.Condition()
        self.queue = CommitQueue()
        self._prepare_lock = PrepareLock(path.parent / "locks" / "next-writer")
        try:
            path.mkdir(parents=True, exist_ok=True)
            self.env = lmdb.open(
                str(path),
                map_size=bytes_max,
                max_dbs=len(databases) + 8,
                max_readers=_READERS_MAX,
                metasync=False,
            )
        except lmdb.InvalidError as error:
            raise FormatError(f"{path}: not a catalog of this program ({error})", path=str(path)) from error
        except (lmdb.Error, OSError) as error:
            raise UnavailableError(f"{path}: cannot be opened: {error}", kind="catalog") from error
        try:
            _check_length(self.env, path)
            with self.env.begin(write=True) as txn:  # only a write transaction makes lasting handles
                self.databases = {name: self.env.open_db(name.encode(), txn) for name in databases}
            self.env.reader_check()
            self._check_format()
        except lmdb.Error as error:
            self.env.close()
            raise _damaged(path, error) from error
        except BaseException:
            self.env.close()
            raise
        self.identity = _identity(path / DATA_FILE)

    def _check_format(self) -> None:
        meta = self.databases["meta"]
        with self.env.begin() as txn:
            data = txn.get(b"format", db=meta)
        if data is None:
            with self.env.begin(write=True) as txn:
                data = txn.get(b"format", db=meta) or records.pack(records.FORMAT)
                txn.put(b"format", data, db=meta)
        found = records.unpack(data)
        if found != records.FORMAT:
            raise FormatError(
                f"{self._path}: the store has format {found}, "
                f"this program reads {records.FORMAT}; upgrade it",
                found=found,
                expected=records.FORMAT,
            )

    def begin(self, *, write: bool) -> lmdb.Transaction | None:
        """Starts a transaction, which `ending` ends; None when the environment was closed meanwhile."""
        with self._idle:
            if self._is_closed:
                return None
            self._active += 1
        try:
            while True:
                try:
                    return self.env.begin(write=write, buffers=True)
                except lmdb.MapResizedError:
                    self._adopt_size()
        except lmdb.Error as error:
            self._leave()
            raise UnavailableError(
                f"{self._path}: no transaction could begin: {error}", kind="catalog"
            ) from error
        except BaseException:
            self._leave()
            raise

    def begin_ready(self, ready: Callable[[], None]) -> lmdb.Transaction | None:
        """Starts a write transaction right after a call that may last.

        The call overlaps with the commit of another process (catalog.prepare_lock).
        """
        with self._prepare_lock.inside():
            ready()
            return self.begin(write=True)

    @contextmanager
    def ending(self, txn: lmdb.Transaction, *, write: bool) -> Iterator[None]:
        """Commits a write transaction at the end of the block; rolls it back after an exception."""
        try:
            with self._named_errors():
                yield
                if write:
                    _commit(self.env, txn)
        finally:
            txn.abort()  # has no effect after a commit
            self._leave()

    @contextmanager
    def nested(self, parent: lmdb.Transaction) -> Iterator[lmdb.Transaction]:
        """Opens a transaction within another; an exception rolls back only its own changes."""
        with self._named_errors():
            txn = self.env.begin(write=True, buffers=True, parent=parent)
            try:
                yield txn
                txn.commit()
            finally:
                txn.abort()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Translates LMDB's errors into the store's."""
        try:
            yield
        except lmdb.MapFullError as error:
            raise UnavailableError(
                f"the catalog has used its {self.env.info()['map_size']} bytes; raise [store] "
                "catalog_bytes_max and open the store again",
                kind="map_full",
            ) from error
        except lmdb.DiskError as error:
            raise UnavailableError(f"the catalog cannot be written: {error}", kind="disk") from error
        except (lmdb.CorruptedError, lmdb.PageNotFoundError) as error:
            raise _damaged(self._path, error) from error

    def _leave(self) -> None:
        with self._idle:
            self._active -= 1
            self._idle.notify_all()

    def _adopt_size(self) -> None:
        """Adopts the larger map of another process, while no transaction of this process is open."""
        with self._idle:
            self._active -= 1
            self._idle.notify_all()
            self._idle.wait_for(lambda: self._active == 0)
            self.env.set_mapsize(0)
            self._active += 1

    def make_durable(self) -> bool:
        """Makes everything readable so far durable; False when the environment was closed meanwhile."""
        with self._idle:
            if self._is_closed:
                return False
            self._active += 1
        try:
            with self._named_errors():
                self.env.sync(True)
        finally:
            self._leave()
        return True

    def grow(self, bytes_max: int) -> None:
        """Enlarges the map, once no transaction of this process runs."""
        with self._idle:
            self._idle.wait_for(lambda: self._active == 0)
            if bytes_max > self.env.info()["map_size"]:
                self.env.set_mapsize(bytes_max)
            self.bytes_max = max(bytes_max, self.bytes_max)

    def close(self, wait_seconds: float | None) -> bool:
        """Closes it once its transactions have ended; False when they have not in time."""
        with self._idle:
            if not self._idle.wait_for(lambda: self._active == 0, wait_seconds):
                return False
            self._is_closed = True
            self.env.close()
        return True


def _commit(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
    """Commits durably; a disk error while the pages are written leaves the outcome unknown."""
    number = txn.id()
    try:
        txn.commit()
        if env.info()["last_txnid"] == number:  # smaller: no change; larger: a later commit has synced it
            env.sync(True)
    except lmdb.MapFullError:
        raise
    except lmdb.Error as error:
        raise CommitUnknownError(
            f"the catalog's disk failed in a commit ({error}); open the store again and look up the label"
        ) from error


def _damaged(path: Path, error: Exception) -> CorruptionError:
    return CorruptionError(f"{path}: the catalog is damaged: {error}; restore it from a copy", path=str(path))


def _refuse_foreign(path: Path) -> None:
    """Refuses a directory that has files but no catalog: it is not a store, or has lost its catalog."""
    parent = path.parent
    if parent.exists() and not parent.is_dir():
        raise FormatError(f"{parent}: expected a directory, found a file", path=str(parent))
    foreign = [name for name in _names(parent) if name != path.name]
    foreign += [f"{path.name}/{name}" for name in _names(path) if name not in (DATA_FILE, _LOCK_FILE)]
    # Read last: another process that creates this store writes its catalog first.
    if not foreign or _size(path / DATA_FILE):
        return
    raise FormatError(
        f"{parent}: not a store: it holds {foreign[0]!r} and no catalog; name an empty or a new directory, "
        "or restore the catalog from a copy",
        path=str(parent),
    )


def _names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _check_length(env: lmdb.Environment, path: Path) -> None:
    """Runs step 2 of opening."""
    file = path / DATA_FILE
    found = _size(file)
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if found >= needed:
        return
    try:
        descriptor = os.open(file, os.O_RDWR)
    except OSError as error:
        raise UnavailableError(f"{file}: cannot be opened: {error}", kind="catalog") from error
    try:
        check_pages(env, descriptor)
        os.posix_fallocate(descriptor, 0, needed)  # never shortens the file of a concurrent writer
        try:
            _read_all(env)
        except BaseException:
            os.ftruncate(descriptor, found)
            raise
    except (lmdb.Error, StoreError, ValueError) as error:
        raise CorruptionError(
            f"{file}: expected {needed} bytes, found {found}; it was cut, restore it from a copy ({error})",
            path=str(file),
        ) from error
    finally:
        os.close(descriptor)


def _read_all(env: lmdb.Environment) -> None:
    """Reads every record; each has a checksum."""
    with env.begin(buffers=True) as txn:
        names = [bytes(key) for key, _ in txn.cursor()]
        for name in names:
            database = env.open_db(name, txn, create=False)
            count = 0
            for _, data in txn.cursor(db=database):
                records.unpack(data)
                count += 1
            if count != txn.stat(database)["entries"]:
                raise ValueError(f"{count} records of {name!r} are left")


def _before_fork() -> None:
    _open_lock.acquire()
    deadline = time.monotonic() + _FORK_WAIT_SECONDS
    for path, opened in list(_open.items()):
        if opened.pid == os.getpid() and opened.close(max(0.0, deadline - time.monotonic())):
            del _open[path]


def _after_fork() -> None:
    _open_lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
