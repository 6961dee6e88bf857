"""Labels and ended transactions, and the time of their removal (X16, X18).

1. A transaction that ended `label_keep_seconds` ago is removed, and its label with it, unless the label names
   a later transaction by now. The label can then be reused.
2. A transaction that began so long ago and was abandoned (its process ended, or no commit followed within its
   term) is aborted first, and removed as long after that.

Ids are assigned in the order in which transactions begin, so the walk ends at the first that began later; its
cost is the number of removed records. Doris also limits labels by their number. On a busy table, a source's
repetition an hour later would then be loaded again; this store therefore does not apply that limit.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.transaction_record import (
    TransactionRecord,
    TransactionStatus,
    abandoned_reason,
    abort_abandoned,
    now_ms,
    read_transaction,
)

_BATCH: Final = 2_000  # records per transaction of the catalog, so that loads wait briefly


def forget_transactions(store_catalog: Catalog, keep_seconds: int, *, dry_run: bool = False) -> int:
    """Removes transactions of all databases that ended long ago, and their labels; returns how many."""
    before_ms = now_ms() - keep_seconds * 1000
    with store_catalog.read() as tx:
        begun = (TransactionRecord.from_record(stored) for _, stored in tx.records("txns"))
        old = list(takewhile(lambda record: record.begun_ms <= before_ms, begun))
    over = [record.id for record in old if _is_over(record, before_ms)]
    if dry_run:
        return len(over)
    waiting = [*over, *(record.id for record in old if abandoned_reason(record))]
    while waiting:
        with store_catalog.write() as tx:
            for txn_id in waiting[:_BATCH]:
                record = read_transaction(tx, txn_id)
                if record is not None:
                    _end(tx, record, before_ms)
        waiting = waiting[_BATCH:]
    return len(over)


def _is_over(record: TransactionRecord, before_ms: int) -> bool:
    has_ended = record.status in (TransactionStatus.VISIBLE, TransactionStatus.ABORTED)
    return has_ended and record.finished_ms <= before_ms


def _end(tx: CatalogTransaction, record: TransactionRecord, before_ms: int) -> None:
    """Removes an ended transaction; aborts an abandoned one."""
    if not _is_over(record, before_ms):
        abort_abandoned(tx, record)
        return
    tx.delete("txns", catalog.txn_key(record.id))
    if record.label:
        key = catalog.label_key(record.database, record.label)
        if tx.get("labels", key) == record.id:
            tx.delete("labels", key)


def clean_labels(tx: CatalogTransaction, database: int, label: str | None) -> int:
    """Removes the label of a database, or all, whose transactions have ended; returns how many.

    The transactions stay in the lists, and a load may use the label again.
    """
    prefix = catalog.label_key(database, label or "")
    found = [(key, txn_id) for key, txn_id in tx.records("labels", prefix) if label is None or key == prefix]
    removed = 0
    for key, txn_id in found:
        record = read_transaction(tx, txn_id)
        if record is None or record.status in (TransactionStatus.VISIBLE, TransactionStatus.ABORTED):
            tx.delete("labels", key)
            removed += 1
    return removed
