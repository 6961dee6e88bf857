"""A table: the handle through which rows come in and go out. Its versions are in store.table_versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from store import catalog as records
from store.app_ids import find_app
from store.auto_increment import IdSource
from store.changes import changes
from store.check_partial import (
    FIXED,
    FLEXIBLE,
    UPSERT,
    check_flexible,
    parse_mode,
)
from store.compaction import CompactionResult, optimize, purge
from store.compaction_policy import MaintenancePolicy
from store.dml import DmlOptions, DmlResult, delete_where, update
from store.errors import CorruptionError, InvalidInputError
from store.integrity import check_table
from store.key_history import KeyEvent, key_history
from store.load import Load, LoadResult
from store.load_checks import checker_for, deletes_all, filling_for
from store.maintenance import Maintainer
from store.partitions import check_names
from store.restore import restore
from store.retention import VacuumResult, vacuum
from store.scan import Projection
from store.scan_task import ScanTask, plan_scan
from store.schema import TableSchema
from store.snapshot import Snapshot, as_table
from store.stage import Stager
from store.staging import StagingId
from store.table_state import StateLoader, TableState
from store.table_versions import VersionedTable
from store.transaction import (
    TransactionRecord,
    find_label,
    refuse_used_label,
    this_process,
)
from store.write_task import WriteTask

if TYPE_CHECKING:
    from store.sql.merge_builder import MergeBuilder
    from store.transaction_table import TransactionTable


class Table(VersionedTable):
    """One table of a store; made by `Store.table` and `Store.create_table`."""

    maintainer: Maintainer | None = None
    meets_conflicts: bool = False  # its last statement of this process did (store.dml)

    def upsert(
        self,
        data: Any,
        *,
        label: str | None = None,
        sequence: str | None = None,
        merge_type: str = "APPEND",
        max_filter_ratio: float = 0.0,
        operation: str = "LOAD",
        mode: str = UPSERT,
        new_keys: str = "APPEND",
        ignore_null: bool = False,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> LoadResult:
        """Loads rows: per key the largest sequence wins, then the later version, then the later row.

        Args:
            data: an Arrow table, batch or reader, or any object with the Arrow PyCapsule interface. Columns
                by name; `__DELETE_SIGN__` and `__SEQUENCE_COL__` may be among them.
            label: makes the load idempotent: a second one with the same label is refused.
            sequence: the column of `data` that gives the hidden sequence.
            merge_type: `APPEND` or `MERGE` (rows whose delete sign is 1 delete), `DELETE` (all rows do).
            max_filter_ratio: share of rejected rows the load may have.
            mode: `UPSERT` (whole rows), `UPDATE_FIXED_COLUMNS` (only the columns of `data`, the rest is
                kept) or `UPDATE_FLEXIBLE_COLUMNS` (see `Load.write`).
            new_keys: in partial updates, `APPEND` inserts keys the table does not have, `ERROR` fails the
            load.
            ignore_null: in partial updates, a NULL value cell means "keep".
            txn_app_id, txn_version: of an idempotent write, both or neither: skipped, and reported as
                DUPLICATE, unless the version is larger than the last one committed under this id.

        Returns:
            What became of the rows. They are durable and visible.

        Raises:
            InvalidInputError: the columns do not fit the table.
            LoadRejectedError: too many rejected rows; nothing was applied.
            LabelExistsError: the label was used; `.status`, `.txn_id` and `.version` tell by what.
        """
        with self.begin_load(
            label=label,
            operation=operation,
            sequence=sequence,
            merge_type=merge_type,
            mode=mode,
            new_keys=new_keys,
            ignore_null=ignore_null,
            txn_app_id=txn_app_id,
            txn_version=txn_version,
        ) as load:
            load.write(data)
            return load.commit(max_filter_ratio=max_filter_ratio)

    def delete(
        self,
        keys: Any,
        *,
        label: str | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> LoadResult:
        """Deletes rows by key: a tombstone each, which keeps the sequence of the row it deletes (D8).

        Args:
            keys: the key columns; a sequence column may be among them, an older one than stored deletes
            nothing (D2).
            txn_app_id, txn_version: see `upsert`.
        """
        return self.upsert(
            as_table(keys),
            label=label,
            merge_type="DELETE",
            operation="DELETE",
            mode=FIXED,
            txn_app_id=txn_app_id,
            txn_version=txn_version,
        )

    def update(
        self,
        assignments: Mapping[str, Any],
        where: pc.Expression | None = None,
        *,
        label: str | None = None,
        isolation: str | None = None,
        concurrency: str | None = None,
        retries: int = 0,
        lock_seconds: float | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> DmlResult:
        """Changes columns of the rows that satisfy a condition; see `store.dml`.

        Args:
            assignments: column -> a `pyarrow.compute` expression over the row as it is, or a value.
            where: None means all rows.
            isolation: a level stricter than the table's.
            concurrency: `serial`, `optimistic` or `unchecked`, see `store.update_lock`.
            retries: how often it is run again, on a new snapshot, after a conflict.
            lock_seconds: how long to wait for the lock of serial updates; 0 fails at once.
            txn_app_id, txn_version: see `upsert`.

        Raises:
            ConflictError: what it read has changed.
            UnavailableError: another update held the lock for too long.
            InvalidInputError: an unknown or key column, or a value that does not fit.
        """
        options = DmlOptions(
            "UPDATE",
            label,
            isolation,
            concurrency,
            retries,
            lock_seconds,
            txn_app_id=txn_app_id,
            txn_version=txn_version,
        )
        return update(self, assignments, where, options)

    def delete_where(
        self,
        where: pc.Expression | None = None,
        *,
        label: str | None = None,
        isolation: str | None = None,
        concurrency: str | None = None,
        retries: int = 0,
        lock_seconds: float | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> DmlResult:
        """Deletes the rows that satisfy a condition; arguments and errors are those of `update`."""
        options = DmlOptions(
            "DELETE",
            label,
            isolation,
            concurrency,
            retries,
            lock_seconds,
            txn_app_id=txn_app_id,
            txn_version=txn_version,
        )
        return delete_where(self, where, options)

    def merge(self, source: Any, on: str | Sequence[str], **aliases: str) -> MergeBuilder:
        """MERGE of some rows into the table; see `store.sql.merge_builder`.

        Args:
            source: rows, as an Arrow table or anything that becomes one.
            on: SQL in which `t` is the table and `s` the rows, or names of columns that must be equal.
            aliases: `target_alias`, `source_alias`.
        """
        from store.sql.merge_builder import MergeBuilder

        return MergeBuilder(self, source, on, **aliases)

    def begin_load(
        self,
        *,
        label: str | None = None,
        operation: str = "LOAD",
        sequence: str | None = None,
        merge_type: str = "APPEND",
        now: datetime | None = None,
        require_sequence: bool = True,
        mode: str = UPSERT,
        new_keys: str = "APPEND",
        ignore_null: bool = False,
        label_prefix: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        within: TransactionTable | None = None,
        partitions: Sequence[str] = (),
    ) -> Load:
        """Starts a load of several batches.

        Args:
            now: the one moment of CURRENT_TIMESTAMP defaults (A3), without a zone; None means this second.
            require_sequence: False admits rows without a sequence (SL12).
            mode, new_keys, ignore_null, txn_app_id, txn_version: see `upsert`.
            label_prefix: of the generated label, when none is given.
            within: the transaction it is a statement of; its rows are published with the transaction.
            partitions: rows of other partitions are rejected; empty means all.

        Raises:
            NotFoundError: no such partition.
            LabelExistsError: the label names a running or finished load.
        """
        delete_all = deletes_all(merge_type)
        schema = self.schema if within is None else within.schema
        moment = now or datetime.now().replace(microsecond=0)
        mode = parse_mode(mode)
        checker = checker_for(
            schema,
            self.name.partition(".")[2],
            sequence,
            delete_all,
            moment,
            mode,
            ids=self._ids(schema),
            ignore_null=ignore_null,
            require_sequence=require_sequence,
        )
        filling = filling_for(schema, mode, new_keys, moment)
        check_names(self.name, schema, partitions)
        checker = replace(checker, partitions=tuple(partitions)) if partitions else checker
        if within is not None:
            return within.statement(checker, label=label, operation=operation, filling=filling)
        return Load(
            self,
            checker,
            label=label,
            operation=operation,
            filling=filling,
            label_prefix=label_prefix,
            app=find_app(self.catalog, self.id, txn_app_id, txn_version),
        )

    def _ids(self, schema: TableSchema) -> IdSource | None:
        """Where the AUTO_INCREMENT column gets its values, None without one."""
        column = schema.auto_increment_column
        if column is None:
            return None
        with self._lock:
            found = self._id_sources.get(column.id)
            if found is None:
                reserved = self.settings.auto_increment_values_reserved
                found = self._id_sources[column.id] = IdSource(self.catalog, self.id, column, reserved)
            return found

    def write_task(
        self,
        owner: tuple[int, int] | None = None,
        *,
        sequence: str | None = None,
        merge_type: str = "APPEND",
        now: datetime | None = None,
        mode: str = UPSERT,
        new_keys: str = "APPEND",
        ignore_null: bool = False,
        supplied: str | None = None,
        partitions: Sequence[str] = (),
        purpose: str = "",
    ) -> WriteTask:
        """What other processes need to stage rows of a load of this one; see `store.write_task`.

        Args:
            owner: process id and start time of the process that will commit, this one when None.
            sequence, merge_type, now, mode, new_keys, ignore_null, partitions: see `begin_load`.
            supplied: in flexible updates, a column of the data that names the columns a row supplies
                (store.supplied).
            purpose: any text by which the load can be found again (`recovery.begun_loads`).

        Raises:
            InvalidInputError: flexible updates of a table that takes none, or `supplied` in another mode.
            NotFoundError: no such partition.
        """
        schema, mode = self.schema, parse_mode(mode)
        moment = now or datetime.now().replace(microsecond=0)
        delete_all = deletes_all(merge_type)
        checker = checker_for(
            schema,
            self.name.partition(".")[2],
            sequence,
            delete_all,
            moment,
            mode,
            ids=None,
            ignore_null=ignore_null,
        )
        if mode == FLEXIBLE:
            check_flexible(schema)
        elif supplied is not None:
            raise InvalidInputError(
                f"column {supplied!r} names what each row supplies: only for updates of mode {FLEXIBLE}",
                kind="bad_mode",
            )
        check_names(self.name, schema, partitions)
        # The values of an AUTO_INCREMENT column are given out by the catalog, which tasks do not see.
        return WriteTask(
            self.id,
            StagingId.of(owner or this_process(), purpose),
            replace(checker, partitions=tuple(partitions)),
            Stager(schema, self.loader.disk, self.loader.directory, self.settings),
            filling_for(schema, mode, new_keys, moment),
            supplied,
        )

    def scan_tasks(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        version: int | None = None,
        *,
        hidden: bool = False,
        deleted: bool = False,
        rows_per_task: int = 1_000_000,
    ) -> list[ScanTask]:
        """A scan cut into picklable pieces that other processes read; see `store.scan_task`.

        Args:
            rows_per_task: about how many stored rows a piece has.
        """
        state = self.state(version)
        projection = Projection.of(state.schema, columns, hidden=hidden)
        return plan_scan(
            state,
            self.loader.disk,
            self.loader.directory,
            projection,
            filter,
            deleted=deleted,
            rows_per_task=rows_per_task,
        )

    def snapshot(self, version: int | None = None) -> Snapshot:
        """A version held open for reading, the newest when None.

        Raises:
            VersionExpiredError: no such version.
        """
        return Snapshot(*self.hold(version))

    def vacuum(self, *, retention_seconds: int | None = None, dry_run: bool = False) -> VacuumResult:
        """Takes away versions older than the retention and the files only they need (`store.retention`)."""
        return vacuum(self, retention_seconds=retention_seconds, dry_run=dry_run)

    def restore(self, version: int) -> int:
        """Makes an earlier version the newest again, as a version of its own; returns its number.

        Raises:
            VersionExpiredError: the version cannot be read.
        """
        return restore(self, version)

    def changes(self, first: int, last: int | None = None) -> pa.RecordBatchReader:
        """What versions `first` to `last` (both included; None: the newest) changed; see `store.changes`.

        Returns:
            The visible columns of each row that came or went, then `_change_type` (+I, -U, +U, -D),
            `_commit_version` and `_commit_timestamp` (UTC), in order of versions.

        Raises:
            VersionExpiredError: version `first - 1` or one of the others cannot be read.
        """
        return changes(self, first, last)

    def key_history(self, key: Mapping[str, Any]) -> list[KeyEvent]:
        """What happened to one key, write by write, and why; see `store.key_history`.

        Raises:
            InvalidInputError: the key columns are not all there, or hold no such values.
        """
        return key_history(self, key)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        version: int | None = None,
        *,
        hidden: bool = False,
        deleted: bool = False,
    ) -> pa.RecordBatchReader:
        """Rows at a version, the newest when None; see `Snapshot.scan`."""
        return self.snapshot(version).scan(columns, filter, hidden=hidden, deleted=deleted)

    def get(
        self,
        keys: Any,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        *,
        hidden: bool = False,
        deleted: bool = False,
    ) -> pa.Table:
        """Rows of some keys at a version, the newest when None; see `Snapshot.get`."""
        return self.snapshot(version).get(keys, columns, hidden=hidden, deleted=deleted)

    def count(self, version: int | None = None) -> int:
        """How many rows a version shows."""
        return self.snapshot(version).count()

    def find_label(self, label: str) -> TransactionRecord | None:
        """The transaction that a label of the table's database names; None when it was never used or is
        forgotten."""
        with self.catalog.read() as tx:
            return find_label(tx, self.database_id, label)

    def refuse_label(self, label: str) -> None:
        """Says early what a load would say at its end.

        Raises:
            LabelExistsError: the label names a running or finished load.
        """
        with self.catalog.write() as tx:
            refuse_used_label(tx, self.database_id, label, self.settings.label_keep_seconds)

    def policy(self, schema: TableSchema) -> MaintenancePolicy:
        """How the table is to be maintained, by its properties under a schema revision."""
        return MaintenancePolicy.of(schema, self.settings)

    def optimize(
        self, where: pc.Expression | None = None, *, zorder_by: Sequence[str] = (), full: bool = False
    ) -> CompactionResult:
        """Merges small segments and takes dead rows out; no answer changes; see `compaction.optimize`."""
        return optimize(self, where=where, zorder_by=zorder_by, full=full)

    def purge(self) -> CompactionResult:
        """Rewrites segments with dead rows and tombstones that may go (REORG TABLE ... APPLY (PURGE))."""
        return purge(self)

    def loaded(self, state: TableState) -> None:
        """Takes the state that a load of this process made."""
        self.remember(state)
        if self.maintainer is not None:
            self.maintainer.after_load(self, state)

    def check(self) -> list[str]:
        """Reads everything the newest version consists of and tells what is wrong; empty means sound."""
        afresh = StateLoader(self.id, self.loader.directory, self.loader.disk)  # nothing from memory
        try:
            with self.catalog.read() as tx:
                state = afresh.load(tx, records.head(tx, self.id, self.name)[0])
        except CorruptionError as error:
            return [error.message]
        return check_table(state)
