"""UPDATE and DELETE by condition on one table: read, compute, write back, as one transaction (U1, D13).

    with the update lock of the table, if updates are serial:
        snapshot -> matching rows -> new values -> partial update or tombstones -> publish

Only the assigned columns are written, so updates of different columns of a row can both stand. The reads of
the statement are checked when it is published; after a conflict it may be run again on a new snapshot.

Statements on one table that run again take the retry lock (catalog.update_lock) instead of pausing. The
holder begins as soon as the statement before has committed, and two retries do not fail each other. A process
that has just met conflicts on a table takes the lock before the first attempt of its next statement there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog.app_ids import DUPLICATE, find_app
from seqstore.store.catalog.update_lock import (
    ConcurrencyMode,
    lock_directory,
    retry_lock,
    update_lock,
    update_mode,
)
from seqstore.store.load.load import LoadResult
from seqstore.store.runtime.retry import pause, retried
from seqstore.store.transaction.transaction import Transaction, lowered_warning
from seqstore.store.transaction.transaction_options import DmlOptions, DmlResult, TransactionOptions
from seqstore.store.transaction.transaction_table import TransactionTable

if TYPE_CHECKING:
    from seqstore.store.load.loadable_table import LoadableTable

_CONTENDED_SECONDS: Final = 0.001  # a longer wait for the retry lock shows that other statements retry too

# Reads and writes within a transaction; returns the rows matched and the outcome of the write.
Work = Callable[[TransactionTable], "tuple[int, LoadResult | None]"]


def run_statement(table: LoadableTable, work: Work, options: DmlOptions) -> DmlResult:
    """Runs a read-modify-write statement on one table.

    Raises:
        ConflictError: the rows it read have changed, and no retry is left.
        UnavailableError: another update held the lock for too long.
    """
    mode = update_mode(table.catalog, table.settings.enable_concurrent_update, options.concurrency)
    statement = _Statement(table, work, options, mode)
    if mode == ConcurrencyMode.SERIAL or not options.retries:  # serial attempts hold a lock already
        return retried(statement.attempt, options.retries)
    with statement.held:
        statement.begin()
        return retried(statement.attempt, options.retries, statement.wait)


@dataclass
class _Statement:
    """One statement and its attempts; `held` may have the table's retry lock."""

    table: LoadableTable
    work: Work
    options: DmlOptions
    mode: ConcurrencyMode
    held: ExitStack = field(default_factory=ExitStack)
    has_lock: bool = False

    def begin(self) -> None:
        """Takes the retry lock where the last statement of this process met conflicts."""
        met_before, self.table.meets_conflicts = self.table.meets_conflicts, False
        if met_before:
            started = time.monotonic()
            self._lock()
            self.table.meets_conflicts = time.monotonic() - started > _CONTENDED_SECONDS

    def wait(self, retry: int) -> None:
        """Takes the retry lock before the first retry; pauses where the lock did not become free in time."""
        self.table.meets_conflicts = True
        if not self.has_lock and retry == 1:
            self._lock()
        elif not self.has_lock:
            pause(retry)

    def _lock(self) -> None:
        self.has_lock = self.held.enter_context(retry_lock(lock_directory(self.table.catalog), self.table.id))

    def attempt(self) -> DmlResult:
        """Runs the statement once, on a new snapshot."""
        table, options = self.table, self.options
        with lock_of_updates(table, options, self.mode) as concurrency:
            if options.txn_app_id is not None:
                app = find_app(table.catalog, table.id, options.txn_app_id, options.txn_version)
                if app is not None and app.is_duplicate:
                    return DmlResult(app.seen_txn, "", app.first_version, 0, 0, (app.skipped,), DUPLICATE)
            with statement_transaction(table, options, concurrency) as (transaction, opened):
                matched, _ = self.work(opened)
                done = transaction.commit()
        changed, warnings = done.rows_changed, tuple(opened.warnings)
        if matched > changed:
            warnings += (lowered_warning(matched - changed, f"{matched} matched rows"),)
        version = done.versions.get(table.name, opened.version)
        return DmlResult(done.txn_id, done.label, version, matched, changed, warnings)


@contextmanager
def lock_of_updates(table: LoadableTable, options: DmlOptions, mode: ConcurrencyMode) -> Iterator[str]:
    """Holds the update lock of a table where updates are serial; yields how its transaction is checked."""
    if mode != ConcurrencyMode.SERIAL:
        yield mode
        return
    seconds = options.lock_seconds
    seconds = table.settings.update_lock_seconds if seconds is None else seconds
    with update_lock(lock_directory(table.catalog), table.id, seconds):
        yield ConcurrencyMode.OPTIMISTIC  # loads take no lock, and are still checked


@contextmanager
def statement_transaction(
    table: LoadableTable, options: DmlOptions, concurrency: str
) -> Iterator[tuple[Transaction, TransactionTable]]:
    """Begins a transaction that writes one table; yields it, and the table as it sees it."""
    chosen = TransactionOptions(
        isolation=options.isolation,
        label=options.label,
        concurrency=concurrency,
        operation=options.operation,
        txn_app_id=options.txn_app_id,
        txn_version=options.txn_version,
        label_prefix=options.label_prefix,
        reads_own_writes=False,  # one statement reads before it writes
    )
    known = {table.name: table}
    with Transaction(table.catalog, table.settings, known.__getitem__, chosen) as transaction:
        opened = transaction.table(table.name)
        opened.begin_write()
        yield transaction, opened
