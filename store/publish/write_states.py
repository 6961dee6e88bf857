"""The states of the write of one transaction to one table, as values: pending, prepared, published.

    PendingWrite    the parts that were written, in order: whole rows and partial updates; nothing is known of
                    the table
    PreparedWrite   deltas are filled, files are durable, and a plan was made against one version
    PublishedWrite  the version is stored

A write that a two-phase commit has stored is a `StoredWrite` until it is prepared again: its deltas were
filled from an earlier version, and there is no plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from seqstore.store.catalog.app_ids import AppWrite
from seqstore.store.catalog.leases import Lease
from seqstore.store.catalog.version_record import VersionMetrics
from seqstore.store.check.delta import Delta
from seqstore.store.conflict.conflict import Written
from seqstore.store.conflict.isolation import Isolation
from seqstore.store.errors import InvalidInputError
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.fill.update_after_delete import with_deleted_rows
from seqstore.store.publish.evolution import Evolution
from seqstore.store.publish.replace_where import ReplaceWhere
from seqstore.store.publish.winner_test import Plan
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.lazy import cached_property
from seqstore.store.schema.column import SEQUENCE_ID
from seqstore.store.schema.features import require_writable
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.load_marker import StagingId
from seqstore.store.segment.segment import INLINE, Segment
from seqstore.store.segment.stager import Stager

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

SMALL_ROWS: Final = 10_000


@dataclass(frozen=True)
class WriteTarget:
    """The table of a write, and the claim of its transaction on the table.

    Attributes:
        schema: the revision that rows are checked and staged for.
        stager: of segments under that schema.
        operation: the word for messages and the history.
        isolation: the reads of the transaction on the table, None when it is blind there.
        is_blind: the transaction read nothing anywhere.
        app: the pair of an idempotent write.
        evolution: that `schema` comes from, None where the schema is the table's own.
    """

    table: VersionedTable
    schema: TableSchema
    stager: Stager
    operation: str
    isolation: Isolation | None
    is_blind: bool
    app: AppWrite | None
    evolution: Evolution | None = None

    @classmethod
    def of(
        cls,
        table: VersionedTable,
        schema: TableSchema,
        operation: str,
        isolation: Isolation | None = None,
        app: AppWrite | None = None,
        evolution: Evolution | None = None,
    ) -> WriteTarget:
        """Returns the target of a write, which is blind unless it has an isolation.

        Raises:
            FormatError: the table has a feature that this program does not know.
        """
        if schema.features:
            require_writable(schema.features)
        loader = table.loader
        stager = Stager(schema, loader.disk, loader.directory, table.settings, table=table.name)
        return cls(table, schema, stager, operation, isolation, isolation is None, app, evolution)

    @property
    def base_revision(self) -> int:
        """The schema revision that the table must have at the commit."""
        return self.schema.revision if self.evolution is None else self.evolution.base.revision


@dataclass(frozen=True)
class RowPart:
    """Whole rows, staged."""

    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class DeltaPart:
    """Rows of partial updates; joined and filled when the table's state is known."""

    deltas: tuple[Delta, ...]
    options: FillOptions
    schema: TableSchema

    @cached_property
    def delta(self) -> Delta:
        """All rows in one delta."""
        return Delta.concatenate(self.deltas, self.schema)

    def delta_on(self, state: TableState, beneath: TableState) -> Delta:
        """Returns the rows as they are to be filled on a state.

        Args:
            beneath: the table without the earlier writes of the transaction.
        """
        return with_deleted_rows(self.delta, state, beneath) if self.options.is_change else self.delta

    @property
    def columns(self) -> frozenset[int]:
        """The ids of the columns that it writes."""
        delta, schema = self.delta, self.schema
        names = set(delta.rows.schema.names) - set(schema.key)
        written = {
            column.id
            for column in schema.value_columns
            if column.name in names or column.on_update_current_timestamp
        }
        return frozenset(written | ({SEQUENCE_ID} if delta.sequence is not None else set()))


Part = RowPart | DeltaPart


@dataclass(frozen=True)
class PendingWrite:
    """The parts that were written to a table.

    Attributes:
        metrics: of everything written so far.
        replace_where: rows that are removed before the parts are added.
        kept: ids of segments whose files this process must not remove.
        loads: the loads for which tasks staged those segments.
    """

    parts: tuple[Part, ...] = ()
    metrics: VersionMetrics = field(default_factory=VersionMetrics)
    replace_where: ReplaceWhere | None = None
    kept: frozenset[str] = frozenset()
    loads: frozenset[StagingId] = frozenset()

    @property
    def row_segments(self) -> list[Segment]:
        """The segments of whole rows, in order."""
        return [segment for part in self.parts if isinstance(part, RowPart) for segment in part.segments]

    @property
    def has_deltas(self) -> bool:
        return any(isinstance(part, DeltaPart) for part in self.parts)

    @property
    def lone_delta(self) -> DeltaPart | None:
        """The only part, where it is a partial update."""
        if len(self.parts) == 1 and isinstance(self.parts[0], DeltaPart):
            return self.parts[0]
        return None

    @property
    def has_written(self) -> bool:
        return self.replace_where is not None or any(
            isinstance(part, DeltaPart) or part.segments for part in self.parts
        )

    @property
    def is_small(self) -> bool:
        """Whether it is a few whole rows, in memory."""
        segments = self.row_segments
        is_whole = self.replace_where is None and not self.has_deltas
        return is_whole and rows_of(segments) <= SMALL_ROWS and not have_files(segments)

    @property
    def can_be_tested_elsewhere(self) -> bool:
        """Whether only the winner test of staged rows is left to do (publish.range_test)."""
        return bool(self.row_segments) and not self.has_deltas and self.replace_where is None

    @property
    def columns(self) -> frozenset[int] | None:
        """The ids of all columns that the parts write, None when one of them has whole rows."""
        columns: frozenset[int] = frozenset()
        for part in self.parts:
            if isinstance(part, DeltaPart):
                columns |= part.columns
            elif part.segments:
                return None
        return columns

    def written(self) -> list[Written]:
        """Returns the keys that the parts write, with the columns; tombstones write whole rows."""
        found = []
        for part in self.parts:
            if isinstance(part, RowPart):
                found += [Written(segment.index.codes, None) for segment in part.segments]
                continue
            delta = part.delta
            _, codes = delta.keys(part.schema)
            found.append(Written(np.unique(codes), part.columns))
            if delta.signs is not None and delta.signs.any():
                found.append(Written(np.unique(codes[delta.signs == 1]), None))
        return found

    def followed_by(self, other: PendingWrite) -> PendingWrite:
        """Returns the write with another one behind it."""
        if self is NOTHING:
            return other
        parts = list(self.parts)
        for part in other.parts:
            last = parts[-1] if parts else None
            if isinstance(last, RowPart) and isinstance(part, RowPart):
                parts[-1] = RowPart((*last.segments, *part.segments))
            else:
                parts.append(part)
        return PendingWrite(
            tuple(parts),
            self.metrics + other.metrics,
            other.replace_where or self.replace_where,
            self.kept | other.kept,
            self.loads | other.loads,
        )


NOTHING: Final = PendingWrite()


def rows_of(segments: Sequence[Segment]) -> int:
    return sum(segment.rows for segment in segments)


def bytes_of(segments: Sequence[Segment]) -> int:
    return sum(segment.meta.data_bytes + segment.meta.keys_bytes for segment in segments)


def have_files(segments: Sequence[Segment]) -> bool:
    return any(segment.meta.home != INLINE for segment in segments)


@dataclass(frozen=True)
class FilledWrite:
    """A write whose deltas were filled: all its segments are known.

    Attributes:
        filled: the segments that the deltas became.
        published: the segments of the version, in order.
        stale: by segment, rows that were filled again and stand in a later segment.
        rows_late, rows_superseded: rows of the deltas that filling dropped.
    """

    pending: PendingWrite
    filled: tuple[Segment, ...] = ()
    published: tuple[Segment, ...] = ()
    stale: Mapping[str, Positions] = field(default_factory=dict)
    rows_late: int = 0
    rows_superseded: int = 0


@dataclass(frozen=True)
class StoredWrite:
    """A write of a pre-committed transaction, filled from `version`."""

    filled: FilledWrite
    version: int


@dataclass(frozen=True)
class PreparedWrite:
    """A write that can be published as long as `state` is the newest version.

    Attributes:
        lease: keeps vacuum away from `state`, where the plan was made elsewhere and took its time.
    """

    filled: FilledWrite
    state: TableState
    plan: Plan
    lease: Lease | None = None


@dataclass(frozen=True)
class PublishedWrite:
    """A write whose version is stored, in a catalog transaction that may still fail.

    Attributes:
        state: the table at that version, None where the catalog has to be read for it.
    """

    filled: FilledWrite
    state: TableState | None


def refuse_changes(schema: TableSchema, table: str, operation: str, rows: int) -> None:
    """Raises when stored rows would change in a table that only grows.

    Raises:
        InvalidInputError: `delta.appendOnly` is set.
    """
    if rows and schema.is_append_only:
        raise InvalidInputError(
            f"{operation} would change or delete {rows} rows of {table!r}, and its property "
            "delta.appendOnly is true; write new keys only, or set the property to false",
            kind="append_only",
            table=table,
        )
