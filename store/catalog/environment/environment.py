"""One open LMDB environment: its opening, its locks, and the two parts of a commit.

Opening:

1. A directory that has other files and no catalog is refused, and so is a store that lost its catalog.
2. Every page and record of the data file is checked before LMDB uses them (environment.page_check). Pages
   that were freed before they were ever written may be missing; then the file is lengthened, for LMDB maps
   it.
3. Another format number than this program's is refused.

A commit has two parts, so that processes wait for each other's disk half as long. LMDB writes a transaction's
pages durably and then its head, both under its lock. The head is made durable after the lock is released,
before the commit returns. Other processes may see the version in between; their next commit makes it durable
first. A process that deletes files because of the catalog's content calls `make_durable` before.

One of several processes prepares while another commits. A plan that is made before the wait for the write
lock is outdated by every writer ahead in the queue, and one that is made under the lock delays all other
writers. So a writer acquires the prepare lock first, and updates its plan while the process before it still
writes and waits for the disk. It then acquires the write lock, releases the prepare lock, and has to catch up
with one version at most. Only speed depends on the prepare lock: a process that cannot use the file, or for
which it is not free in half of its time, continues without it, and so do writers without a plan.

The map grows while no transaction of this process runs: after another process has enlarged it, and when a
catalog is opened with a larger limit.
"""

from __future__ import annotations

import os
import threading
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
    Handles,
    pack,
    unpack,
)
from seqstore.store.catalog.environment.answers import Answers
from seqstore.store.catalog.environment.commit_group import CommitQueue, QueuedWriter
from seqstore.store.catalog.environment.data_file import (
    DATA_FILE,
    check_file,
    damaged,
    identity_of,
    refuse_foreign,
    size_of,
)
from seqstore.store.catalog.environment.deferred_changes import deferred_changes
from seqstore.store.catalog.environment.page_check import check_heads
from seqstore.store.catalog.ship_log.outbox import FOLLOWING, SHIPPED
from seqstore.store.errors import CommitUnknownError, FormatError, StoreError, UnavailableError
from seqstore.store.locks.file_lock import FileLock, Patience, busy
from seqstore.store.runtime.durable_directory import make_directory, sync_path

# Not longer: a thread that gives way may hold another transaction, which the wait is for.
_GIVE_WAY_SECONDS: Final = 0.1
_READERS_MAX: Final = 1024
_OPEN_WAIT_SECONDS: Final = 0.5  # for the write lock; then a catalog is opened for reading only
_OF_THE_SYSTEM: Final = (
    lmdb.DiskError,
    lmdb.LockError,
    lmdb.MapResizedError,
    lmdb.MemoryError,
    lmdb.ReadonlyError,
    lmdb.ReadersFullError,
)


class Environment:
    """One open LMDB environment of this process; made by `open_environments.environment`.

    Attributes:
        env, databases: LMDB's handles.
        bytes_max: the map is at least as large.
        pid: the process that opened it.
        format: the format number of the store.
        is_read_only: another process held the write lock when it was opened.
        is_broken: a commit failed beyond repair.
        ships: its commits are shipped elsewhere, or it is a copy of what another host ships.
        identity: device and number of the data file.
        queue: of its writers.
        answers: kept from what was read.
        guard: of `is_closed` and the map.
        deferred: changes that this process could not store.
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
        self._idle_waits = 0
        self.is_closed = False
        self.is_broken = False
        self.ships = False
        self._is_locked = False
        self.guard = threading.RLock()  # of C: Ctrl-C cannot come between its acquisition and the block
        self._idle = threading.Condition(self.guard)
        self.queue = CommitQueue()
        self.answers = Answers()
        self.deferred = deferred_changes(str(path))
        self._prepare_lock = FileLock(path.parent / "locks" / "next-writer")
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
        if self._lock(patience if is_new else Patience(min(patience.left, _OPEN_WAIT_SECONDS))):
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
            self.note_shipping(txn)
        if data is None:
            if self.is_read_only:
                raise FormatError(f"{self._path}: the catalog has no format number", path=str(self._path))
            with self.env.begin(write=True) as txn:
                data = txn.get(b"format", db=meta) or pack("meta", b"format", FORMAT)
                txn.put(b"format", data, db=meta)
        self.format = unpack("meta", b"format", data)
        if self.format not in FORMATS:
            raise FormatError(
                f"{self._path}: the store has format {self.format}, this program reads up to {max(FORMATS)}; "
                "upgrade it",
                found=self.format,
                expected=max(FORMATS),
            )

    def raise_format(self, tx: CatalogTransaction) -> None:
        """Stores the format number of the records that this program writes, before the first of them."""
        if self.format < FORMAT:
            tx.put("meta", b"format", FORMAT)

    def note_shipping(self, txn: lmdb.Transaction) -> bool:
        """Reads whether the catalog is one end of a log; tells no `answers` that it was read."""
        meta = self.databases["meta"]
        self.ships = any(txn.get(key, db=meta) is not None for key in (SHIPPED, FOLLOWING))
        return self.ships

    def begin_write(
        self, patience: Patience, ready: Callable[[], None] | None = None
    ) -> lmdb.Transaction | None:
        """Starts a transaction that writes, as `begin` does; `end` frees the write lock as well.

        Args:
            ready: called right before; the call may last, as it overlaps with the commit of another process
                (the prepare lock).

        Raises:
            UnavailableError: the write lock is not free in time.
        """
        if ready is not None:
            with self._prepare_lock.inside(patience):
                ready()
                return self.begin_write(patience)
        if not self._lock(patience):
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
            if self._idle_waits:
                self._idle.wait_for(lambda: not self._idle_waits, _GIVE_WAY_SECONDS)
            if self.is_closed:
                return None
            self._active += 1
        try:
            while True:
                try:
                    return self.env.begin(write=write, buffers=True)
                except lmdb.MapResizedError:
                    if not self._adopt_size():
                        self._leave()
                        return None
        except lmdb.PanicError:  # LMDB refuses everything after a failed write of its head
            self.is_broken = True
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

    def commit(self, txn: lmdb.Transaction, tx: CatalogTransaction, *, is_alone: bool) -> None:
        """Commits durably; frees the write lock before the second wait for the disk.

        Args:
            tx: the same transaction, which knows the databases that it and its followers have touched.
            is_alone: it has no followers.
        """
        number = txn.id()
        _commit(self.env, txn)
        self.format = FORMAT
        if self._is_locked and self.env.info()["last_txnid"] == number:  # smaller: nothing was changed
            self.answers.note_commit(number, frozenset(tx.databases), tx.answers if is_alone else {})
        self.unlock()
        _sync_head(self.env, number)

    def handles(self) -> Handles:
        """Returns the handles for a new transaction."""
        found = Handles()
        found.every = self.databases
        return found

    def end(self, txn: lmdb.Transaction, *, write: bool = False) -> None:
        """Ends a transaction; rolls it back unless it was committed."""
        txn.abort()
        if write:
            self.unlock()
        self._leave()

    def _lock(self, patience: Patience) -> bool:
        """Acquires the write lock between processes; writers continue without it where files cannot be
        locked."""
        try:
            self._is_locked = self._write_lock.acquire(patience)
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
        if not self._lock(patience):
            raise busy(self._path, self._write_lock, patience)
        self.unlock()

    def busy(self, patience: Patience) -> UnavailableError:
        """Returns the error of a writer whose time is over."""
        return busy(self._path, self._write_lock, patience)

    def give_up(self) -> None:
        """Ends all waits for the write lock."""
        self._prepare_lock.give_up()
        self._write_lock.give_up()

    def must_be_replaced(self, *, write: bool) -> bool:
        """Returns whether it cannot be used any more, or not for writing."""
        return self.is_broken or (write and self.is_read_only)

    @contextmanager
    def following(self, writer: QueuedWriter) -> Iterator[CatalogTransaction]:
        """Runs a block within the transaction of its leader; an exception rolls back its own changes only.

        The block has read what the leader and earlier followers have not committed yet, such as a label. So
        its error is raised after their commit, and the commit's own error instead if that fails.
        """
        try:
            with self._nested(writer) as tx:
                yield tx
        except Exception as error:
            writer.await_what_was_read(error)
            raise
        writer.outcome()

    @contextmanager
    def _nested(self, writer: QueuedWriter) -> Iterator[CatalogTransaction]:
        try:
            txn = self.env.begin(write=True, buffers=True, parent=writer.parent)
            try:
                assert writer.leader is not None
                tx = writer.leader.within(txn)
                yield tx
                txn.commit()
            finally:
                txn.abort()  # has no effect after a commit
            writer.leader.adopt(tx)
        except lmdb.Error as error:
            raise self.named(error) from error
        finally:
            writer.has_run.set()

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

    def _wait_until_idle(self, wait_seconds: float | None = None) -> bool:
        """Waits until no transaction of this process is open; False when one still is in the end.

        New transactions give way meanwhile: threads that overlap all the time would leave no such moment.
        """
        self._idle_waits += 1
        try:
            return self._idle.wait_for(lambda: self._active == 0, wait_seconds)
        finally:
            self._idle_waits -= 1
            self._idle.notify_all()

    def _adopt_size(self) -> bool:
        """Adopts the larger map of another process, while no transaction of this process is open.

        The caller has been counted as a transaction, and still is when this returns or raises.

        Returns:
            False when the environment was closed meanwhile.
        """
        with self._idle:
            self._leave()
            try:
                self._wait_until_idle()
                if not self.is_closed:
                    self.env.set_mapsize(0)
                return not self.is_closed
            finally:
                self._active += 1

    def grow(self, bytes_max: int) -> None:
        """Enlarges the map, once no transaction of this process runs."""
        with self._idle:
            self._wait_until_idle()
            if bytes_max > self.env.info()["map_size"]:
                self.env.set_mapsize(bytes_max)
            self.bytes_max = max(bytes_max, self.bytes_max)

    def close(self, wait_seconds: float | None) -> bool:
        """Closes it once its transactions have ended; False when they have not in time."""
        with self._idle:
            if not self._wait_until_idle(wait_seconds):
                return False
            self.is_closed = True
            self.env.close()
        return True


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
