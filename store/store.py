"""The store: one data directory, its databases and tables.

    DATA_DIR/catalog/              LMDB, with the one commit point (catalog.catalog)
    DATA_DIR/tables/<table id>/    segment files (segment.segment)

Any number of processes of one host may have a directory open at once. A store handle is safe to share
between threads.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar, Unpack, overload

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.backup.backups import Backups, Restored
from seqstore.store.catalog import catalog as records
from seqstore.store.catalog import table_records
from seqstore.store.catalog.accounts import Accounts
from seqstore.store.catalog.environment import Catalog
from seqstore.store.catalog.label_retention import clean_labels
from seqstore.store.catalog.segment_place import segment_place
from seqstore.store.catalog.transaction_record import (
    TransactionRecord,
    TransactionStatus,
    abandoned_reason,
    abort_abandoned,
    find_label,
    read_transaction,
)
from seqstore.store.catalog.workload_groups import WorkloadGroups
from seqstore.store.ddl import named_databases, named_tables
from seqstore.store.ddl.filled_tables import drop_abandoned
from seqstore.store.ddl.named_tables import FoundTable
from seqstore.store.ddl.schema_changes import SchemaChanges
from seqstore.store.ddl.views import Views
from seqstore.store.dropped_files import DroppedFiles
from seqstore.store.errors import (
    ClosedError,
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnavailableError,
)
from seqstore.store.failover.follower import Follower
from seqstore.store.failover.replica import is_copy
from seqstore.store.failover.shipping import Shipping
from seqstore.store.load.load import LoadResult
from seqstore.store.locks.file_lock import waiting_at_most
from seqstore.store.maintenance.compaction_process import CompactionProcess
from seqstore.store.maintenance.recovery import sweep_orphans
from seqstore.store.maintenance.scheduler import Maintainer
from seqstore.store.open_table.open_table import LOGS, remove_open_files, require_openable
from seqstore.store.open_table.opener import Opener
from seqstore.store.publish.two_phase import USER_ABORT, abort_transaction, commit_prepared, sweep_prepared
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.read.store_snapshot import StoreSnapshot
from seqstore.store.read.table_state import StateLoader
from seqstore.store.runtime.internal import internal
from seqstore.store.runtime.retry import retried
from seqstore.store.schema import properties
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.object_disk import ObjectDisk
from seqstore.store.settings import Settings
from seqstore.store.table import Table
from seqstore.store.table_handles import TableHandles
from seqstore.store.transaction.transaction import Transaction, TransactionResult
from seqstore.store.transaction.transaction_options import TransactionArguments, TransactionOptions

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
_SWEEP_WAIT_SECONDS: Final = 0.5
_connector: list[Callable[..., Store]] = []


def use_connector(connect: Callable[..., Store]) -> None:
    """Registers the function behind `Store.connect`; its module stands above the store."""
    _connector[:] = [connect]


class Store:
    """An open data directory; `Store.open` makes one.

    Attributes:
        path: the data directory.
        settings: sizes and times it works with.
        accounts: its users.
        workload_groups: limits of their statements.
        views: its views, which are queries under a name.
        maintainer: the threads that compact tables after loads.
        opener: the thread that shows versions of open tables to readers of other formats.
        schema_changes: changes of its tables, and the jobs that write rows anew.
        backups: copies of its tables elsewhere, and the jobs that make and restore them.
        shipping: of its catalog to another place, from which another host can take over.
        follower: keeps a copy of a leader's catalog up to date; None for a store of its own.
    """

    def __init__(
        self, path: Path, settings: Settings, segments: str | None = None, follow: str | None = None
    ) -> None:
        self.path = path
        self.settings = settings
        self.catalog = Catalog(path / "catalog", settings)
        self.follower = Follower(follow, self.catalog, settings) if follow is not None else None
        self.disk = self._open_disk(segments)
        self.accounts = Accounts(self.catalog)
        self.workload_groups = WorkloadGroups(self.catalog)
        self.views = Views(self.catalog)
        process = CompactionProcess(path.absolute(), settings) if settings.compaction_process else None
        self.maintainer = Maintainer(process)
        self.opener = Opener()
        self._handles = TableHandles(self.catalog, self._made, self._forget)
        self._is_open = True
        self._own_copy: Path | None = None
        self._dropped = DroppedFiles(path, self.catalog, self.disk)
        self.schema_changes = SchemaChanges(self.catalog, self.table_of_id, settings)
        restored = Restored(self._show_restored, self._remove_files)
        self.backups = Backups(self.catalog, self.disk, settings, restored)
        self.shipping = Shipping(self.catalog, self.disk)
        with self.catalog.read() as tx:
            self._is_copy = is_copy(tx)
        if not self._is_copy:  # the files are the leader's to remove
            self._sweep()
            self._show_left()
            self.shipping.resume()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = True,
        settings: Settings | None = None,
        segments: str | None = None,
        mode: str = "rw",
        follow: str | None = None,
    ) -> Store:
        """Opens a data directory, or the copy of a store that ships its catalog.

        Args:
            path: the directory; with the mode `r`, where the catalog is shipped to, such as
                `s3://bucket/prefix`: the copy is in a temporary directory, and `close` removes it.
            create: make the directory when there is none.
            segments: URI of an object store for segment files, such as `s3://bucket/prefix`
                (segment.object_disk). Named once, while the store has no tables; the catalog remembers it.
            mode: `rw`, or `r` for a follower, which reads versions as they are shipped.
            follow: where the catalog of the leader is shipped to: the directory has a lasting copy of it.

        Raises:
            NotFoundError: no such directory, and `create` is False.
            FormatError: the directory holds something else, or a newer program wrote it.
            InvalidInputError: the segments of this store are elsewhere.
        """
        if mode == "r":
            return cls._following(str(path), settings or Settings())
        if mode != "rw":
            raise InvalidInputError(f"mode {mode!r}: expected 'rw' or 'r'", kind="bad_mode")
        path = Path(path)
        if follow is not None:
            return cls(path, settings or Settings(), follow=follow)
        if not create and not (path / "catalog" / "data.mdb").exists():
            raise NotFoundError(f"{path}: no store here; check the path or create it", kind="no_store")
        return cls(path, settings or Settings(), segments)

    @classmethod
    def _following(cls, source: str, settings: Settings) -> Store:
        copy = Path(tempfile.mkdtemp(prefix="seqstore-follow-"))
        try:
            store = cls(copy / "store", settings, follow=source)
        except BaseException:
            shutil.rmtree(copy, ignore_errors=True)
            raise
        store._own_copy = copy
        return store

    @staticmethod
    def connect(
        url: str, *, user: str = "root", password: str = "", certificates: str | Path | None = None
    ) -> Store:
        """Connects to a store elsewhere, which a server has open (`seqstore serve` with `flight_port`).

        The result has the calls of a store that was opened. Those that need its files or its catalog are
        refused by name.

        Args:
            url: `seqstore://host:port`, with encryption `seqstore+tls://host:port`.
            user, password: of the store; every call needs the privileges of the user.
            certificates: file of the authorities that are trusted, in PEM; None means those of the system.

        Raises:
            UnavailableError: no server answers.
            AccessDeniedError: no such user, or another password.
            InvalidInputError: the URL is none of a store.
        """
        return _connector[0](url, user=user, password=password, certificates=certificates)

    def _sweep(self) -> None:
        """Removes what ended processes left; that needs the write lock, and reading does not wait for it."""
        try:
            with waiting_at_most(_SWEEP_WAIT_SECONDS):
                sweep_prepared(self.catalog, self.disk)
                drop_abandoned(self.catalog)
                sweep_orphans(self.catalog, self.disk)
                self.schema_changes.resume()
                self.backups.resume()
        except UnavailableError as error:
            _LOG.warning("%s: files of ended processes are left to the next sweep: %s", self.path, error)
        except CorruptionError as error:
            _LOG.error("%s: the catalog is damaged, and no file is removed: %s", self.path, error)

    def _show_left(self) -> None:
        """Has the versions shown that ended processes did not show."""
        try:
            with self.catalog.read() as tx:
                waiting = set(table_records.tables_with(tx, properties.OPEN_FORMATS))
            tables = self.disk.path(records.TABLES)
            logs = [path for log in LOGS.values() for path in tables.glob(f"*/{log}")]
            waiting |= {int(path.parent.name) for path in logs if path.parent.name.isdecimal()}
            for table_id in waiting:
                try:
                    table = self.table_of_id(table_id)
                    self.opener.published(table, max(table.schema.open_every_seconds, 1))
                except NotFoundError:
                    remove_open_files(self.disk, f"{records.TABLES}/{table_id}")
        except StoreError as error:
            _LOG.warning("%s: versions are not shown to other readers yet: %s", self.path, error)

    def databases(self) -> list[str]:
        """Returns the names of the databases, sorted."""
        with self._read() as tx:
            return named_databases.database_names(tx)

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Makes a database.

        Raises:
            AlreadyExistsError: it exists, and `if_not_exists` is False.
            InvalidInputError: the name is not legal.
        """
        with self._write() as tx:
            named_databases.create_database(tx, name, if_not_exists=if_not_exists)

    def drop_database(self, name: str, *, if_exists: bool = False) -> None:
        """Removes a database, its tables and its views.

        Raises:
            NotFoundError: no such database, and `if_exists` is False.
        """
        with self._write() as tx:
            dropped = named_databases.drop_database(tx, name, if_exists=if_exists)
        for directory in dropped:
            self._remove_files(directory)

    def tables(self, database: str) -> list[str]:
        """Returns the names of a database's tables, sorted.

        Raises:
            NotFoundError: no such database.
        """
        with self._read() as tx:
            return named_tables.table_names(tx, database)

    def create_table(
        self,
        name: str,
        schema: TableSchema,
        *,
        if_not_exists: bool = False,
        filler: tuple[int, int] | None = None,
    ) -> Table:
        """Makes an empty table; its version is 1.

        Args:
            name: `database.table`.
            schema: from `TableSchema.create` or `TableSchema.from_arrow`.
            filler: of `ddl.filled_tables`.

        Raises:
            NotFoundError: no such database.
            AlreadyExistsError: the table exists, and `if_not_exists` is False; or a view has its name.
            ProtocolChangedException: another transaction created it during the call, and `if_not_exists` is
                False.
        """
        with self._read() as tx:
            named_tables.check_new_table(tx, name, if_not_exists=if_not_exists)
        require_openable(schema, self.disk)
        with self._write() as tx:
            made = named_tables.create_table(tx, name, schema, if_not_exists=if_not_exists, filler=filler)
        table = self._handles.of(made)
        table.published(schema)
        return table

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Removes a table, its rows and its history.

        Raises:
            NotFoundError: no such table, and `if_exists` is False.
            InvalidInputError: it is a view.
        """
        self.drop_tables([name], if_exists=if_exists)

    @internal
    def drop_tables(self, names: Iterable[str], *, if_exists: bool = False) -> None:
        """Removes several tables at once, or none where one fails, as `drop_table` does."""
        with self._write() as tx:
            dropped = [named_tables.drop_table(tx, name, if_exists=if_exists) for name in names]
        for directory in filter(None, dropped):
            self._remove_files(directory)

    def rename_table(self, name: str, new_name: str) -> None:
        """Gives a table another name in its database; writes that have begun go on.

        Args:
            name: `database.table`.
            new_name: without the database.

        Raises:
            NotFoundError: no such database or table.
            AlreadyExistsError: a table or view has the new name.
            InvalidInputError: it is a view, or the new name is none.
        """
        with self._write() as tx:
            named_tables.rename_table(tx, name, new_name)

    def replace_table(self, name: str, other: str, *, swap: bool = True) -> None:
        """Gives a table rows, schema and history of another one of its database, at one commit point.

        Writes that have begun stay with the rows they began on, whatever their name is then.

        Args:
            name, other: `database.table`.
            swap: `other` receives those of `name`; else they are removed, and with them the name `other`.

        Raises:
            NotFoundError: no such database or table.
            InvalidInputError: one is a view, both are the same, or they are of two databases.
        """
        with self._write() as tx:
            dropped = named_tables.replace_table(tx, name, other, swap=swap)
        if dropped is not None:
            self._remove_files(dropped)

    def table(self, name: str) -> Table:
        """Returns the handle of a table.

        Raises:
            NotFoundError: no such database or table.
            InvalidInputError: it is a view.
        """
        self._check_open()
        return self._handles.of(
            self.catalog.recall((Table, name), partial(named_tables.find_table, name=name))
        )

    def _made(self, found: FoundTable) -> Table:
        """Returns a new handle."""
        loader = StateLoader(found.id, found.record["directory"], self.disk)
        table = Table(found.name, found.id, found.database, loader, self.catalog, self.settings)
        table.maintainer = self.maintainer
        table.shown_by(self.opener)
        return table

    def _forget(self, tables: Collection[int]) -> None:
        """Forgets dropped tables, given by id, beside their handles."""
        self.maintainer.forget(tables)
        self.opener.forget(tables)

    def table_of_id(self, table_id: int) -> Table:
        """Returns the handle of a table by its id, which a rename does not change.

        Raises:
            NotFoundError: it was dropped.
        """
        with self._read() as tx:
            found = named_tables.find_table_by_id(tx, table_id)
        return self._handles.of(found)

    def commit_transaction(
        self, database: str, *, txn_id: int | None = None, label: str | None = None
    ) -> TransactionRecord:
        """Makes a pre-committed transaction visible, in any process and at any later time (PC2, C18).

        Its version is taken now (PC9). A commit that fails leaves the transaction pre-committed.

        Args:
            txn_id, label: one of both.

        Returns:
            The transaction; `version` is the one it made.

        Raises:
            NotFoundError: the database has no such transaction.
            InvalidInputError: it is not pre-committed but has `.status`; VISIBLE means done (PC7).
            ConflictError: the table's schema changed since; abort it.
            CommitUnknownError: the outcome is not known.
        """
        self._check_open()
        return commit_prepared(
            self.catalog,
            self.table_of_id,
            database,
            txn_id=txn_id,
            label=label,
            label_keep_seconds=self.settings.label_keep_seconds,
        )

    def abort_transaction(
        self,
        database: str,
        *,
        txn_id: int | None = None,
        label: str | None = None,
        reason: str = USER_ABORT,
    ) -> TransactionRecord:
        """Gives up a transaction that runs or is pre-committed; its label is free at once (X16, X20).

        A load that still runs somewhere learns of it when it commits.

        Raises:
            NotFoundError: the database has no such transaction.
            InvalidInputError: it is visible or aborted, see `.status`.
        """
        self._check_open()
        return abort_transaction(self.catalog, self.disk, database, txn_id=txn_id, label=label, reason=reason)

    def upsert(self, name: str, data: Any, **options: Any) -> LoadResult:
        """Upserts rows into a table by name, as `Table.upsert` does."""
        return self.table(name).upsert(data, **options)

    def scan(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        version: int | None = None,
    ) -> pa.RecordBatchReader:
        """Scans a table by name, as `Table.scan` does."""
        return self.table(name).scan(columns, filter, version)

    def get(
        self, name: str, keys: Any, columns: Sequence[str] | None = None, version: int | None = None
    ) -> pa.Table:
        """Looks up rows of a table by name, as `Table.get` does."""
        return self.table(name).get(keys, columns, version)

    @overload
    def snapshot(self, name: str, version: int | None = None) -> Snapshot: ...

    @overload
    def snapshot(self) -> StoreSnapshot: ...

    def snapshot(self, name: str | None = None, version: int | None = None) -> Snapshot | StoreSnapshot:
        """Opens a table for reading, as `Table.snapshot` does; without a name all tables as of one moment."""
        if name is not None:
            return self.table(name).snapshot(version)
        self._check_open()
        return StoreSnapshot(self.catalog, self.table)

    def find_transaction(
        self, database: str, label: str | None = None, *, txn_id: int | None = None
    ) -> TransactionRecord | None:
        """Returns the newest transaction of a label, or the transaction of an id; None
        for a label never used.

        Raises:
            NotFoundError: no such database.
            UnavailableError: the transaction was to be shipped before it is acknowledged, and cannot be.
        """
        with self._read() as tx:
            database_id = records.require_database(tx, database)
            if label is not None:
                found = find_label(tx, database_id, label)
            else:
                found = read_transaction(tx, txn_id) if txn_id is not None else None
        if found is None or found.database != database_id:
            return None
        if found.status != TransactionStatus.PREPARE:
            self.catalog.require_shipped()
        if self._is_copy or not abandoned_reason(found):
            return found
        with self._write() as tx:
            return abort_abandoned(tx, read_transaction(tx, found.id) or found)

    def clean_labels(self, database: str, label: str | None = None) -> int:
        """Removes the label of a database, or all its labels, whose loads have ended; returns how many.

        Raises:
            NotFoundError: no such database.
        """
        with self._write() as tx:
            return clean_labels(tx, records.require_database(tx, database), label)

    def set_config(self, name: str, value: str) -> None:
        """Changes a setting for all processes that use the directory, from their next statement on."""
        with self._write() as tx:
            tx.put("config", name.encode(), value)

    def transaction(
        self, options: TransactionOptions | None = None, **arguments: Unpack[TransactionArguments]
    ) -> Transaction:
        """Starts a transaction over the tables of a database; see `transaction.transaction`.

        Args:
            options, arguments: see `TransactionOptions`.

        Raises:
            InvalidInputError: no such level, or a bad label or pair.
            LabelExistsError: the label was used in `database`.
            NotFoundError: no such database.
        """
        self._check_open()
        options = TransactionOptions.of(options, **arguments)
        return Transaction(self.catalog, self.settings, self.table, options)

    def run_transaction(
        self,
        work: Callable[[Transaction], T],
        options: TransactionOptions | None = None,
        *,
        retries: int = 0,
        **arguments: Unpack[TransactionArguments],
    ) -> tuple[T, TransactionResult]:
        """Runs a function in a transaction, again on a new snapshot when it meets a conflict.

        Args:
            retries: how often at most; between tries it waits a little longer each time.
            options, arguments: see `TransactionOptions`.

        Raises:
            ConflictError: the last try met a conflict too; `.attempts` counts them.
        """

        def attempt() -> tuple[T, TransactionResult]:
            with self.transaction(options, **arguments) as transaction:
                value = work(transaction)
                return value, transaction.commit()

        return retried(attempt, retries)

    def close(self) -> None:
        """Ends the use of this handle. The catalog stays open for other handles, and a while without any."""
        self.schema_changes.close()
        self.backups.close()
        self._dropped.remove_unread()
        self._is_open = False
        self.maintainer.close()
        self.opener.close()
        self.shipping.close()
        if self.follower is not None:
            self.follower.close()
        self.catalog.release()
        if self._own_copy is not None:
            self.catalog.close()
            shutil.rmtree(self._own_copy, ignore_errors=True)

    def maintain(self, *, is_cancelled: Callable[[], bool] = lambda: False) -> dict[str, int]:
        """Compacts every table by its policy, removes old versions, and aborts pre-committed
        transactions whose time is over; for servers and schedules.

        Args:
            is_cancelled: called now and then; a compaction stops between two segments.

        Returns:
            Compactions made, by table. Tables that another process is at are left alone.

        Raises:
            StoreError: of the first table that failed, when all others are done.
        """
        self._handles.forget_dropped()
        self._dropped.remove_unread()
        sweep_prepared(self.catalog, self.disk)
        self.schema_changes.resume()
        self.backups.resume()
        with self._read() as tx:
            records_of = [record for _, record in tx.records("tables")]
        names = [f"{record['database']}.{record['name']}" for record in records_of]
        return self.maintainer.maintain_all(names, self.table, is_cancelled)

    def _show_restored(self, name: str) -> None:
        """Shows a restored table to readers of other formats."""
        table = self.table(name)
        table.published(table.schema)

    def _open_disk(self, segments: str | None) -> Disk:
        known = segment_place(self.catalog, self.path, segments)
        if known is None:
            return Disk(self.path, mapped_reads=self.settings.mapped_reads)
        limit, mapped = self.settings.cache_bytes_max, self.settings.mapped_reads
        return ObjectDisk(known, self.path, limit, mapped_reads=mapped)

    def _read(self) -> Any:
        self._check_open()
        return self.catalog.read()

    def _write(self) -> Any:
        self._check_open()
        return self.catalog.write()

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError(f"{self.path}: this store handle was closed; open it again")

    def _remove_files(self, directory: str) -> None:
        """Removes the files of a dropped table once no process reads it."""
        self._handles.forget(directory)  # it has files mapped, which take room as long
        self._dropped.remove(directory)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
