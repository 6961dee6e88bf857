"""The transaction of a session: begun by BEGIN, or by its next statement while autocommit is off.

1. With autocommit on, a statement outside of BEGIN .. COMMIT is a transaction of its own.
2. With autocommit off, the first statement that reads or writes a stored table begins a transaction, whose
   snapshot is that of the statement. COMMIT and ROLLBACK end it. A statement that may not stand in a
   transaction, such as CREATE TABLE, commits it first, and so does BEGIN.
   `autocommit_off_begins_transaction = false` leaves each statement a transaction of its own, as Doris does.
3. Isolation level and access mode are variables of the session. SET TRANSACTION without a scope sets them for
   the next transaction alone, which may be one statement.
4. A savepoint is a name in a transaction that has written nothing. ROLLBACK TO it has nothing to undo, and is
   refused once the transaction has written: statements before the end cannot be undone together.
"""

from __future__ import annotations

import uuid
from typing import Final

from seqstore.store.errors import ConflictError, InvalidInputError
from seqstore.store.runtime.internal import internal
from seqstore.store.sql.session import variables as names
from seqstore.store.sql.session.variables import Variables
from seqstore.store.store import Store
from seqstore.store.transaction.transaction import Transaction, TransactionResult
from seqstore.store.transaction.transaction_table import TransactionTable

_LABEL_PREFIX: Final = "txn_insert_"


def refused_in_transaction() -> InvalidInputError:
    """Builds the error for a statement that may not stand in a transaction (X12)."""
    return InvalidInputError(
        "This is in a transaction, only insert, update, delete, commit, rollback is acceptable",
        kind="in_transaction",
    )


class SessionTransaction:
    """Begins and ends the transactions of one session.

    Attributes:
        current: the open one, else None.
        is_implicit: no BEGIN began it.
        is_read_only: it refuses statements that write.
        savepoints: their names, the oldest first, in lower case.
    """

    @internal
    def __init__(self, store: Store, variables: Variables) -> None:
        self.current: Transaction | None = None
        self.is_implicit = False
        self.is_read_only = False
        self.savepoints: list[str] = []
        self._store = store
        self._variables = variables
        self._next: dict[str, str] = {}  # of the next transaction alone

    def set_autocommit(self, value: str | None) -> None:
        """Sets the variable; a change from off to on commits the open transaction.

        Raises:
            ConflictError: that transaction met one; it is rolled back, and autocommit stays off.
        """
        before = self._variables.autocommit
        self._variables.set(names.AUTOCOMMIT, value)
        if before or not self._variables.autocommit:
            return
        try:
            self.commit()
        except BaseException:
            self._variables.set(names.AUTOCOMMIT, "false")
            raise

    def set_next(self, name: str, value: str) -> None:
        """Sets a characteristic of the next transaction alone.

        Raises:
            InvalidInputError: a transaction is open, or no such value.
        """
        if self.current is not None:
            raise InvalidInputError(
                "Transaction characteristics can't be changed while a transaction is in progress",
                kind="characteristics",
            )
        self._next[name] = names.checked_value(name, value)

    def isolation(self) -> str | None:
        """Returns the isolation level of a transaction that begins now, None for that of each table."""
        level = self._next.pop(names.TRANSACTION_ISOLATION, None)
        return names.ISOLATION_LEVELS.get(level or self._variables.values[names.TRANSACTION_ISOLATION])

    def _is_next_read_only(self) -> bool:
        value = self._next.get(names.TRANSACTION_READ_ONLY)
        return value == "true" if value is not None else names.TRANSACTION_READ_ONLY in self._variables.on

    def begin(
        self, *, label: str | None = None, database: str | None = None, is_read_only: bool | None = None
    ) -> Transaction:
        """Begins a transaction by BEGIN; one that is open already stays (X10), unless it is implicit.

        Args:
            database: of the label.
            is_read_only: None for the session's mode.
        """
        if self.current is not None and self.is_implicit:
            self.commit()
        if self.current is None:
            label = label or f"{_LABEL_PREFIX}{uuid.uuid4().hex}"
            self._begin(label, database, is_read_only=is_read_only, is_implicit=False)
        assert self.current is not None
        return self.current

    def begin_implicitly(self) -> None:
        """Begins the transaction of the next statement, unless one is open or autocommit is on.

        Its label is stored with its rows: one that only reads leaves no trace in the catalog.
        """
        if self.current is None and not self._variables.autocommit:
            self._begin(None, None, is_read_only=None, is_implicit=True)

    def _begin(
        self, label: str | None, database: str | None, *, is_read_only: bool | None, is_implicit: bool
    ) -> None:
        variables = self._variables
        timeout = max(float(variables.values[name]) for name in (names.INSERT_TIMEOUT, names.QUERY_TIMEOUT))
        app_id, version = variables.take_app_pair()
        read_only = self._is_next_read_only() if is_read_only is None else is_read_only
        self.current = self._store.transaction(
            label=label,
            label_prefix=_LABEL_PREFIX,
            timeout_seconds=timeout,
            txn_app_id=app_id,
            txn_version=version,
            database=database,
            isolation=self.isolation(),
            reads_own_writes=names.READS_OWN_WRITES in variables.on,
        )
        self.is_implicit, self.is_read_only = is_implicit, read_only
        self.savepoints.clear()
        self._next.clear()

    def check_writable(self) -> None:
        """Refuses a statement that writes in a read-only transaction.

        Raises:
            InvalidInputError: the transaction, or the session outside of one, only reads.
        """
        is_read_only = self.is_read_only if self.current is not None else self._is_next_read_only()
        if self.current is None:
            self._next.pop(names.TRANSACTION_READ_ONLY, None)
        if is_read_only:
            raise InvalidInputError(
                "Cannot execute statement in a READ ONLY transaction.", kind="read_only_transaction"
            )

    def set_savepoint(self, name: str) -> None:
        """Sets a savepoint; one of that name moves here.

        Raises:
            InvalidInputError: no transaction is open, or it has written.
        """
        self._refuse_undoing("SAVEPOINT")
        self.savepoints = [*(known for known in self.savepoints if known != name.lower()), name.lower()]

    def rollback_to(self, name: str) -> None:
        """Returns to a savepoint, behind which nothing was written; later ones are forgotten.

        Raises:
            InvalidInputError: no transaction is open, it has written, or it has no such savepoint.
        """
        self._refuse_undoing("ROLLBACK TO SAVEPOINT")
        del self.savepoints[self._place_of(name) + 1 :]

    def release_savepoint(self, name: str) -> None:
        """Forgets a savepoint and those behind it.

        Raises:
            InvalidInputError: no transaction is open, or it has no such savepoint.
        """
        if self.current is None or not self.savepoints:
            self._refuse_undoing("RELEASE SAVEPOINT")
        del self.savepoints[self._place_of(name) :]

    def _place_of(self, name: str) -> int:
        if name.lower() not in self.savepoints:
            raise InvalidInputError(f"SAVEPOINT {name} does not exist", kind="unknown_savepoint")
        return self.savepoints.index(name.lower())

    def _refuse_undoing(self, words: str) -> None:
        if self.current is None or self.current.has_written:
            where = "outside of a transaction" if self.current is None else "after a write of the transaction"
            raise InvalidInputError(
                f"{words} is not supported {where}: a statement that fails undoes only itself; ROLLBACK "
                "undoes the whole transaction",
                kind="not_supported",
            )

    def end_for(self) -> None:
        """Commits the transaction for a statement that may not stand in one, as MySQL does.

        Raises:
            InvalidInputError: it was begun by BEGIN (X12).
        """
        if self.current is None:
            return
        if not self.is_implicit:
            raise refused_in_transaction()
        self.commit()

    def commit(self) -> TransactionResult | None:
        """Commits the open transaction; returns None without one. It has ended whatever happens."""
        transaction, self.current = self.current, None
        return transaction.commit() if transaction is not None else None

    def rollback(self, reason: str = "User Abort") -> Transaction | None:
        """Rolls the open transaction back and returns it."""
        transaction, self.current = self.current, None
        if transaction is not None:
            transaction.rollback(reason)
        return transaction

    def lock_first(self, table: str, seconds: float | None) -> None:
        """Takes the update lock of a table before the snapshot, for the first statement of an implicit
        transaction.

        Like a statement that is a transaction of its own it reads what the update before it wrote.

        Raises:
            UnavailableError: it is not free in time.
        """
        if self.current is not None and self.is_implicit:
            self.current.lock_before_reading(table, seconds)

    def lock(self, table: TransactionTable, seconds: float | None) -> None:
        """Takes the update lock of a table for a statement of the transaction.

        Raises:
            UnavailableError: it is not free in time.
            ConflictError: a deadlock; the transaction is rolled back.
        """
        assert self.current is not None
        try:
            self.current.lock(table, seconds)
        except ConflictError:
            self.current = None
            raise
