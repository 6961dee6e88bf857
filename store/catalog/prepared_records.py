"""The records of pre-committed transactions: database `prepared`, by transaction id | table id.

A record holds the write of a transaction to one table (`publish.prepared_writer`): `{revision, app, snapshot,
segments, deltas, parts, filled, published, figures, late, lost, blind, isolation, clearing}`. As long as the
record is there its files are needed. It is removed in the catalog transaction that publishes or aborts its
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from seqstore.store.catalog import catalog
from seqstore.store.catalog import transaction_record as transaction
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.transaction_record import TransactionStatus
from seqstore.store.segment.segment import SegmentMeta, file_names


def prepared_of(tx: CatalogTransaction, txn_id: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields table id and record of every table that a transaction writes."""
    for key, record in tx.records("prepared", catalog.txn_key(txn_id)):
        yield catalog.prepared_ids(key)[1], record


def prepared_transactions(tx: CatalogTransaction) -> list[int]:
    """Returns the ids of the transactions that have records, ascending."""
    return sorted({catalog.prepared_ids(key)[0] for key, _ in tx.items("prepared")})


def forget_prepared(tx: CatalogTransaction, txn_id: int) -> list[str]:
    """Removes the records of a transaction; returns the files they name, below the data directory."""
    files: list[str] = []
    for table_id, content in list(prepared_of(tx, txn_id)):
        table = tx.get("tables", catalog.table_key(table_id))
        if table is not None:
            files += [f"{table['directory']}/{name}" for name in files_of(content)]
        tx.delete("prepared", catalog.prepared_key(txn_id, table_id))
    return files


def abort_of_table(tx: CatalogTransaction, table_id: int) -> None:
    """Aborts the pre-committed transactions of a table that is being dropped; their files go with it."""
    for txn_id in prepared_transactions(tx):
        record = transaction.read_transaction(tx, txn_id)
        if record is None or record.status != TransactionStatus.PRECOMMITTED:
            continue
        if any(found == table_id for found, _ in prepared_of(tx, txn_id)):
            transaction.abort(tx, record, "the table was dropped")


def prepared_files(tx: CatalogTransaction, table_id: int) -> set[str]:
    """Returns names, without directory, of the files that pre-committed transactions keep for a table."""
    kept: set[str] = set()
    for key, record in tx.records("prepared"):
        if catalog.prepared_ids(key)[1] == table_id:
            kept.update(files_of(record))
    return kept


def files_of(prepared: dict[str, Any]) -> list[str]:
    """Returns names, without directory, of the files that a record needs."""
    metas = [SegmentMeta.from_record(item["meta"]) for item in prepared["segments"].values()]
    deltas = [item["name"] for item in prepared["deltas"] if item["name"]]
    return [name for meta in metas for name in file_names(meta)] + deltas
