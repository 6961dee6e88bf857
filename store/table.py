"""A table: the handle for reads and writes. Its versions are in read.versioned_table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.transaction_record import (
    TransactionRecord,
    TransactionStatus,
    find_label,
    refuse_used_label,
)
from seqstore.store.catalog.version_chain import chain_faults
from seqstore.store.errors import CorruptionError
from seqstore.store.history.change_feed import changes
from seqstore.store.history.key_history import KeyEvent, key_history
from seqstore.store.load.loadable_table import LoadableTable
from seqstore.store.maintenance.compaction import CompactionResult, optimize, purge
from seqstore.store.maintenance.integrity import check_table
from seqstore.store.maintenance.restore import restore
from seqstore.store.maintenance.retention import VacuumResult, vacuum
from seqstore.store.maintenance.scheduler import Maintainer
from seqstore.store.open_table.opener import Opener
from seqstore.store.read.table_state import StateLoader, TableState
from seqstore.store.runtime.html_table import html_table
from seqstore.store.runtime.internal import internal
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.transaction.merge_builder import MergeBuilder
from seqstore.store.transaction.statement import run_statement
from seqstore.store.transaction.transaction_options import DmlArguments, DmlOptions, DmlResult


class Table(LoadableTable):
    """One table of a store; made by `Store.table` and `Store.create_table`."""

    maintainer: Maintainer | None = None
    _opener: Opener | None = None

    def update(
        self,
        assignments: Mapping[str, Any],
        where: pc.Expression | None = None,
        **arguments: Unpack[DmlArguments],
    ) -> DmlResult:
        """Changes columns of the rows that satisfy a condition; see `transaction.statement`.

        Args:
            assignments: column -> a `pyarrow.compute` expression over the row as it is, or a value.
            where: None means all rows.
            arguments: see `DmlOptions`.

        Raises:
            ConflictError: rows that the statement read have changed.
            UnavailableError: another update held the lock for too long.
            InvalidInputError: an unknown or key column, or a value that does not fit.
        """
        options = DmlOptions("UPDATE", **arguments)
        return run_statement(self, lambda opened: opened.update(assignments, where), options)

    def delete_where(
        self, where: pc.Expression | None = None, **arguments: Unpack[DmlArguments]
    ) -> DmlResult:
        """Deletes the rows that satisfy a condition; arguments and errors are those of `update`."""
        options = DmlOptions("DELETE", **arguments)
        return run_statement(self, lambda opened: opened.delete_where(where), options)

    def merge(
        self,
        source: Any,
        on: str | Sequence[str],
        *,
        target_alias: str = "t",
        source_alias: str = "s",
    ) -> MergeBuilder:
        """Builds a MERGE of some rows into the table; see `transaction.merge_builder`.

        Args:
            source: rows, as an Arrow table or anything that becomes one.
            on: SQL in which `t` is the table and `s` the rows, or names of columns that must be equal.
            target_alias, source_alias: other names for `t` and `s`.
        """
        return MergeBuilder(
            self.name,
            source,
            on,
            target_alias=target_alias,
            source_alias=source_alias,
            execute=partial(run_statement, self),
        )

    def _repr_html_(self) -> str:
        """Shows the columns in a notebook, below the number of rows and the version."""
        state = self.state()
        key = set(state.schema.declared_key)
        rows = (
            (column.name, column.type.sql, "key" if column.name in key else "", column.comment)
            for column in state.schema.columns
        )
        caption = f"{self.name}: {state.row_count:,} rows, version {state.version}"
        return html_table(caption, ("column", "type", "key", "comment"), rows)

    def vacuum(self, *, retention_seconds: int | None = None, dry_run: bool = False) -> VacuumResult:
        """Removes versions older than the retention and the files only they need (`retention`)."""
        return vacuum(self, retention_seconds=retention_seconds, dry_run=dry_run)

    def restore(self, version: int) -> int:
        """Makes an earlier version the newest again, as a version of its own; returns its number.

        Raises:
            VersionExpiredError: the version cannot be read.
        """
        return restore(self, version)

    def changes(self, first: int, last: int | None = None) -> pa.RecordBatchReader:
        """Returns the changes of versions `first` to `last`, both included; see `change_feed`.

        Returns:
            The visible columns of each row that was added or removed, then `_change_type` (+I, -U, +U, -D),
            `_commit_version` and `_commit_timestamp` (UTC), in order of versions.

        Raises:
            VersionExpiredError: version `first - 1` or one of the others cannot be read.
        """
        return changes(self, first, last)

    def key_history(self, key: Mapping[str, Any]) -> list[KeyEvent]:
        """Returns the history of one key, write by write, with reasons; see `history.key_history`.

        A notebook shows the list as a table.

        Raises:
            InvalidInputError: the key columns are not all there, or hold no such values.
        """
        return key_history(self, key)

    def find_label(self, label: str) -> TransactionRecord | None:
        """Returns the transaction that a label of the table's database names; None when it was never used or
        is forgotten.

        Raises:
            UnavailableError: the load was to be shipped before it is acknowledged, and cannot be.
        """
        with self.catalog.read() as tx:
            found = find_label(tx, self.database_id, label)
        if found is not None and found.status != TransactionStatus.PREPARE:
            self.catalog.require_shipped()
        return found

    def refuse_label(self, label: str) -> None:
        """Raises early the error that a load would raise at its end.

        Raises:
            LabelExistsError: the label names a running or finished load.
        """
        with self.catalog.write() as tx:
            refuse_used_label(tx, self.database_id, label, self.settings.label_keep_seconds)

    def optimize(
        self, where: pc.Expression | None = None, *, zorder_by: Sequence[str] = (), full: bool = False
    ) -> CompactionResult:
        """Merges small segments and removes dead rows; reads do not change; see `compaction.optimize`."""
        return optimize(self, where=where, zorder_by=zorder_by, full=full)

    def purge(self) -> CompactionResult:
        """Rewrites segments with dead rows and tombstones that may go (REORG TABLE ... APPLY (PURGE))."""
        return purge(self)

    @internal
    def shown_by(self, opener: Opener) -> None:
        """Sets the list for versions that are to be shown to readers of other formats."""
        self._opener = opener

    @internal
    def published(self, schema: TableSchema, state: TableState | None = None) -> None:
        """Shows the version to readers of other formats, where the table is open; loads may be followed by
        maintenance."""
        super().published(schema, state)
        if state is not None and self.maintainer is not None:
            self.maintainer.after_load(self, state)
        if self._opener is not None and schema.open_formats:
            self._opener.published(self, schema.open_every_seconds)

    @internal
    def needed_versions(self, retention_seconds: float) -> set[int]:
        """Returns the oldest version that readers of other formats may need, or none."""
        opener = self._opener
        return opener.of(self).needed_versions(retention_seconds) if opener is not None else set()

    def check(self) -> list[str]:
        """Reads all files and records of the newest version and returns the findings; empty means sound."""
        afresh = StateLoader(self.id, self.loader.directory, self.loader.disk)  # nothing from memory
        try:
            with self.catalog.read() as tx:
                state = afresh.load(tx, records.head(tx, self.id, self.name)[0])
                faults = list(chain_faults(tx, self.id))
        except CorruptionError as error:
            return [error.message]
        return [*faults, *check_table(state)]
