"""Proof that no record of a table is missing: each version record states what belongs to its version.

A `VersionState` counts the segments that are live at the version and sums the hashes of their ids; sums are
carried from version to version, so that a commit computes them from the version before. It also has the
checksum of the version's delete bitmap record, and that of the record of the version before: the records form
a chain. A reader compares what it found with what is stated. What is missing, or is an older copy, is
`CorruptionError`.

Vacuum rewrites bitmap records of versions up to `oldest`; their checksums are in the record of `horizons`.
Versions that earlier programs made have no state and are read without this proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import xxhash

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction, lost_record
from seqstore.store.errors import CorruptionError

_WORD: Final = 2**64


@dataclass(frozen=True)
class VersionState:
    """What a version record states.

    Attributes:
        segments: the number of live segments.
        total: the sum of the hashes of their ids, modulo 2^64.
        bitmap: checksum of the version's own record in `bitmaps`, None without one.
        before: checksum of the record of the version before, None where it is gone.
    """

    segments: int
    total: int
    bitmap: bytes | None = None
    before: bytes | None = None

    def to_record(self) -> dict[str, Any]:
        record = {"segments": self.segments, "sum": self.total, "bitmap": self.bitmap, "before": self.before}
        return {name: value for name, value in record.items() if value is not None}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> VersionState:
        return cls(record["segments"], record["sum"], record.get("bitmap"), record.get("before"))

    def followed_by(self, added: Iterable[str], dropped: Iterable[str]) -> VersionState:
        """Returns the segments of the next version."""
        new, old = list(added), list(dropped)
        total = self.total + _sum(new) - _sum(old)
        return VersionState(self.segments + len(new) - len(old), total % _WORD)


EMPTY: Final = VersionState(0, 0)


def state_of(segment_ids: Iterable[str]) -> VersionState:
    """Returns the state of a version with some live segments."""
    return EMPTY.followed_by(segment_ids, ())


def _sum(segment_ids: Iterable[str]) -> int:
    return sum(xxhash.xxh3_64_intdigest(segment.encode()) for segment in segment_ids)


def live_segments(tx: CatalogTransaction, table_id: int, version: int) -> list[str]:
    """Returns the ids of the segments that the catalog has for a version."""
    return [
        key[8:].decode()
        for key, record in tx.records("segments", catalog.table_key(table_id))
        if record["created"] <= version and not 0 < record["dropped"] <= version
    ]


def require_segments(
    stated: VersionState | None, segment_ids: Iterable[str], table_id: int, version: int
) -> None:
    """Raises unless segments are those that a version states.

    Raises:
        CorruptionError: some are missing, or too many.
    """
    if stated is None:
        return
    found = state_of(segment_ids)
    if (found.segments, found.total) != (stated.segments, stated.total):
        key = catalog.version_key(table_id, version)
        raise lost_record(
            "versions",
            key,
            f"states {stated.segments} segments of table {table_id} version {version}, and the catalog has "
            f"{found.segments} or others",
        )


def require_bitmap(tx: CatalogTransaction, table_id: int, version: int) -> None:
    """Raises unless the delete bitmap record of a version is the one that was stored.

    Raises:
        CorruptionError: it is missing, or another one.
    """
    key = catalog.version_key(table_id, version)
    horizon = tx.get("horizons", catalog.table_key(table_id)) or {}
    if version <= int(horizon.get("oldest", 0)) and "bitmaps" in horizon:
        stated = dict(map(tuple, horizon["bitmaps"])).get(version)
    else:
        record = tx.get("versions", key)
        if record is None or "state" not in record:
            return
        stated = record["state"].get("bitmap")
    if tx.digest("bitmaps", key) != stated:
        raise lost_record("bitmaps", key, "is not the one that its version states")


def require_whole(tx: CatalogTransaction, table_id: int) -> None:
    """Raises unless all versions of a table have everything that they state; before files are removed.

    Raises:
        CorruptionError: a record is missing, or an older copy.
    """
    for fault in chain_faults(tx, table_id):
        raise CorruptionError(
            f"{fault}; run repair, or restore the catalog from a copy", path=f"catalog/versions/{table_id}"
        )


def require_newest(tx: CatalogTransaction, table_id: int, head: int) -> None:
    """Raises if a version after the head has a record: the head is an older copy.

    Raises:
        CorruptionError: there is one.
    """
    key = catalog.version_key(table_id, head + 1)
    if tx.digest("versions", key) is not None:
        raise lost_record(
            "heads", catalog.table_key(table_id), f"names version {head}, and a later one exists"
        )


def chain_faults(tx: CatalogTransaction, table_id: int) -> Iterator[str]:
    """Yields a sentence for each fault of the version records of a table, and of what they state."""
    prefix = catalog.table_key(table_id)
    head = int(tx.require("heads", prefix)[0])
    require_newest(tx, table_id, head)
    oldest = catalog.oldest_readable(tx, table_id)
    changes = _changes(tx, table_id)
    found, expected, digest = EMPTY, 0, b""
    for key, record in tx.records("versions", prefix):
        version = int.from_bytes(key[8:])
        if expected and version != expected:
            yield f"table {table_id}: the records of versions {expected} to {version - 1} are lost"
        elif expected and record.get("state", {}).get("before", digest) != digest:
            yield f"table {table_id}: the record of version {version - 1} is not the one that was stored"
        expected, digest = version + 1, tx.digest("versions", key) or b""
        for number in sorted(number for number in changes if number <= version):
            found = found.followed_by(*changes.pop(number))
        if version >= oldest and "state" in record:
            stated = VersionState.from_record(record["state"])
            if (found.segments, found.total) != (stated.segments, stated.total):
                yield (
                    f"table {table_id}: version {version} states {stated.segments} segments, and the catalog "
                    f"has {found.segments}, or others"
                )
        try:
            require_bitmap(tx, table_id, version)
        except CorruptionError as error:
            yield error.message
    if expected != head + 1:
        yield f"table {table_id}: the records of versions {expected} to {head} are lost"


def _changes(tx: CatalogTransaction, table_id: int) -> dict[int, tuple[list[str], list[str]]]:
    """Returns the ids of the segments that each version added and dropped."""
    changes: dict[int, tuple[list[str], list[str]]] = {}
    for key, record in tx.records("segments", catalog.table_key(table_id)):
        segment = key[8:].decode()
        changes.setdefault(record["created"], ([], []))[0].append(segment)
        if record["dropped"]:
            changes.setdefault(record["dropped"], ([], []))[1].append(segment)
    return changes
