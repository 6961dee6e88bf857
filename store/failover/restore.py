"""A new host takes over a store whose catalog was shipped.

1. The lease is replaced by one of the next epoch, if it is still the one that was read.
2. Base copy and log are applied to a new catalog. Until the end it is a follower's copy: it refuses writes.
3. An object of the new epoch is created at the end of the log. If the old host was quicker, its object is
   applied first. From here on the old host finds its next position taken: it is fenced.
4. The catalog becomes the leader's. Loads that ran on the old host are aborted; pre-committed ones stay.

A crash before 4 leaves a directory that the next restoration refuses or that is removed; the place is as it
was, but for the epoch.
"""

from __future__ import annotations

import shutil
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.ship_log.base_copy import newest_base
from seqstore.store.catalog.ship_log.outbox import FOLLOWING, SHIP, Shipped, store_shipped
from seqstore.store.catalog.ship_log.place import Place, open_place
from seqstore.store.catalog.ship_log.ship_file import (
    LEASE,
    NO_DIGEST,
    Lease,
    LogObject,
    digest_of,
    log_name,
)
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus, abort, now_ms
from seqstore.store.errors import AlreadyExistsError, UnavailableError
from seqstore.store.failover.replica import Applied, Replica
from seqstore.store.runtime import failpoint
from seqstore.store.settings import Settings

_HOST_LOST: Final = "the host that ran it was replaced"


@dataclass(frozen=True)
class Restored:
    """A store that was restored.

    Attributes:
        epoch: of its lease.
        commit: the newest that was shipped.
        time_ms: Unix time of this commit by the clock of the old host; 0 when the base copy has it.
    """

    epoch: int
    commit: int
    time_ms: int


def restore_store(source: str, path: Path, settings: Settings | None = None) -> Restored:
    """Brings a shipped store up in a new data directory, as its leader; the old host is fenced.

    Args:
        source: where the catalog was shipped to.
        path: a directory that is empty or does not exist.

    Raises:
        AlreadyExistsError: the directory has files.
        NotFoundError: nothing was shipped to the source.
        CorruptionError: an object is damaged or missing; `.path` names it.
        UnavailableError: the source cannot be used, or another host takes over too.
    """
    if path.exists() and any(path.iterdir()):
        raise AlreadyExistsError(f"{path} has files; name an empty or a new directory", kind="not_empty")
    place = open_place(source)
    found, tag = Lease.require(place)
    newest_base(place)  # so that nothing is fenced for a store that cannot be restored
    lease = _take_lease(place, found.epoch + 1, tag)
    failpoint.hit("failover.leased")
    catalog = Catalog(path / "catalog", settings or Settings())
    try:
        state = _lead(catalog, place, lease, source)
    except BaseException:
        catalog.close()
        shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        catalog.close()
        catalog.release()
    return Restored(lease.epoch, state.commit, state.time_ms)


def _lead(catalog: Catalog, place: Place, lease: Lease, source: str) -> Applied:
    """Runs steps 2 to 4."""
    state, digest = _begin_epoch(place, Replica(place, catalog), lease)
    failpoint.hit("failover.fenced")
    with catalog.following() as tx:
        tx.put("meta", SHIP, {"uri": source})
        tx.delete("meta", FOLLOWING)
        store_shipped(tx, Shipped(lease.epoch, lease.token, state.position + 1, digest, state.commit))
    _abort_running(catalog)
    return state


def _abort_running(catalog: Catalog) -> None:
    """Ends the loads of the old host: their labels are free."""
    with catalog.write() as tx:
        for _, packed in list(tx.records("txns")):
            record = TransactionRecord.from_record(packed)
            if record.status == TransactionStatus.PREPARE:
                abort(tx, record, _HOST_LOST)


def new_lease(epoch: int) -> Lease:
    """Returns a lease of this host."""
    return Lease(epoch, uuid.uuid4().hex, socket.gethostname(), now_ms())


def _take_lease(place: Place, epoch: int, tag: str) -> Lease:
    """Replaces the lease, if it is still the one of a tag."""
    mine = new_lease(epoch)
    if not place.replace(LEASE, mine.packed(LEASE), tag):
        now = Lease.read(place, LEASE)
        if now is None or now[0].token != mine.token:  # else the reply of an earlier try was lost
            raise UnavailableError(
                f"{place.shown}: another host is taking over; only one can", kind="lease_taken"
            )
    return mine


def _begin_epoch(place: Place, replica: Replica, lease: Lease) -> tuple[Applied, bytes]:
    """Creates the first object of an epoch behind all others; returns what it follows, and its checksum."""
    while True:
        state = replica.catch_up(is_thorough=True)
        if state.epoch >= lease.epoch:
            raise UnavailableError(
                f"{place.shown}: another host has taken over with epoch {state.epoch}", kind="lease_taken"
            )
        digest = create_epoch(place, state.position + 1, lease.epoch, state.digest)
        if digest is not None:
            return state, digest


def create_epoch(place: Place, position: int, epoch: int, previous: bytes = NO_DIGEST) -> bytes | None:
    """Creates the object that begins an epoch; returns its checksum, None when its position is taken."""
    name = log_name(position)
    data = LogObject(position, epoch, previous, now_ms(), ()).packed(name)
    if place.create(name, data):
        return digest_of(data)
    found = LogObject.read(place, name)
    if found is not None and found[1] == digest_of(data):  # the reply of an earlier try was lost
        return found[1]
    return None
