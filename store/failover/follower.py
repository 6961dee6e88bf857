"""A follower: a copy of a shipped catalog that is read only, and kept up to date by a thread.

A follower tells the place from which moment on it needs versions, and renews that; vacuum of the leader keeps
them. The moment is that of the oldest version that is open here, by the leader's clock.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from typing import Final

from seqstore.store.catalog.catalog import head, table_key
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.leases import leases_of
from seqstore.store.catalog.ship_log.place import open_place
from seqstore.store.catalog.ship_log.ship_file import FOLLOWERS, Hold, Lease
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.catalog.version_record import version_time_ms
from seqstore.store.errors import InvalidInputError, NotFoundError, StoreError, UnavailableError
from seqstore.store.failover.replica import Applied, Replica
from seqstore.store.settings import Settings

_LOG: Final = logging.getLogger(__name__)
_HOLD_SECONDS: Final = 60.0
_TERM_SECONDS: Final = 900
_EVERYTHING: Final = 1  # a moment before all versions


class Follower:
    """Follows a leader; safe to share between threads.

    Args:
        source: where the leader ships its catalog to.
        catalog: new, or of an earlier follower of the same source.

    Raises:
        InvalidInputError: the catalog is that of a store of its own, or a copy of another store.
        NotFoundError: nothing was shipped to the source.
        CorruptionError: an object is damaged or missing.
        UnavailableError: the source cannot be read.
    """

    def __init__(self, source: str, catalog: Catalog, settings: Settings) -> None:
        self._place = open_place(source)
        self._catalog = catalog
        self._settings = settings
        self._replica = Replica(self._place, catalog)
        self._hold = f"{FOLLOWERS}/{uuid.uuid4().hex}"
        self._closing = threading.Event()
        self._error = ""
        with catalog.read() as tx:
            if self._replica.applied is None and any(True for _ in tx.items("databases")):
                raise InvalidInputError(
                    f"{catalog.data_dir} is a store of its own; name an empty directory for a follower",
                    kind="not_empty",
                )
        Lease.require(self._place)
        self._renew(_EVERYTHING)
        try:
            self.applied: Applied = self._replica.catch_up(is_thorough=True)
        except BaseException:
            self._release()
            raise
        self._fresh_at = time.monotonic()
        catalog.require_fresh = self._require_fresh
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    @property
    def age_seconds(self) -> float:
        """How long ago the follower last had everything that was shipped."""
        return time.monotonic() - self._fresh_at

    @property
    def shown(self) -> str:
        """The source without secrets."""
        return self._place.shown

    @property
    def error(self) -> str:
        """Of the last try, empty after a success."""
        return self._error

    def catch_up(self, *, is_thorough: bool = True) -> None:
        """Waits for nothing: applies what was shipped until now, in the thread of the caller.

        Args:
            is_thorough: also looks for objects that are missing, which needs a list of the log.

        Raises:
            StoreError: as the constructor.
        """
        begun = time.monotonic()
        self.applied = self._replica.catch_up(is_thorough=is_thorough)
        self._fresh_at = begun

    def close(self) -> None:
        """Stops following."""
        self._closing.set()
        self._thread.join()
        self._catalog.require_fresh = None
        self._release()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._closing.wait(self._settings.follow_seconds):
            try:
                is_due = time.monotonic() >= due
                self.catch_up(is_thorough=is_due)
                if is_due:
                    self._renew(self._oldest_moment())
                    due = time.monotonic() + _HOLD_SECONDS
                self._error = ""
            except Exception as error:  # any other one would end the thread
                message = error.message if isinstance(error, StoreError) else repr(error)
                if message != self._error:
                    _LOG.warning("%s: the leader is not followed: %s", self._catalog.data_dir, message)
                self._error = message

    def _require_fresh(self) -> None:
        """Raises when reads are further behind than the setting allows."""
        limit = self._settings.stale_seconds_max
        if threading.current_thread() is not self._thread and self.age_seconds > limit:
            raise UnavailableError(
                f"this follower of {self.shown} is {self.age_seconds:.0f} seconds behind, more than "
                f"stale_seconds_max ({limit}): {self._error or 'it could not catch up'}",
                kind="stale",
            )

    def _oldest_moment(self) -> int:
        """Returns the time of the oldest version that is open here, or of the newest commit."""
        leases, moment = leases_of(self._catalog.data_dir), self.applied.time_ms or now_ms()
        with self._catalog.read() as tx:
            for key, record in tx.records("tables"):
                table = int.from_bytes(key)
                try:
                    newest, _ = head(tx, table, str(record["name"]))
                except NotFoundError:
                    continue
                held = [version for version in leases.held(table) if version <= newest]
                if held and tx.digest("versions", table_key(table) + min(held).to_bytes(8)) is not None:
                    moment = min(moment, version_time_ms(tx, table, min(held)))
        return moment

    def _renew(self, moment: int) -> None:
        hold = Hold(moment, now_ms(), _TERM_SECONDS)
        self._place.write(self._hold, hold.packed(self._hold))

    def _release(self) -> None:
        try:
            self._place.delete(self._hold)
        except StoreError as error:
            _LOG.warning("%s: versions stay held for a while: %s", self.shown, error)
