"""What became of loads: their transactions, with the figures of the versions they made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from seqstore.store.catalog import catalog
from seqstore.store.catalog.transaction_record import ABORTED, TransactionRecord, abandoned_reason
from seqstore.store.runtime.records import unpack


@dataclass(frozen=True)
class PastLoad:
    """One load.

    Attributes:
        transaction: ABORTED where its process is gone.
        figures: of the version it made, empty when it made none or history has forgotten it.
    """

    transaction: TransactionRecord
    metrics: dict[str, Any]


def loads_of(tx: catalog.CatalogTransaction, database: int, operation: str) -> list[PastLoad]:
    """Loads of one kind in a database that the catalog still remembers, oldest first."""
    found = []
    for _, raw in tx.items("txns"):
        record = TransactionRecord.from_record(unpack(raw))
        if record.database == database and record.operation == operation:
            reason = abandoned_reason(record)
            found.append(replace(record, status=ABORTED, reason=reason) if reason else record)
    return [PastLoad(record, _figures(tx, record)) for record in found]


def _figures(tx: catalog.CatalogTransaction, record: TransactionRecord) -> dict[str, Any]:
    table = catalog.find_table(tx, record.database, record.table.partition(".")[2])
    made = None
    if table is not None and record.version:
        made = tx.get("versions", catalog.version_key(table, record.version))
    if made is None or made.get("txn") != record.id:  # a table of the same name, made since
        return {}
    metrics: dict[str, Any] = made["figures"]
    return metrics
