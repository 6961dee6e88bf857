"""Access to the catalog of one data directory: transactions that read and write, and answers from memory.

No read transaction outlives a method: a long reader would prevent LMDB from reusing pages.

Python raises KeyboardInterrupt between any two steps of the main thread. One of these places is between the
acquisition of a lock and the block that releases it; the next thread that needs the lock would wait for ever.
Ctrl-C during a transaction is therefore deferred until it has ended.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

import lmdb

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment.answers import Answer
from seqstore.store.catalog.environment.deferred_changes import Change, deferred_changes
from seqstore.store.catalog.environment.environment import Environment
from seqstore.store.catalog.environment.open_environments import (
    add_handle,
    close,
    environment,
    forget_replaced,
    open_environments,
    remove_handle,
)
from seqstore.store.catalog.ship_log.outbox import begin_journal, read_shipped, refuse_follower, store_journal
from seqstore.store.catalog.ship_log.shipper import Shipper, shipper_of
from seqstore.store.errors import StoreError, UnavailableError
from seqstore.store.locks.file_lock import Patience
from seqstore.store.settings import Settings

T = TypeVar("T")

# What the functions of Python wrap, which make an enumeration of each handler: 15 µs for a function.
_handler_of = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
_set_handler = getattr(signal.signal, "__wrapped__", signal.signal)


class _DeferredInterrupts:
    """Defers Ctrl-C: KeyboardInterrupt is raised at the end of the block. A second Ctrl-C raises it at once.

    Works in the main thread only, and only while Python's own handler of the signal is installed.
    """

    def __init__(self) -> None:
        self._is_installed = False
        self._is_pending = False

    def __enter__(self) -> None:
        is_main = threading.get_ident() == threading.main_thread().ident
        if is_main and _handler_of(signal.SIGINT) is signal.default_int_handler:
            self._is_installed = True
            _set_handler(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_pending:
            signal.default_int_handler(number, frame)
        self._is_pending = True

    def __exit__(self, *_: object) -> None:
        if self._is_installed:
            _set_handler(signal.SIGINT, signal.default_int_handler)
            if self._is_pending:
                raise KeyboardInterrupt


class Catalog:
    """The catalog of one data directory.

    Args:
        path: the LMDB directory; created when absent.

    Attributes:
        data_dir: the store's directory, its real path.
        require_fresh: of a follower: called before each read, raises when its copy is too old.

    Raises:
        FormatError: the directory is not a store's, or a newer program wrote the catalog.
        UnavailableError: it cannot be opened or written.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self._settings = settings
        self._real_path = os.path.realpath(path)
        self.data_dir = Path(self._real_path).parent
        self.require_fresh: Callable[[], None] | None = None
        forget_replaced(self._real_path)
        add_handle(self._real_path, self)
        self._environment()

    def _environment(self, patience: Patience | None = None, *, write: bool = False) -> Environment:
        found, bytes_max = open_environments.get(self._real_path), self._settings.catalog_bytes_max
        is_fit = found is not None and found.pid == os.getpid() and found.bytes_max >= bytes_max
        if found is not None and is_fit and not found.is_broken and not (write and found.is_read_only):
            return found
        patience = patience or Patience(self._settings.commit_wait_seconds)
        return environment(self._real_path, bytes_max, patience, write=write)

    @property
    def shipper(self) -> Shipper:
        """Sends the commits of this catalog elsewhere, if that was asked for."""
        return shipper_of(self._real_path)

    @contextmanager
    def following(self) -> Iterator[CatalogTransaction]:
        """Opens a transaction that changes a follower's copy, a catalog that is being restored, or what the
        store ships.

        It is neither refused nor shipped, so no other writer shares it, and no deferred change runs in it.
        """
        with self._written(Patience(self._settings.commit_wait_seconds), None, follows=True) as tx:
            yield tx

    def defer(self, change: Change) -> None:
        """Keeps a change for this process's next transaction that writes (environment.deferred_changes)."""
        deferred_changes(self._real_path).add(change)

    def stop_waiting(self) -> None:
        """Ends all waits of this process for the write lock, which fail then: the process is about to end."""
        self._environment().give_up()

    @contextmanager
    def read(self) -> Iterator[CatalogTransaction]:
        """Opens a consistent view of the catalog for a short block.

        Raises:
            UnavailableError: the catalog is a follower's, and is too old.
        """
        if self.require_fresh is not None:
            self.require_fresh()
        with _DeferredInterrupts():
            opened = self._environment()
            while (txn := opened.begin()) is None:  # closed for a fork meanwhile
                opened = self._environment()
            try:
                yield CatalogTransaction(txn, opened.handles())
            except lmdb.Error as error:
                raise opened.named(error) from error
            finally:
                opened.end(txn)

    def recall(self, of: Hashable, read: Callable[[CatalogTransaction], T]) -> T:
        """Returns what `read` finds in the newest catalog, from memory where that must be the same.

        Args:
            of: names the answer, among those of all callers.
            read: uses nothing but the catalog; no caller changes its result.
        """
        if self.require_fresh is not None:
            self.require_fresh()
        opened = self._environment()
        with opened.guard:  # its map may not change meanwhile
            newest = None if opened.is_closed else opened.env.info()["last_txnid"]
        found = opened.answers.known.get(of)
        is_current = found is not None and newest == found.commit
        if found is None or newest is None or not (is_current or opened.answers.holds(found, newest)):
            with self.read() as tx:
                found = Answer(read(tx), tx.number, frozenset(tx.databases))
            if self._environment() is opened:  # else a fork has closed it, and the number is of another one
                opened.answers.keep(of, found)
        value: T = found.value
        return value

    @contextmanager
    def write(
        self, ready: Callable[[], None] | None = None, *, wait_seconds: float | None = None
    ) -> Iterator[CatalogTransaction]:
        """Opens the only kind of transaction that changes the catalog.

        Commits durably at the end, together with other queued writers (environment.commit_group); any
        exception leaves everything unchanged.

        Args:
            ready: called before the wait for the write lock, when this process is the next to acquire it;
                perhaps several times, and not at all when the block shares another thread's commit.
            wait_seconds: for the write lock, None for the setting `commit_wait_seconds`.

        Raises:
            UnavailableError: the catalog's map or the disk is full, or the write lock is not free in time.
            CommitUnknownError: the commit may be lost if the host fails.
        """
        patience = Patience(self._settings.commit_wait_seconds if wait_seconds is None else wait_seconds)
        has_begun = has_ended = False
        try:
            with self._written(patience, ready) as tx:
                has_begun = True
                yield tx
                has_ended = True
        except StoreError:
            if has_begun and not has_ended:
                self.require_shipped()  # such as the commit whose label the block has found used
            raise

    def require_shipped(self) -> None:
        """Ships what waits, where only shipped commits are acknowledged (`ship_seconds` 0). Call it before an
        answer that tells of a commit, such as the state of a label.

        Raises:
            StoreError: it cannot be shipped, so the commit may be lost with this host.
        """
        self.shipper.before_write(self, self._settings.ship_seconds)

    def has_unshipped(self) -> bool:
        """Returns whether a commit of a store that ships waits to be shipped."""
        return self._environment().ships and self.shipper.unshipped(self) > 0

    @contextmanager
    def _written(
        self, patience: Patience, ready: Callable[[], None] | None, *, follows: bool = False
    ) -> Iterator[CatalogTransaction]:
        with _DeferredInterrupts():
            while True:
                opened = self._environment(patience, write=True)
                if opened.ships and not follows:
                    self.shipper.before_write(self, self._settings.ship_seconds)
                writer = opened.queue.enter(ready, patience, is_alone=follows)
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
                    taken: list[Change] = []
                    try:
                        tx = CatalogTransaction(txn, opened.handles())
                        if opened.note_shipping(txn) and not follows:
                            refuse_follower(tx)
                            begin_journal(tx, self.shipper.fenced)
                        opened.raise_format(tx)
                        if opened.deferred.waiting and not follows:
                            taken = opened.deferred.run(tx)
                        yield tx
                        if opened.queue.waiting and not follows:
                            opened.queue.run_followers(txn, followers, tx)
                        number = store_journal(tx, self.shipper.known) if tx.journal is not None else 0
                        opened.commit(txn, tx, is_alone=not followers)
                        taken = []
                    except lmdb.Error as error:
                        raise opened.named(error) from error
                    finally:
                        if taken:
                            opened.deferred.restore(taken)
                        opened.end(txn, write=True)
                    if not follows:
                        self.shipper.after_commit(self, number, self._settings.ship_seconds)
                    return

    def release(self) -> None:
        """Ends the use of this handle; without others, the environment is closed after some time."""
        remove_handle(self._real_path, self)

    def close(self) -> None:
        """Closes the environment for all handles of this process: its files will be moved."""
        close(self._real_path)

    def make_durable(self) -> None:
        """Makes everything that was read here durable; call it before a file is deleted because of it.

        A store that ships its commits has shipped them then, and this host is the one that leads.

        Raises:
            UnavailableError: the disk fails, or another process holds the write lock since the catalog was
                opened.
        """
        with self.read() as tx:  # keeps the environment open
            ships = read_shipped(tx) is not None
            opened = self._environment()
            if opened.is_read_only:
                raise opened.busy(Patience(0))
            try:
                opened.env.sync(True)
            except lmdb.Error as error:
                raise UnavailableError(
                    f"{self.path}: the catalog cannot be synced: {error}", kind="disk"
                ) from error
        if ships:
            self.shipper.confirm(self)
