"""The part of `Table` that writes: loads, upserts, deletes, and tasks that stage shares of a load."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Unpack

from seqstore.store.catalog.app_ids import find_app
from seqstore.store.catalog.auto_increment import IdSource
from seqstore.store.check.group_checker import GroupChecker
from seqstore.store.check.partial_checker import PartialChecker, check_flexible, check_partial
from seqstore.store.check.row_checker import RowChecker
from seqstore.store.check.write_modes import (
    MergeType,
    NewKeyBehavior,
    UpdateMode,
    parse_merge_type,
    parse_mode,
    parse_new_key_behavior,
)
from seqstore.store.errors import InvalidInputError
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.load.load import Load, LoadResult
from seqstore.store.load.write_options import WriteArguments, WriteOptions
from seqstore.store.load.write_task import WriteTask
from seqstore.store.read.snapshot import as_table
from seqstore.store.read.versioned_table import VersionedTable
from seqstore.store.runtime.internal import internal
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.schema.column import ROW_ID, ROW_IDS_COUNTER, Column
from seqstore.store.schema.partitions import check_names
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.load_marker import StagingId
from seqstore.store.segment.stager import Stager
from seqstore.store.types.cast import check_zone

_ROW_IDS: Final = replace(ROW_ID, id=ROW_IDS_COUNTER)
_CHECKS_MAX: Final = 64
_ROW_IDS_RESERVED: Final = 2**32  # by each process at once: a load then rarely pays for a step of the catalog


class LoadableTable(VersionedTable):
    """A table that can be loaded.

    Attributes:
        meets_conflicts: the last statement of this process on the table met a conflict
            (transaction.statement).
    """

    meets_conflicts: bool = False

    @internal
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        # By the options that they depend on: most loads of a table have the same.
        self._checks: dict[Any, tuple[RowChecker, FillOptions | None]] = {}

    def upsert(
        self, data: Any, options: WriteOptions | None = None, **arguments: Unpack[WriteArguments]
    ) -> LoadResult:
        """Loads rows: per key the largest sequence wins, then the later version, then the later row.

        Args:
            data: an Arrow table, batch or reader, or any object with the Arrow PyCapsule interface. Columns
                by name; `__DELETE_SIGN__` and `__SEQUENCE_COL__` may be among them.
            options, arguments: see `WriteOptions`.

        Returns:
            The counts of the load. Its rows are durable and visible.

        Raises:
            InvalidInputError: the columns do not fit the table.
            LoadRejectedError: too many rejected rows; nothing was applied.
            LabelExistsError: the label was used; `.status`, `.txn_id` and `.version` name the load.
        """
        options = replace(options or WriteOptions(), **arguments)
        with self._begin(options) as load:
            load.write(data)
            return load.commit(max_filter_ratio=options.max_filter_ratio)

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
            label, txn_app_id, txn_version: see `WriteOptions`.
        """
        return self.upsert(
            as_table(keys),
            label=label,
            merge_type=MergeType.DELETE,
            operation="DELETE",
            mode=UpdateMode.FIXED,
            txn_app_id=txn_app_id,
            txn_version=txn_version,
        )

    def begin_load(self, options: WriteOptions | None = None, **arguments: Unpack[WriteArguments]) -> Load:
        """Starts a load of several batches.

        Args:
            options, arguments: see `WriteOptions`.

        Raises:
            NotFoundError: no such partition.
            LabelExistsError: the label names a running or finished load.
        """
        return self._begin(replace(options or WriteOptions(), **arguments))

    def _begin(self, options: WriteOptions) -> Load:
        schema = options.schema_of(self)
        checker, filling = self.checks(schema, options)
        app = None
        if options.txn_app_id is not None or options.txn_version is not None:
            app = find_app(self.catalog, self.id, options.txn_app_id, options.txn_version)
        return Load(self, checker, options, filling=filling, app=app)

    @internal
    def checks(
        self,
        schema: TableSchema,
        options: WriteOptions,
        *,
        is_task: bool = False,
        is_change: bool = False,
    ) -> tuple[RowChecker, FillOptions | None]:
        """Returns the checker of a load's rows, and how they are filled; None for whole rows without groups.

        Args:
            is_task: tasks do not see the catalog, which reserves the values of an AUTO_INCREMENT column.
            is_change: the rows change stored ones, which every table takes.

        Raises:
            NotFoundError: no such partition.
            InvalidInputError: no such mode, merge type, treatment of new keys or time zone, or not for this
                table.
        """
        now = options.now or datetime.now().replace(microsecond=0)
        modes = (options.mode, options.merge_type, options.new_keys, options.ignore_null)
        columns = (options.sequence, options.require_sequence, *options.partitions)
        chosen = (self.name, schema.revision, is_task, is_change, modes, columns)
        known = self._checks.get(chosen)
        if known is None or known[0].schema is not schema:
            if len(self._checks) >= _CHECKS_MAX:
                self._checks = {}
            if not is_change:
                check_partial(self.name, schema, options.mode, options.merge_type)
            known = self._checks[chosen] = self._new_checks(schema, options, is_task=is_task)
        checker, filling = known
        zone = "UTC" if options.zone is None else check_zone(options.zone)
        return checker.at(now, zone), None if filling is None else replace(filling, now=now)

    def _new_checks(
        self, schema: TableSchema, options: WriteOptions, *, is_task: bool
    ) -> tuple[RowChecker, FillOptions | None]:
        mode, is_delete = parse_mode(options.mode), parse_merge_type(options.merge_type) == MergeType.DELETE
        refuses = parse_new_key_behavior(options.new_keys) == NewKeyBehavior.ERROR
        is_whole, flexible = mode == UpdateMode.UPSERT, mode == UpdateMode.FLEXIBLE
        shared = (schema, self.name.partition(".")[2], options.sequence, is_delete)
        generated = schema.auto_increment_column
        ids = self._ids(generated) if generated is not None and not is_task else None
        row_ids = self._ids(_ROW_IDS) if schema.is_duplicate and not is_task else None
        checker: RowChecker
        if schema.groups:
            ignore_null = options.ignore_null and not is_whole
            checker = GroupChecker(*shared, flexible=flexible, ignore_null=ignore_null, whole_rows=is_whole)
        elif is_whole:
            checker = RowChecker(*shared, require_sequence=options.require_sequence, ids=ids, row_ids=row_ids)
        else:
            checker = PartialChecker(*shared, ids=ids, flexible=flexible, ignore_null=options.ignore_null)
        if options.partitions:
            check_names(self.name, schema, options.partitions)
            checker = replace(checker, partitions=tuple(options.partitions))
        if is_whole and not schema.groups:
            return checker, None
        # The treatment of new keys has no effect on whole rows (P13).
        return checker, FillOptions(flexible, refuse_new_keys=refuses and not is_whole)

    def _ids(self, column: Column) -> IdSource:
        """Returns the source of the values of an AUTO_INCREMENT column."""
        with self._lock:
            if column.id not in self._id_sources:
                reserved = self.settings.auto_increment_values_reserved
                if column is _ROW_IDS:
                    reserved = _ROW_IDS_RESERVED
                self._id_sources[column.id] = IdSource(self.catalog, self.id, column, reserved)
            return self._id_sources[column.id]

    @internal
    def write_task(
        self,
        owner: tuple[int, int] | None = None,
        options: WriteOptions | None = None,
        *,
        supplied: str | None = None,
        purpose: str = "",
        **arguments: Unpack[WriteArguments],
    ) -> WriteTask:
        """Returns the description of a load with which other processes stage its rows; see `load.write_task`.

        Args:
            owner: process id and start time of the process that will commit, this one when None.
            options, arguments: see `WriteOptions`; those of checking and filling count.
            supplied: in flexible updates, a column of the data that names the columns a row supplies
                (check.column_mask).
            purpose: any text by which the load can be found again (`recovery.begun_loads`).

        Raises:
            InvalidInputError: flexible updates of a table that refuses them, or `supplied` in another mode.
            NotFoundError: no such partition.
        """
        options = replace(options or WriteOptions(), **arguments)
        schema = options.schema_of(self)
        checker, filling = self.checks(schema, options, is_task=True)
        if parse_mode(options.mode) == UpdateMode.FLEXIBLE:
            check_flexible(self.name, schema)
        elif supplied is not None:
            raise InvalidInputError(
                f"column {supplied!r} names what each row supplies: only for updates of mode "
                f"{UpdateMode.FLEXIBLE}",
                kind="bad_mode",
            )
        return WriteTask(
            self.id,
            StagingId.of(owner or this_process(), purpose),
            checker,
            Stager(schema, self.loader.disk, self.loader.directory, self.settings, table=self.name),
            filling,
            supplied,
        )
