"""Sends the commits of a store to its place, in order; one shipper for each process and directory.

The processes of a host take turns by a file lock. Each reads from the catalog what waits, and creates the
object at the next position. If the position is taken, the object there tells why: by an earlier try, or by
another process of this host, then its commits are those that wait here; or by a host with a later lease.

With the setting `ship_seconds` 0 a commit is shipped before it is acknowledged, once for all writers that
share it. Otherwise a thread ships every so many seconds what waits.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.ship_log.base_copy import copy_records, cut_log, write_manifest
from seqstore.store.catalog.ship_log.outbox import (
    SHIP,
    Shipped,
    fenced_error,
    newest_commit,
    pending,
    read_shipped,
    store_shipped,
)
from seqstore.store.catalog.ship_log.place import Place, open_place
from seqstore.store.catalog.ship_log.ship_file import FOLLOWERS, Commit, Hold, LogObject, digest_of, log_name
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import CommitUnknownError, CorruptionError, StoreError
from seqstore.store.locks.file_lock import FileLock, Patience, busy
from seqstore.store.runtime import failpoint
from seqstore.store.runtime.disk_errors import disk_error
from seqstore.store.runtime.forks import new_lock, new_rlock

_LOG: Final = logging.getLogger(__name__)
_OBJECT_BYTES_MAX: Final = 32 * 2**20
_WAIT_SECONDS: Final = 60.0
_TRIM_SECONDS: Final = 1.0
_RETRY_SECONDS_MIN: Final = 0.1
_RETRY_SECONDS_MAX: Final = 10.0
_of_path: Final[dict[str, Shipper]] = {}


class Access(Protocol):
    """The part of a catalog that a shipper uses."""

    def read(self) -> AbstractContextManager[CatalogTransaction]: ...

    def write(self) -> AbstractContextManager[CatalogTransaction]: ...

    def following(self) -> AbstractContextManager[CatalogTransaction]: ...


@dataclass(frozen=True)
class ShipStatus:
    """How far a store was shipped.

    Attributes:
        place: without secrets.
        state: as the catalog and this process know it.
        waiting: commits that were not shipped yet.
        waiting_since_ms: Unix time of the oldest of them, 0 without one.
        error: of the last try, or that the place has no base copy; empty after a success.
    """

    place: str
    state: Shipped
    waiting: int
    waiting_since_ms: int
    error: str


class Shipper:
    """Ships the commits of one data directory; safe to share between threads.

    Attributes:
        known: how far this process has shipped, None before it has.
        fenced: why this host may not write any more, empty while it may.
    """

    def __init__(self, catalog_path: str) -> None:
        self.known: Shipped | None = None
        self.fenced = ""
        self._path = Path(catalog_path)
        self._lock = new_rlock()
        self._file_lock = FileLock(self._path.parent / "locks" / "shipper")
        self._place: tuple[str, Place] | None = None
        self._error = ""
        self._base_error = ""
        self._thread: threading.Thread | None = None
        self._thread_lock = new_lock()  # not the other one, which is held while objects are sent
        self._wake = threading.Event()

    def before_write(self, catalog: Access, seconds: int) -> None:
        """Ships what commits of all processes have left, where only shipped ones are acknowledged.

        Without that, a load that repeats its label would find it used, by a commit that may be lost.

        Raises:
            StoreError: it cannot be shipped.
        """
        if seconds == 0 and (number := self.unshipped(catalog)):
            self.ship(catalog, number)

    def after_commit(self, catalog: Access, number: int, seconds: int) -> None:
        """Ships a commit, or has it shipped in time.

        Args:
            number: of the commit, 0 for one that changed nothing.
            seconds: 0 ships before it returns.

        Raises:
            CommitUnknownError: the commit could not be shipped; it will be, unless the host is lost first.
            UnavailableError: another host leads; the commit is stored on this host only.
        """
        if not number:
            self.before_write(catalog, seconds)  # what the transaction has read may wait
            return
        failpoint.hit("ship.committed")
        try:
            if seconds == 0:
                self.ship(catalog, number)
        except StoreError as error:
            if error.kind == "fenced":
                raise
            raise CommitUnknownError(
                f"the commit is stored on this host and was not shipped: {error.message}; it will be "
                "shipped by the next one that can; look up the label",
                kind="not_shipped",
            ) from error
        finally:
            self.start(catalog, seconds)

    def ship(self, catalog: Access, through: int | None = None) -> None:
        """Ships what waits.

        Args:
            through: returns at once when this commit was shipped.

        Raises:
            UnavailableError: the place cannot be used, or the store was fenced (kind `fenced`).
            CorruptionError: an object of the place is damaged.
        """
        with self._lock:
            if through is not None and self.known is not None and self.known.commit >= through:
                return
            try:
                with self._turn():
                    while self._ship_some(catalog):
                        pass
            except StoreError as error:
                self._error = error.message
                raise
            self._error = ""

    def unshipped(self, catalog: Access) -> int:
        """Returns the number of the newest commit of all processes if it waits to be shipped, else 0.

        It reads the catalog only: a commit that another process has just shipped may count as one that waits.
        """
        with catalog.read() as tx:
            found = read_shipped(tx)
            if found is None:
                return 0
            state = self._newest(found)
            newest = newest_commit(tx, state)
        return newest if newest > state.commit else 0

    def confirm(self, catalog: Access) -> None:
        """Ships what waits, and finds out that this host still leads.

        Raises:
            StoreError: as `ship`.
        """
        with self._lock, self._turn():
            while self._ship_some(catalog):
                pass
            state, place, _ = self._waiting(catalog)
            name = log_name(state.position + 1)
            if place is not None and place.read(name) is not None:
                self._adopt(place, name, state, [])

    def renew_base(self, catalog: Access) -> None:
        """Makes a base copy, and removes the part of the log that only older ones need.

        Raises:
            StoreError: as `ship`.
        """
        try:
            self._renew_base(catalog)
        except Exception as error:
            self._base_error = f"a base copy could not be made: {error}"
            raise
        self._base_error = ""

    def _renew_base(self, catalog: Access) -> None:
        with self._scratch_file() as file:
            known = self.known  # before the copy's moment: it must not name a commit that the copy lacks
            with catalog.read() as tx:
                found = read_shipped(tx)
                if found is None:
                    return
                place, began = self._place_of(tx), _newer(found, known)
                commit = newest_commit(tx, began)
                copy = copy_records(tx, file, began.position)
            chunks = copy.upload(place)
        failpoint.hit("ship.copied")
        self.ship(catalog, commit)
        write_manifest(place, copy.directory, chunks, copy.size, began, commit)
        failpoint.hit("ship.based")
        cut_log(place, began.base)
        with self._lock:
            state = self.known or began
            self.known = replace(state, base=began.position, base_bytes=copy.size, log_bytes=0)
        self._trim(catalog)

    @contextmanager
    def _scratch_file(self) -> Iterator[BinaryIO]:
        """Opens a file without a name, on the disk of the store."""
        try:
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                yield file
        except OSError as error:
            raise disk_error(self._path.parent, error) from error

    def follower_moments(self, catalog: Access) -> set[int]:
        """Returns the moments from which on followers need versions, in milliseconds of Unix time.

        Raises:
            StoreError: the place cannot be read.
        """
        with catalog.read() as tx:
            if read_shipped(tx) is None:
                return set()
            place = self._place_of(tx)
        names = [f"{FOLLOWERS}/{name}" for name in place.list(FOLLOWERS)]
        found = [each[0] for name in names if (each := Hold.read(place, name)) is not None]
        now = now_ms()
        return {hold.moment_ms for hold in found if now - hold.renewed_ms <= hold.term_seconds * 1000}

    def status(self, catalog: Access) -> ShipStatus | None:
        """Returns how far the store was shipped, None for a store that is not."""
        with catalog.read() as tx:
            found = read_shipped(tx)
            if found is None:
                return None
            state = self._newest(found)
            commits = pending(tx, state.commit, 0)
            waiting = newest_commit(tx, state) - state.commit
            place = self._place_of(tx)
        since = commits[0][1] if commits else 0
        error = state.fenced or self._error or self._base_error
        if state.lacks_base and not error:
            error = "no base copy was made yet, so nothing can be restored: begin shipping there again"
        return ShipStatus(place.shown, state, waiting, since, error)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Holds the lock between processes; the caller holds the one of this process."""
        patience = Patience(_WAIT_SECONDS)
        try:
            is_held = self._file_lock.acquire(patience)
        except OSError as error:
            raise disk_error(self._path, error) from error
        if not is_held:
            raise busy(self._path, self._file_lock, patience)
        self._file_lock.sign()
        try:
            yield
        finally:
            self._file_lock.release()

    def _place_of(self, tx: CatalogTransaction) -> Place:
        uri = str(tx.require("meta", SHIP)["uri"])
        if self._place is None or self._place[0] != uri:
            self._place = (uri, open_place(uri))
        return self._place[1]

    def _newest(self, found: Shipped) -> Shipped:
        """Returns what is known of a store's shipping, from its catalog or by this process."""
        return _newer(found, self.known)

    def _waiting(self, catalog: Access) -> tuple[Shipped, Place | None, list[Commit]]:
        with catalog.read() as tx:
            found = read_shipped(tx)
            if found is None:
                return Shipped(0, "", 0, b"", 0), None, []
            state = self._newest(found)
            if fenced := found.fenced or self.fenced:
                raise fenced_error(fenced, is_stored=newest_commit(tx, state) > state.commit)
            return state, self._place_of(tx), pending(tx, state.commit, _OBJECT_BYTES_MAX)

    def _ship_some(self, catalog: Access) -> bool:
        """Ships one object; returns whether more may wait."""
        state, place, commits = self._waiting(catalog)
        if place is None or not commits:
            self.known = state if place is not None else None
            return False
        name = log_name(state.position + 1)
        data = LogObject(state.position + 1, state.epoch, state.digest, now_ms(), tuple(commits)).packed(name)
        if place.create(name, data):
            self.known = _after(state, digest_of(data), commits[-1][0], len(data))
        else:
            self._adopt(place, name, state, commits)
        failpoint.hit("ship.shipped")
        return True

    def _adopt(self, place: Place, name: str, state: Shipped, commits: list[Commit]) -> None:
        """Counts an object that exists as shipped, if it has what waits here; else this host is fenced."""
        found = LogObject.read(place, name)
        if found is None:
            raise CorruptionError(f"{place.shown}/{name} exists and cannot be read", path=name)
        there, digest, _ = found
        is_own = there.epoch == state.epoch and there.previous == state.digest
        if is_own and list(there.commits) == commits[: len(there.commits)]:
            last = there.commits[-1][0] if there.commits else state.commit
            self.known = _after(state, digest, last, 0)
            return
        self.fenced = (
            f"another host leads this store since epoch {there.epoch} at {place.shown}, "
            f"and this one had epoch {state.epoch}"
        )
        raise fenced_error(self.fenced, is_stored=bool(commits))

    def _store_fence(self, catalog: Access) -> None:
        """Lets all processes of this host, and later ones, know that it was fenced."""
        with catalog.following() as tx:
            state = read_shipped(tx)
            if state is not None and not state.fenced:
                store_shipped(tx, replace(state, fenced=self.fenced))

    def _end_fenced(self, catalog: Access, error: StoreError) -> None:
        _LOG.error("%s: %s", self._path, error)
        try:
            self._store_fence(catalog)
        except Exception as failure:  # this process knows it all the same
            _LOG.warning("%s: the fence is not stored: %s", self._path, failure)

    def _trim(self, catalog: Access) -> None:
        """Removes from the catalog what was shipped; any other commit does so by itself."""
        with catalog.read() as tx:
            found, key = read_shipped(tx), tx.last_key("outbox")
        if found is not None and self.known is not None and (key is not None or found != self.known):
            with catalog.write():
                pass

    def start(self, catalog: Access, seconds: int) -> None:
        """Has what waits shipped soon, and what was shipped removed from the catalog."""
        with self._thread_lock:
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=(catalog, seconds or _TRIM_SECONDS), name="shipper", daemon=True
                )
                try:
                    self._thread.start()
                except RuntimeError as error:  # no memory for a thread, or the interpreter ends
                    self._thread = None
                    self._error = f"commits are not shipped by a thread: {error}"
                    _LOG.warning("%s: %s", self._path, self._error)

    def _goes_on(self) -> bool:
        """Returns whether the thread has work; it ends otherwise."""
        with self._thread_lock:
            if self._wake.is_set():
                self._wake.clear()
                return True
            self._thread = None
            return False

    def _run(self, catalog: Access, seconds: float) -> None:
        """Ships what waits at intervals; ends after one without commits. Intervals grow while that fails.

        No error ends it: commits would be acknowledged from then on, and never shipped.
        """
        pause, retry_seconds = threading.Event(), _RETRY_SECONDS_MIN
        while self._goes_on():
            pause.wait(seconds)
            try:
                self.ship(catalog)
                state = self.known
                if state is not None and state.wants_base:
                    self.renew_base(catalog)
                self._trim(catalog)
                retry_seconds = _RETRY_SECONDS_MIN
            except Exception as error:
                if isinstance(error, StoreError):
                    if error.kind == "fenced":
                        self._end_fenced(catalog, error)
                        continue
                    _LOG.warning("%s: commits are not shipped yet: %s", self._path, error)
                else:
                    self._error = repr(error)
                    _LOG.exception("%s: commits are not shipped yet", self._path)
                self._wake.set()
                pause.wait(retry_seconds)
                retry_seconds = min(2 * retry_seconds, _RETRY_SECONDS_MAX)


def _newer(found: Shipped, known: Shipped | None) -> Shipped:
    """Returns the state of a catalog, or that which a process knows of."""
    if known is None or known.epoch != found.epoch or known.position < found.position or found.fenced:
        return found
    return known


def _after(state: Shipped, digest: bytes, commit: int, size: int) -> Shipped:
    return replace(
        state, position=state.position + 1, digest=digest, commit=commit, log_bytes=state.log_bytes + size
    )


def shipper_of(catalog_path: str) -> Shipper:
    """Returns the shipper of a catalog, by its real path."""
    found = _of_path.get(catalog_path)
    return found if found is not None else _of_path.setdefault(catalog_path, Shipper(catalog_path))


os.register_at_fork(after_in_child=_of_path.clear)
