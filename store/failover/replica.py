"""A copy of a shipped catalog: filled from the base copy, then changed by the log, object by object.

Each object is one transaction of the copy, so readers see versions as the leader has published them. What has
been applied is stored with it (`meta/following`). The copy refuses all other changes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Final

from seqstore.store.catalog.catalog import DATABASES, SHIPPED_FORMAT, CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.ship_log.base_copy import base_chunk, newest_base
from seqstore.store.catalog.ship_log.outbox import FOLLOWING
from seqstore.store.catalog.ship_log.place import Place
from seqstore.store.catalog.ship_log.ship_file import LOG, LogObject, log_name
from seqstore.store.errors import CorruptionError, InvalidInputError, NotFoundError
from seqstore.store.runtime.forks import new_lock

_TRIES: Final = 3  # a base copy may be removed while it is read


@dataclass(frozen=True)
class Applied:
    """How far a copy is.

    Attributes:
        position, digest, epoch: of the newest log object that was applied, or that its base copy names.
        commit, time_ms: the newest commit, and its Unix time by the leader's clock.
    """

    position: int
    digest: bytes
    epoch: int
    commit: int
    time_ms: int = 0


class Replica:
    """The copy in one catalog; safe to share between threads.

    Attributes:
        applied: how far the copy is, None before it has a base copy.
    """

    def __init__(self, place: Place, catalog: Catalog) -> None:
        self._place = place
        self._catalog = catalog
        self._lock = new_lock()
        with catalog.read() as tx:
            self.applied = _read(tx)

    def catch_up(self, *, is_thorough: bool = False) -> Applied:
        """Applies all that was shipped; returns how far that is.

        Args:
            is_thorough: looks for an object that is missing where the log seems to end, and whether it is the
                log of which this copy is.

        Raises:
            InvalidInputError: the place has another store than the one of this copy.
            CorruptionError: an object is damaged or missing; `.path` names it.
            NotFoundError: nothing was shipped.
            UnavailableError: the place cannot be read.
        """
        with self._lock:
            if is_thorough and self.applied is not None:
                self._require_source(self.applied)
            self.applied = self._caught_up(self.applied or self._load(), is_thorough=is_thorough)
            return self.applied

    def _caught_up(self, state: Applied, *, is_thorough: bool) -> Applied:
        while True:
            found = LogObject.read(self._place, log_name(state.position + 1))
            if found is not None:
                state = self._apply(found[0], found[1])
                continue
            later = self._later(state.position + 1) if is_thorough else None
            _, manifest = newest_base(self._place)
            if manifest.position <= state.position and later is None:
                return state
            if LogObject.read(self._place, log_name(state.position + 1)) is not None:  # it came meanwhile
                continue
            if manifest.position <= state.position:
                raise self._missing(state.position + 1, str(later))
            state = self._load()  # it was cut

    def _require_source(self, state: Applied) -> None:
        """Refuses the log of another store: it lacks the object that was applied last.

        A log that was cut behind this object cannot be compared; the copy is loaded anew then.
        """
        name = log_name(state.position)
        found = LogObject.read(self._place, name)
        digest = None if found is None else found[1]
        if digest is None:
            _, manifest = newest_base(self._place)
            if manifest.position > state.position or self._later(state.position) is not None:
                return
            digest = manifest.digest if manifest.position == state.position else None
        if digest != state.digest:
            fault = "is missing" if digest is None else "is another one than was applied"
            copy, source = self._catalog.data_dir, self._place.shown
            raise InvalidInputError(
                f"{copy} is a copy of another store than {source} has: {name} there {fault}; follow the "
                "store of the copy, or remove the directory",
                kind="other_source",
            )

    def _later(self, position: int) -> str | None:
        """Returns the name of an object of the log behind a position, None when there is none."""
        names = self._place.list(LOG, after=log_name(position).rpartition("/")[2])
        return next((name for name in names if name.isdecimal()), None)

    def _missing(self, position: int, later: str) -> CorruptionError:
        path = f"{self._place.shown}/{log_name(position)}"
        return CorruptionError(
            f"{path} is missing, and {LOG}/{later} exists: the log is damaged; bring the object back from a "
            "copy of the place",
            path=path,
        )

    def _load(self) -> Applied:
        for left in reversed(range(_TRIES)):
            directory, manifest = newest_base(self._place)
            state = Applied(manifest.position, manifest.digest, manifest.epoch, manifest.commit)
            try:
                with self._catalog.following() as tx:
                    there = _read(tx)
                    if there is not None and there.position >= state.position:  # by another process
                        return there
                    for database in DATABASES:
                        tx.clear(database)
                    for number in range(len(manifest.chunks)):
                        for name, key, data in base_chunk(self._place, directory, manifest, number).records:
                            tx.copy(name, key, data)
                    tx.put("meta", b"format", SHIPPED_FORMAT)
                    _store(tx, state)
                return state
            except CorruptionError:
                if not left:
                    raise
        raise NotFoundError(f"{self._place.shown} has no base copy")

    def _apply(self, found: LogObject, digest: bytes) -> Applied:
        with self._catalog.following() as tx:
            state = _read(tx)
            if state is None or found.position <= state.position:  # another process has applied it
                return state or self._load()
            self._require_next(found, state)
            for number, time_ms, writes in found.commits:
                if number <= state.commit:
                    continue
                if number != state.commit + 1:
                    raise self._broken(found, f"has commit {number} after {state.commit}")
                for database, key, data in writes:
                    if data is None:
                        tx.delete(database, key)
                    else:
                        tx.copy(database, key, data)
                state = replace(state, commit=number, time_ms=time_ms)
            state = replace(state, position=found.position, digest=digest, epoch=found.epoch)
            _store(tx, state)
        return state

    def _require_next(self, found: LogObject, state: Applied) -> None:
        if found.position != state.position + 1:
            raise self._broken(found, f"has position {found.position}")
        if found.previous != state.digest:
            raise self._broken(found, "does not follow the object before it")
        if found.epoch < state.epoch:
            raise self._broken(found, f"has epoch {found.epoch} after {state.epoch}")

    def _broken(self, found: LogObject, fault: str) -> CorruptionError:
        name = f"{self._place.shown}/{log_name(found.position)}"
        return CorruptionError(f"{name} {fault}: the log is damaged", path=name)


def is_copy(tx: CatalogTransaction) -> bool:
    """Returns whether a catalog is a follower's copy, or is being restored."""
    return tx.digest("meta", FOLLOWING) is not None


def _read(tx: CatalogTransaction) -> Applied | None:
    found = tx.get("meta", FOLLOWING)
    return Applied(**found) if found else None


def _store(tx: CatalogTransaction, state: Applied) -> None:
    tx.put("meta", FOLLOWING, asdict(state))
