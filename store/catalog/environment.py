"""The catalog's LMDB environments, one per path and process, and their transactions.

No read transaction outlives a method: a long reader would prevent LMDB from reusing pages.

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

Ctrl-C during a transaction is deferred until it has ended. Python raises KeyboardInterrupt between any two
steps of the main thread. One of these places is between the acquisition of a lock and the block that releases
it; the next thread that needs the lock would wait for ever.

A fork: transactions must not cross it, and the child must not close the environment that it inherits (that
would free its parent's reader slot). Environments are therefore closed before a fork, after their
transactions have ended; parent and child reopen them at the next use.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Final

import lmdb

from seqstore.store.catalog.catalog import DATABASES, FORMAT, CatalogTransaction, pack, unpack
from seqstore.store.catalog.commit_group import CommitQueue, QueuedWriter
from seqstore.store.catalog.page_check import check_pages
from seqstore.store.catalog.prepare_lock import PrepareLock
from seqstore.store.errors import (
    CommitUnknownError,
    CorruptionError,
    FormatError,
    StoreError,
    UnavailableError,
)
from seqstore.store.settings import Settings

DATA_FILE: Final = "data.mdb"
_LOCK_FILE: Final = "lock.mdb"
_READERS_MAX: Final = 1024
_FORK_WAIT_SECONDS: Final = 10.0
_NAMED: Final = (lmdb.MapFullError, lmdb.DiskError, lmdb.CorruptedError, lmdb.PageNotFoundError)
_open: dict[str, Environment] = {}
_open_lock = threading.Lock()


def environment(path: str, bytes_max: int) -> Environment:
    """Returns the environment of a directory; opens it if necessary and enlarges its map to `bytes_max`.

    Args:
        path: the real path of the directory; created when absent.
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
                found = _open[path] = Environment(Path(path), bytes_max)
            else:
                found.grow(bytes_max)
    if found.pid != os.getpid():
        raise UnavailableError(
            f"{path}: this process was forked while a transaction of the catalog was running; "
            "start it afresh (spawn) and open the store there",
            kind="forked",
        )
    return found


def _forget_replaced(path: str) -> None:
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

    def __init__(self, path: Path, bytes_max: int) -> None:
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
                max_dbs=len(DATABASES) + 8,
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
                self.databases = {name: self.env.open_db(name.encode(), txn) for name in DATABASES}
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
                data = txn.get(b"format", db=meta) or pack(FORMAT)
                txn.put(b"format", data, db=meta)
        found = unpack(data)
        if found != FORMAT:
            raise FormatError(
                f"{self._path}: the store has format {found}, this program reads {FORMAT}; upgrade it",
                found=found,
                expected=FORMAT,
            )

    def begin(self, *, write: bool, ready: Callable[[], None] | None = None) -> lmdb.Transaction | None:
        """Starts a transaction, which `end` ends; None when the environment was closed meanwhile.

        Args:
            ready: called right before; the call may last, as it overlaps with the commit of another process
                (catalog.prepare_lock).
        """
        with self._prepare_lock.inside() if ready is not None else nullcontext():
            if ready is not None:
                ready()
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

    def end(self, txn: lmdb.Transaction) -> None:
        """Ends a transaction; rolls it back unless it was committed."""
        txn.abort()
        self._leave()

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
        except _NAMED as error:
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
        if isinstance(error, lmdb.DiskError):
            return UnavailableError(f"the catalog cannot be written: {error}", kind="disk")
        return _damaged(self._path, error)

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

    def _environment(self) -> Environment:
        return environment(self._real_path, self._settings.catalog_bytes_max)

    @contextmanager
    def read(self) -> Iterator[CatalogTransaction]:
        """Opens a consistent view of the catalog for a short block."""
        with _DeferredInterrupts():
            opened = self._environment()
            while (txn := opened.begin(write=False)) is None:  # closed for a fork meanwhile
                opened = self._environment()
            try:
                yield CatalogTransaction(txn, opened.databases)
            except _NAMED as error:
                raise opened.named(error) from error
            finally:
                opened.end(txn)

    @contextmanager
    def write(self, ready: Callable[[], None] | None = None) -> Iterator[CatalogTransaction]:
        """Opens the only kind of transaction that changes the catalog.

        Commits durably at the end, together with other queued writers (catalog.commit_group); any exception
        leaves everything unchanged.

        Args:
            ready: called before the wait for the write lock, when this process is the next to acquire it. It
                may be called several times, and not at all when the block shares the commit of another
                thread.

        Raises:
            UnavailableError: the catalog's map or the disk is full.
        """
        with _DeferredInterrupts():
            while True:
                opened = self._environment()
                writer = opened.queue.enter(ready)
                if writer.parent is not None:
                    with opened.following(writer) as tx:
                        yield tx
                    return
                with opened.queue.leading() as followers:
                    txn = opened.begin(write=True, ready=ready)
                    if txn is None:  # closed for a fork meanwhile
                        continue
                    try:
                        tx = CatalogTransaction(txn, opened.databases)
                        yield tx
                        opened.queue.run_followers(txn, followers, tx.made)
                        _commit(opened.env, txn)
                    except _NAMED as error:
                        raise opened.named(error) from error
                    finally:
                        opened.end(txn)
                    return

    def make_durable(self) -> None:
        """Makes everything that was read here durable; call it before a file is deleted because of it."""
        with self.read():  # keeps the environment open
            self._environment().env.sync(True)


class _DeferredInterrupts:
    """Defers Ctrl-C: KeyboardInterrupt is raised at the end of the block. A second Ctrl-C raises it at once.

    Works in the main thread only, and only while Python's own handler of the signal is installed.
    """

    def __init__(self) -> None:
        self._is_installed = False
        self._is_pending = False

    def __enter__(self) -> None:
        is_main = threading.get_ident() == threading.main_thread().ident
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._is_installed = True
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_pending:
            signal.default_int_handler(number, frame)
        self._is_pending = True

    def __exit__(self, *_: object) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self._is_pending:
                raise KeyboardInterrupt


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
                unpack(data)
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
