"""Staging the rows of a load anywhere: the share of a Spark executor in `prepare`.

A `WriteTask` is a picklable value with everything that checking and staging need; running it writes files
and never opens the catalog. The `StagedRows` that it returns travel back to the process that has the catalog,
whose load adopts it (`Load.adopt`) and publishes all shares as one version. That process calls `begin` before
the task runs anywhere, and `recovery.end_loads` when all is over: shares that no version has go, of tasks
that ran twice or still run too (segment.load_marker).

Whole rows become segments. Rows of partial updates and of tables with column groups are checked, cast and put
down as deltas: their result depends on stored rows and on each other, so the load that adopts them fills
them, against the version it publishes on. So are rows of duplicate tables, whose keys the catalog reserves:
the load that adopts them numbers and stages them.

Rows that need new AUTO_INCREMENT values cannot be staged so: the catalog reserves these. A task then only
finds which of the rows the load would reject.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from seqstore.store.catalog.auto_increment import AnyIds
from seqstore.store.check.column_mask import split_supplied
from seqstore.store.check.delta import Delta
from seqstore.store.check.input_rows import chunks_of, tables_of
from seqstore.store.check.partial_checker import PartialChecker
from seqstore.store.check.row_checker import Mask, RejectedRow, RowChecker
from seqstore.store.fill.delta_file import DeltaFile, write_delta
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.publish.write_states import bytes_of
from seqstore.store.segment.load_marker import StagingId
from seqstore.store.segment.segment import INLINE, SegmentMeta
from seqstore.store.segment.stager import Stager

_OF_LOAD: Final = ("filling", "table_id", "load")  # equal in all shares that have rows


@dataclass(frozen=True)
class StagedRows:
    """The rows that a task has staged.

    Attributes:
        segments: descriptions, each with its bytes when it is inline.
        deltas: rows that are to be filled from history, or whole rows of a duplicate table.
        filling: how they are filled; None when there are none, and for whole rows.
        revision: the schema revision they were checked for; 0 when there are no rows.
        rows_total, rows_filtered: rows given; rows rejected.
        rows_superseded: accepted rows that lost to another row of the task.
        bytes_written: size of the segments.
        rejected: the first rejected rows, by their position within the task.
        table_id, load: where the files are and whose; 0 and None when nothing was given.
    """

    segments: tuple[tuple[SegmentMeta, bytes | None], ...] = ()
    deltas: tuple[DeltaFile, ...] = ()
    filling: FillOptions | None = None
    revision: int = 0
    rows_total: int = 0
    rows_filtered: int = 0
    rows_superseded: int = 0
    bytes_written: int = 0
    rejected: list[RejectedRow] = field(default_factory=list)
    table_id: int = 0
    load: StagingId | None = None

    def __add__(self, other: StagedRows) -> StagedRows:
        """Returns both; facts of the load are those of the one that has rows."""
        more = other.__dict__
        sums = {name: value + more[name] for name, value in self.__dict__.items() if name not in _OF_LOAD}
        sums |= {name: self.__dict__[name] or more[name] for name in _OF_LOAD}
        return StagedRows(**{**sums, "revision": max(self.revision, other.revision)})


@dataclass(frozen=True)
class WriteTask:
    """Checks and stages a share of a load's rows; made by `Table.write_task`.

    Attributes:
        table_id: of its table.
        load: it belongs to.
        checker, stager: of the load.
        filling: how deltas are filled; None when the rows are whole.
        supplied: in flexible updates, the column of the data that names the columns each row supplies.
    """

    table_id: int
    load: StagingId
    checker: RowChecker
    stager: Stager
    filling: FillOptions | None = None
    supplied: str | None = None

    def run(self, data: Any) -> StagedRows:
        """Stages rows; files and their names are durable afterwards. After an error those there are go.

        Args:
            data: as for `Table.upsert`.

        Raises:
            InvalidInputError: the columns do not fit the table.
            ClosedError: the load has not begun, or has ended.
        """
        with self.stager.attempt_of(self.load) as stager:
            done = _staged(replace(self, stager=stager), data)
        return replace(done, table_id=self.table_id, load=self.load)

    def rejected(self, rows: pa.Table, supplied: Mapping[str, Mask]) -> list[RejectedRow]:
        """Returns the rows that the load will reject, in ascending order; nothing is staged.

        Args:
            supplied: see `Load.write`.

        Raises:
            InvalidInputError: the columns do not fit the table.
        """
        checker = self.checker
        if self.checker.schema.auto_increment_column is not None:
            checker = replace(checker, ids=AnyIds())
        if isinstance(checker, PartialChecker):
            return checker.check_delta(rows, supplied)[1]
        return checker.check_pieces(rows)[1]

    def check_columns(self, data: pa.Table) -> None:
        """Checks that rows with such columns would fit.

        Raises:
            InvalidInputError: they do not.
        """
        empty, supplied = split_supplied(data.slice(0, 0), self.supplied, self.checker.schema)
        if isinstance(self.checker, PartialChecker):
            self.checker.check_delta(empty, supplied)
        else:
            self.checker.check(empty)

    def begin(self) -> None:
        """Lets the task be run, here and elsewhere, until `recovery.end_loads`.

        Raises:
            UnavailableError: the disk cannot be written.
        """
        self.load.begin(self.stager.disk, self.stager.directory)


def _staged(task: WriteTask, data: Any) -> StagedRows:
    settings = task.stager.settings
    tables = (
        chunks_of(data, settings.segment_rows) if isinstance(data, pa.RecordBatchReader) else tables_of(data)
    )
    done = StagedRows()
    for table in tables:
        share, rejected = _stage(task, table)
        listed = rejected[: max(settings.rejected_rows_max - len(done.rejected), 0)]
        done += replace(
            share,
            revision=task.checker.schema.revision,
            rows_total=len(table),
            rows_filtered=len(rejected),
            rejected=[replace(row, row=row.row + done.rows_total) for row in listed],
        )
    if any(meta.home != INLINE for meta, _ in done.segments) or any(delta.name for delta in done.deltas):
        task.stager.sync()
    return done


def _stage(task: WriteTask, table: pa.Table) -> tuple[StagedRows, list[RejectedRow]]:
    """Checks some rows and writes their files; returns the files and the rejected rows."""
    rows, supplied = split_supplied(table, task.supplied, task.checker.schema)
    if isinstance(task.checker, PartialChecker):
        delta, rejected = task.checker.check_delta(rows, supplied)
        if not len(delta):
            return StagedRows(), rejected
        return StagedRows(deltas=(_write(task.stager, delta),), filling=task.filling), rejected
    pieces, rejected = task.checker.check_pieces(rows)
    if task.checker.schema.is_duplicate:
        visible = pa.concat_tables([piece.visible for piece in pieces]).combine_chunks()
        return StagedRows(deltas=(_write(task.stager, Delta(visible)),) if len(visible) else ()), rejected
    staged = task.stager.stage(*pieces)
    share = StagedRows(
        tuple((segment.meta, segment.payload) for segment in staged.segments),
        rows_superseded=staged.superseded,
        bytes_written=bytes_of(staged.segments),
    )
    return share, rejected


def _write(stager: Stager, delta: Delta) -> DeltaFile:
    limit = stager.settings.inline_bytes_max
    return write_delta(stager.disk, stager.directory, delta, limit, stager.staging)
