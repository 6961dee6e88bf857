"""The limits of a table's past: the first readable version, and the tombstone watermark.

One catalog record per table. Vacuum moves `open`, the first version that may still be opened, by time
alone. It moves `oldest`, the first version that is still whole, as far as no process holds an earlier one,
and stores the checksums of the delete bitmap records up to it (`bitmaps`). With one limit only, overlapping
readers of the oldest version would keep all later data for ever. Later versions may be thinned out
(catalog.kept_versions).
Compaction moves `floor`, the tombstone watermark. All of them only rise. A watermark applies to sequences of
its type `floor_type`: RESTORE may restore a schema from before the table had a sequence.
"""

from __future__ import annotations

from typing import Any

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction, lost_record
from seqstore.store.catalog.version_record import version_time_ms
from seqstore.store.schema.table_schema import TableSchema


def keep_bitmaps(tx: CatalogTransaction, table: int, kept: list[list[Any]]) -> None:
    """Stores the checksums of the delete bitmap records up to the first whole version, by version."""
    key = catalog.table_key(table)
    tx.put("horizons", key, {**(tx.get("horizons", key) or {}), "bitmaps": kept})


def read_watermark(tx: CatalogTransaction, table: int, schema: TableSchema) -> int | None:
    """Returns the table's tombstone watermark, None before any tombstone with a time was removed."""
    record = tx.get("horizons", catalog.table_key(table)) or {}
    watermark: int | None = record.get("floor")
    return watermark if record.get("floor_type", "") in ("", _type_name(schema)) else None


def raise_watermark(tx: CatalogTransaction, table: int, schema: TableSchema, watermark: int) -> None:
    """Stores the largest sequence of the tombstones that the version being published removes."""
    key = catalog.table_key(table)
    record = tx.get("horizons", key) or {}
    known = read_watermark(tx, table, schema)
    watermark = watermark if known is None else max(watermark, known)
    tx.put("horizons", key, {**record, "floor": watermark, "floor_type": _type_name(schema)})


def _type_name(schema: TableSchema) -> str:
    return schema.sequence_type.name if schema.sequence_type is not None else "none"


def version_at(tx: CatalogTransaction, table: int, newest: int, time_ms: int) -> int:
    """Returns the newest version at a time, 0 when the table is younger.

    Versions whose record is gone were older than every remaining record.
    """
    low, high = oldest_record(tx, table) - 1, newest
    while low < high:  # times of versions never decrease (publish.publish)
        middle = (low + high + 1) // 2
        if version_time_ms(tx, table, middle) <= time_ms:
            low = middle
        else:
            high = middle - 1
    return low


def oldest_record(tx: CatalogTransaction, table: int) -> int:
    """Returns the first version that still has a record in the catalog."""
    for key, _ in tx.items("versions", catalog.table_key(table)):
        return int.from_bytes(key[8:])
    raise lost_record("versions", catalog.table_key(table), "has no version")
