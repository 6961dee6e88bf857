"""The commit of a transaction: one loop for loads of one table and transactions over several.

1. Every writer prepares: fills, stages, plans against the newest version. Small loads of whole rows, which
   are staged and in memory, leave that to step 3.
2. The commit point (publish.publish). If a head moved meanwhile, every writer is aligned with its newest
   version, and publishing is tried again.
3. After `TRIES_BEFORE_LOCK` lost races writers are aligned when they are the next to publish
   (the prepare lock), and once more under the writer lock, where nothing can move; small ones at once, for
   that costs less than another try.

Small writes of several threads take turns to plan and to publish (runtime.short_work).
Preparing and aligning check the reads of the transaction against the versions passed (conflict.isolation).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.transaction_record import TransactionRecord
from seqstore.store.errors import CorruptionError
from seqstore.store.publish.publish import TRIES_BEFORE_LOCK, HeadMoved, TableWrite, publish
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.runtime import cancellation, failpoint
from seqstore.store.runtime.short_work import publishing_turn
from seqstore.store.runtime.traces import span

Also = Callable[[CatalogTransaction, TransactionRecord], None]


def commit(
    catalog: Catalog,
    transaction: TransactionRecord,
    writers: Sequence[TableWriter],
    *,
    label_keep_seconds: int,
    started: float,
    also: Also | None = None,
) -> tuple[TransactionRecord, list[TableWrite]]:
    """Publishes the writes of a transaction.

    Args:
        started: when the transaction began, by `time.monotonic`.
        also: stores more in the same catalog transaction, after the versions: the offsets of a routine load
            advance together with their rows, or not at all. An exception of it undoes everything.

    Returns:
        The transaction as stored, and the share of each table.

    Raises:
        ConflictError, AlreadyExistsError, ClosedError: nothing was stored.
        NotFoundError: a table was dropped.
        CommitUnknownError: the outcome is not known.
    """
    try:
        return _commit(catalog, transaction, writers, label_keep_seconds, started, also)
    except CorruptionError:
        for writer in writers:
            writer.hold()  # raises the error of a dropped table: then a missing file is no damage
        raise


def _commit(
    catalog: Catalog,
    transaction: TransactionRecord,
    writers: Sequence[TableWriter],
    label_keep_seconds: int,
    started: float,
    also: Also | None,
) -> tuple[TransactionRecord, list[TableWrite]]:
    tries = _prepare(writers)
    is_short = not tries

    def catch_up() -> None:
        with publishing_turn() if is_short else nullcontext():
            for writer in writers:
                writer.catch_up()

    for tries_left in reversed(range(tries + 1)):
        is_last = not tries_left
        writes: list[TableWrite] = []
        cancellation.check()  # the last moment: what follows is published
        try:
            with (
                span("publish"),
                catalog.write(catch_up if is_last else None) as tx,
                publishing_turn() if is_short else nullcontext(),
            ):
                milliseconds = round((time.monotonic() - started) * 1000)
                for writer in writers:
                    if is_last:
                        writer.align_within(tx)
                    writer.require_unpublished(tx)
                    writes.append(writer.evolve(tx, transaction, writer.table_write(milliseconds)))
                done = publish(tx, transaction, writes, label_keep_seconds=label_keep_seconds)
                if also is not None:
                    also(tx, done)
                for writer, write in zip(writers, writes, strict=True):
                    writer.publish_state(tx, done.versions[write.name], write.hidden)
            break
        except HeadMoved:
            for writer in writers:
                writer.align(writer.table.state())
    failpoint.hit("publish.after_commit")
    for writer in writers:
        writer.published()
    return done, writes


def _prepare(writers: Sequence[TableWriter]) -> int:
    """Runs step 1; returns how often publishing is tried before step 3."""
    all_wait = all(map(TableWriter.can_wait, writers))
    for writer in writers:
        if not all_wait:
            writer.prepare()
        failpoint.hit("load.staged")
    return 0 if all_wait or all(map(TableWriter.is_small, writers)) else TRIES_BEFORE_LOCK
