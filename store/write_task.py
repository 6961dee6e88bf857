"""Staging the rows of a load anywhere: what a Spark executor needs to do its share of `prepare`.

A `WriteTask` is a picklable value with everything that checking and staging take; running it writes segment
files and never opens the catalog. What it returns, `StagedRows`, travels back to the process that has the
catalog, whose load adopts it (`Load.adopt`) and publishes all shares as one version. Shares that nobody
adopts, of tasks that failed or ran twice, are removed by `discard`, or when the owner that their names tell
is gone.

Rows that are merged with stored ones before they are staged, and rows that want new AUTO_INCREMENT values,
cannot be staged so; a task then only tells which of them the load would reject.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from store.auto_increment import AnyIds
from store.check_partial import UPSERT, PartialChecker
from store.check_rows import Mask, RejectedRow, RowChecker
from store.disk import Disk
from store.errors import InvalidInputError
from store.rows_in import chunks_of, tables_of
from store.schema import TableSchema
from store.segment import INLINE, SegmentMeta
from store.stage import Stager


@dataclass(frozen=True)
class StagedRows:
    """What a task has staged.

    Attributes:
        segments: descriptions, each with its bytes when it is inline.
        rows_total, rows_filtered: rows given; rows rejected.
        rows_superseded: accepted rows that lost to another row of the task.
        bytes_written: size of the segments.
        rejected: the first rejected rows, by their position within the task.
    """

    segments: tuple[tuple[SegmentMeta, bytes | None], ...] = ()
    rows_total: int = 0
    rows_filtered: int = 0
    rows_superseded: int = 0
    bytes_written: int = 0
    rejected: list[RejectedRow] = field(default_factory=list)

    def __add__(self, other: StagedRows) -> StagedRows:
        return StagedRows(
            self.segments + other.segments,
            self.rows_total + other.rows_total,
            self.rows_filtered + other.rows_filtered,
            self.rows_superseded + other.rows_superseded,
            self.bytes_written + other.bytes_written,
            self.rejected + other.rejected,
        )


@dataclass(frozen=True)
class WriteTask:
    """Checks and stages a share of a load's rows; made by `Table.write_task`."""

    checker: RowChecker
    stager: Stager

    def run(self, data: Any) -> StagedRows:
        """Stages rows; files and their names are durable afterwards.

        Args:
            data: as for `Table.upsert`.

        Raises:
            InvalidInputError: the columns do not fit the table.
        """
        settings = self.stager.settings
        tables = (
            chunks_of(data, settings.segment_rows)
            if isinstance(data, pa.RecordBatchReader)
            else tables_of(data)
        )
        done = StagedRows()
        for table in tables:
            pieces, rejected = self.checker.check_pieces(table)
            staged = self.stager.stage(*pieces)
            listed = rejected[: max(settings.rejected_rows_max - len(done.rejected), 0)]
            done += StagedRows(
                tuple((segment.meta, segment.payload) for segment in staged.segments),
                len(table),
                len(rejected),
                staged.superseded,
                sum(segment.meta.data_bytes + segment.meta.keys_bytes for segment in staged.segments),
                [replace(row, row=row.row + done.rows_total) for row in listed],
            )
        if any(meta.home != INLINE for meta, _ in done.segments):
            self.stager.sync()
        return done

    def rejected(self, rows: pa.Table, supplied: Mapping[str, Mask]) -> list[RejectedRow]:
        """Rows that the load will not take, in ascending order; nothing is staged.

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

    def discard(self, *, keep: Collection[str] = ()) -> None:
        """Removes the files staged for the load, but for the segments named; the others cannot be adopted
        any more."""
        staging = self.stager.staging
        if staging is None:
            return
        disk: Disk = self.stager.disk
        for name in disk.list(self.stager.directory):
            if staging.owns(name) and name.rpartition(".")[0] not in keep:
                disk.delete(f"{self.stager.directory}/{name}")


def check_can_stage(name: str, schema: TableSchema, mode: str) -> None:
    """Raises unless rows can be staged without knowing what is stored.

    Raises:
        InvalidInputError: they are merged with stored rows first.
    """
    why = ""
    if schema.groups:
        why = "has column groups (sequence_mapping): their rows are merged with stored ones"
    elif mode != UPSERT:
        why = "gets a partial update: its rows are filled from stored ones"
    if why:
        raise InvalidInputError(
            f"{name} {why}, which only the process that commits can do; load them by upsert, stream load or "
            "INSERT",
            kind="not_supported",
        )
