"""The tables of a store at one moment: the newest version of each, as one transaction of the catalog saw it.

1. A lease on the moment (catalog.leases) is acquired first. Until it is released no vacuum removes a version
   that was the newest then or later.
2. One read transaction of the catalog reads the newest version of every table.
3. A table is opened at its version when it is first read. A table that was made since, or made anew under its
   old name, has no version at the moment: it is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.leases import Lease, leases_of
from seqstore.store.errors import NotFoundError
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.read.table_state import TableState
from seqstore.store.read.versioned_table import VersionedTable
from seqstore.store.runtime.internal import internal


class StoreSnapshot:
    """Reads all tables as of one moment; made by `Store.snapshot`.

        with store.snapshot() as moment:
            orders, days = moment.table("shop.orders"), moment.table("shop.days")

    Every table that it has opened stays readable until the snapshot is closed.
    """

    @internal
    def __init__(self, catalog: Catalog, find_table: Callable[[str], VersionedTable]) -> None:
        self._find_table = find_table
        self._lease: Lease | None = leases_of(catalog.data_dir).acquire_moment()
        self._opened: dict[int, Snapshot] = {}
        self._versions = catalog.recall(StoreSnapshot, _newest_versions)

    def table(self, name: str) -> Snapshot:
        """Returns a table as of the moment; the same snapshot every time.

        Raises:
            NotFoundError: there was no such table.
        """
        return self.of(self._find_table(name))

    @internal
    def of(self, table: VersionedTable) -> Snapshot:
        """Returns a table as of the moment, by its handle."""
        found = self._opened.get(table.id)
        if found is None:
            found = self._opened[table.id] = Snapshot(*self.hold(table))
        return found

    @internal
    def version(self, table: VersionedTable) -> int:
        """Returns the version of a table.

        Raises:
            NotFoundError: it was made after the moment.
        """
        version = self._versions.get(table.id)
        if version is None:
            raise NotFoundError(
                f"Unknown table '{table.name}': it was created after the snapshot of this statement or "
                "transaction; begin another",
                kind="unknown_table",
                table=table.name,
            )
        return version

    @internal
    def hold(self, table: VersionedTable) -> tuple[TableState, Lease]:
        """Returns the state of a table, and the lease that keeps vacuum away from it."""
        return table.hold_of_moment(self.version(table))

    def close(self) -> None:
        """Releases the moment; open readers of rows keep the versions that they read."""
        self._lease = None
        for snapshot in self._opened.values():
            snapshot.close()

    def __enter__(self) -> StoreSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _newest_versions(tx: CatalogTransaction) -> Mapping[int, int]:
    """Returns the newest version of every table, by its id."""
    return {int.from_bytes(key): int(record[0]) for key, record in tx.records("heads")}
