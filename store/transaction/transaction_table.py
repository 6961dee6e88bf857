"""A table as one transaction sees it: its snapshot and own writes; reads are remembered, writes wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog.app_ids import AppWrite
from seqstore.store.catalog.leases import Lease
from seqstore.store.check.row_checker import RowChecker
from seqstore.store.check.write_modes import MergeType, UpdateMode, duplicate_error
from seqstore.store.conflict.conflict_errors import schema_error
from seqstore.store.conflict.isolation import Isolation
from seqstore.store.conflict.read_set import Predicate
from seqstore.store.errors import InvalidInputError
from seqstore.store.expressions.predicate import evaluated, misfit, named_in
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.load.load import Load, LoadResult
from seqstore.store.load.write_options import WriteArguments, WriteOptions
from seqstore.store.publish.commit import Also
from seqstore.store.publish.evolution import Evolution
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.publish.write_states import PendingWrite, WriteTarget
from seqstore.store.read.live_segment import Projection
from seqstore.store.read.lookup import key_arrays
from seqstore.store.read.snapshot import Snapshot, as_table
from seqstore.store.read.store_snapshot import StoreSnapshot
from seqstore.store.runtime.internal import internal
from seqstore.store.schema.column import HIDDEN_COLUMNS, SEQUENCE_COL, hidden_name
from seqstore.store.schema.column_groups import replaced_with
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_codes import Codes, encode_keys
from seqstore.store.transaction.merge_builder import MergeBuilder, Outcome, Work

if TYPE_CHECKING:
    from seqstore.store.load.loadable_table import LoadableTable


class StatementLoad(Load):
    """One writing statement of a transaction: its rows join the transaction when it is committed."""

    def __init__(self, owner: TransactionTable, checker: RowChecker, filling: FillOptions | None) -> None:
        super().__init__(
            owner.base,
            checker,
            WriteOptions(operation=owner.transaction.operation),
            filling=filling,
            app=owner.app,
        )
        self.label = owner.transaction.label
        self._owner = owner

    @property
    def txn_id(self) -> int:
        return self._owner.transaction.txn_id

    def commit(self, *, max_filter_ratio: float = 1.0, also: Also | None = None) -> LoadResult:
        """Adds the statement's rows to the transaction.

        Raises:
            LoadRejectedError: too many rejected rows; the statement leaves nothing, the transaction goes on.
            InvalidInputError: `also` was given, which only the commit of the transaction can run.
        """
        pending = self._writer.pending
        self._check_open()
        if also is not None:
            raise InvalidInputError("a statement of a transaction has no commit of its own", kind="bad_mode")
        if self._owner.app is not None and self._owner.is_skipped:
            return self._skipped(self._owner.app)
        with self._ending():
            self._check_ratio(max_filter_ratio)
            self._owner.join(pending)
        record = replace(self._transaction, id=self._owner.transaction.txn_id, label=self.label)
        return self._result(record, pending.metrics, record.status)

    def changes_rows_read(self) -> None:
        """Says that the rows to write were read by the transaction, and some cells computed anew."""
        assert self._filling is not None
        self._filling = replace(self._filling, is_change=True)

    def clear(self, filter: pc.Expression | None = None) -> None:
        """Clears rows only for a statement that is a transaction of its own; refuses in others.

        The rows removed would be those of the commit point, which other statements have not read.

        Raises:
            InvalidInputError: the transaction may have other statements.
        """
        if not self._owner.takes_replace_where:
            self._refuse("clear rows; delete them with delete_where(), or clear them in a load outside of it")
        super().clear(filter)

    def precommit(self, *, max_filter_ratio: float = 1.0) -> LoadResult:
        """Refuses: the rows would leave the transaction, and be visible without the rest of it.

        Raises:
            InvalidInputError: always.
        """
        self._refuse("be pre-committed alone; end it with commit(), and pre-commit the transaction")

    def prepare(self) -> None:
        """Checks that the load is open, and prepares nothing ahead.

        The commit of the transaction fills and plans the rows with all others.
        """
        self._check_open()

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidInputError(f"{self._table.name}: a load of a transaction cannot {what}", kind="bad_mode")


class OpenTransaction(Protocol):
    """The transaction of some tables, as each of them knows it; see `Transaction`."""

    label: str
    operation: str
    moment: StoreSnapshot
    reads_own_writes: bool

    @property
    def txn_id(self) -> int:
        """Returns its id."""

    def check_writable(self, database: int) -> None:
        """Raises unless the transaction may write a database."""

    def lock(self, table: TransactionTable) -> None:
        """Takes the update lock of a table where updates are serial."""


class TransactionTable:
    """Made by `Transaction.table`.

    Attributes:
        transaction: it belongs to.
        base: the table.
        name: `database.table`.
        schema, version: those that the transaction reads.
        isolation: its reads.
        writer: its writes.
        app: the pair of an idempotent transaction; when an earlier run has committed it, what is written to
            this table is left out.
        is_muted: reads are not logged here; a caller logs them more precisely.
        warnings: for the caller of the statement.
        takes_replace_where: its only statement may overwrite (INSERT OVERWRITE of what it reads itself).
        zone: the time zone of loads that name none (Y13); a session sets its own for each statement.
        require_sequence: False admits rows without a sequence (SL12), as the variable of a session says.
    """

    @internal
    def __init__(
        self,
        transaction: OpenTransaction,
        base: LoadableTable,
        isolation: Isolation,
        lease: Lease,
        app: AppWrite | None = None,
    ) -> None:
        self.transaction = transaction
        self.base = base
        self.name = base.name
        self.schema = isolation.base.schema
        self.version = isolation.base.version
        self.isolation = isolation
        self.app = app
        target = WriteTarget.of(base, self.schema, transaction.operation, isolation, app)
        self.writer = TableWriter(target)
        self._was_written = False
        self.is_muted = False
        self.warnings: list[str] = []
        self.takes_replace_where = False
        self.zone: str | None = None
        self.require_sequence = True
        self._lease: Lease | None = lease
        self._snapshot = Snapshot(isolation.base, lease)
        self._state = isolation.base  # of the snapshot
        self._whole_rows: list[Codes] = []  # keys that the transaction wrote whole rows of

    @property
    def is_skipped(self) -> bool:
        """Whether writes are left out, as an earlier run has committed them."""
        return self.app is not None and self.app.is_duplicate

    @property
    def writes(self) -> bool:
        """Whether the commit stores something on the table: rows, or the pair of an idempotent write."""
        return self.writer.pending.has_written or (
            self._was_written and self.app is not None and not self.is_skipped
        )

    def begin_write(self) -> None:
        """Marks the table as written; a statement calls this before it writes, whatever rows it will find.

        Raises:
            InvalidInputError: the transaction writes another database (X12).
        """
        self.transaction.check_writable(self.base.database_id)
        self._was_written = True

    def _begin_change(self) -> bool:
        """Begins an UPDATE, DELETE or MERGE; returns False where its writes are left out."""
        self.begin_write()
        if self.is_skipped:
            return False
        self.transaction.lock(self)
        return True

    def close(self) -> None:
        """Holds the transaction's version no longer; readers that were given out do."""
        self._lease = None
        self._snapshot.close()

    @internal
    def join(self, statement: PendingWrite) -> None:
        """Adds the write of a statement to the transaction's.

        Raises:
            InvalidInputError: its rows cannot be filled; nothing of the statement was added.
        """
        self.writer.join(statement, self.isolation.base if self.transaction.reads_own_writes else None)
        if self.transaction.reads_own_writes and not (self.schema.has_sequence or self.schema.groups):
            self._whole_rows += [part.codes for part in statement.written() if part.columns is None]

    def undoing(self) -> AbstractContextManager[None]:
        """Removes what the statements of a block wrote, when it fails (X11)."""
        return self.writer.undoing()

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Returns the rows as the transaction sees them now, unlogged: for readers that log their reads.

        That is the snapshot of its begin with its own writes on it, unless it reads none of them (X7).

        Args:
            version: an earlier one, as it was published; reads of the past never conflict.
        """
        if version is not None:
            return self.base.snapshot(version)
        if self.transaction.reads_own_writes:
            state = self.writer.laid_on(self.isolation.base)
            if state is not self._state:
                published = state is self.isolation.base
                self._state = state
                self._snapshot = Snapshot(state, self._lease, is_published=published)
        return self._snapshot

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        *,
        hidden: bool = False,
    ) -> pa.RecordBatchReader:
        """Returns the rows as the transaction sees them; see `Snapshot.scan`."""
        self.log_scan(columns, filter, hidden=hidden)
        return self.snapshot().scan(columns, filter, hidden=hidden)

    def get(self, keys: Any, columns: Sequence[str] | None = None, *, hidden: bool = False) -> pa.Table:
        """Returns the rows of some keys; keys that are not there count as read too. See `Snapshot.get`."""
        keys = as_table(keys)
        self.log_keys(keys, columns, hidden=hidden)
        return self.snapshot().get(keys, columns, hidden=hidden)

    def count(self, filter: pc.Expression | None = None) -> int:
        """Counts the rows."""
        with self.scan([*self.schema.key], filter) as reader:
            return sum(batch.num_rows for batch in reader)

    def log_keys(self, keys: pa.Table, columns: Sequence[str] | None, *, hidden: bool = False) -> None:
        """Remembers that rows of some keys were read, but for rows that the transaction itself wrote whole.

        Such a row is the same whatever others commit, unless a sequence decides: another row of the key may
        have a larger one.
        """
        if self.is_muted:
            return
        arrays = key_arrays(self.isolation.base, keys)
        if self._whole_rows:
            self._whole_rows = [np.unique(np.concatenate(self._whole_rows))]
            codes = encode_keys(arrays, exact=self.schema.has_exact_key)
            others = pa.array(~np.isin(codes, self._whole_rows[0]))
            arrays = [array.filter(others) for array in arrays]
            if not len(arrays[0]):
                return
        names = Projection.of(self.schema, columns, hidden=hidden).names
        self.isolation.reads.read_keys(arrays, names)

    def log_scan(
        self, columns: Sequence[str] | None, filter: pc.Expression | None, *, hidden: bool = False
    ) -> None:
        """Remembers that rows satisfying a filter were read."""
        if not self.is_muted:
            self._log_where(filter, Projection.of(self.schema, columns, hidden=hidden).names)

    def _log_where(self, filter: pc.Expression | None, columns: Iterable[str]) -> list[str]:
        """Logs a read by a filter of some columns; returns these and those that the filter looks at."""
        used = expression_columns(self.schema, filter)
        used += [] if filter is None else named_in(filter, HIDDEN_COLUMNS)
        is_of_partitions = bool(self.schema.partition_columns) and {*used} <= {*self.schema.partition_columns}
        # A filter over other columns reads all partitions.
        partition = filter if is_of_partitions else None
        columns = [*used, *columns]
        predicate = None if filter is None else Predicate(filter, partition=partition)
        self.isolation.reads.read_where(predicate, columns)
        return columns

    def upsert(
        self, data: Any, options: WriteOptions | None = None, **arguments: Unpack[WriteArguments]
    ) -> LoadResult:
        """Writes rows at commit; see `Table.upsert`."""
        options = replace(options or WriteOptions(), **arguments)
        with self.begin_load(options) as load:
            load.write(data)
            return load.commit(max_filter_ratio=options.max_filter_ratio)

    def delete(self, keys: Any) -> LoadResult:
        """Deletes keys at commit; see `Table.delete`."""
        return self.upsert(as_table(keys), merge_type=MergeType.DELETE, mode=UpdateMode.FIXED)

    def change(self, rows: pa.Table) -> LoadResult:
        """Writes rows that were read, with some cells computed anew, at commit.

        As a partial update. In a transaction that reads none of its own writes (X7) a row may be deleted by
        an earlier statement: cells that are not computed are then as they were read, not defaults.

        Args:
            rows: the key columns and the columns to change.

        Raises:
            InvalidInputError: the columns do not fit the table.
            LoadRejectedError: a cell cannot be stored.
        """
        with self._begin_load(WriteOptions(mode=UpdateMode.FIXED), is_change=True) as load:
            assert isinstance(load, StatementLoad)
            load.changes_rows_read()
            load.write(rows)
            return load.commit(max_filter_ratio=0.0)

    @internal
    def evolve(self, evolution: Evolution) -> None:
        """Changes the schema that the transaction writes, which its commit stores (publish.evolution).

        Raises:
            InvalidInputError: something was read or written already.
            ConflictError: the transaction sees the table with another schema than the one that evolved.
        """
        if self._was_written or self.isolation.has_read or self.transaction.reads_own_writes:
            raise InvalidInputError(
                f"{self.name}: the schema can only change before a transaction reads or writes the table",
                kind="bad_mode",
            )
        if self.schema.revision != evolution.base.revision:
            with self.base.catalog.read() as tx:
                raise schema_error(
                    tx,
                    self.base.id,
                    name=self.name,
                    operation=self.transaction.operation,
                    revision=self.schema.revision,
                )
        self.schema = evolution.schema
        self.writer = TableWriter(
            WriteTarget.of(
                self.base, self.schema, self.transaction.operation, self.isolation, self.app, evolution
            )
        )

    def begin_load(self, options: WriteOptions | None = None, **arguments: Unpack[WriteArguments]) -> Load:
        """Starts a statement of several batches; see `Table.begin_load`.

        Raises:
            InvalidInputError: with a label of its own: the transaction has one.
        """
        return self._begin_load(replace(options or WriteOptions(), **arguments))

    def _begin_load(self, options: WriteOptions, *, is_change: bool = False) -> Load:
        options = options if options.zone is not None else replace(options, zone=self.zone)
        if not self.require_sequence:
            options = replace(options, require_sequence=False)
        checker, filling = self.base.checks(self.schema, options, is_change=is_change)
        self.begin_write()
        if options.label is not None:
            raise InvalidInputError(
                f"{options.operation} with label {options.label!r} inside a transaction: label the "
                "transaction itself",
                kind="bad_label",
            )
        return StatementLoad(self, checker, filling)

    def update(
        self, assignments: Mapping[str, Any], where: pc.Expression | None = None
    ) -> tuple[int, LoadResult | None]:
        """Changes columns of the rows that satisfy a condition.

        Args:
            assignments: column -> an expression over the row as it is, or a value.
            where: None means all rows.

        Returns:
            How many rows matched, and the statement's result, None when none did.

        Raises:
            InvalidInputError: an unknown or key column, or a value that does not fit (U7, U9).
        """
        self._refuse_duplicate()
        if not self._begin_change():
            return 0, None
        names = check_assigned(self.schema, assignments)
        self.log_constraints(names)
        self.isolation.reads.read_sequence()
        # A column group is written whole: of equal sequences the later version wins.
        names |= {name: pc.field(name) for name in replaced_with(self.schema.groups, names)}
        # In the table's order: an assigned expression may count the columns.
        looked_at = {*self.schema.key, *self._log_where(where, self._read_by(names))}
        needed = [name for name in self.schema.names if name in looked_at]
        rows = self.snapshot().scan(needed, where).read_all()
        if not len(rows):
            return 0, None
        return len(rows), self.change(_evaluated(rows, self.schema, names))

    def delete_where(self, where: pc.Expression | None = None) -> tuple[int, LoadResult | None]:
        """Deletes the rows that satisfy a condition; returns how many matched, and the statement's result."""
        if not self._begin_change():
            return 0, None
        self._log_where(where, ())
        rows = self.snapshot().scan(list(self.schema.key), where).read_all()
        return len(rows), self.delete(rows) if len(rows) else None

    def merge(
        self,
        source: Any,
        on: str | Sequence[str],
        *,
        target_alias: str = "t",
        source_alias: str = "s",
    ) -> MergeBuilder:
        """Builds a MERGE of some rows; end it with `run()`. See `transaction.merge_builder`."""
        return MergeBuilder(
            self.name, source, on, target_alias=target_alias, source_alias=source_alias, join=self._run_merge
        )

    def _refuse_duplicate(self) -> None:
        """Refuses to change rows of a duplicate table (T12)."""
        if self.schema.is_duplicate:
            raise duplicate_error(self.name, "Only unique table could be updated.")

    def _run_merge(self, work: Work) -> Outcome:
        self._refuse_duplicate()
        if not self._begin_change():
            return 0, None
        with self.undoing():
            return work(self)

    def log_constraints(self, assigned: Iterable[str]) -> None:
        """Logs reads of the other columns of a CHECK that an assignment may break."""
        for constraint in self.schema.constraints:
            if constraint.columns(list(assigned)):
                self.isolation.reads.read_columns(constraint.columns(self.schema.names))

    def _read_by(self, assignments: Mapping[str, Any]) -> list[str]:
        """Returns the columns that assignments look at."""
        used: list[str] = []
        for value in assignments.values():
            if isinstance(value, pc.Expression):
                used += expression_columns(self.schema, value)
        return used


def check_assigned(schema: TableSchema, assignments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the assignments by canonical names; only value columns may be assigned (U7, U9).

    Raises:
        InvalidInputError: names the column.
    """
    checked: dict[str, Any] = {}
    columns = {name: schema.by_name.get(name.lower()) for name in assignments}
    unknown = [name for name in assignments if columns[name] is None and hidden_name(name) != SEQUENCE_COL]
    if unknown or not assignments:
        raise InvalidInputError(
            f"unknown column in assignment list: {', '.join(unknown) or 'it is empty'}", kind="unknown_column"
        )
    for name, value in assignments.items():
        column = columns[name]
        canonical = column.name if column is not None else SEQUENCE_COL
        if canonical in schema.key:
            raise InvalidInputError(
                f"Only value columns of unique table could be updated: {canonical!r} is a key column",
                kind="key_column",
            )
        if canonical in checked:
            raise InvalidInputError(
                f"column in assignment list is invalid, {name} is assigned twice", kind="duplicate_column"
            )
        checked[canonical] = value
    return checked


def expression_columns(schema: TableSchema, expression: pc.Expression | None) -> list[str]:
    """Returns the columns that an expression may look at, key columns too; never too few."""
    return [] if expression is None else named_in(expression, schema.names)


def _scalar(name: str, value: object) -> pa.Scalar:
    """Returns an assigned Python value as a scalar, integers beyond 64 bits as decimals."""
    try:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return pa.scalar(Decimal(value))
        return pa.scalar(value)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        kind = type(value).__name__
        raise InvalidInputError(
            f"column {name}: a Python value of type {kind} cannot be assigned ({misfit(error)}); "
            "assign a value, an Arrow scalar or an expression",
            kind="bad_value",
        ) from error


def _evaluated(rows: pa.Table, schema: TableSchema, assignments: Mapping[str, Any]) -> pa.Table:
    """Returns key columns and the assigned values."""
    columns: dict[str, pc.Expression] = {name: pc.field(name) for name in schema.key}
    for name, value in assignments.items():
        if isinstance(value, pc.Expression):
            columns[name] = value
        else:
            columns[name] = pc.scalar(value if isinstance(value, pa.Scalar) else _scalar(name, value))
    try:
        return evaluated(rows, columns)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        raise InvalidInputError(
            f"assignment does not fit the table: {misfit(error)}", kind="bad_value"
        ) from error
