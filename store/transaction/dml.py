"""UPDATE and DELETE by condition on one table: read, compute, write back, as one transaction (U1, D13).

    with the update lock of the table, if updates are serial:
        snapshot -> matching rows -> new values -> partial update or tombstones -> publish

Only the assigned columns are written, so updates of different columns of a row can both stand. What the
statement read is checked when it is published; after a conflict it may be run again on a new snapshot.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from seqstore.store.catalog.app_ids import DUPLICATE, find_app
from seqstore.store.catalog.update_lock import (
    OPTIMISTIC,
    SERIAL,
    lock_directory,
    turn,
    update_lock,
    update_mode,
)
from seqstore.store.errors import ConflictError
from seqstore.store.load.load import LoadResult
from seqstore.store.runtime.retry import retried
from seqstore.store.transaction.dml_options import DmlOptions, DmlResult
from seqstore.store.transaction.transaction import Transaction, TransactionResult
from seqstore.store.transaction.transaction_table import TransactionTable

if TYPE_CHECKING:
    from seqstore.store.load.loadable_table import LoadableTable

_WAITED_SECONDS: Final = 0.001  # who waits for a turn as long is not alone

# Reads and writes within a transaction; returns rows matched and what the write came to.
Work = Callable[[TransactionTable], "tuple[int, LoadResult | None]"]


def run_dml(table: LoadableTable, work: Work, options: DmlOptions) -> DmlResult:
    """Runs a read-modify-write statement on one table.

    Raises:
        ConflictError: what it read has changed, and no try is left.
        UnavailableError: another update held the lock for too long.
    """

    def attempt() -> DmlResult:
        with _serialized(table, options) as concurrency:
            app = find_app(table.catalog, table.id, options.txn_app_id, options.txn_version)
            if app is not None and app.is_duplicate:
                return DmlResult(app.first_txn, "", app.first_version, 0, 0, (app.skipped,), DUPLICATE)
            transaction = Transaction(
                table.catalog,
                table.settings,
                lambda _name: table,
                isolation=options.isolation,
                label=options.label,
                label_prefix=options.label_prefix,
                operation=options.operation,
                concurrency=concurrency,
                txn_app_id=options.txn_app_id,
                txn_version=options.txn_version,
            )
            with transaction:
                opened = transaction.table(table.name)
                opened.begin_write()
                matched, _ = work(opened)
                return _result(matched, opened, transaction.commit())

    mode = update_mode(table.catalog, table.settings.enable_concurrent_update, options.concurrency)
    if mode == SERIAL or not options.retries:  # has its turn already, or will not run again
        return retried(attempt, options.retries)
    return _in_turn(table, attempt, options.retries)


def _in_turn(table: LoadableTable, attempt: Callable[[], DmlResult], retries: int) -> DmlResult:
    """Runs an attempt again in its turn; at once in its turn after a statement that met conflicts."""
    directory = lock_directory(table.catalog)
    met_before, table.meets_conflicts = table.meets_conflicts, False

    def first() -> DmlResult:
        if not met_before:
            return attempt()
        started = time.monotonic()
        with turn(directory, table.id):
            table.meets_conflicts = time.monotonic() - started > _WAITED_SECONDS
            return attempt()

    tries = itertools.chain([first], itertools.repeat(attempt))

    def one() -> DmlResult:
        try:
            return next(tries)()
        except ConflictError:
            table.meets_conflicts = True
            raise

    return retried(one, retries, lambda: turn(directory, table.id))


@contextmanager
def _serialized(table: LoadableTable, options: DmlOptions) -> Iterator[str]:
    """Holds the lock when updates are serial; gives the mode the transaction itself runs in."""
    mode = update_mode(table.catalog, table.settings.enable_concurrent_update, options.concurrency)
    if mode != SERIAL:
        yield mode
        return
    seconds = options.lock_seconds
    seconds = table.settings.update_lock_seconds if seconds is None else seconds
    with update_lock(lock_directory(table.catalog), table.id, seconds):
        yield OPTIMISTIC  # the lock is held already; loads are still checked


def _result(matched: int, opened: TransactionTable, done: TransactionResult) -> DmlResult:
    changed = done.rows_changed
    kept = matched - changed
    warnings = (*opened.warnings, *([lowered_warning(kept, matched)] if matched and kept > 0 else []))
    version = done.versions.get(opened.name, opened.version)
    return DmlResult(done.txn_id, done.label, version, matched, changed, warnings)


def lowered_warning(kept: int, matched: int) -> str:
    """U14 said aloud."""
    return (
        f"{kept} of {matched} matched rows keep their values: the assigned sequence is smaller than the "
        "stored one, so the stored row wins"
    )


def update(table: LoadableTable, assignments: Any, where: Any, options: DmlOptions) -> DmlResult:
    """`TransactionTable.update` as a statement of its own."""
    return run_dml(table, lambda opened: opened.update(assignments, where), options)


def delete_where(table: LoadableTable, where: Any, options: DmlOptions) -> DmlResult:
    """`TransactionTable.delete_where` as a statement of its own."""
    return run_dml(table, lambda opened: opened.delete_where(where), options)
