"""Stores the records of backed-up tables in the catalog, as parts of one transaction: the end of a RESTORE.

A restored table has the version, the row versions and the schema revisions that it had when it was backed up.
That version is the first one that it can be read at, as after a vacuum that left no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from seqstore.store.backup.manifest import Manifest, TableCopy
from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.catalog import TABLES, CatalogTransaction
from seqstore.store.catalog.table_records import forget_table
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.catalog.version_record import VersionMetrics, VersionRecord, state_of
from seqstore.store.ddl.views import refuse_view_name
from seqstore.store.errors import AlreadyExistsError
from seqstore.store.segment.segment import SegmentMeta

OPERATION: Final = "RESTORE SNAPSHOT"


class Records(Protocol):
    """What takes records as a transaction of the catalog does."""

    def put(self, database: str, key: bytes, value: Any) -> bytes:
        """Stores a record; returns its checksum."""

    def put_new(self, database: str, key: bytes, value: Any) -> bytes:
        """Stores a record under a key that has none; returns its checksum."""


def check_free(tx: CatalogTransaction, database: str, names: Mapping[str, str], *, replaces: bool) -> None:
    """Checks that tables and views can have their names.

    Args:
        names: of the restored ones, by their names in the backup.
        replaces: a table takes the place of another one, and a view that of another one.

    Raises:
        NotFoundError: no such database.
        AlreadyExistsError: a name is in use.
    """
    found = records.require_database(tx, database)
    for name in names.values():
        in_use = records.find_table(tx, found, name) is not None
        in_use = in_use or tx.get("views", records.name_key(found, name)) is not None
        if in_use and not replaces:
            raise AlreadyExistsError(
                f"Table '{name}' already exists; restore it AS another name, or set the property "
                '"atomic_restore" = "true", which replaces it',
                table=f"{database}.{name}",
            )


def install(
    tx: CatalogTransaction,
    database: str,
    manifest: Manifest,
    names: Mapping[str, str],
    ids: Mapping[str, int],
    *,
    replaces: bool,
) -> list[str]:
    """Stores tables and views; returns the directories of tables that were replaced.

    Args:
        names: of the restored tables and views, by their names in the backup.
        ids: of the tables, by their names in the backup.

    Raises:
        NotFoundError, AlreadyExistsError: as `check_free`.
    """
    check_free(tx, database, names, replaces=replaces)
    found = records.require_database(tx, database)
    replaced = []
    for table in manifest.tables:
        name = names.get(table.name)
        if name is None:
            continue
        if records.find_table(tx, found, name) is not None:
            replaced.append(forget_table(tx, found, name))
        else:
            refuse_view_name(tx, found, f"{database}.{name}")
        operation = f"{OPERATION} {manifest.label} {manifest.timestamp}"
        put_table(tx, ids[table.name], found, f"{database}.{name}", table, operation)
    for view, record in manifest.views.items():
        name = names.get(view)
        if name is None:
            continue
        if records.find_table(tx, found, name) is not None:
            raise AlreadyExistsError(f"'{name}' is a table, and in the backup a view", table=name)
        tx.put("views", records.name_key(found, name), dict(record))
    return replaced


def put_table(tx: Records, table_id: int, database: int, full: str, table: TableCopy, operation: str) -> None:
    """Stores every record of a table under an id.

    Args:
        database: its id.
        full: `database.table`.
        operation: of the one version that the table has.
    """
    database_name, _, name = full.partition(".")
    key, version, now = records.table_key(table_id), table.version, now_ms()
    tx.put("names", records.name_key(database, name), table_id)
    place = {"database": database_name, "name": name, "directory": f"{TABLES}/{table_id}", "created_ms": now}
    tx.put("tables", key, place)
    tx.put("heads", key, [version, table.revision])
    for schema in table.schemas:
        tx.put("schemas", records.schema_key(table_id, schema["revision"]), dict(schema))
    for created, meta in table.segments:
        tx.put("segments", records.segment_key(table_id, meta["id"]),
               {"meta": dict(meta), "created": created, "dropped": 0})  # fmt: skip
    for segment, payload in table.inline.items():
        tx.put("inline", records.segment_key(table_id, segment), payload)
    stored = [
        [number, tx.put("bitmaps", records.version_key(table_id, number), dict(hidden))]
        for number, hidden in table.bitmaps
    ]
    horizon: dict[str, Any] = {**table.horizon, "oldest": version, "open": version, "bitmaps": stored}
    tx.put("horizons", key, horizon)
    for column, value in table.counters.items():
        tx.put("counters", records.counter_key(table_id, column), value)
    for rest, app in table.apps:
        tx.put("apps", key + rest, {**app, "txn": 0})  # transactions are not restored
    tx.put_new("versions", records.version_key(table_id, version), _version(table, operation, now))


def _version(table: TableCopy, operation: str, now: int) -> dict[str, Any]:
    metas: list[SegmentMeta] = table.metas
    written = sum(meta.data_bytes + meta.keys_bytes for meta in metas)
    record = VersionRecord(
        table.revision,
        0,
        "",
        operation,
        max(now, table.time_ms),
        [meta.id for meta in metas],
        metrics=VersionMetrics(bytes_written=written),
    )
    return record.to_record() | {"state": state_of([meta.id for meta in metas]).to_record()}
