"""A load: one write transaction on one table, from its first batch to the version it makes.

    with table.begin_load(label="2024-05-01") as load:
        load.write(batch)          # check, stage; as often as needed, memory stays that of a batch
        result = load.commit()     # publish once

The phases of `commit`: fill (partial updates only), plan against the newest state, publish, return. Three
outcomes: it returns (visible and durable), it raises a `StoreError` (certainly not visible, the label is
free again), or the process dies (on reopening the label is VISIBLE, or free). Leaving the block without
a commit aborts.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog import transaction_record as transactions
from seqstore.store.catalog.app_ids import DUPLICATE, AppWrite
from seqstore.store.catalog.auto_increment import LoadIds
from seqstore.store.catalog.failed_transaction import abort_failed, beginning
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus
from seqstore.store.catalog.version_record import VersionMetrics
from seqstore.store.check.input_rows import tables_of
from seqstore.store.check.partial_checker import PartialChecker
from seqstore.store.check.row_checker import Mask, RejectedRow, RowChecker
from seqstore.store.conflict.conflict_errors import schema_error
from seqstore.store.errors import ClosedError, CommitUnknownError, InvalidInputError, LoadRejectedError
from seqstore.store.fill.delta_file import read_delta
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.load.write_options import WriteOptions
from seqstore.store.load.write_task import StagedRows
from seqstore.store.publish.commit import Also, commit
from seqstore.store.publish.publish import check_revision
from seqstore.store.publish.replace_where import ReplaceWhere
from seqstore.store.publish.table_writer import TableWriter
from seqstore.store.publish.two_phase import precommit
from seqstore.store.publish.write_states import SMALL_ROWS, PendingWrite, WriteTarget
from seqstore.store.runtime.arrow_versions import batch_bytes
from seqstore.store.runtime.html_table import html_table
from seqstore.store.runtime.internal import internal
from seqstore.store.runtime.short_work import staging_turn
from seqstore.store.segment.checked_rows import CheckedRows

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable


@dataclass(frozen=True)
class WriteResult:
    """The outcome of one batch: the rows given, and those rejected."""

    rows: int
    rejected: list[RejectedRow] = field(default_factory=list)


@dataclass(frozen=True)
class LoadResult:
    """The outcome of a load.

    Attributes:
        txn_id, label: its transaction.
        version: table version it made; the version before it when it brought no row.
        rows_total: rows given.
        rows_loaded: rows accepted, those that lost to others included (LS8).
        rows_filtered: rows rejected.
        rows_superseded: accepted rows that lost to another row of the load.
        rows_late: accepted rows that lost to a stored row with a larger sequence.
        rows_too_late: accepted rows below the tombstone watermark whose key is not stored: the key may have
            been deleted, so they do not count (publish.tombstones).
        rows_replaced: stored rows that the load replaced.
        rows_deleted: stored rows it deleted.
        bytes_written: of segment files, or of the catalog when the load is small.
        milliseconds: from begin to visible.
        rejected: the first rejected rows.
        first_id: the first value that the load generated for the AUTO_INCREMENT column, 0 for none. A partial
            update counts only where all of its keys are generated: other values may replace none.
        status: VISIBLE; DUPLICATE when the data was committed before under its txnAppId and txnVersion, then
            `version` and `txn_id` are those of that commit; PREPARE inside a transaction.
    """

    txn_id: int
    label: str
    version: int
    rows_total: int
    rows_loaded: int
    rows_filtered: int
    rows_superseded: int
    rows_late: int
    rows_too_late: int
    rows_replaced: int
    rows_deleted: int
    bytes_written: int
    milliseconds: int
    rejected: list[RejectedRow] = field(default_factory=list)
    status: str = TransactionStatus.VISIBLE
    first_id: int = 0

    def _repr_html_(self) -> str:
        """Shows the counts in a notebook, and the first rejected rows."""
        names = [each.name for each in fields(self) if each.name.startswith("rows_")]
        counts = html_table(
            f"load {self.label}: {self.status}, version {self.version}, {self.milliseconds} ms",
            [name.removeprefix("rows_") for name in names],
            [[getattr(self, name) for name in names]],
        )
        if not self.rejected:
            return counts
        rejected = ((each.row, each.reason) for each in self.rejected)
        return counts + html_table("rejected rows", ("row", "reason"), rejected)


class Load:
    """One write transaction; made by `Table.begin_load`. Use from one thread.

    Attributes:
        label: as given, or generated.
    """

    @internal
    def __init__(
        self,
        table: VersionedTable,
        checker: RowChecker,
        options: WriteOptions,
        *,
        filling: FillOptions | None = None,
        app: AppWrite | None = None,
    ) -> None:
        label = options.label
        self._table = table
        self._checker = checker
        self._filling = filling
        self._is_clearing = False
        self._repeated = app if app is not None and app.is_duplicate else None
        self._writer = TableWriter(
            WriteTarget.of(table, checker.schema, options.operation, app=app, evolution=options.evolution)
        )
        self._rejected: list[RejectedRow] = []
        self._rows_filtered = 0
        self._started = time.monotonic()
        self._is_open = True
        self._joined: list[Load] = []
        self._process = os.getpid()
        self.label = (
            transactions.check_label(label) if label is not None else f"{options.label_prefix}{uuid.uuid4()}"
        )
        self._transaction = TransactionRecord(
            0,
            table.database_id,
            table.name,
            self.label,
            TransactionStatus.PREPARE,
            options.operation,
            transactions.now_ms(),
        )
        if label is not None:
            self._begin()

    @property
    def txn_id(self) -> int:
        """The transaction's id; an unlabelled load gets one when it is first read, or at commit."""
        if not self._transaction.id:
            self._begin()
        return self._transaction.id

    @property
    def skipped(self) -> str:
        """Why the load's rows will be left out: they were committed under its txnAppId and txnVersion before;
        empty when they will not."""
        return self._repeated.skipped if self._repeated is not None else ""

    def _begin(self) -> None:
        before = self._transaction
        catalog = self._table.catalog
        with beginning(catalog, lambda: self._transaction), catalog.write() as tx:
            self._transaction = transactions.begin(
                tx,
                database=before.database,
                table=before.table,
                label=before.label,
                operation=before.operation,
                keep_seconds=self._table.settings.label_keep_seconds,
            )

    def write(self, data: Any, *, supplied: Mapping[str, Mask] | None = None) -> WriteResult:
        """Checks and stages rows; nothing is visible before `commit`.

        Args:
            data: an Arrow table, batch or reader, or any object with the Arrow PyCapsule interface.
            supplied: in flexible partial updates, which rows supply a column: boolean arrays as long as
                `data`, by column name; a column without one is supplied by all rows.

        Returns:
            How many rows were given, and the rejected ones by their position in `data`.

        Raises:
            InvalidInputError: the columns do not fit the table.
        """
        self._check_open()
        if self._repeated is not None:
            return WriteResult(sum(len(batch) for batch in tables_of(data)))
        given = 0
        rejected: list[RejectedRow] = []
        for batch in tables_of(data):
            masks = supplied and {name: mask[given : given + len(batch)] for name, mask in supplied.items()}
            left_out = self._write(batch, masks)
            rejected += [replace(row, row=row.row + given) for row in left_out]
            given += len(batch)
        return WriteResult(given, rejected)

    def _write(self, batch: pa.Table, supplied: Mapping[str, Mask] | None) -> list[RejectedRow]:
        is_short = len(batch) <= SMALL_ROWS and batch_bytes(batch) <= self._table.settings.inline_bytes_max
        with staging_turn() if is_short else nullcontext():
            return self._stage(batch, supplied)

    def _stage(self, batch: pa.Table, supplied: Mapping[str, Mask] | None) -> list[RejectedRow]:
        self._check_clearing(len(batch))
        if isinstance(self._checker, PartialChecker):
            assert self._filling is not None
            delta, rejected = self._checker.check_delta(batch, supplied)
            counts = VersionMetrics(len(batch), len(delta), len(rejected))
            filling = self._filling
            if self._checker.makes_keys:  # rows of new keys only: as good as whole rows (A8, P13)
                filling = replace(filling, refuse_new_keys=False)
            if len(delta):
                self._writer.add_delta(delta, filling, counts)
            else:
                self._writer.add(PendingWrite(metrics=counts))
        else:
            pieces, rejected = self._checker.check_pieces(batch)
            self._writer.add_rows(*pieces, rejected=len(rejected))
        if rejected:
            before = self._writer.pending.metrics.rows_total - len(batch)
            self._note_rejected([replace(row, row=row.row + before) for row in rejected], len(rejected))
        return rejected

    def note_filtered(self, count: int) -> None:
        """Counts rows that a loader rejected before it wrote the others, for the history."""
        if count:
            self._writer.add(PendingWrite(metrics=VersionMetrics(rows_total=count, rows_filtered=count)))

    def _note_rejected(self, rejected: list[RejectedRow], count: int) -> None:
        self._rows_filtered += count
        limit = self._table.settings.rejected_rows_max - len(self._rejected)
        self._rejected += rejected[: max(limit, 0)]

    @property
    def revision(self) -> int:
        """The schema revision that rows are checked against."""
        return self._checker.schema.revision

    @internal
    def check(self, data: pa.Table) -> tuple[list[CheckedRows], list[RejectedRow]]:
        """Checks whole rows without writing them, for `write_checked` of this load or another of the table.

        Raises:
            InvalidInputError: the columns do not fit the table.
        """
        return self._checker.check_pieces(data)

    @internal
    def write_checked(self, rows: CheckedRows) -> None:
        """Stages whole rows that were checked before."""
        self._check_open()
        self._writer.add_rows(rows)

    def clear(self, filter: pc.Expression | None = None) -> None:
        """Removes matching rows in the same version that adds the rows written: INSERT OVERWRITE, TRUNCATE.

        Args:
            filter: over key columns; None removes all rows, and every memory of deleted keys.

        Raises:
            InvalidInputError: rows were written that need those of before, as in a partial update.
        """
        self._check_open()
        self._is_clearing = True
        self._check_clearing(self._writer.pending.metrics.rows_total)
        self._writer.add(PendingWrite(replace_where=ReplaceWhere(filter)))

    def _check_clearing(self, rows: int) -> None:
        """Checks that a load that removes rows writes none which would be filled from them."""
        if self._filling is None or not self._is_clearing:
            return
        name = self._table.name
        if not self._checker.schema.groups:
            raise InvalidInputError(
                f"{name}: a partial update cannot overwrite; write whole rows", kind="bad_mode"
            )
        if rows:
            raise InvalidInputError(
                f"{name}: INSERT OVERWRITE is not supported for a table with column groups; "
                "TRUNCATE it, then INSERT",
                kind="not_supported",
            )

    def require_revision(self, revision: int) -> None:
        """Refuses rows that were made for another schema revision than the load's.

        Raises:
            ConflictError: the table's schema changed since.
        """
        if revision != self.revision:
            table, operation = self._table, self._transaction.operation
            with table.catalog.read() as tx:
                raise schema_error(tx, table.id, name=table.name, operation=operation, revision=revision)

    def _require_own(self, staged: StagedRows) -> None:
        """Checks that rows were staged for this table, and for its schema."""
        if staged.table_id != self._table.id:
            with self._table.catalog.read() as tx:
                check_revision(tx, self._transaction, staged.table_id, self._table.name, staged.revision)
            raise InvalidInputError(
                f"rows staged for another table cannot be loaded into {self._table.name}; stage them for it",
                kind="other_table",
            )
        if staged.revision:
            self.require_revision(staged.revision)

    @internal
    def adopt(self, staged: StagedRows) -> None:
        """Takes over rows that a `WriteTask` of this table staged, in this process or another.

        Rejected rows keep the position they have within their task.

        Raises:
            ConflictError: the table's schema changed since the task was made, or it was made anew.
            ClosedError: the load that the task belongs to has ended.
            CorruptionError: a delta is missing or was changed.
        """
        self._check_open()
        if staged.load is not None:
            self._require_own(staged)
            staged.load.refuse_ended(self._table.loader.disk, self._table.loader.directory)
            self._writer.add_segments(staged.segments, staged.load)
        loader, counted = self._table.loader, 0
        for file in staged.deltas:
            delta = read_delta(loader.disk, loader.directory, file)
            if staged.filling is not None:
                self._writer.add_delta(delta, staged.filling)
                continue
            counted += len(delta)
            columns = delta.rows.select(self._checker.schema.names).columns
            rows = CheckedRows(pa.Table.from_arrays(columns, schema=self._checker.schema.arrow))
            self._writer.add_rows(self._checker.numbered(rows))
        self._note_rejected(staged.rejected, staged.rows_filtered)
        counts = VersionMetrics(
            rows_total=staged.rows_total - counted,
            rows_loaded=staged.rows_total - staged.rows_filtered - counted,
            rows_filtered=staged.rows_filtered,
            rows_superseded=staged.rows_superseded,
            bytes_written=staged.bytes_written,
        )
        self._writer.add(PendingWrite(metrics=counts))

    @internal
    def join(self, other: Load) -> None:
        """Publishes the rows of a load of another table of the database in the commit of this one, or none.

        The other load ends with this one; it has no label of its own.
        """
        self._check_open()
        self._joined.append(other)

    def commit(self, *, max_filter_ratio: float = 1.0, also: Also | None = None) -> LoadResult:
        """Publishes the rows written as one version.

        Args:
            max_filter_ratio: share of rejected rows above which the load fails (Y7).
            also: stores more in the same catalog transaction, or nothing is stored; called even without rows.
                It gets the catalog's transaction and the load's record, and may be called again after a lost
                race.

        Raises:
            LoadRejectedError: too many rejected rows; nothing was applied.
            ConflictError: the table's schema changed since the load began.
            LabelExistsError: another load with this label was faster.
        """
        self._check_open()
        if self._repeated is not None:
            return self._skipped(self._repeated)
        with self._ending():
            self._check_ratio(max_filter_ratio)
            done, writes = commit(
                self._table.catalog,
                self._transaction,
                self.writers,
                label_keep_seconds=self._table.settings.label_keep_seconds,
                started=self._started,
                also=also,
            )
        return self._result(done, writes[0].metrics)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Closes the load after the block, and aborts it when the block fails."""
        try:
            yield
        except CommitUnknownError:
            self.end()  # nothing may be removed: the commit may have happened
            raise
        except BaseException as error:
            self.abort(str(error))
            raise
        self.end()

    @internal
    def end(self) -> None:
        """Closes the load, and those that it has joined; what becomes of the rows is decided."""
        self._is_open = False
        for each in self._joined:
            each.end()

    @property
    @internal
    def writers(self) -> list[TableWriter]:
        """The writes that are published together."""
        return [self._writer, *(writer for each in self._joined for writer in each.writers)]

    def _skipped(self, app: AppWrite) -> LoadResult:
        """Ends a load whose pair, or a later one, is committed already."""
        self.abort(app.skipped)
        first = replace(self._transaction, id=app.seen_txn, version=app.first_version)
        return self._result(first, VersionMetrics(), DUPLICATE)

    def _result(
        self, done: TransactionRecord, metrics: VersionMetrics, status: str = TransactionStatus.VISIBLE
    ) -> LoadResult:
        counts = {**metrics.__dict__, "milliseconds": round((time.monotonic() - self._started) * 1000)}
        result = LoadResult(
            done.id, done.label, done.version, **counts, rejected=self._rejected, status=status
        )
        return replace(result, first_id=self._first_id())

    def _first_id(self) -> int:
        checker = self._checker
        is_exact = not isinstance(checker, PartialChecker) or checker.makes_keys
        return checker.ids.first if is_exact and isinstance(checker.ids, LoadIds) else 0

    def precommit(self, *, max_filter_ratio: float = 1.0) -> LoadResult:
        """Runs the first phase of a two-phase commit: everything is durable, nothing is visible (PC1).

        From now on any process may commit or abort the transaction, by its id or label
        (`Store.commit_transaction`); the end of this process does not touch it. It expires after
        `precommitted_keep_seconds`.

        Returns:
            The outcome as of the version the load was prepared for; `version` is 0.

        Raises:
            LoadRejectedError: too many rejected rows; nothing was stored.
        """
        self._check_open()
        if self._writer.target.evolution is not None or self._joined:
            raise InvalidInputError(
                f"{self._table.name}: a load that changes the schema, or another table, cannot be "
                "pre-committed; commit it",
                kind="bad_mode",
            )
        if self._repeated is not None:
            return self._skipped(self._repeated)
        table = self._table
        with self._ending():
            self._check_ratio(max_filter_ratio)
            if not self._transaction.id:
                self._begin()
            done, writes = precommit(
                table.catalog,
                self._transaction,
                [self._writer],
                keep_seconds=table.settings.precommitted_keep_seconds,
                started=self._started,
            )
        return self._result(done, writes[0].metrics, done.status)

    def prepare(self) -> None:
        """Fills, stages and plans against the newest version, and makes the files durable: everything but the
        commit point.

        `commit` does so by itself; calling it before moves the work out of the commit.
        """
        self._check_open()
        self._writer.prepare()

    @internal
    def prepare_early(self) -> None:
        """Prepares a load whose plan takes its time; a small one is best planned as the next to publish."""
        if not self._writer.can_wait():
            self.prepare()

    def _check_ratio(self, max_filter_ratio: float) -> None:
        try:
            is_share = not isinstance(max_filter_ratio, bool) and 0 <= max_filter_ratio <= 1
        except TypeError:
            is_share = False
        if not is_share:
            found = repr(max_filter_ratio)
            raise InvalidInputError(
                f"{self._table.name}: max_filter_ratio is a share from 0 to 1 (LH7), found {found}",
                kind="bad_ratio",
            )
        filtered = self._rows_filtered
        if not filtered:
            return
        total = self._writer.pending.metrics.rows_total
        # A quotient compares equal to the share it was written as (Y7: equal passes); a product may not.
        if filtered / total <= max_filter_ratio:
            return
        first = self._rejected[0]
        message = (
            f"too many filtered rows: {filtered} of {total} (at most {max_filter_ratio:g} allowed), "
            f"first: row {first.row}: {first.reason}"
        )
        raise LoadRejectedError(message, kind="too_many_filtered", rejected=self._rejected, total=total)

    def abort(self, reason: str) -> None:
        """Ends the load without a version; its label is free again. Its files go when nothing can need
        them."""
        if not self._is_open or self._process != os.getpid():  # a forked child leaves its parent's alone
            return
        self._is_open = False
        for each in self._joined:
            each.abort(reason)
        if self._transaction.id:
            abort_failed(self._table.catalog, self._transaction, reason)
        self._writer.delete_files()

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError(f"load {self.label!r} has ended; begin another")
        if self._process != os.getpid():
            raise ClosedError(f"load {self.label!r} was begun in another process; begin another here")

    def __enter__(self) -> Load:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.abort(str(error) if error else "left without commit")
