"""Past loads: their transactions, with the metrics of the versions they made."""

from __future__ import annotations

from dataclasses import dataclass, replace

from seqstore.store.catalog import catalog
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus, abandoned_reason
from seqstore.store.catalog.version_record import VersionMetrics, read_version_record


@dataclass(frozen=True)
class PastLoad:
    """One load.

    Attributes:
        transaction: ABORTED where its process is gone.
        metrics: of the version it made; None when it made none, or the history has forgotten it.
    """

    transaction: TransactionRecord
    metrics: VersionMetrics | None


def loads_of(tx: catalog.CatalogTransaction, database: int, operation: str) -> list[PastLoad]:
    """Loads of one kind in a database that the catalog still remembers, oldest first."""
    found = []
    for _, stored in tx.records("txns"):
        record = TransactionRecord.from_record(stored)
        if record.database == database and record.operation == operation:
            reason = abandoned_reason(record)
            found.append(
                replace(record, status=TransactionStatus.ABORTED, reason=reason) if reason else record
            )
    return [PastLoad(record, _metrics(tx, record)) for record in found]


def _metrics(tx: catalog.CatalogTransaction, record: TransactionRecord) -> VersionMetrics | None:
    table = catalog.find_table(tx, record.database, record.table.partition(".")[2])
    if table is None or not record.version:
        return None
    made = read_version_record(tx, table, record.version)
    # The version of another transaction is that of a table of the same name, made since.
    return made.metrics if made is not None and made.txn_id == record.id else None
