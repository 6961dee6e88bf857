"""Reads what a backup holds: tables and views of a database as of one moment, in one catalog transaction.

1. A lease on the moment is acquired, so that no vacuum removes what the transaction sees.
2. The transaction reads the records of every table at its newest version.
3. Leases on those versions replace the one on the moment, which would hold all later versions of all tables.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from seqstore.store.backup.manifest import Manifest, TableCopy, timestamp_of
from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.leases import Lease, leases_of
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.catalog.version_chain import require_whole
from seqstore.store.catalog.version_record import hidden_record, read_hidden, version_time_ms
from seqstore.store.errors import NotFoundError
from seqstore.store.segment.delete_bitmap import chain


class Capture:
    """A manifest whose files cannot be removed until `close`.

    Attributes:
        manifest: of the tables.
        directories: where the files of each table are, by its name.
    """

    def __init__(
        self, catalog: Catalog, database: str, label: str, chosen: Collection[str], *, is_excluding: bool
    ) -> None:
        """Args:
        chosen: names of tables and views; none means all of the database.
        is_excluding: all but those.

        Raises:
            NotFoundError: no such database, table or view.
            CorruptionError: the records of a table do not add up.
        """
        leases = leases_of(catalog.data_dir)
        moment = leases.acquire_moment()
        self.directories: dict[str, str] = {}
        self._leases: list[Lease] = []
        try:
            with catalog.read() as tx:
                found = records.require_database(tx, database)
                tables = {key[8:].decode(): int(value) for key, value in tx.records("names", _prefix(found))}
                views = {key[8:].decode(): value for key, value in tx.records("views", _prefix(found))}
                wanted = _wanted(database, {*tables, *views}, chosen, is_excluding=is_excluding)
                time_ms = now_ms()
                copies = []
                for name in sorted(wanted & tables.keys()):
                    copies.append(_table(tx, tables[name], name))
                    record = tx.require("tables", records.table_key(tables[name]))
                    self.directories[name] = record["directory"]
            self._leases = [leases.acquire(tables[copy.name], copy.version) for copy in copies]
        finally:
            moment.release()
        self.manifest = Manifest(
            database,
            label,
            timestamp_of(time_ms),
            time_ms,
            tuple(copies),
            {name: views[name] for name in sorted(wanted & views.keys())},
        )

    def close(self) -> None:
        """Releases the versions."""
        for lease in self._leases:
            lease.release()


def _prefix(database: int) -> bytes:
    return records.table_key(database)


def _wanted(database: str, known: set[str], chosen: Collection[str], *, is_excluding: bool) -> set[str]:
    unknown = sorted(set(chosen) - known)
    if unknown:
        raise NotFoundError(
            f"Unknown table '{database}.{unknown[0]}'", kind="unknown_table", table=unknown[0]
        )
    return known - set(chosen) if is_excluding or not chosen else set(chosen)


def _table(tx: CatalogTransaction, table_id: int, name: str) -> TableCopy:
    """Reads the newest version of a table."""
    prefix = records.table_key(table_id)
    require_whole(tx, table_id)
    version, revision = records.head(tx, table_id, name)
    segments = {
        key[8:].decode(): record for key, record in tx.records("segments", prefix) if not record["dropped"]
    }
    inline = {key[8:].decode(): value for key, value in tx.records("inline", prefix)}
    bitmaps = []
    for number in sorted(chain(version)):
        hidden = {each: rows for each, rows in read_hidden(tx, table_id, number).items() if each in segments}
        if hidden:
            bitmaps.append((number, hidden_record(hidden)))
    horizon: dict[str, Any] = tx.get("horizons", prefix) or {}
    return TableCopy(
        name,
        version,
        revision,
        version_time_ms(tx, table_id, version),
        tuple(record for key, record in tx.records("schemas", prefix) if int.from_bytes(key[8:]) <= revision),
        tuple((record["created"], record["meta"]) for record in segments.values()),
        {each: inline[each] for each in segments if each in inline},
        tuple(bitmaps),
        {int.from_bytes(key[8:]): int(value) for key, value in tx.records("counters", prefix)},
        {field: horizon[field] for field in ("floor", "floor_type") if field in horizon},
        tuple((key[8:], record) for key, record in tx.records("apps", prefix)),
    )
