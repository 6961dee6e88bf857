"""A transaction over several statements and tables of a database, atomic across them.

    with store.transaction(label="2024-05-01") as tx:
        orders = tx.table("shop.orders")
        total = orders.scan(["price"], pc.field("day") == day).read_all()
        orders.update({"state": "closed"}, where=pc.field("day") == day)
        tx.table("shop.days").upsert(rows)

1. It begins with a snapshot: the newest version of every table at one moment. All its reads see that,
   whatever others write meanwhile, and on it the transaction's own writes, where they win (X7).
2. Its reads are logged, its writes are staged. A statement that fails undoes only itself (X11).
3. `commit` checks the reads of every table against the commits of others since, then publishes one version on
   each table it wrote, at one commit point. Leaving the block commits; leaving it by an exception rolls back.
4. An expired transaction is rolled back at that moment, even during a statement (X13): a timer releases its
   locks, versions and label, and the next call of its owner raises. A lock keeps timer and owner apart;
   neither holds it while waiting for another transaction.

Statements of one transaction lie on each other in their order: of equal sequences the later one wins.
"""

from __future__ import annotations

import math
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog import transaction_record as transactions
from seqstore.store.catalog.app_ids import check_pair, find_app
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.failed_transaction import abort_failed, beginning
from seqstore.store.catalog.transaction_record import EXPIRED, TransactionRecord, TransactionStatus
from seqstore.store.catalog.update_lock import ConcurrencyMode, lock_directory, update_lock, update_mode
from seqstore.store.conflict.isolation import Isolation
from seqstore.store.errors import (
    ClosedError,
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    StoreError,
)
from seqstore.store.locks.file_lock import waiting_at_most
from seqstore.store.locks.lock_queue import LockOwner
from seqstore.store.publish.commit import Also, commit
from seqstore.store.publish.publish import TableWrite
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.publish.two_phase import precommit
from seqstore.store.read.store_snapshot import StoreSnapshot
from seqstore.store.runtime.forks import new_rlock
from seqstore.store.runtime.internal import internal
from seqstore.store.schema.properties import parse_isolation_level, stricter
from seqstore.store.settings import Settings
from seqstore.store.transaction.transaction_options import TransactionOptions
from seqstore.store.transaction.transaction_table import TransactionTable

if TYPE_CHECKING:
    from seqstore.store.load.loadable_table import LoadableTable


@dataclass(frozen=True)
class TransactionResult:
    """The outcome of a committed transaction.

    Attributes:
        versions: version it made on each table it wrote, by `db.table`.
        read_versions: version it read of each table it opened.
        rows_changed: rows that were inserted, changed or deleted in effect, all tables together.
        skipped: version that an earlier run with the same txnAppId made, by the `db.table` whose writes were
            left out therefore.
        warnings: for the caller: rows of updates without effect (U14), by table.
    """

    txn_id: int
    label: str
    versions: Mapping[str, int] = field(default_factory=dict)
    read_versions: Mapping[str, int] = field(default_factory=dict)
    rows_changed: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class Transaction:
    """Made by `Store.transaction`. Use from one thread, of the process that began it.

    Attributes:
        label: as given, or generated.
        operation: the word in the history that names its kind.
        moment: that it reads.
        reads_own_writes: whether a statement sees the writes of earlier ones.
    """

    @internal
    def __init__(
        self,
        catalog: Catalog,
        settings: Settings,
        find_table: Callable[[str], LoadableTable],
        options: TransactionOptions,
    ) -> None:
        self._is_idempotent = check_pair(options.txn_app_id, options.txn_version)
        self._catalog = catalog
        self._settings = settings
        self._find_table = find_table
        self._options = options
        self.operation = options.operation
        self.reads_own_writes = options.reads_own_writes
        self._isolation = parse_isolation_level(options.isolation) if options.isolation is not None else None
        self._tables: dict[str, TransactionTable] = {}
        self._modes: dict[int, ConcurrencyMode] = {}  # of the tables
        self._locks = ExitStack()
        self._locked: set[int] = set()
        self._updated: set[int] = set()  # tables with an UPDATE, DELETE or MERGE
        self._started = time.monotonic()
        self._begun_ms = transactions.now_ms()
        self._process = os.getpid()
        self._guard = new_rlock()
        self._is_open = True
        self._is_expired = False
        self._timer: threading.Timer | None = None
        if options.label is not None:
            self.label = transactions.check_label(options.label)
        else:
            self.label = f"{options.label_prefix}{uuid.uuid4()}"
        self._owner = LockOwner(self.label)
        self._record: TransactionRecord | None = None
        self._database = 0  # whose label it is until another is written, 0 for that of the first write
        self._has_write = False  # a statement began to write, whatever rows it found
        if options.database is not None:
            with catalog.read() as tx:
                self._database = records.require_database(tx, options.database)
        if self._database and options.label is not None:
            self._refuse_used_label(self._database)
        self.moment = StoreSnapshot(catalog, find_table)

    @property
    def is_open(self) -> bool:
        """Whether it can still be committed."""
        return self._is_open

    @property
    def has_written(self) -> bool:
        """Whether a statement has written anything that the commit would store."""
        return any(table.writes for table in self._tables.values())

    @property
    def txn_id(self) -> int:
        """The transaction's id, 0 before its first table is known."""
        return self._record.id if self._record is not None else 0

    @property
    def timeout_seconds(self) -> float | None:
        """The time after which it is rolled back, None for never (X13)."""
        return self._options.timeout_seconds

    def table(self, name: str) -> TransactionTable:
        """Returns a table as the transaction sees it.

        Raises:
            NotFoundError: no such table when the transaction began.
            InvalidInputError: written to a table of another database (X12); raised when writing.
            ClosedError: it has ended, or its time is up.
        """
        with self._guard:
            self._check_open()
            table = self._find_table(name)
            known = self._tables.get(table.name)
            if known is not None:
                return known
            if any(opened.base.id == table.id for opened in self._tables.values()):
                raise ConflictError(
                    f"{table.name}: ALTER TABLE .. REPLACE WITH TABLE has exchanged it with a table of the "
                    "transaction since that was read; run the transaction again",
                    table=table.name,
                )
            state, lease = self.moment.hold(table)
            by_default = self._settings.enable_concurrent_update
            mode = self._modes[table.id] = update_mode(self._catalog, by_default, self._options.concurrency)
            level = state.schema.isolation_level
            level = level if self._isolation is None else stricter(level, self._isolation)
            isolation = Isolation(table, state, level, is_unchecked=mode == ConcurrencyMode.UNCHECKED)
            if self._record is None:
                self._begin(self._database or table.database_id, table.name)
            app = None
            if self._is_idempotent:
                app = find_app(self._catalog, table.id, self._options.txn_app_id, self._options.txn_version)
            opened = self._tables[table.name] = TransactionTable(self, table, isolation, lease, app)
            if self._options.timeout_seconds is not None:
                self._watch()
            return opened

    def check_writable(self, database: int) -> None:
        """Checks X12. The label moves to the database that is written: earlier reads may be of another (X16).

        Raises:
            InvalidInputError: the transaction belongs to another database.
            LabelExistsError: its label was used there.
            ClosedError: it has ended, or its time is up.
        """
        with self._guard:
            self._check_open()
            tables = self._tables.values()
            if any(table.base.database_id != database and table.writes for table in tables):
                raise InvalidInputError(
                    "Transaction insert must be in the same database", kind="other_database"
                )
            assert self._record is not None
            if self._record.database != database:
                self._move(database)
            if self._options.label is not None and not self._record.id:
                self._store_record(database, self._record.table)
            self._has_write = True

    def _move(self, database: int) -> None:
        assert self._record is not None
        table = next(table.name for table in self._tables.values() if table.base.database_id == database)
        if not self._record.id:
            self._record = replace(self._record, database=database, table=table)
            return
        keep = self._settings.label_keep_seconds
        with self._catalog.write() as tx:
            moved = transactions.move(tx, self._record, database=database, table=table, keep_seconds=keep)
        self._record = moved

    def lock(self, table: TransactionTable, seconds: float | None = None) -> None:
        """Takes the update lock of a table until the end, if updates are serial; before every UPDATE, DELETE
        and MERGE.

        The snapshot was taken before, so an update published between the two is still a conflict.

        Args:
            seconds: how long to wait for it, None for the setting; 0 fails at once (U4).

        Raises:
            UnavailableError: it is not free in time.
            ConflictError: a deadlock, and this transaction is the youngest in it; it was rolled back.
            ClosedError: the transaction's time was up before.
        """
        table_id = table.base.id
        self._updated.add(table_id)
        if self._modes[table_id] == ConcurrencyMode.SERIAL:
            self._take_lock(table.base, seconds)

    @internal
    def lock_before_reading(self, name: str, seconds: float | None = None) -> None:
        """Takes the update lock of a table before the snapshot, if updates are serial; no-op once the
        transaction has opened a table.

        Raises:
            NotFoundError: no such table.
            UnavailableError: it is not free in time.
            ClosedError: the transaction's time was up before.
        """
        with self._guard:
            self._check_open()
            if self._tables:
                return
            table = self._find_table(name)
        mode = update_mode(self._catalog, self._settings.enable_concurrent_update, self._options.concurrency)
        if mode == ConcurrencyMode.SERIAL:
            self._take_lock(table, seconds)
        with self._guard:
            self._take_snapshot()

    @internal
    def reserve(self, table: str) -> None:
        """Takes the label, which needs the option `database`, before a table is known.

        Args:
            table: `db.table`, which may not be there yet.

        Raises:
            LabelExistsError: the label was used.
            ClosedError: the transaction's time was up before.
        """
        with self._guard:
            self._check_open()
            if self._record is None:
                self._begin(self._database, table)

    @internal
    def read_newest(self) -> None:
        """Takes another snapshot, which has the tables that were made since; no-op once a table is opened."""
        with self._guard:
            self._check_open()
            if not self._tables:
                self._take_snapshot()

    def _take_snapshot(self) -> None:
        before, self.moment = self.moment, StoreSnapshot(self._catalog, self._find_table)
        before.close()

    def _take_lock(self, table: LoadableTable, seconds: float | None) -> None:
        if table.id in self._locked:
            return
        seconds = self._settings.update_lock_seconds if seconds is None else seconds
        directory = lock_directory(self._catalog)
        try:
            with ExitStack() as taken:
                # Without the guard: the time may be over before the lock is free.
                taken.enter_context(update_lock(directory, table.id, seconds, self._owner, table.name))
                with self._guard:
                    self._check_open()
                    self._locks.enter_context(taken.pop_all())
                    self._locked.add(table.id)
        except ConflictError as deadlock:
            self.rollback(str(deadlock))  # the other one can go on
            raise

    def commit(self, also: Also | None = None) -> TransactionResult:
        """Publishes everything.

        Args:
            also: stores more in the same catalog transaction, see `publish.commit.commit`. With it a
                transaction that wrote nothing is committed too, so that its label stays taken.

        Raises:
            ConflictError: rows that were read have changed; nothing was applied, run the whole block again.
            ClosedError: it has ended, or its time is up.
        """
        with self._guard:
            self._check_open()
            record, written, writers = self._parts()
            if not written and also is None:
                self._commit_nothing()
                return self._result(self.txn_id)
            assert record is not None
            done, writes = self._publish(record, writers, also)
            return self._result(done.id, {name: done.versions[name] for name in written}, writes)

    def _commit_nothing(self) -> None:
        """Keeps the label if a statement wrote and found no rows (X16), unless an earlier run stored them.

        A transaction without such a statement leaves no label: reading must not take one.
        """
        if skipped := self._skipped():
            self._end(f"skipped: {', '.join(skipped)} had everything already (txnAppId, txnVersion)")
        elif not self._has_write:
            self._end("no statement wrote")
        elif self._record is None or not self._record.id:
            self._close()
        else:
            self._publish(self._record, [], None)

    def _publish(
        self, record: TransactionRecord, writers: Sequence[TableWriter], also: Also | None
    ) -> tuple[TransactionRecord, list[TableWrite]]:
        left = math.inf if self.timeout_seconds is None else self._started + self.timeout_seconds
        with self._ending(), waiting_at_most(left - time.monotonic()):
            return commit(
                self._catalog,
                record,
                writers,
                label_keep_seconds=self._settings.label_keep_seconds,
                started=self._started,
                also=also,
            )

    def precommit(self) -> TransactionResult:
        """Runs the first phase of a two-phase commit: everything is durable, nothing is visible (PC1).

        From now on any process may commit or abort the transaction, by its id or label
        (`Store.commit_transaction`, `Store.abort_transaction`). Its reads are checked when it is committed;
        update locks are released now, so that check may find a conflict. It expires after
        `precommitted_keep_seconds`.

        Returns:
            Its id and label; `versions` is empty, `rows_changed` is the count as of now.

        Raises:
            InvalidInputError: it has opened no table.
            ConflictError: rows that were read have changed; nothing is kept, run the whole block again.
            ClosedError: it has ended, or its time is up.
        """
        with self._guard:
            self._check_open()
            if self._record is None:
                raise InvalidInputError(
                    "a transaction without a table cannot be pre-committed", kind="bad_mode"
                )
            if not self._record.id:
                self._store_record(self._record.database, self._record.table)
            record, _, writers = self._parts()
            assert record is not None
            keep = self._settings.precommitted_keep_seconds
            with self._ending():
                done, writes = precommit(
                    self._catalog, record, writers, keep_seconds=keep, started=self._started
                )
            return self._result(done.id, {}, writes)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Closes the transaction after the block, and rolls it back when the block fails."""
        try:
            yield
        except CommitUnknownError:
            self._close()  # nothing may be removed: it may have happened
            raise
        except BaseException as error:
            self.rollback(str(error))
            raise
        self._close()

    def _parts(self) -> tuple[TransactionRecord | None, list[str], list[TableWriter]]:
        """Returns the record of its commit point, the names of the tables that are written, and the writers.

        Tables that were only read have a writer too, behind the others.
        """
        written: list[TransactionTable] = []
        others: list[TransactionTable] = []
        is_blind = True
        for table in self._tables.values():
            has_read, writes = table.isolation.has_read, table.writes
            is_blind &= not has_read
            if has_read or writes:
                (written if writes else others).append(table)
        tables = [*written, *others]
        for table in tables:
            table.writer.target = replace(table.writer.target, is_blind=is_blind)
            table.isolation.tables = len(tables)
        names, record = [table.name for table in written], self._record
        if record is not None and names:
            record = replace(record, table=names[0])
        return record, names, [table.writer for table in tables]

    @property
    @internal
    def writers(self) -> list[TableWriter]:
        """The writers of the tables that are written."""
        return [table.writer for table in self._tables.values() if table.writes]

    def _skipped(self) -> dict[str, int]:
        return {t.name: t.app.first_version for t in self._tables.values() if t.app and t.app.is_duplicate}

    def _result(
        self, txn_id: int, versions: Mapping[str, int] | None = None, writes: Sequence[TableWrite] = ()
    ) -> TransactionResult:
        counts = [write.metrics for write in writes]
        return TransactionResult(
            txn_id,
            self.label,
            versions or {},
            {table.name: table.version for table in self._tables.values()},
            sum(each.rows_loaded - each.rows_superseded - each.rows_late for each in counts),
            self._skipped(),
            tuple(
                lowered_warning(w.metrics.rows_late, f"{w.metrics.rows_loaded} rows written to {w.name}")
                for w in writes
                if w.metrics.rows_late and w.table_id in self._updated
            ),
        )

    def rollback(self, reason: str = "User Abort") -> None:
        """Ends it without a trace; its label is free again. A forked child leaves its parent's alone."""
        with self._guard:
            if self._process != os.getpid():
                self._is_open = False
                return
            if self._is_open:
                self._give_up(reason)
            elif self._is_expired:
                self._delete_files()  # of the statement that ran meanwhile

    def _give_up(self, reason: str) -> None:
        try:
            self._delete_files()
        finally:
            self._end(reason)

    def _delete_files(self) -> None:
        for table in self._tables.values():
            table.writer.delete_files()

    def _watch(self) -> None:
        """Starts the timer that ends the transaction; from now on it holds something to be released."""
        if self.timeout_seconds is None or self._timer is not None:
            return
        left = self._started + self.timeout_seconds - time.monotonic()
        seconds = min(max(left, 0), threading.TIMEOUT_MAX)
        self._timer = threading.Timer(seconds, _expire, [weakref.ref(self)])
        self._timer.daemon = True
        self._timer.start()
        # A transaction without references has released everything; its timer need not wait.
        weakref.finalize(self, _cancel, self._timer, self._process).atexit = False

    def expire(self) -> None:
        """Rolls it back because its time is over; no-op when it has ended. Called from any thread."""
        with self._guard:
            if self._is_open and self._process == os.getpid():
                self._is_expired = True
                self._give_up(EXPIRED)

    def _begin(self, database: int, table: str) -> None:
        """Takes the label in the database that the caller named, else when a statement writes."""
        if self._options.label is not None and self._database:
            self._store_record(database, table)
            return
        self._record = TransactionRecord(
            0, database, table, self.label, TransactionStatus.PREPARE, self.operation, self._begun_ms
        )

    def _store_record(self, database: int, table: str) -> None:
        with beginning(self._catalog, lambda: self._record), self._catalog.write() as tx:
            self._record = transactions.begin(
                tx,
                database=database,
                table=table,
                label=self.label,
                operation=self.operation,
                keep_seconds=self._settings.label_keep_seconds,
                begun_ms=self._begun_ms,
                timeout_seconds=self.timeout_seconds,
            )

    def _refuse_used_label(self, database: int) -> None:
        """Raises at once for a known database, not when the first table is opened."""
        with self._catalog.read() as tx:
            if transactions.find_label(tx, database, self.label) is None:
                return
        with self._catalog.write() as tx:
            transactions.refuse_used_label(tx, database, self.label, self._settings.label_keep_seconds)

    def _end(self, reason: str) -> None:
        record = self._record
        try:
            if record is not None and record.id:
                abort_failed(self._catalog, record, reason)
        finally:
            self._close()

    def _close(self) -> None:
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self._locks.close()
        self.moment.close()
        for table in self._tables.values():
            table.close()  # the tables refer to this transaction: only the garbage collector frees them

    def _check_open(self) -> None:
        timeout = self._options.timeout_seconds
        if self._process != os.getpid():
            raise ClosedError(f"transaction {self.label!r} was begun in another process; begin another here")
        if timeout is not None and time.monotonic() - self._started > timeout:
            self.expire()
        if self._is_expired:
            self._delete_files()  # of the statement that ran meanwhile
            raise ClosedError(
                f"transaction {self.label!r} was rolled back: it was open for more than "
                f"{timeout:g} seconds; begin another",
                kind="timeout",
            )
        if not self._is_open:
            raise ClosedError(f"transaction {self.label!r} has ended; begin another")

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.rollback(str(error) or type(error).__name__)
        elif self._is_open or self._is_expired:
            self.commit()


def lowered_warning(kept: int, rows: str) -> str:
    """Returns the warning of U14."""
    return (
        f"{kept} of {rows} keep their values: the assigned sequence is smaller than the stored one, so the "
        "stored row wins"
    )


def _expire(reference: weakref.ref[Transaction]) -> None:
    """Rolls an expired transaction back; the timer keeps no transaction alive."""
    transaction = reference()
    if transaction is not None:
        with suppress(StoreError, OSError):  # others see by its record that its time is over
            transaction.expire()


def _cancel(timer: threading.Timer, process: int) -> None:
    if process == os.getpid():  # a forked child has no such thread
        timer.cancel()
