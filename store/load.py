"""A load: one write transaction on one table, from its first batch to the version it makes.

    with table.begin_load(label="2024-05-01") as load:
        load.write(batch)          # check, stage; as often as needed, memory stays that of a batch
        result = load.commit()     # publish once

The phases of `commit`: plan against the newest state, switch, tell. Three outcomes: it returns (visible and
durable), it raises a `StoreError` (certainly not visible, the label is free again), or the process dies
(the label tells on reopening: VISIBLE, or free). Leaving the block without a commit aborts.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from store import failpoint
from store import transaction as transactions
from store.catalog import Transaction
from store.check_rows import RejectedRow, RowChecker
from store.errors import ClosedError, CommitUnknownError, InvalidInputError, LoadRejectedError
from store.publish import TRIES_BEFORE_LOCK, Figures, HeadMoved, publish, realign
from store.resolve import Plan, make_plan
from store.segment import INLINE, Segment
from store.stage import Stager
from store.transaction import ABORTED, TransactionRecord

if TYPE_CHECKING:
    from store.table import Table

MERGE_TYPES = ("APPEND", "DELETE", "MERGE")


@dataclass(frozen=True)
class WriteResult:
    """What became of one batch: rows given, and those left out."""

    rows: int
    rejected: list[RejectedRow] = field(default_factory=list)


@dataclass(frozen=True)
class LoadResult:
    """What became of a load.

    Attributes:
        txn_id, label: its transaction.
        version: table version it made; the version before it when it brought no row.
        rows_total: rows given.
        rows_loaded: rows accepted, those that lost to others included (LS8).
        rows_filtered: rows rejected.
        rows_superseded: accepted rows that lost to another row of the load.
        rows_late: accepted rows that lost to a stored row with a larger sequence.
        rows_replaced: stored rows the load took the place of.
        rows_deleted: stored rows it deleted.
        bytes_written: of segment files, or of the catalog when the load is small.
        milliseconds: from begin to visible.
        rejected: the first rejected rows.
    """

    txn_id: int
    label: str
    version: int
    rows_total: int
    rows_loaded: int
    rows_filtered: int
    rows_superseded: int
    rows_late: int
    rows_replaced: int
    rows_deleted: int
    bytes_written: int
    milliseconds: int
    rejected: list[RejectedRow] = field(default_factory=list)


class Load:
    """One write transaction; made by `Table.begin_load`. Use from one thread.

    Attributes:
        label: as given, or generated.
    """

    def __init__(
        self, table: Table, checker: RowChecker, stager: Stager, *, label: str | None, operation: str
    ) -> None:
        self._table = table
        self._checker = checker
        self._stager = stager
        self._staged: list[Segment] = []
        self._rejected: list[RejectedRow] = []
        self._figures = Figures()
        self._started = time.monotonic()
        self._is_open = True
        self.label = transactions.check_label(label) if label is not None else str(uuid.uuid4())
        self._transaction = TransactionRecord(
            0,
            table.database_id,
            table.name,
            self.label,
            transactions.PREPARE,
            operation,
            transactions.now_ms(),
        )
        if label is not None:
            self._begin()

    @property
    def txn_id(self) -> int:
        """The transaction's id; an unlabelled load is given one when it is first asked for, or at commit."""
        if not self._transaction.id:
            self._begin()
        return self._transaction.id

    def _begin(self) -> None:
        before = self._transaction
        with self._table.catalog.write() as tx:
            self._transaction = transactions.begin(
                tx,
                database=before.database,
                table=before.table,
                label=before.label,
                operation=before.operation,
                keep_seconds=self._table.settings.label_keep_seconds,
            )

    def write(self, data: Any) -> WriteResult:
        """Checks and stages rows; nothing is visible before `commit`.

        Args:
            data: an Arrow table, batch or reader, or any object with the Arrow PyCapsule interface.

        Returns:
            How many rows were given, and the rejected ones by their position in `data`.

        Raises:
            InvalidInputError: the columns do not fit the table.
        """
        self._check_open()
        given = 0
        rejected: list[RejectedRow] = []
        for batch in _tables(data):
            left_out = self._write(batch)
            rejected += [replace(row, row=row.row + given) for row in left_out]
            given += len(batch)
        return WriteResult(given, rejected)

    def _write(self, batch: pa.Table) -> list[RejectedRow]:
        rows, rejected = self._checker.check(batch)
        staged = self._stager.stage(rows)
        self._staged += staged.segments
        before = self._figures
        limit = self._table.settings.rejected_rows_max - len(self._rejected)
        self._rejected += [replace(row, row=row.row + before.rows_total) for row in rejected[: max(limit, 0)]]
        self._figures = replace(
            before,
            rows_total=before.rows_total + len(batch),
            rows_loaded=before.rows_loaded + len(rows),
            rows_filtered=before.rows_filtered + len(rejected),
            rows_superseded=before.rows_superseded + staged.superseded,
            bytes_written=before.bytes_written
            + sum(segment.meta.data_bytes + segment.meta.keys_bytes for segment in staged.segments),
        )
        return rejected

    def commit(self, *, max_filter_ratio: float = 1.0) -> LoadResult:
        """Publishes what was written as one version.

        Args:
            max_filter_ratio: share of rejected rows above which the load fails (Y7).

        Raises:
            LoadRejectedError: too many rejected rows; nothing was applied.
            ConflictError: the table's schema changed since the load began.
            LabelExistsError: another load with this label was faster.
        """
        self._check_open()
        self._check_ratio(max_filter_ratio)
        if any(segment.meta.home != INLINE for segment in self._staged):
            self._stager.sync()
        failpoint.hit("load.staged")
        try:
            done, figures = self._publish()
        except CommitUnknownError:
            self._is_open = False  # nothing may be removed: the version may be there
            raise
        except BaseException as error:
            self.abort(str(error))
            raise
        self._is_open = False
        return LoadResult(
            txn_id=done.id,
            label=done.label,
            version=done.version,
            rows_total=figures.rows_total,
            rows_loaded=figures.rows_loaded,
            rows_filtered=figures.rows_filtered,
            rows_superseded=figures.rows_superseded,
            rows_late=figures.rows_late,
            rows_replaced=figures.rows_replaced,
            rows_deleted=figures.rows_deleted,
            bytes_written=figures.bytes_written,
            milliseconds=self._elapsed(),
            rejected=self._rejected,
        )

    def _publish(self) -> tuple[TransactionRecord, Figures]:
        state = self._table.state()
        plan = make_plan(state, self._staged)
        for _ in range(TRIES_BEFORE_LOCK):
            try:
                with self._table.catalog.write() as tx:
                    done, figures = self._switch(tx, plan)
                break
            except HeadMoved:
                newest = self._table.state()
                plan, state = realign(plan, state, newest, self._staged), newest
        else:
            with self._table.catalog.write() as tx:
                newest = self._table.advance(tx, state)
                plan, state = realign(plan, state, newest, self._staged), newest
                done, figures = self._switch(tx, plan)
        failpoint.hit("publish.after_switch")
        if self._staged:
            self._table.remember(state.after_load(done.version, self._staged, plan.positions()))
        return done, figures

    def _switch(self, tx: Transaction, plan: Plan) -> tuple[TransactionRecord, Figures]:
        replaced, deleted = plan.effects()
        figures = replace(
            self._figures,
            rows_late=plan.rows_late,
            rows_replaced=replaced,
            rows_deleted=deleted,
            milliseconds=self._elapsed(),
        )
        done = publish(
            tx,
            self._table.id,
            self._transaction,
            self._staged,
            plan,
            figures,
            revision=self._checker.schema.revision,
            label_keep_seconds=self._table.settings.label_keep_seconds,
        )
        return done, figures

    def _check_ratio(self, max_filter_ratio: float) -> None:
        total, filtered = self._figures.rows_total, self._figures.rows_filtered
        if filtered <= total * max_filter_ratio:
            return
        first = self._rejected[0]
        message = (
            f"too many filtered rows: {filtered} of {total} (at most {max_filter_ratio:g} allowed), "
            f"first: row {first.row}: {first.reason}"
        )
        self.abort(message)
        raise LoadRejectedError(message, kind="too_many_filtered", rejected=self._rejected, total=total)

    def abort(self, reason: str) -> None:
        """Ends the load without a version; its label is free again. Its files go when nothing can need
        them."""
        if not self._is_open:
            return
        self._is_open = False
        if self._transaction.id:
            aborted = replace(
                self._transaction, status=ABORTED, finished_ms=transactions.now_ms(), reason=reason
            )
            with self._table.catalog.write() as tx:
                transactions.put_transaction(tx, aborted)
        for segment in self._staged:
            segment.delete_files()

    def _elapsed(self) -> int:
        return round((time.monotonic() - self._started) * 1000)

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError(f"load {self.label!r} has ended; begin another")

    def __enter__(self) -> Load:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort(str(error) if error else "left without commit")


def _tables(data: Any) -> Iterator[pa.Table]:
    """The data as Arrow tables of one load step each."""
    if isinstance(data, pa.Table):
        yield data
    elif isinstance(data, pa.RecordBatch):
        yield pa.Table.from_batches([data])
    elif isinstance(data, pa.RecordBatchReader):
        yield from _chunks(data)
    elif hasattr(data, "__arrow_c_stream__"):
        yield from _chunks(pa.RecordBatchReader.from_stream(data))
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.Table.from_batches([pa.record_batch(data)])
    else:
        raise InvalidInputError(
            f"rows come as an Arrow table, batch or reader, or an object with the Arrow PyCapsule interface "
            f"(pandas, Polars, DuckDB); found {type(data).__name__}",
            kind="bad_data",
        )


_CHUNK_ROWS = 2_000_000
_CHUNK_BYTES = 512 * 2**20


def _chunks(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """A reader's batches gathered into tables large enough for good segments, small enough for memory."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    is_first = True
    for batch in reader:
        gathered.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(gathered, schema=reader.schema)
            gathered, rows, size, is_first = [], 0, 0, False
    if gathered or is_first:
        yield pa.Table.from_batches(gathered, schema=reader.schema)
