"""Which versions of a table are kept, two times over: those that can be opened, and those that are whole.

Both are in the table's record in `horizons`, as a first version and, where versions are thinned out
(maintenance.thinning), a later one from which on every version is kept, with the few kept ones before it.
Vacuum first closes versions, by time alone, and then gives up what no process holds. So the whole ones
include the open ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction

_OPEN: Final = ("open", "open_all", "open_some")
_WHOLE: Final = ("oldest", "whole_all", "whole_some")


@dataclass(frozen=True)
class KeptVersions:
    """Some versions of a table.

    Attributes:
        first: the first of them.
        every: this version and all later ones belong to them; at least `first`.
        some: those before `every`, ascending.
    """

    first: int
    every: int
    some: tuple[int, ...] = ()

    @classmethod
    def of(cls, first: int, every: int, some: set[int]) -> KeptVersions:
        """Returns the versions without those before the first."""
        every = max(first, every)
        return cls(first, every, tuple(sorted(each for each in some if first <= each < every)))

    def __contains__(self, version: int) -> bool:
        if version < self.first:
            return False
        place = bisect_left(self.some, version)
        return version >= self.every or (place < len(self.some) and self.some[place] == version)

    def following(self, version: int) -> int:
        """Returns the first of them that is not before a version."""
        place = bisect_left(self.some, version)
        return self.some[place] if place < len(self.some) else max(self.every, version)

    def preceding(self, version: int) -> int | None:
        """Returns the last of them that is not after a version, None where there is none."""
        if version >= self.every:
            return version
        place = bisect_right(self.some, version)
        return self.some[place - 1] if place else None

    def count(self, newest: int) -> int:
        """Returns how many of them there are up to the newest version."""
        return len(self.some) + newest - self.every + 1


def open_versions(tx: CatalogTransaction, table: int) -> KeptVersions:
    """Returns the versions that readers without a lease can open."""
    record = tx.get("horizons", catalog.table_key(table)) or {}
    first = max(int(record.get("oldest", 1)), int(record.get("open", 1)))
    return _read(record, first, _OPEN)


def whole_versions(tx: CatalogTransaction, table: int) -> KeptVersions:
    """Returns the versions of which everything is there: their holders can read them."""
    return whole_of(tx.get("horizons", catalog.table_key(table)) or {})


def whole_of(horizon: Mapping[str, Any]) -> KeptVersions:
    """Returns the versions of which everything is there, by a record of `horizons`."""
    return _read(horizon, int(horizon.get("oldest", 1)), _WHOLE)


def all_whole_from(tx: CatalogTransaction, table: int) -> int:
    """Returns the version from which on every version is whole."""
    record = tx.get("horizons", catalog.table_key(table)) or {}
    return max(int(record.get("oldest", 1)), int(record.get("whole_all", 1)))


def put_open(tx: CatalogTransaction, table: int, kept: KeptVersions) -> None:
    """Stores which versions can be opened."""
    _put(tx, table, kept, _OPEN)


def put_whole(tx: CatalogTransaction, table: int, kept: KeptVersions) -> None:
    """Stores which versions are whole."""
    _put(tx, table, kept, _WHOLE)


def without_thinning(horizon: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a record of `horizons` by which every version from its first ones on is kept."""
    return {name: value for name, value in horizon.items() if name not in (*_OPEN[1:], *_WHOLE[1:])}


def _read(record: Mapping[str, Any], first: int, names: tuple[str, str, str]) -> KeptVersions:
    _, every, some = names
    if every not in record:
        return KeptVersions(first, first)
    return KeptVersions.of(first, int(record[every]), set(record[some]))


def _put(tx: CatalogTransaction, table: int, kept: KeptVersions, names: tuple[str, str, str]) -> None:
    key, (first, every, some) = catalog.table_key(table), names
    record = {**(tx.get("horizons", key) or {}), first: kept.first}
    if every in record or kept.every > kept.first:
        record |= {every: kept.every, some: list(kept.some)}
    tx.put("horizons", key, record)
