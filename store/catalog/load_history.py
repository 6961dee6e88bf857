"""Past loads: their transactions, with the metrics of the versions they made."""

from __future__ import annotations

from collections.abc import Iterator
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


def newest_transactions(
    tx: catalog.CatalogTransaction, *, before: int | None = None
) -> Iterator[TransactionRecord]:
    """Yields the transactions that the catalog still remembers, newest first.

    Args:
        before: only those with smaller ids, None for all.
    """
    end = None if before is None else catalog.txn_key(before)
    for _, stored in tx.records_before("txns", before=end):
        record = TransactionRecord.from_record(stored)
        reason = abandoned_reason(record)
        yield replace(record, status=TransactionStatus.ABORTED, reason=reason) if reason else record


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
    return [PastLoad(record, metrics_of(tx, record)) for record in found]


def metrics_of(tx: catalog.CatalogTransaction, record: TransactionRecord) -> VersionMetrics | None:
    """Returns the metrics of the version that a transaction made, None if there is none, or no more."""
    table = catalog.find_table(tx, record.database, record.table.partition(".")[2])
    if table is None or not record.version:
        return None
    made = read_version_record(tx, table, record.version)
    # The version of another transaction is that of a table of the same name, made since.
    return made.metrics if made is not None and made.txn_id == record.id else None
