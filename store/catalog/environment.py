"""The catalog's LMDB environments, one per path and process, and their transactions.

No read transaction outlives a method: a long reader would prevent LMDB from reusing pages.

Opening:

1. A directory that has other files and no catalog is refused, and so is a store that lost its catalog.
2. Every page and record of the data file is checked before LMDB uses them (catalog.page_check). Pages that
   were freed before they were ever written may be missing; then the file is lengthened, for LMDB maps it.
3. Another format number than this program's is refused.

A commit has two parts, so that processes wait for each other's disk half as long. LMDB writes a transaction's
pages durably and then its head, both under its lock. The head is made durable after the lock is released,
before the commit returns. Other processes may see the version in between; their next commit makes it durable
first. A process that deletes files because of the catalog's content calls `make_durable` before.

The map grows while no transaction of this process runs: after another process has enlarged it, and when a
catalog is opened with a larger limit.

Ctrl-C during a transaction is deferred until it has ended (runtime.interrupts).

A fork: transactions must not cross it, and the child must not close the environment that it inherits (that
would free its parent's reader slot). Environments are therefore closed before a fork, after their
transactions have ended; parent and child reopen them at the next use.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import lmdb

from seqstore.store.catalog.catalog import (
    DATABASES,
    FORMAT,
    FORMATS,
    CatalogTransaction,
    pack,
    unpack,
)
from seqstore.store.catalog.commit_group import CommitQueue, QueuedWriter
from seqstore.store.catalog.data_file import (
    DATA_FILE,
    check_file,
    damaged,
    identity_of,
    refuse_foreign,
    size_of,
)
from seqstore.store.catalog.deferred_changes import Change, deferred_changes
from seqstore.store.catalog.page_check import check_heads
from seqstore.store.errors import (
    CommitUnknownError,
    FormatError,
    StoreError,
    UnavailableError,
)
from seqstore.store.locks.file_lock import FileLock, Patience, busy
from seqstore.store.locks.prepare_lock import PrepareLock
from seqstore.store.runtime.durable_directory import make_directory, sync_path
from seqstore.store.runtime.interrupts import DeferredInterrupts
from seqstore.store.settings import Settings

_READERS_MAX: Final = 1024
_FORK_WAIT_SECONDS: Final = 10.0
_OPEN_WAIT_SECONDS: Final = 0.5  # for the write lock; then a catalog is opened for reading only
_OF_THE_SYSTEM: Final = (
    lmdb.DiskError,
    lmdb.LockError,
    lmdb.MapResizedError,
    lmdb.MemoryError,
    lmdb.ReadonlyError,
    lmdb.ReadersFullError,
)
_open: dict[str, Environment] = {}
_open_lock = threading.Lock()


def environment(path: str, bytes_max: int, patience: Patience, *, write: bool = False) -> Environment:
    """Returns the environment of a directory; opens it if necessary and enlarges its map to `bytes_max`.

    An environment whose commit failed beyond repair is replaced, and so is one for reading only, before a
    write.

    Args:
        path: the real path of the directory; created when absent.
        bytes_max: size of the map; an open map only grows.
        patience: for the write lock.
        write: a transaction that writes will follow.

    Raises:
        FormatError: the directory is not a store's, or a newer program wrote the catalog.
        CorruptionError: the catalog was cut, emptied or changed.
        UnavailableError: it cannot be opened.
    """
    found = _open.get(path)
    if found is not None and write and found.is_read_only:
        found.await_write_lock(patience)
    if found is None or found.bytes_max < bytes_max or found.must_be_replaced(write=write):
        with _open_lock:
            found = _open.get(path)
            if found is not None and found.must_be_replaced(write=write):
                _close(path, found)
                found = None
            if found is None:
                found = _open[path] = Environment(Path(path), bytes_max, patience)
            else:
                found.grow(bytes_max)
    if found.pid != os.getpid():
        raise UnavailableError(
            f"{path}: this process was forked while a transaction of the catalog was running; "
            "start it afresh (spawn) and open the store there",
            kind="forked",
        )
    return found


def _close(path: str, opened: Environment) -> None:
    """Closes an environment that is to be replaced."""
    if not opened.close(_FORK_WAIT_SECONDS):
        raise UnavailableError(
            f"{path}: the catalog must be opened anew, and transactions of this process are still running; "
            "try again",
            kind="catalog",
        )
    del _open[path]


def _forget_replaced(path: str) -> None:
    """Closes the environment of a directory whose data file was replaced or removed."""
    with _open_lock:
        found = _open.get(path)
        if found is not None and found.identity != identity_of(Path(path) / DATA_FILE) and found.close(None):
            del _open[path]


def is_open(path: Path) -> bool:
    """Returns whether this process has the environment of a directory open."""
    return os.path.realpath(path) in _open


class Environment:
    """One open LMDB environment of this process; made by `environment`.

    Attributes:
        env, databases: LMDB's handles.
        bytes_max: the map is at least as large.
        pid: the process that opened it.
        format: the format number of the store.
        is_read_only: another process held the write lock when it was opened.
        identity: device and number of the data file.
        queue: of its writers.
    """

    def __init__(self, path: Path, bytes_max: int, patience: Patience) -> None:
        refuse_foreign(path)
        self.databases: dict[str, Any]
        self.env: lmdb.Environment
        self.is_read_only = False
        self.bytes_max = bytes_max
        self.pid = os.getpid()
        self._path = path
        self._active = 0
        self._is_closed = False
        self._is_broken = False
        self._is_locked = False
        self._idle = threading.Condition()
        self.queue = CommitQueue()
        self._prepare_lock = PrepareLock(path.parent / "locks" / "next-writer")
        self._write_lock = FileLock(path.parent / "locks" / "writer")
        self._open(bytes_max)
        try:
            check_file(self.env, path / DATA_FILE)
            self._open_databases(bytes_max, patience)
            self._check_format()
        except lmdb.Error as error:
            named = self.named(error)
            self.env.close()
            raise named from error
        except BaseException:
            self.env.close()
            raise
        finally:
            self.unlock()
        self.identity = identity_of(path / DATA_FILE)

    def _open(self, bytes_max: int) -> None:
        path = self._path
        try:
            make_directory(path)
            check_heads(path / DATA_FILE)
            is_new = not size_of(path / DATA_FILE)
            self.env = lmdb.open(
                str(path),
                map_size=bytes_max,
                max_dbs=len(DATABASES) + 8,
                max_readers=_READERS_MAX,
                metasync=False,
                readonly=self.is_read_only,
            )
            if is_new:
                sync_path(path)
        except ValueError as error:
            raise damaged(path / DATA_FILE, error) from error
        except lmdb.InvalidError as error:
            raise FormatError(f"{path}: not a catalog of this program ({error})", path=str(path)) from error
        except (lmdb.Error, OSError) as error:
            raise UnavailableError(f"{path}: cannot be opened: {error}", kind="catalog") from error

    def _open_databases(self, bytes_max: int, patience: Patience) -> None:
        """Opens the databases. Lasting handles need a write transaction, or an environment for reading."""
        is_new = not self.env.info()["last_txnid"]
        if self._lock(patience.left if is_new else min(patience.left, _OPEN_WAIT_SECONDS)):
            with self.env.begin(write=True) as txn:
                self.databases = {name: self.env.open_db(name.encode(), txn) for name in DATABASES}
            self.env.reader_check()
            return
        if is_new:
            raise busy(self._path, self._write_lock, patience)
        self.env.close()
        self.is_read_only = True
        self._open(bytes_max)
        self.databases = {name: self.env.open_db(name.encode(), create=False) for name in DATABASES}

    def _check_format(self) -> None:
        meta = self.databases["meta"]
        with self.env.begin() as txn:
            data = txn.get(b"format", db=meta)
        if data is None:
            if self.is_read_only:
                raise FormatError(f"{self._path}: the catalog has no format number", path=str(self._path))
            with self.env.begin(write=True) as txn:
                data = txn.get(b"format", db=meta) or pack("meta", b"format", FORMAT)
                txn.put(b"format", data, db=meta)
        self.format = unpack("meta", b"format", data)
        if self.format not in FORMATS:
            raise FormatError(
                f"{self._path}: the store has format {self.format}, this program reads up to {FORMAT}; "
                "upgrade it",
                found=self.format,
                expected=FORMAT,
            )

    def raise_format(self, tx: CatalogTransaction) -> None:
        """Stores the format number of the records that this program writes, before the first of them."""
        if self.format < FORMAT:
            tx.put("meta", b"format", FORMAT)

    def begin_write(
        self, patience: Patience, ready: Callable[[], None] | None = None
    ) -> lmdb.Transaction | None:
        """Starts a transaction that writes, as `begin` does; `end` frees the write lock as well.

        Args:
            ready: called right before; the call may last, as it overlaps with the commit of another process
                (locks.prepare_lock).

        Raises:
            UnavailableError: the write lock is not free in time.
        """
        if ready is not None:
            with self._prepare_lock.inside(patience):
                ready()
                return self.begin_write(patience)
        if not self._lock(patience.left):
            raise busy(self._path, self._write_lock, patience)
        try:
            txn = self.begin(write=True)
        except BaseException:
            self.unlock()
            raise
        if txn is None:
            self.unlock()
        return txn

    def begin(self, *, write: bool = False) -> lmdb.Transaction | None:
        """Starts a transaction, which `end` ends; None when the environment was closed meanwhile or has to be
        replaced."""
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
        except lmdb.PanicError:  # LMDB refuses everything after a failed write of its head
            self._is_broken = True
            self._leave()
            return None
        except lmdb.Error as error:
            self._leave()
            raise UnavailableError(
                f"{self._path}: no transaction could begin: {error}", kind="catalog"
            ) from error
        except BaseException:
            self._leave()
            raise

    def commit(self, txn: lmdb.Transaction) -> None:
        """Commits durably; frees the write lock before the second wait for the disk."""
        number = txn.id()
        _commit(self.env, txn)
        self.format = FORMAT
        self.unlock()
        _sync_head(self.env, number)

    def end(self, txn: lmdb.Transaction, *, write: bool = False) -> None:
        """Ends a transaction; rolls it back unless it was committed."""
        txn.abort()
        if write:
            self.unlock()
        self._leave()

    def _lock(self, seconds: float) -> bool:
        """Acquires the write lock between processes; writers continue without it where files cannot be
        locked."""
        try:
            self._is_locked = self._write_lock.acquire(seconds)
        except OSError:
            return True
        if self._is_locked:
            self._write_lock.sign()
        return self._is_locked

    def unlock(self) -> None:
        """Frees the write lock, if this process holds it."""
        if self._is_locked:
            self._is_locked = False
            self._write_lock.release()

    def await_write_lock(self, patience: Patience) -> None:
        """Waits until the write lock is free.

        Raises:
            UnavailableError: it is not free in time.
        """
        if not self._lock(patience.left):
            raise busy(self._path, self._write_lock, patience)
        self.unlock()

    def busy(self, patience: Patience) -> UnavailableError:
        """Returns the error of a writer whose time is over."""
        return busy(self._path, self._write_lock, patience)

    def give_up(self) -> None:
        """Ends all waits for the write lock."""
        self._prepare_lock.give_up()
        self._write_lock.give_up()

    def serves(self, bytes_max: int, *, write: bool) -> bool:
        """Returns whether a transaction of this process can use it as it is."""
        is_fit = self.bytes_max >= bytes_max and not self.must_be_replaced(write=write)
        return is_fit and self.pid == os.getpid()

    def must_be_replaced(self, *, write: bool) -> bool:
        """Returns whether it cannot be used any more, or not for writing."""
        return self._is_broken or (write and self.is_read_only)

    @contextmanager
    def following(self, writer: QueuedWriter) -> Iterator[CatalogTransaction]:
        """Runs a block within the transaction of its leader; an exception rolls back its own changes only."""
        try:
            txn = self.env.begin(write=True, buffers=True, parent=writer.parent)
            try:
                tx = CatalogTransaction(txn, self.databases, states=writer.states)
                yield tx
                txn.commit()
            finally:
                txn.abort()  # has no effect after a commit
            writer.states.update(tx.made)
        except lmdb.Error as error:
            raise self.named(error) from error
        finally:
            writer.has_run.set()
        writer.outcome()

    def named(self, error: lmdb.Error) -> StoreError:
        """Returns the store's error for one of LMDB's."""
        if isinstance(error, lmdb.MapFullError):
            return UnavailableError(
                f"the catalog has used its {self.env.info()['map_size']} bytes; raise [store] "
                "catalog_bytes_max and open the store again",
                kind="map_full",
            )
        if isinstance(error, _OF_THE_SYSTEM) or type(error) is lmdb.Error:  # the latter: any other errno
            return UnavailableError(f"{self._path}: the catalog cannot be used: {error}", kind="disk")
        return damaged(self._path, error)

    def _leave(self) -> None:
        with self._idle:
            self._active -= 1
            self._idle.notify_all()

    def _adopt_size(self) -> None:
        """Adopts the larger map of another process, while no transaction of this process is open."""
        with self._idle:
            self._leave()
            self._idle.wait_for(lambda: self._active == 0)
            self.env.set_mapsize(0)
            self._active += 1

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


class Catalog:
    """The catalog of one data directory.

    Args:
        path: the LMDB directory; created when absent.

    Attributes:
        data_dir: the store's directory, its real path.

    Raises:
        FormatError: the directory is not a store's, or a newer program wrote the catalog.
        UnavailableError: it cannot be opened or written.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self._settings = settings
        self._real_path = os.path.realpath(path)
        self.data_dir = Path(self._real_path).parent
        _forget_replaced(self._real_path)
        self._environment()

    def _environment(self, patience: Patience | None = None, *, write: bool = False) -> Environment:
        found = _open.get(self._real_path)
        if found is not None and found.serves(self._settings.catalog_bytes_max, write=write):
            return found
        patience = patience or Patience(self._settings.commit_wait_seconds)
        return environment(self._real_path, self._settings.catalog_bytes_max, patience, write=write)

    def defer(self, change: Change) -> None:
        """Keeps a change for the next transaction of this process that writes (catalog.deferred_changes)."""
        deferred_changes(self._real_path).add(change)

    def stop_waiting(self) -> None:
        """Ends all waits of this process for the write lock, which fail then: the process is about to end."""
        self._environment().give_up()

    @contextmanager
    def read(self) -> Iterator[CatalogTransaction]:
        """Opens a consistent view of the catalog for a short block."""
        with DeferredInterrupts():
            opened = self._environment()
            while (txn := opened.begin()) is None:  # closed for a fork meanwhile
                opened = self._environment()
            try:
                yield CatalogTransaction(txn, opened.databases)
            except lmdb.Error as error:
                raise opened.named(error) from error
            finally:
                opened.end(txn)

    @contextmanager
    def write(
        self, ready: Callable[[], None] | None = None, *, wait_seconds: float | None = None
    ) -> Iterator[CatalogTransaction]:
        """Opens the only kind of transaction that changes the catalog.

        Commits durably at the end, together with other queued writers (catalog.commit_group); any exception
        leaves everything unchanged.

        Args:
            ready: called before the wait for the write lock, when this process is the next to acquire it. It
                may be called several times, and not at all when the block shares the commit of another
                thread.
            wait_seconds: for the write lock, None for the setting `commit_wait_seconds`.

        Raises:
            UnavailableError: the catalog's map or the disk is full, or the write lock is not free in time.
            CommitUnknownError: the commit may be lost if the host fails.
        """
        patience = Patience(self._settings.commit_wait_seconds if wait_seconds is None else wait_seconds)
        with DeferredInterrupts():
            while True:
                opened = self._environment(patience, write=True)
                writer = opened.queue.enter(ready, patience)
                if writer is None:
                    raise opened.busy(patience)
                if writer.parent is not None:
                    with opened.following(writer) as tx:
                        yield tx
                    return
                with opened.queue.leading() as followers:
                    txn = opened.begin_write(patience, ready)
                    if txn is None:  # closed for a fork meanwhile, or to be replaced
                        continue
                    deferred, taken = deferred_changes(self._real_path), list[Change]()
                    try:
                        tx = CatalogTransaction(txn, opened.databases)
                        opened.raise_format(tx)
                        taken = deferred.run(tx)
                        yield tx
                        opened.queue.run_followers(txn, followers, tx.made)
                        opened.commit(txn)
                        taken = []
                    except lmdb.Error as error:
                        raise opened.named(error) from error
                    finally:
                        deferred.restore(taken)
                        opened.end(txn, write=True)
                    return

    def close(self) -> None:
        """Closes the environment for all handles of this process: its files will be moved."""
        with _open_lock:
            found = _open.get(self._real_path)
            if found is not None:
                _close(self._real_path, found)

    def make_durable(self) -> None:
        """Makes everything that was read here durable; call it before a file is deleted because of it.

        Raises:
            UnavailableError: the disk fails, or another process holds the write lock since the catalog was
                opened.
        """
        with self.read():  # keeps the environment open
            opened = self._environment()
            if opened.is_read_only:
                raise opened.busy(Patience(0))
            try:
                opened.env.sync(True)
            except lmdb.Error as error:
                raise UnavailableError(
                    f"{self.path}: the catalog cannot be synced: {error}", kind="disk"
                ) from error


def _commit(env: lmdb.Environment, txn: lmdb.Transaction) -> None:
    """Writes a transaction's pages durably, then its head. LMDB rolls it back if either fails."""
    number, path = txn.id(), env.path()
    try:
        txn.commit()
    except lmdb.MapFullError:
        raise
    except lmdb.Error as error:
        if env.info()["last_txnid"] >= number:
            raise _unknown(path, error) from error
        if isinstance(error, lmdb.DiskError):
            raise UnavailableError(
                f"{path}: the disk of the catalog is full ({error}): nothing was stored; make room and try "
                "again",
                kind="disk_full",
            ) from error
        raise UnavailableError(
            f"{path}: the catalog cannot be written ({error}): nothing was stored; look at the disk",
            kind="disk",
        ) from error


def _sync_head(env: lmdb.Environment, number: int) -> None:
    """Makes the head of a transaction durable.

    If that fails, the outcome is open: processes see the transaction, and a failure of the host may undo it.
    """
    try:
        if env.info()["last_txnid"] == number:  # smaller: no change; larger: a later commit has synced it
            env.sync(True)
    except lmdb.Error as error:
        raise _unknown(env.path(), error) from error


def _unknown(path: str, error: lmdb.Error) -> CommitUnknownError:
    return CommitUnknownError(
        f"{path}: the commit was written, and the disk failed to sync it ({error}): it is visible now, and a "
        "failure of the host may undo it; look at the disk, then look up the label"
    )


def _before_fork() -> None:
    _open_lock.acquire()
    deadline = time.monotonic() + _FORK_WAIT_SECONDS
    for path, opened in list(_open.items()):
        if opened.pid == os.getpid() and opened.close(max(0.0, deadline - time.monotonic())):
            del _open[path]


def _after_fork() -> None:
    _open_lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
