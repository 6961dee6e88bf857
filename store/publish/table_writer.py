"""What one transaction writes to one table, kept ready to be published at whatever version is the newest.

Its parts stand in the order they were written: segments of whole rows, which no state can change, and deltas
of partial updates, which are filled from history.

1. `prepare` fills, stages and plans against the newest state, and makes files durable.
2. When others published meanwhile, `align` brings the plan up to date: one segment of whole rows is tested
   against what arrived alone; a lone delta is filled again where its keys were touched and gets one more
   segment; anything else is filled and planned anew. Both steps check what was read against everything
   published up to the state they end at (conflict.isolation).
3. `table_write` is what goes into the switch.

A writer can be put down and taken up again by another process (publish.prepared_writer).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from seqstore.store.catalog import catalog
from seqstore.store.catalog.app_ids import AppWrite
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.leases import Lease
from seqstore.store.catalog.version_record import CommitInfo, VersionMetrics
from seqstore.store.check.delta import Delta
from seqstore.store.conflict.conflict import Written
from seqstore.store.conflict.conflict_errors import Loser, creation
from seqstore.store.conflict.isolation import Isolation, recreated_error
from seqstore.store.errors import LoadRejectedError, NotFoundError
from seqstore.store.fill.delta_file import DeltaFile
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.fill.partial import fill, keys_of
from seqstore.store.publish.publish import TableWrite
from seqstore.store.publish.replace_where import ReplaceWhere, plan_replace_where
from seqstore.store.publish.unpublished_files import remove_unpublished
from seqstore.store.publish.winner_test import Plan, Planner, extend_plan, make_plan
from seqstore.store.publish.write_parts import (
    DeltaPart,
    RowPart,
    columns_written,
    refuse_changes,
    written_keys,
)
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.column import VERSION_COL
from seqstore.store.schema.features import require_writable
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.checked_rows import CheckedRows
from seqstore.store.segment.dedupe import Rows
from seqstore.store.segment.key_index import Matches, Positions
from seqstore.store.segment.load_marker import StagingId
from seqstore.store.segment.segment import INLINE, Segment, SegmentMeta
from seqstore.store.segment.stager import Stager

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_SMALL_ROWS: Final = 10_000
_ARRIVED_MAX: Final = 4  # more segments are probed by the runs of the newest state, made once for all
_INDEXED_ROWS_MAX: Final = 2_000_000  # key indexes of a larger load are read back from their files


class TableWriter:
    """The writes of one transaction to one table. Use from one thread.

    Attributes:
        table: it writes to.
        schema: the revision everything is checked and staged for.
        figures: of everything written so far.
        operation: for messages.
        isolation: what the transaction read of the table, None when it is blind.
        is_blind: its transaction read nothing anywhere.
        app: the pair of an idempotent write.
        kept, loads: ids of segments whose files others answer for; loads that tasks staged them for.
    """

    def __init__(
        self,
        table: VersionedTable,
        schema: TableSchema,
        operation: str = "LOAD",
        isolation: Isolation | None = None,
        app: AppWrite | None = None,
    ) -> None:
        require_writable(schema.features)
        self.operation = operation
        self.isolation = isolation
        self.is_blind = isolation is None
        self.app = app
        self.table = table
        self.schema = schema
        self.metrics = VersionMetrics()
        self._stager = Stager(schema, table.loader.disk, table.loader.directory, table.settings)
        self._parts: list[RowPart | DeltaPart] = []
        self._filled: list[Segment] = []  # what the deltas came to
        self._published: list[Segment] = []  # what goes into the switch, in order
        self._stale: dict[str, Positions] = {}  # of those, rows that were filled again
        self._late = 0
        self._lost_in_filling = 0
        self._plan: Plan | None = None
        self._state: TableState | None = None
        self._made: TableState | None = None  # what the switch makes of it
        self._lease: Lease | None = None  # keeps vacuum away from the version that is planned against
        self._base_lease: Lease | None = None  # the same for the version that was read, when taken up again
        self._deltas: list[DeltaFile] = []
        self._snapshot: int | None = None  # version a writer that was taken up again was prepared at
        self.replace_where: ReplaceWhere | None = None  # rows that go before those written come in
        self.kept: frozenset[str] = frozenset()
        self.loads: frozenset[StagingId] = frozenset()

    @property
    def segments(self) -> list[Segment]:
        """Everything staged, in order."""
        if self._is_lone_delta:
            return self._filled
        return [segment for part in self._parts if isinstance(part, RowPart) for segment in part.segments]

    @property
    def _is_lone_delta(self) -> bool:
        return len(self._parts) == 1 and isinstance(self._parts[0], DeltaPart)

    @property
    def is_small(self) -> bool:
        """Bringing the plan up to date takes a moment only."""
        return sum(segment.rows for segment in self._published) <= _SMALL_ROWS

    @property
    def is_prepared(self) -> bool:
        return self._plan is not None

    def add_rows(self, *pieces: CheckedRows) -> None:
        """Stages whole rows, in one piece or several, behind everything written before."""
        self._take_segments(self._stage(*pieces))

    def add_segments(self, staged: Sequence[tuple[SegmentMeta, bytes | None]], load: StagingId) -> None:
        """Takes segments that a `WriteTask` staged: metadata, and bytes where there are no files."""
        stager = self._stager
        self.kept |= {meta.id for meta, _ in staged}
        self.loads |= {load}
        self._take_segments(
            [Segment(stager.disk, stager.directory, meta, stager.schema, payload) for meta, payload in staged]
        )

    def _take_segments(self, segments: list[Segment]) -> None:
        self._plan = None
        last = self._parts[-1] if self._parts else None
        if isinstance(last, RowPart):
            last.segments += segments
        else:
            self._parts.append(RowPart(segments))
        held = self.segments
        if sum(segment.rows for segment in held) > _INDEXED_ROWS_MAX:
            for segment in held:
                segment.forget_index()

    def add_delta(self, delta: Delta, options: FillOptions) -> None:
        """Takes rows of a partial update, to lie on everything written before."""
        self._plan = None
        last = self._parts[-1] if self._parts else None
        if isinstance(last, DeltaPart) and last.options == options:
            last.deltas.append(delta)
        else:
            self._parts.append(DeltaPart([delta], options))

    def prepare(self) -> None:
        """Does everything but the switch, against the newest version; no-op when that was done."""
        if self._plan is not None:
            return
        state, self._lease = self.hold()
        self._check(state, None)
        if self._snapshot is None:
            self._prepare(state)
        else:
            self._resume(state, self._snapshot)

    @property
    def can_wait(self) -> bool:
        """Preparing takes a moment only: it is best done when it is this writer's turn."""
        return (
            self._plan is None
            and self._snapshot is None
            and self.replace_where is None
            and self.isolation is None
            and not self._has_deltas
            and all(segment.meta.home == INLINE for segment in self.segments)
            and sum(segment.rows for segment in self.segments) <= _SMALL_ROWS
        )

    def catch_up(self) -> None:
        """Prepares, or brings the plan up to the newest version.

        Raises:
            ConflictError: what was read has changed.
        """
        if self._plan is None:
            self.prepare()
        else:
            self.align(self.table.state())

    def hold(self) -> tuple[TableState, Lease]:
        """The newest state.

        Raises:
            ProtocolChangedException: another table has the name by now.
            NotFoundError: none has.
        """
        try:
            return self.table.hold()
        except NotFoundError as error:
            name = self.table.name.partition(".")[2]
            with self.table.catalog.read() as tx:
                found = catalog.find_table(tx, self.table.database_id, name)
                winners = creation(tx, found) if found not in (None, self.table.id) else []
            if found in (None, self.table.id):
                raise
            isolation = self.isolation
            loser = Loser(
                self.table.name,
                self.operation,
                isolation.base.version if isolation is not None else 0,
                isolation.level if isolation is not None else self.schema.isolation_level,
            )
            raise recreated_error(loser, winners) from error

    def align(self, now: TableState, tx: CatalogTransaction | None = None) -> None:
        """Brings the plan up to a newer state.

        Args:
            tx: the catalog transaction that is open, if one is.

        Raises:
            ConflictError: what was read has changed.
        """
        assert self._plan is not None
        assert self._state is not None
        before, plan = self._state, self._plan
        if now.version == before.version:
            return
        self._check(now, tx)
        self._lease = self.table.lease(now.version)
        if self.replace_where is not None:
            self._prepare(now)
            return
        self._state = now
        only_moved = now.replaced <= before.version
        only_grew = only_moved and set(before.segments) <= set(now.segments)
        arrived = now.since(before)
        if self._is_lone_delta and self._fill_touched(arrived, now, before.version, only_moved=only_moved):
            self._plan = make_plan(now, self._filled, self._stale)
        elif (
            only_grew
            and len(self._parts) == 1
            and len(self.segments) == 1
            and not self._stale
            and len(arrived.segments) <= _ARRIVED_MAX
        ):
            self._plan = extend_plan(plan, before, now, self.segments[0])
        elif len(self._parts) == 1:
            self._plan = make_plan(now, self.segments, self._stale)
        else:
            self._prepare(now)

    def table_write(self, milliseconds: int) -> TableWrite:
        """What to publish."""
        assert self._plan is not None
        self._refuse_too_late(self._plan)
        replaced, deleted, superseded = self._plan.effects()
        if self._has_deltas:
            superseded = 0  # rows that were filled again, not other rows
        metrics = replace(
            self.metrics,
            rows_superseded=self.metrics.rows_superseded + self._lost_in_filling + superseded,
            rows_late=self._plan.rows_late + self._late,
            rows_too_late=self._plan.rows_too_late,
            rows_replaced=replaced,
            rows_deleted=deleted,
            milliseconds=milliseconds,
        )
        refuse_changes(self.schema, self.table.name, self.operation, replaced + deleted)
        return TableWrite(
            self.table.id,
            self.table.name,
            self.schema.revision,
            self._plan,
            self._published,
            metrics=metrics,
            commit_info=self._commit_info(),
            is_cleared=self.replace_where is not None,
            must_be_newest=self.isolation is not None and self.isolation.has_read,
            read_mark=self._read_mark(),
            app=self.app,
        )

    def absorb(self, other: TableWriter) -> None:
        """Takes everything another writer holds, behind what is here; the other is of no use afterwards."""
        self._plan = None
        self.kept |= other.kept
        self.loads |= other.loads
        self.replace_where = other.replace_where or self.replace_where
        for part in other._parts:
            last = self._parts[-1] if self._parts else None
            if isinstance(last, RowPart) and isinstance(part, RowPart):
                last.segments += part.segments
            else:
                self._parts.append(part)
        mine, more = self.metrics.__dict__, other.metrics.__dict__
        self.metrics = VersionMetrics(**{name: value + more[name] for name, value in mine.items()})

    @property
    def has_written(self) -> bool:
        return self.replace_where is not None or any(
            isinstance(part, DeltaPart) or part.segments for part in self._parts
        )

    def written(self) -> list[Written]:
        """Keys written so far, with the columns."""
        return written_keys(self._parts, self.schema)

    def _check(self, state: TableState, tx: CatalogTransaction | None) -> None:
        if self.isolation is None or state.version <= self.isolation.base.version:
            return
        if tx is not None:
            self.isolation.check(tx, state.version, self.written(), self.operation)
            return
        with self.table.catalog.read() as reading:
            self.isolation.check(reading, state.version, self.written(), self.operation)

    def _commit_info(self) -> CommitInfo:
        isolation = self.isolation
        app = (self.app.app_id, self.app.version) if self.app is not None else None
        if isolation is None:
            if self.replace_where is None:
                columns = columns_written(self._parts, self.schema)
                return CommitInfo(is_blind=self.is_blind, columns=columns, app=app)
            assert self._state is not None
            return CommitInfo(is_blind=False, read_version=self._state.version)
        return CommitInfo(
            is_blind=self.is_blind,
            columns=columns_written(self._parts, self.schema),
            read_version=isolation.base.version,
            level=isolation.level,
            reads=isolation.reads.to_record() if not self.is_blind else None,
            tables=isolation.tables,
            is_unchecked=isolation.is_unchecked,
            app=app,
        )

    def _read_mark(self) -> int:
        isolation = self.isolation
        if isolation is None or self.has_written or not isolation.has_read:
            return 0
        return isolation.base.version

    def _refuse_too_late(self, plan: Plan) -> None:
        """By option, rows that may have been deleted long ago fail their load instead of being counted."""
        count = plan.rows_too_late
        if count and self.schema.refuses_too_late:
            raise LoadRejectedError(
                f"{count} {'row is' if count == 1 else 'rows are'} too late for {self.table.name}: older "
                "than what is remembered of deleted keys (tombstone_retention_seconds), and not stored; "
                "leave them out, or set the table's too_late_rows to count",
                kind="too_late",
                rejected=[],
                total=self.metrics.rows_total,
            )

    def hand_on(self, tx: CatalogTransaction, version: int) -> None:
        """The version is stored: the state it makes is known without asking the catalog."""
        assert self._plan is not None
        assert self._state is not None
        if self._published and self.replace_where is None:
            self._made = self._state.after_load(version, self._published, self._plan.positions())
            tx.made[self.table.id] = self._made

    def published(self) -> None:
        """The switch happened: what was handed on is the table's newest state."""
        if self._made is not None:
            self.table.loaded(self._made)
        self._lease = None

    def delete_files(self) -> None:
        """Removes what was staged, but for `kept`; nothing when the switch happened after all."""
        staged = [each for each in [*self.segments, *self._filled] if each.meta.id not in self.kept]
        remove_unpublished(self.table, staged, self._deltas if self._snapshot is None else ())
        self._lease = None

    def delete_deltas(self) -> None:
        """Removes the files of deltas, which nobody needs after the switch."""
        for delta in self._deltas:
            delta.delete(self._stager.disk, self._stager.directory)

    @property
    def _has_deltas(self) -> bool:
        return any(isinstance(part, DeltaPart) for part in self._parts)

    def _prepare(self, state: TableState) -> None:
        stale, self._filled = self._filled, []
        self._late = self._lost_in_filling = 0
        self._stale = {}
        planner = Planner(state, known=() if self._has_deltas else self.segments)
        ordered: list[Segment] = []
        for part in self._parts:
            known = None
            if isinstance(part, RowPart):
                added = part.segments
            else:
                added, known = self._fill(part, planner)
            for segment in added:
                planner.add(segment, known)
            ordered += added
        for segment in stale:
            if segment.meta.id not in self.kept:
                segment.delete_files()
        self._lease = None
        self._published = ordered
        self._sync(ordered)
        self._plan, self._state = planner.finish(), state
        if self.replace_where is not None:
            self._plan = plan_replace_where(state, ordered, self.replace_where)

    def _fill(self, part: DeltaPart, planner: Planner) -> tuple[list[Segment], Matches | None]:
        """Turns a partial update into whole rows, on those planned so far.

        Returns:
            The segments, and the stored rows of their keys where filling has found out: rows and index
            entries stand in the same order then.
        """
        filled = fill(part.delta_on(self.schema, planner.state, planner.before), planner.state, part.options)
        segments = self._stage(filled.rows)
        self._filled += segments
        self._late += filled.late
        self._lost_in_filling += filled.superseded
        is_told = len(segments) == 1 and not segments[0].index.has_equal_codes
        return segments, filled.matches if is_told else None

    def _resume(self, now: TableState, snapshot: int) -> None:
        """Plans what was prepared at an earlier version, which may not be readable any more."""
        if self.replace_where is not None:
            self._prepare(now)
            return
        if self._is_lone_delta:
            only_moved = self.table.only_moved(snapshot, now.version)
            self._fill_touched(now.arrived_after(snapshot), now, snapshot, only_moved=only_moved)
        elif self._has_deltas:
            self._prepare(now)
            return
        self._plan, self._state = make_plan(now, self._published, self._stale), now

    def _fill_touched(self, arrived: TableState, now: TableState, before: int, *, only_moved: bool) -> bool:
        """Fills rows of the lone delta again that others touched since; whether there were any.

        Args:
            arrived: the segments that came since version `before`, the one of the last filling.
            only_moved: rows that were not written since are still there.
        """
        part = self._parts[0]
        assert isinstance(part, DeltaPart)
        delta = part.delta(self.schema)
        touched = self._touched_rows(delta, arrived, before) if only_moved else np.arange(len(delta))
        if not len(touched):
            return False
        # A new key may have been somebody else's a moment ago: that was checked at the first filling (C13).
        again = replace(part.options, refuse_new_keys=False, again=True)
        self._set_aside(delta.take(touched))
        self._filled += self._stage(fill(delta.take(touched), now, again).rows)
        self._published = self._filled
        self._sync(self._filled)
        return True

    def _set_aside(self, touched: Delta) -> None:
        """Rows of those keys from earlier fillings do not count any more, not even with a larger sequence: a
        new key had its default, and the row that came between may have less (C7)."""
        _, codes = keys_of(touched, self.schema)
        for segment in self._filled:
            entries = np.flatnonzero(np.isin(segment.index.codes, codes))
            if len(entries):
                known = self._stale.get(segment.meta.id, np.empty(0, np.uint32))
                self._stale[segment.meta.id] = np.union1d(known, segment.index.row_positions(entries))

    def _touched_rows(self, delta: Delta, arrived: TableState, before: int) -> Rows:
        """Rows of the delta whose key has a row written after a version: a compaction only moves rows."""
        _, codes = keys_of(delta, self.schema)
        order = np.argsort(codes, kind="stable")
        matches = arrived.probe(codes[order])
        versions = arrived.take(matches, [VERSION_COL]).column(0).combine_chunks()
        written = np.asarray(versions) > before
        return np.sort(order[np.unique(matches.probe_keys[written])])

    def _stage(self, *pieces: CheckedRows) -> list[Segment]:
        staged = self._stager.stage(*pieces)
        written = sum(segment.meta.data_bytes + segment.meta.keys_bytes for segment in staged.segments)
        self.metrics = replace(
            self.metrics,
            rows_superseded=self.metrics.rows_superseded + staged.superseded,
            bytes_written=self.metrics.bytes_written + written,
        )
        return list(staged.segments)

    def _sync(self, segments: Sequence[Segment]) -> None:
        if any(segment.meta.home != INLINE for segment in segments):
            self._stager.sync()
