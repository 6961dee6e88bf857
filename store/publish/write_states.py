"""The states of the write of one transaction to one table, as values: pending, prepared, published.

    PendingWrite    the parts that were written, in order; nothing is known of the table
    PreparedWrite   deltas are filled, files are durable, and a plan was made against one version
    PublishedWrite  the version is stored

A write that a two-phase commit has stored is a `StoredWrite` until it is prepared again: its deltas were
filled from an earlier version, and there is no plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from seqstore.store.catalog.app_ids import AppWrite
from seqstore.store.catalog.version_record import VersionMetrics
from seqstore.store.conflict.isolation import Isolation
from seqstore.store.publish.replace_where import ReplaceWhere
from seqstore.store.publish.winner_test import Plan
from seqstore.store.publish.write_parts import DeltaPart, Part, RowPart
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.features import require_writable
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.load_marker import StagingId
from seqstore.store.segment.segment import Segment
from seqstore.store.segment.stager import Stager

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable


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
    """

    table: VersionedTable
    schema: TableSchema
    stager: Stager
    operation: str
    isolation: Isolation | None
    is_blind: bool
    app: AppWrite | None

    @classmethod
    def of(
        cls,
        table: VersionedTable,
        schema: TableSchema,
        operation: str,
        isolation: Isolation | None = None,
        app: AppWrite | None = None,
    ) -> WriteTarget:
        """Returns the target of a write, which is blind unless it has an isolation.

        Raises:
            FormatError: the table has a feature that this program does not know.
        """
        require_writable(schema.features)
        stager = Stager(schema, table.loader.disk, table.loader.directory, table.settings)
        return cls(table, schema, stager, operation, isolation, isolation is None, app)


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

    def with_segments(self, segments: Sequence[Segment], counts: VersionMetrics) -> PendingWrite:
        """Returns the write with whole rows behind everything else."""
        parts = self.parts
        if parts and isinstance(parts[-1], RowPart):
            parts = (*parts[:-1], RowPart((*parts[-1].segments, *segments)))
        else:
            parts = (*parts, RowPart(tuple(segments)))
        return PendingWrite(parts, self.metrics + counts, self.replace_where, self.kept, self.loads)

    def with_delta(self, part: DeltaPart, counts: VersionMetrics) -> PendingWrite:
        """Returns the write with a partial update on top of everything else."""
        parts = self.parts
        last = parts[-1] if parts else None
        if isinstance(last, DeltaPart) and last.options == part.options:
            parts = (*parts[:-1], replace(last, deltas=(*last.deltas, *part.deltas)))
        else:
            parts = (*parts, part)
        return PendingWrite(parts, self.metrics + counts, self.replace_where, self.kept, self.loads)

    def followed_by(self, other: PendingWrite) -> PendingWrite:
        """Returns the write with another one behind it."""
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

    @property
    def pending(self) -> PendingWrite:
        return self.filled.pending


@dataclass(frozen=True)
class PreparedWrite:
    """A write that can be published as long as `state` is the newest version."""

    filled: FilledWrite
    state: TableState
    plan: Plan

    @property
    def pending(self) -> PendingWrite:
        return self.filled.pending


@dataclass(frozen=True)
class PublishedWrite:
    """A write whose version is stored, in a catalog transaction that may still fail.

    Attributes:
        state: the table at that version, None where the catalog has to be read for it.
    """

    filled: FilledWrite
    state: TableState | None

    @property
    def pending(self) -> PendingWrite:
        return self.filled.pending
