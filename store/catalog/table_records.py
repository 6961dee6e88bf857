"""The catalog records of a table: created and removed with it."""

from __future__ import annotations

from typing import Any, Final

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.catalog import TABLES, CatalogTransaction
from seqstore.store.catalog.prepared_records import abort_of_table
from seqstore.store.catalog.transaction_record import now_ms
from seqstore.store.catalog.version_record import VersionRecord, put_version_record
from seqstore.store.schema.table_schema import TableSchema

FILLER: Final = "filler"


def create_table(
    tx: CatalogTransaction,
    database: int,
    database_name: str,
    table_name: str,
    schema: TableSchema,
    filler: tuple[int, int] | None = None,
) -> int:
    """Stores name, schema, version 1 and head of an empty table; returns its id.

    Args:
        filler: the process that fills the table at once (ddl.filled_tables).
    """
    table_id = tx.next_id("table")
    created = now_ms()
    tx.put("names", records.name_key(database, table_name), table_id)
    record: dict[str, Any] = {
        "database": database_name,
        "name": table_name,
        "directory": f"{TABLES}/{table_id}",
        "created_ms": created,
    }
    tx.put("tables", records.table_key(table_id), record | ({FILLER: list(filler)} if filler else {}))
    tx.put("schemas", records.schema_key(table_id, schema.revision), schema.to_record())
    put_version_record(tx, table_id, 1, VersionRecord(schema.revision, 0, "", "CREATE TABLE", created))
    tx.put("heads", records.table_key(table_id), [1, schema.revision])
    return table_id


def tables_with(tx: CatalogTransaction, name: str) -> list[int]:
    """Returns the tables whose newest schema has a property that is not empty."""
    found = []
    for key, _ in tx.items("tables"):
        table_id = int.from_bytes(key)
        _, revision = tx.require("heads", key)
        schema = tx.require("schemas", records.schema_key(table_id, revision))
        if schema["properties"].get(name):
            found.append(table_id)
    return found


def exchange_names(tx: CatalogTransaction, database: int, one: str, other: str) -> None:
    """Exchanges the names of two tables; their rows, histories and handles stay with their ids."""
    names = (one, other)
    ids = [records.find_table(tx, database, name) for name in names]
    for name, table_id in zip(names, reversed(ids), strict=True):
        assert table_id is not None
        key = records.table_key(table_id)
        tx.put("names", records.name_key(database, name), table_id)
        tx.put("tables", key, {**tx.get("tables", key), "name": name})


def change_name(tx: CatalogTransaction, database: int, table_name: str, new_name: str) -> None:
    """Gives a table a name that is free; its rows, history and handles stay with its id."""
    table_id = records.find_table(tx, database, table_name)
    assert table_id is not None
    key = records.table_key(table_id)
    tx.delete("names", records.name_key(database, table_name))
    tx.put("names", records.name_key(database, new_name), table_id)
    tx.put("tables", key, {**tx.get("tables", key), "name": new_name})


def forget_table(tx: CatalogTransaction, database: int, table_name: str) -> str:
    """Removes every record of a table; returns the directory of its files."""
    table_id = records.find_table(tx, database, table_name)
    assert table_id is not None
    prefix = records.table_key(table_id)
    directory: str = tx.require("tables", prefix)["directory"]
    abort_of_table(tx, table_id)
    for name in ("schemas", "versions", "segments", "inline", "bitmaps", "counters", "trash", "apps"):
        for key, _ in list(tx.items(name, prefix)):
            tx.delete(name, key)
    for name in ("tables", "heads", "horizons", "readers"):
        tx.delete(name, prefix)
    tx.delete("names", records.name_key(database, table_name))
    return directory
