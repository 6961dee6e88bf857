"""A transaction over several statements and tables of a database, atomic across them.

    with store.transaction(label="2024-05-01") as tx:
        orders = tx.table("shop.orders")
        total = orders.scan(["price"], pc.field("day") == day).read_all()
        orders.update({"state": "closed"}, where=pc.field("day") == day)
        tx.table("shop.days").upsert(rows)

1. It begins with a snapshot: the newest version of every table at one moment. All its reads see that,
   whatever it or others write meanwhile (X7: no statement sees what earlier ones of its transaction did).
2. What it reads is remembered, what it writes is staged. A statement that fails undoes only itself (X11).
3. `commit` checks the reads of every table against what others committed since, then publishes one version on
   each table it wrote, in one switch. Leaving the block commits; leaving it by an exception rolls back.

Statements of one transaction lie on each other in their order: of equal sequences the later one wins.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

from store import transaction as transactions
from store.app_ids import check_pair, find_app
from store.catalog import Catalog
from store.commit import Also, commit
from store.errors import ClosedError, CommitUnknownError, InvalidInputError
from store.isolation import Isolation, level_of, parse_level
from store.publish import TableWrite
from store.records import unpack
from store.settings import Settings
from store.table_writer import TableWriter
from store.transaction import ABORTED, PREPARE, TransactionRecord
from store.transaction_table import TransactionTable
from store.two_phase import precommit
from store.update_lock import SERIAL, UNCHECKED, lock_directory, update_lock, update_mode

if TYPE_CHECKING:
    from store.table import Table


@dataclass(frozen=True)
class TransactionResult:
    """What a committed transaction did.

    Attributes:
        versions: version it made on each table it wrote, by `db.table`.
        read_versions: version it read of each table it took part in.
        rows_changed: rows that were inserted, changed or deleted in effect, all tables together.
        skipped: version that an earlier run with the same txnAppId made, by the `db.table` whose writes were
            left out therefore.
    """

    txn_id: int
    label: str
    versions: Mapping[str, int] = field(default_factory=dict)
    read_versions: Mapping[str, int] = field(default_factory=dict)
    rows_changed: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)


class MultiTransaction:
    """Made by `Store.transaction`. Use from one thread.

    Attributes:
        label: as given, or generated.
        timeout_seconds: after which it cannot commit any more, None for never (X13).
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        find_table: Callable[[str], Table],
        *,
        isolation: str | None = None,
        label: str | None = None,
        label_prefix: str = "txn_",
        operation: str = "TRANSACTION",
        concurrency: str | None = None,
        timeout_seconds: float | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> None:
        check_pair(txn_app_id, txn_version)
        self._app = (txn_app_id, txn_version)
        self._catalog = catalog
        self._settings = settings
        self._find_table = find_table
        self._isolation = parse_level(isolation) if isolation is not None else None
        self._operation = operation
        self._concurrency = concurrency
        self._tables: dict[str, TransactionTable] = {}
        self._locks = ExitStack()
        self._locked: set[int] = set()
        self._started = time.monotonic()
        self._is_open = True
        self.timeout_seconds = timeout_seconds
        self.label = transactions.check_label(label) if label is not None else f"{label_prefix}{uuid.uuid4()}"
        self._has_own_label = label is not None
        self._record: TransactionRecord | None = None
        with catalog.read() as tx:
            self._heads = {int.from_bytes(key): int(unpack(raw)[0]) for key, raw in tx.items("heads")}

    @property
    def is_open(self) -> bool:
        """Whether it can still be committed."""
        return self._is_open

    @property
    def txn_id(self) -> int:
        """The transaction's id, 0 before its first table is known."""
        return self._record.id if self._record is not None else 0

    @property
    def operation(self) -> str:
        """What history calls it."""
        return self._operation

    def table(self, name: str) -> TransactionTable:
        """A table as the transaction sees it.

        Raises:
            NotFoundError: no such table when the transaction began.
            InvalidInputError: written to a table of another database (X12); raised when writing.
        """
        self._check_open()
        table = self._find_table(name)
        known = self._tables.get(table.name)
        if known is not None:
            return known
        state, lease = table.hold(self._heads.get(table.id))
        mode = update_mode(self._catalog, self._settings.enable_concurrent_update, self._concurrency)
        isolation = Isolation(
            table, state, level_of(state.schema, self._isolation), is_unchecked=mode == UNCHECKED
        )
        if self._record is None:
            self._begin(table.database_id, table.name)
        app = find_app(self._catalog, table.id, *self._app)
        opened = self._tables[table.name] = TransactionTable(self, table, isolation, lease, app)
        return opened

    def check_writable(self, database: int) -> None:
        """X12.

        Raises:
            InvalidInputError: the transaction belongs to another database.
        """
        self._check_open()
        assert self._record is not None
        written = [t for t in self._tables.values() if t.writer.has_written]
        if written and written[0].base.database_id != database:
            raise InvalidInputError("Transaction insert must be in the same database", kind="other_database")

    def lock(self, table: TransactionTable) -> None:
        """Takes the update lock of a table until the end, if updates are serial.

        The snapshot was taken before, so an update published between the two is still a conflict.

        Raises:
            UnavailableError: it is not free in time.
        """
        settings = self._settings
        mode = update_mode(self._catalog, settings.enable_concurrent_update, self._concurrency)
        table_id = table.base.id
        if mode != SERIAL or table_id in self._locked:
            return
        seconds = settings.update_lock_seconds
        self._locks.enter_context(update_lock(lock_directory(self._catalog), table_id, seconds))
        self._locked.add(table_id)

    def commit(self, also: Also | None = None) -> TransactionResult:
        """Publishes everything.

        Args:
            also: what becomes durable with the rows, or not at all, see `store.commit.commit`. With it a
                transaction that wrote nothing is committed too, so that its label stays taken.

        Raises:
            ConflictError: what was read has changed; nothing was applied, run the whole block again.
            ClosedError: it has ended, or its time is up.
        """
        self._check_open()
        written, read_versions, skipped = self._outline()
        if not written and also is None:
            self._end("nothing was written")
            return TransactionResult(self.txn_id, self.label, {}, read_versions, skipped=skipped)
        record, writers = self._parts()
        try:
            done, writes = commit(
                self._catalog,
                record,
                writers,
                label_keep_seconds=self._settings.label_keep_seconds,
                elapsed=self._elapsed,
                also=also,
            )
        except CommitUnknownError:
            self._close()  # nothing may be removed: the versions may be there
            raise
        except BaseException as error:
            self.rollback(str(error))
            raise
        self._close()
        versions = {table.name: done.versions[table.name] for table in written}
        return TransactionResult(done.id, done.label, versions, read_versions, _changed(writes), skipped)

    def precommit(self) -> TransactionResult:
        """First phase of a two-phase commit: everything is durable, nothing is visible (PC1).

        From now on any process may commit or abort the transaction, by its id or label
        (`Store.commit_transaction`, `Store.abort_transaction`). What it read is checked when it is committed;
        update locks are given back now, so that check may find a conflict. It expires after
        `precommitted_keep_seconds`.

        Returns:
            Its id and label; `versions` is empty, `rows_changed` what it would be now.

        Raises:
            InvalidInputError: it took part in no table.
            ConflictError: what was read has changed; nothing is kept, run the whole block again.
            ClosedError: it has ended, or its time is up.
        """
        self._check_open()
        _, read_versions, skipped = self._outline()
        if self._record is None:
            raise InvalidInputError("a transaction without a table cannot be pre-committed", kind="bad_mode")
        if not self._record.id:
            self._store_record(self._record)
        record, writers = self._parts()
        try:
            done, writes = precommit(
                self._catalog,
                record,
                writers,
                keep_seconds=self._settings.precommitted_keep_seconds,
                elapsed=self._elapsed,
            )
        except CommitUnknownError:
            self._close()  # nothing may be removed: it may be pre-committed
            raise
        except BaseException as error:
            self.rollback(str(error))
            raise
        self._close()
        return TransactionResult(done.id, done.label, {}, read_versions, _changed(writes), skipped)

    def _outline(self) -> tuple[list[TransactionTable], dict[str, int], dict[str, int]]:
        """Tables that are written, version read of each table, and what is left out of which."""
        opened = self._tables.values()
        return (
            [table for table in opened if table.takes_part and table.writes],
            {table.name: table.version for table in opened},
            {t.name: t.app.first_version for t in opened if t.app and t.is_skipped},
        )

    def _parts(self) -> tuple[TransactionRecord, list[TableWriter]]:
        """The transaction, and all that goes into its switch, tables that are written first."""
        tables = [table for table in self._tables.values() if table.takes_part]
        is_blind = not any(table.isolation.has_read for table in tables)
        for table in tables:
            table.writer.is_blind = is_blind
            table.isolation.tables = len(tables)
        assert self._record is not None
        ordered = sorted(tables, key=lambda table: not table.writes)
        written = [table for table in ordered if table.writes]
        record = replace(self._record, table=written[0].name) if written else self._record
        return record, [table.writer for table in ordered]

    def _elapsed(self) -> int:
        return round((time.monotonic() - self._started) * 1000)

    def rollback(self, reason: str = "User Abort") -> None:
        """Ends it without a trace; its label is free again."""
        if not self._is_open:
            return
        for table in self._tables.values():
            table.writer.delete_files()
        self._end(reason)

    def _begin(self, database: int, table: str) -> None:
        record = TransactionRecord(
            0, database, table, self.label, PREPARE, self._operation, transactions.now_ms()
        )
        if not self._has_own_label:
            self._record = record
            return
        self._store_record(record)

    def _store_record(self, record: TransactionRecord) -> None:
        with self._catalog.write() as tx:
            self._record = transactions.begin(
                tx,
                database=record.database,
                table=record.table,
                label=self.label,
                operation=self._operation,
                keep_seconds=self._settings.label_keep_seconds,
            )

    def _end(self, reason: str) -> None:
        record = self._record
        if record is not None and record.id:
            aborted = replace(record, status=ABORTED, finished_ms=transactions.now_ms(), reason=reason)
            with self._catalog.write() as tx:
                transactions.put_transaction(tx, aborted)
        self._close()

    def _close(self) -> None:
        self._is_open = False
        self._locks.close()
        for table in self._tables.values():
            table.let_go()  # they refer to this transaction, so they go with the garbage collector only

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError(f"transaction {self.label!r} has ended; begin another")
        if self.timeout_seconds is not None and time.monotonic() - self._started > self.timeout_seconds:
            self.rollback("timeout by txn manager")
            raise ClosedError(
                f"transaction {self.label!r} was rolled back: it was open for more than "
                f"{self.timeout_seconds:g} seconds; begin another",
                kind="timeout",
            )

    def __enter__(self) -> MultiTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.rollback(str(error) or type(error).__name__)
        elif self._is_open:
            self.commit()


def _changed(writes: Sequence[TableWrite]) -> int:
    """Rows on which a transaction takes effect."""
    return sum(w.figures.rows_loaded - w.figures.rows_superseded - w.figures.rows_late for w in writes)
