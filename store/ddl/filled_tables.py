"""Tables that are made and filled by one statement or load: without its rows such a table is dropped again.

The record of the table names the process until the rows are there. When that process has ended, or has given
the table up and could not drop it, the next opening of the store drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.table_records import FILLER, forget_table
from seqstore.store.runtime.process_identity import is_alive, this_process
from seqstore.store.schema.table_schema import TableSchema

EMPTY: Final = 1  # the version of a table without rows
_filled: Final[set[tuple[str, str]]] = set()  # what this process fills: data directory and name


class _Table(Protocol):
    id: int

    @property
    def version(self) -> int: ...


_Made = TypeVar("_Made", bound=_Table, covariant=True)


class _Store(Protocol[_Made]):
    catalog: Catalog

    def create_table(
        self,
        name: str,
        schema: TableSchema,
        *,
        if_not_exists: bool = False,
        filler: tuple[int, int] | None = None,
    ) -> _Made: ...


@contextmanager
def filled_table(
    store: _Store[_Made], name: str, schema: TableSchema, *, if_not_exists: bool = False
) -> Iterator[_Made]:
    """Makes a table for rows that the block loads; drops it where the block fails before they are there.

    Args:
        name: `database.table`.

    Raises:
        NotFoundError, AlreadyExistsError, ProtocolChangedException: as `Store.create_table`.
    """
    mark = (str(store.catalog.path), name)
    _filled.add(mark)
    try:
        table = store.create_table(name, schema, if_not_exists=if_not_exists, filler=this_process())
        try:
            yield table
        except BaseException:
            _drop_unfilled(store.catalog, table.id)
            raise
        _settle(store.catalog, table.id)
    finally:
        _filled.discard(mark)


def _drop_unfilled(catalog: Catalog, table_id: int) -> None:
    """Drops a table that this process fills and that has no rows yet, in one transaction.

    Its files are left to the sweep.
    """
    key = records.table_key(table_id)
    with catalog.write() as tx:
        record = tx.get("tables", key)
        if _is_unfilled(tx.get("heads", key), record) and tuple(record[FILLER]) == this_process():
            forget_table(tx, records.require_database(tx, record["database"]), record["name"])


def _settle(catalog: Catalog, table_id: int) -> None:
    """Keeps a table into which no row was loaded."""
    key = records.table_key(table_id)
    with catalog.read() as tx:
        if not _is_unfilled(tx.get("heads", key), tx.get("tables", key)):
            return
    with catalog.write() as tx:
        record = tx.get("tables", key)
        if _is_unfilled(tx.get("heads", key), record):
            tx.put("tables", key, {name: value for name, value in record.items() if name != FILLER})


def _is_unfilled(head: Any, record: Any) -> bool:
    return head is not None and record is not None and head[0] == EMPTY and FILLER in record


def drop_abandoned(catalog: Catalog) -> None:
    """Drops tables whose filling has ended without rows; their files are left to the sweep.

    Raises:
        UnavailableError: the catalog cannot be written.
    """
    with catalog.read() as tx:
        found = [key for key, record in tx.records("tables") if _is_abandoned(tx, catalog, key, record)]
    if not found:
        return
    with catalog.write() as tx:
        for key in found:
            record = tx.get("tables", key)
            if record is not None and _is_abandoned(tx, catalog, key, record):
                database = records.require_database(tx, record["database"])
                forget_table(tx, database, record["name"])


def _is_abandoned(tx: Any, catalog: Catalog, key: bytes, record: dict[str, Any]) -> bool:
    if FILLER not in record or not _is_unfilled(tx.get("heads", key), record):
        return False
    if (str(catalog.path), f"{record['database']}.{record['name']}") in _filled:
        return False
    filler = (int(record[FILLER][0]), int(record[FILLER][1]))
    return filler == this_process() or not is_alive(filler)
