"""The handles of a store's tables: one for each table and process, as long as the table exists.

A handle has the newest state of its table in memory and keeps the segment files of it mapped. So the disk
space of a dropped table is free only when its handle is gone. Another process may have dropped it: the
handles are compared with the catalog now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final

from seqstore.store.catalog.catalog import table_key
from seqstore.store.catalog.environment import Catalog
from seqstore.store.ddl.named_tables import FoundTable
from seqstore.store.runtime.forks import new_lock
from seqstore.store.table import Table

_LOOK_SECONDS: Final = 30.0


class TableHandles:
    """The handles, which threads share.

    Args:
        catalog: tells which tables exist.
        make: a new handle.
        on_dropped: told the ids of tables whose handles were forgotten.
    """

    def __init__(
        self,
        catalog: Catalog,
        make: Callable[[FoundTable], Table],
        on_dropped: Callable[[Collection[int]], None],
    ) -> None:
        self._catalog = catalog
        self._make = make
        self._on_dropped = on_dropped
        self._tables: dict[int, Table] = {}
        self._lock = new_lock()
        self._looked = time.monotonic()

    def of(self, found: FoundTable) -> Table:
        """Returns the handle of a table, under the name that it has now."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self.forget_dropped()
        with self._lock:
            table = self._tables.get(found.id)
            if table is None:
                table = self._tables[found.id] = self._make(found)
            table.name = found.name  # another one since RENAME or REPLACE WITH TABLE
            return table

    def forget(self, directory: str) -> None:
        """Lets go of the handle of a table that this process has dropped, given by its directory."""
        with self._lock:
            tables = list(self._tables.items())
        self._let_go([table_id for table_id, table in tables if table.loader.directory == directory])

    def forget_dropped(self) -> None:
        """Lets go of the handles of tables that do not exist any more, dropped here or elsewhere."""
        self._looked = time.monotonic()
        with self._lock:
            known = list(self._tables)  # before the read: what is made meanwhile may be newer than it
        with self._catalog.read() as tx:
            dropped = [each for each in known if tx.get("tables", table_key(each)) is None]
        self._let_go(dropped)

    def _let_go(self, dropped: list[int]) -> None:
        with self._lock:
            for table_id in dropped:
                self._tables.pop(table_id, None)
        if dropped:
            self._on_dropped(dropped)
