"""Two-phase commit: a transaction made durable first, and made visible or given up later, by any process.

1. `precommit` prepares every writer, and writes the deltas of partial updates beside the segments. One
   catalog transaction stores the writers (catalog.prepared_records) and the transaction as PRECOMMITTED. A
   crash before it leaves files without a record; after it, everything is there.
2. `commit_prepared` reads the writers again, aligns them with the newest version and publishes: rows of a
   partial update whose keys others wrote since its snapshot are filled again, all rows are tested again
   (C18), and the reads of the transaction are checked against everything since (conflict.isolation). The
   commit point removes the `prepared` records. It is refused unless the transaction is PRECOMMITTED: of
   two processes that commit one transaction, the second gets the error that it is visible already.
3. `abort_transaction` removes the records first and the files after.

Files that a commit or an abort no longer needs are removed at once, but for a store that ships and has not
shipped that commit yet: a new host would find the transaction PRECOMMITTED, and would need them. A later
sweep asks whether this host still leads, and removes them.

A commit that fails changes nothing: the transaction stays PRECOMMITTED. One that no process ends expires
(`precommitted_keep_seconds`). It is aborted when a store is opened, and before that when a call uses its
label, commits or aborts it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog import transaction_record as transaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.prepared_records import forget_prepared, prepared_of, prepared_transactions
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus
from seqstore.store.errors import CommitUnknownError, InvalidInputError, NotFoundError
from seqstore.store.publish.commit import commit
from seqstore.store.publish.prepared_writer import (
    delete_delta_files,
    leave_delta_files,
    writer_from_record,
    writer_to_record,
)
from seqstore.store.publish.publish import TableWrite
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.runtime import failpoint
from seqstore.store.segment.disk import Disk

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

USER_ABORT: Final = "User Abort"


def precommit(
    catalog: Catalog,
    record: TransactionRecord,
    writers: Sequence[TableWriter],
    *,
    keep_seconds: int,
    started: float,
) -> tuple[TransactionRecord, list[TableWrite]]:
    """Runs the first phase.

    Args:
        record: PREPARE, with an id.
        keep_seconds: after how long the transaction expires.
        started: when the transaction began, by `time.monotonic`.

    Returns:
        The transaction as stored, and the share of each table as of now.

    Raises:
        InvalidInputError: another process aborted the transaction meanwhile.
        CommitUnknownError: the outcome is not known.
    """
    for writer in writers:
        writer.prepare()
        failpoint.hit("load.staged")
    milliseconds = round((time.monotonic() - started) * 1000)
    writes = [writer.table_write(milliseconds) for writer in writers]
    prepared = [(writer.table.id, writer_to_record(writer)) for writer in writers]
    failpoint.hit("precommit.staged")
    with catalog.write() as tx:
        transaction.require_unchanged(tx, record)
        for writer in writers:
            writer.require_unpublished(tx)
        for table_id, content in prepared:
            tx.put("prepared", records.prepared_key(record.id, table_id), content)
        done = transaction.precommitted(record, keep_seconds)
        transaction.put_transaction(tx, done)
        failpoint.hit("precommit.before_commit")
    failpoint.hit("precommit.after_commit")
    return done, writes


def commit_prepared(
    catalog: Catalog,
    open_table: Callable[[int], VersionedTable],
    database: str,
    *,
    txn_id: int | None,
    label: str | None,
    label_keep_seconds: int,
) -> TransactionRecord:
    """Runs the second phase, committing; see `Store.commit_transaction`."""
    found = _find(catalog, database, txn_id, label)
    with catalog.read() as tx:
        record = transaction.read_transaction(tx, found.id) or found
        prepared = dict(prepared_of(tx, found.id))
    if record.status != TransactionStatus.PRECOMMITTED:
        catalog.require_shipped()  # before the error tells how it ended
        raise transaction.not_precommitted(record)
    writers: list[TableWriter] = []
    try:
        for table_id, content in prepared.items():
            writers.append(writer_from_record(open_table(table_id), record, content))
        writers.sort(key=lambda writer: (writer.table.name != record.table, not writer.pending.has_written))
        done, _ = commit(
            catalog,
            record,
            writers,
            label_keep_seconds=label_keep_seconds,
            started=time.monotonic() - (transaction.now_ms() - record.begun_ms) / 1000,
        )
    except BaseException as error:
        for writer in writers:
            if isinstance(error, CommitUnknownError):
                leave_delta_files(writer.table, prepared[writer.table.id])
            else:
                writer.delete_files()
        raise
    release = leave_delta_files if catalog.has_unshipped() else delete_delta_files
    for writer in writers:
        release(writer.table, prepared[writer.table.id])
    return done


def abort_transaction(
    catalog: Catalog,
    disk: Disk,
    database: str,
    *,
    txn_id: int | None,
    label: str | None,
    reason: str,
) -> TransactionRecord:
    """Gives up a transaction that is not visible; see `Store.abort_transaction`."""
    found = _find(catalog, database, txn_id, label)
    with catalog.write() as tx:
        record = transaction.read_transaction(tx, found.id) or found
        if record.status not in (TransactionStatus.PREPARE, TransactionStatus.PRECOMMITTED):
            raise transaction.not_abortable(record)
        aborted = transaction.abort(tx, record, reason)
        files = forget_prepared(tx, record.id)
    _remove_freed(catalog, disk, files)
    return aborted


def sweep_prepared(catalog: Catalog, disk: Disk) -> list[int]:
    """Aborts expired transactions, and removes the records and files of aborted ones.

    Returns:
        Ids of the transactions that were swept.
    """
    with catalog.read() as tx:
        ended = [txn_id for txn_id in prepared_transactions(tx) if not _is_waiting(tx, txn_id)]
    for txn_id in ended:
        with catalog.write() as tx:
            record = transaction.read_transaction(tx, txn_id)
            if record is not None:
                transaction.abort_abandoned(tx, record)
            files = forget_prepared(tx, txn_id)
        _remove_freed(catalog, disk, files)
    return ended


def _remove_freed(catalog: Catalog, disk: Disk, names: Sequence[str]) -> None:
    """Removes files that a commit has freed; leaves them to the next sweep while it waits to be shipped."""
    release = disk.leave if names and catalog.has_unshipped() else disk.discard
    for name in names:
        release(name)


def _is_waiting(tx: records.CatalogTransaction, txn_id: int) -> bool:
    record = transaction.read_transaction(tx, txn_id)
    if record is None or record.status != TransactionStatus.PRECOMMITTED:
        return False
    return not transaction.abandoned_reason(record)


def _find(catalog: Catalog, database: str, txn_id: int | None, label: str | None) -> TransactionRecord:
    """Returns a transaction; an expired one, or one whose process has ended, is aborted first.

    Raises:
        NotFoundError: the database has none of that id or label.
    """
    record = None
    if (txn_id is None) == (label is None):
        raise InvalidInputError("name a transaction by its id or by its label, one of both", kind="bad_txn")
    with catalog.read() as tx:
        database_id = records.require_database(tx, database)
        if label is not None:
            record = transaction.find_label(tx, database_id, label)
        elif txn_id is not None:
            record = transaction.read_transaction(tx, txn_id)
    if record is None or record.database != database_id:
        named = txn_id if label is None else label
        raise NotFoundError(
            f"transaction [{named}] not found", kind="txn_not_found", txn_id=txn_id, label=label
        )
    if transaction.abandoned_reason(record):
        with catalog.write() as tx:
            record = transaction.abort_abandoned(tx, transaction.read_transaction(tx, record.id) or record)
    return record
