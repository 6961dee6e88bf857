"""The shipping of one store handle; `Store.shipping`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from seqstore.store.catalog.catalog import SHIPPED_FORMAT
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.ship_log.outbox import FIRST_EPOCH, SHIP, Shipped, read_shipped, store_shipped
from seqstore.store.catalog.ship_log.place import Place, open_place
from seqstore.store.catalog.ship_log.ship_file import LEASE, Lease
from seqstore.store.catalog.ship_log.shipper import ShipStatus
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import AlreadyExistsError, InvalidInputError, StoreError
from seqstore.store.failover.restore import create_epoch, new_lease
from seqstore.store.runtime.internal import internal
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.object_disk import ObjectDisk

_LOG: Final = logging.getLogger(__name__)
_FIRST: Final = 1  # position of the first object


class Shipping:
    """Ships the catalog of a store elsewhere, so that the store survives its host."""

    @internal
    def __init__(self, catalog: Catalog, disk: Disk) -> None:
        self._catalog = catalog
        self._disk = disk

    def begin(self, target: str) -> None:
        """Ships the catalog from now on: a base copy, and then every commit of every process.

        Called again, it makes the base copy if that has failed.

        Args:
            target: an absolute path on another disk, or a URI such as `s3://bucket/prefix`; empty so far.

        Raises:
            InvalidInputError: segments are in the data directory, the target is, or it does not honour
                conditional writes; the store ships elsewhere.
            AlreadyExistsError: another store ships to the target.
            UnavailableError: the target cannot be used.
        """
        with self._catalog.read() as tx:
            state = read_shipped(tx)
            uri = None if state is None else tx.require("meta", SHIP)["uri"]
        if state is not None:
            if uri != target:
                raise InvalidInputError("this store ships its catalog to another place", kind="ships")
            if state.lacks_base:  # it failed, or this process was killed meanwhile
                self._catalog.shipper.renew_base(self._catalog)
            return
        if not isinstance(self._disk, ObjectDisk):
            raise InvalidInputError(
                "the segments of this store are in its data directory, and would be lost with it; make a "
                "store with segments='s3://bucket/prefix'",
                kind="local_segments",
            )
        place = open_place(target, is_new=True)
        self._refuse_own(target)
        place.check_conditions()
        lease, digest = _first(place)
        with self._catalog.following() as tx:
            tx.put("meta", SHIP, {"uri": target})
            tx.put("meta", b"format", SHIPPED_FORMAT)
            store_shipped(tx, Shipped(lease.epoch, lease.token, _FIRST, digest, 0))
        self._catalog.shipper.renew_base(self._catalog)

    def _refuse_own(self, target: str) -> None:
        own = os.path.realpath(self._catalog.data_dir)
        path = target.removeprefix("file://")
        if "://" not in path and f"{os.path.realpath(Path(path))}/".startswith(f"{own}/"):
            raise InvalidInputError(f"{path} is in the data directory {own}", kind="bad_uri")

    def status(self) -> ShipStatus | None:
        """Returns how far the catalog was shipped, None for a store that is not."""
        return self._catalog.shipper.status(self._catalog)

    def flush(self) -> None:
        """Ships what waits.

        Raises:
            UnavailableError: the target cannot be used, or another host leads.
        """
        self._catalog.shipper.ship(self._catalog)

    @internal
    def resume(self) -> None:
        """Ships soon what ended processes have left."""
        status = self.status()
        if status is not None and (status.waiting or status.state.lacks_base) and not status.state.fenced:
            self._catalog.shipper.start(self._catalog, 0)

    @internal
    def close(self) -> None:
        """Ships what waits, if that is possible."""
        try:
            status = self.status()
            if status is not None and status.waiting and not status.state.fenced:
                self.flush()
        except StoreError as error:
            _LOG.warning("%s: commits are not shipped yet: %s", self._catalog.data_dir, error)


def loss_window_seconds(status: ShipStatus) -> float:
    """Returns how much of the past would be lost with the host now: the age of the oldest commit that waits,
    in seconds.
    """
    if not status.waiting_since_ms:
        return 0.0
    return max(now_ms() - status.waiting_since_ms, 1) / 1000


def _first(place: Place) -> tuple[Lease, bytes]:
    """Takes a place that no store has."""
    lease = new_lease(FIRST_EPOCH)
    if not place.create(LEASE, lease.packed(LEASE)):
        found = Lease.read(place, LEASE)
        if found is None or found[0].token != lease.token:  # else the reply of an earlier try was lost
            raise AlreadyExistsError(
                f"{place.shown} has the catalog of a store; name another place, or restore that store",
                kind="target_taken",
            )
    digest = create_epoch(place, _FIRST, FIRST_EPOCH)
    if digest is None:
        raise AlreadyExistsError(f"{place.shown} has a log already; name another place", kind="target_taken")
    return lease, digest
