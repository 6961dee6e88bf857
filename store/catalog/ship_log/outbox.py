"""What the catalog keeps for shipping.

    meta/ship       {uri}: where to; shipped itself, so that a restored store goes on
    meta/shipped    [epoch, token, position, digest, commit, base, base_bytes, log_bytes, fenced]: how far;
                    of this host
    meta/following  {uri}: the store is a follower's copy, and only its log changes it; of this host
    outbox          commit number -> [Unix time in milliseconds, [[database, key, record or None]]]

The write set of a transaction is stored by the same transaction. What was shipped is removed by a later one.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, replace
from typing import Final

from seqstore.store.catalog.catalog import CatalogTransaction, unpack
from seqstore.store.catalog.ship_log.ship_file import Commit
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.errors import InvalidInputError, UnavailableError

FIRST_EPOCH: Final = 1
OUTBOX: Final = "outbox"
SHIP: Final = b"ship"
SHIPPED: Final = b"shipped"
FOLLOWING: Final = b"following"
_LOG_BYTES_MIN: Final = 64 * 2**20  # before a new base copy
_OWN: Final = (SHIPPED, FOLLOWING)  # keys of `meta` that belong to a host


@dataclass(frozen=True)
class Shipped:
    """How far a host has shipped.

    Attributes:
        epoch: of its lease.
        token: of the lease.
        position, digest: of the newest log object, and its checksum.
        commit: the newest that the log has.
        base: position of the newest base copy, 0 without one.
        base_bytes, log_bytes: of this copy, and of the log since.
        fenced: why this host may not write any more; empty while it may.
    """

    epoch: int
    token: str
    position: int
    digest: bytes
    commit: int
    base: int = 0
    base_bytes: int = 0
    log_bytes: int = 0
    fenced: str = ""

    @property
    def lacks_base(self) -> bool:
        """Whether shipping began and its base copy is still to come: nothing can be restored.

        A host that took over was restored from a base copy, and makes its own in time.
        """
        return self.epoch == FIRST_EPOCH and not self.base

    @property
    def wants_base(self) -> bool:
        """Whether a base copy is due: there is none, or the log since has become larger than it."""
        return not self.base or self.log_bytes > max(_LOG_BYTES_MIN, self.base_bytes)


def read_shipped(tx: CatalogTransaction) -> Shipped | None:
    """Returns how far the store was shipped, None for a store that is not."""
    found = tx.get("meta", SHIPPED)
    return None if found is None else Shipped(*found)


def store_shipped(tx: CatalogTransaction, state: Shipped) -> None:
    """Stores how far the store was shipped, and removes what was shipped from the outbox."""
    tx.put("meta", SHIPPED, list(astuple(state)))
    for key, _ in list(tx.items(OUTBOX)):
        if _number(key) > state.commit:
            break
        tx.delete(OUTBOX, key)


def is_shipped_record(database: str, key: bytes) -> bool:
    """Returns whether a record is part of what is shipped."""
    return database != OUTBOX and not (database == "meta" and key in _OWN)


def refuse_follower(tx: CatalogTransaction) -> None:
    """Refuses a change of a follower's copy.

    Raises:
        InvalidInputError: the catalog is one.
    """
    found = tx.get("meta", FOLLOWING)
    if found is not None:
        raise InvalidInputError(
            "this store follows another one and is only read; write at the leader", kind="read_only"
        )


def begin_journal(tx: CatalogTransaction, fenced: str) -> None:
    """Has a transaction of a store that ships note its changes.

    Args:
        fenced: what this process knows of that.

    Raises:
        UnavailableError: the store was fenced.
    """
    state = read_shipped(tx)
    if state is None:
        return
    if state.fenced or fenced:
        raise fenced_error(state.fenced or fenced, is_stored=False)
    tx.journal = {}


def fenced_error(reason: str, *, is_stored: bool) -> UnavailableError:
    """Returns the error of a host that may not write any more.

    Args:
        is_stored: commits of this host were stored here and not shipped.
    """
    fault = "the newest commits of this host are stored on it only" if is_stored else "nothing was published"
    return UnavailableError(f"{fault}: {reason}; write there, and remove this data directory", kind="fenced")


def store_journal(tx: CatalogTransaction, known: Shipped | None) -> int:
    """Stores the changes of a transaction for the shipper; returns its commit number, 0 without changes.

    Args:
        known: how far this process has shipped meanwhile.
    """
    if tx.journal is None:
        return 0
    writes = [(*place, data) for place, data in tx.journal.items() if is_shipped_record(*place)]
    tx.journal = None
    state = read_shipped(tx)
    assert state is not None
    if known is not None and known.epoch == state.epoch and _extent(known) > _extent(state):
        state = replace(known, base=max(known.base, state.base))
        store_shipped(tx, state)
    if not writes:
        return 0
    number = newest_commit(tx, state) + 1
    tx.put(OUTBOX, struct.pack(">Q", number), [now_ms(), writes])
    return number


def _extent(state: Shipped) -> tuple[int, int]:
    return state.position, state.base


def newest_commit(tx: CatalogTransaction, state: Shipped) -> int:
    """Returns the number of the newest commit."""
    key = tx.last_key(OUTBOX)
    return state.commit if key is None else max(_number(key), state.commit)


def pending(tx: CatalogTransaction, after: int, bytes_max: int) -> list[Commit]:
    """Returns commits after a number, oldest first: as many as fit, at least one."""
    found: list[Commit] = []
    size = 0
    for key, raw in tx.items(OUTBOX):
        number = _number(key)
        if number <= after:
            continue
        size += len(raw)
        if found and size > bytes_max:
            break
        time_ms, writes = unpack(OUTBOX, key, raw)
        found.append((number, int(time_ms), tuple((str(d), bytes(k), v) for d, k, v in writes)))
    return found


def _number(key: bytes) -> int:
    return int.from_bytes(key)
