"""UPDATE and DELETE of several sessions as one transaction: group commit of statements (G14).

1. A statement that changes the row of one key joins the group of its table. The leader takes the update lock
   where updates are serial, and runs all statements that wait (runtime.led_groups), up to the first one whose
   key another one has.
2. They read one snapshot, and write in one transaction. None reads a row that another one writes. What a
   statement that fails has written is removed, and only that statement fails.
3. One commit fills and publishes the rows of all. Where it fails each statement runs alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from seqstore.store.catalog.update_lock import update_mode
from seqstore.store.errors import CommitUnknownError, ConflictError, StoreError
from seqstore.store.load.group_commit import LABEL_PREFIX
from seqstore.store.runtime import cancellation
from seqstore.store.runtime.forks import new_lock
from seqstore.store.runtime.led_groups import LedGroup, Member
from seqstore.store.transaction.statement import (
    Work,
    lock_of_updates,
    run_statement,
    statement_transaction,
)
from seqstore.store.transaction.transaction_options import DmlOptions, DmlResult
from seqstore.store.transaction.transaction_table import TransactionTable

if TYPE_CHECKING:
    from seqstore.store.load.loadable_table import LoadableTable

Key: TypeAlias = "tuple[object, ...]"
_STATEMENTS_MAX: Final = 200  # of one transaction
_OPTIONS_MAX: Final = 64  # of the statements of one table; others begin new groups


class _Statement(Member):
    def __init__(self, table: LoadableTable, key: Key, work: Work, options: DmlOptions) -> None:
        super().__init__()
        self.table = table
        self.key = key
        self.work = work
        self.options = options
        self.session = cancellation.current()
        self.concurrency = ""  # of the transaction, where the statement leads
        self.matched = 0
        self.warnings: tuple[str, ...] = ()
        self.result: DmlResult | None = None

    def run(self, opened: TransactionTable) -> None:
        """Reads and writes in the transaction of the group; an error is that of the statement."""
        try:
            with cancellation.within(self.session), opened.undoing():
                cancellation.check()
                self.matched, _ = self.work(opened)
        except Exception as error:
            self.error = error
        self.warnings, opened.warnings = tuple(opened.warnings), []


def _run(statements: Sequence[_Statement]) -> None:
    """Runs statements of one table with the same options in one transaction."""
    table, options = statements[0].table, statements[0].options
    begun = statement_transaction(table, options, statements[0].concurrency)
    try:
        with begun as (transaction, opened):
            for statement in statements:
                statement.run(opened)
            if all(statement.error is not None for statement in statements):
                transaction.rollback("each of its statements failed")
                return
            done = transaction.commit()
    except CommitUnknownError:
        raise
    except StoreError as error:  # a conflict, or a row of one of them that a CHECK refuses
        if len(statements) == 1 and not (isinstance(error, ConflictError) and options.retries):
            raise
        for statement in statements:  # it runs alone
            statement.error = None
        return
    version = done.versions.get(table.name, opened.version)
    for statement in statements:
        found = statement.matched
        statement.result = DmlResult(done.txn_id, done.label, version, found, found, statement.warnings)


_groups: weakref.WeakKeyDictionary[LoadableTable, dict[DmlOptions, LedGroup[_Statement]]] = (
    weakref.WeakKeyDictionary()
)
_groups_lock: Final = new_lock()


def run_joined(table: LoadableTable, key: Key, work: Work, options: DmlOptions) -> DmlResult:
    """Runs a statement in one transaction with those that wait; see `run_statement`.

    Args:
        key: the statement reads and writes at most the row of this key; equal keys have equal values.
        work: changes the row if it matches, whatever its sequence is.

    Raises:
        ConflictError: alone, the statement met a conflict, and no retry is left.
        UnavailableError: another update held the lock for too long.
    """
    shared = replace(options, label_prefix=LABEL_PREFIX)
    statement = _Statement(table, key, work, shared)
    mode = update_mode(table.catalog, table.settings.enable_concurrent_update, options.concurrency)

    @contextmanager
    def locked() -> Iterator[None]:
        with lock_of_updates(table, options, mode) as statement.concurrency:
            yield

    _group_of(table, shared).join(statement, locked)
    if statement.result is not None:
        return statement.result
    return run_statement(table, work, options)


def _group_of(table: LoadableTable, options: DmlOptions) -> LedGroup[_Statement]:
    with _groups_lock:
        found = _groups.setdefault(table, {})
        if options not in found:
            if len(found) >= _OPTIONS_MAX:
                del found[next(iter(found))]
            found[options] = LedGroup(_run, _fitting)
        return found[options]


def _fitting(statements: Sequence[_Statement]) -> int:
    """Returns how many statements, the first ones, have different keys."""
    keys: set[Key] = set()
    for statement in statements:
        if statement.key in keys or len(keys) == _STATEMENTS_MAX:
            break
        keys.add(statement.key)
    return len(keys)
