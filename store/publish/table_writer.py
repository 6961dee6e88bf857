"""The write of one transaction to one table, on its way through the states of `publish.write_states`.

1. `add_*` extend the pending write.
2. `prepare` fills, stages and plans it against the newest state, and makes files durable.
3. When others published meanwhile, `align` brings the plan up to date. Both check the reads of the
   transaction against everything published up to the state they end at (conflict.isolation).
4. `join` and `laid_on` serve a transaction of several statements, which reads its own writes before they are
   published (publish.own_writes). If no other transaction has published since, step 2 is then done.
5. `table_write` is the share of the table in the commit point; `publish_state` follows within it, and
   `published` after it. A write that needs another schema stores that first (publish.evolution).

A prepared writer can be stored and opened again by another process (publish.prepared_writer).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.leases import Lease
from seqstore.store.catalog.transaction_record import TransactionRecord
from seqstore.store.catalog.version_record import CommitInfo, VersionMetrics
from seqstore.store.check.delta import Delta
from seqstore.store.conflict.conflict_errors import (
    CurrentTransaction,
    creation,
    recreated_error,
    schema_conflicts,
    schema_error,
)
from seqstore.store.errors import AlreadyExistsError, LoadRejectedError, NotFoundError, StoreError
from seqstore.store.fill.delta_file import DeltaFile, write_delta
from seqstore.store.fill.fill_options import FillOptions
from seqstore.store.publish.own_writes import OwnWrites
from seqstore.store.publish.prepare_write import Filling, align_write, prepare_write, resume_write
from seqstore.store.publish.publish import TableWrite
from seqstore.store.publish.tombstones import may_lack_tombstones
from seqstore.store.publish.unpublished_files import remove_unpublished
from seqstore.store.publish.write_states import (
    NOTHING,
    SMALL_ROWS,
    DeltaPart,
    PendingWrite,
    PreparedWrite,
    PublishedWrite,
    RowPart,
    StoredWrite,
    WriteTarget,
    bytes_of,
    refuse_changes,
    rows_of,
)
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime.traces import span
from seqstore.store.segment.checked_rows import CheckedRows
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.load_marker import StagingId
from seqstore.store.segment.segment import Segment, SegmentMeta

_NO_COUNTS: Final = VersionMetrics()
_INDEXED_ROWS_MAX: Final = 2_000_000  # key indexes of a larger load are read back from their files


class TableWriter:
    """The write of one transaction to one table. Use from one thread.

    Attributes:
        target: the table, and the claim of the transaction on it.
        table: that is written.
        write: the state of the write.
    """

    def __init__(self, target: WriteTarget, write: PendingWrite | StoredWrite | None = None) -> None:
        self.target = target
        self.table = target.table
        self.write: PendingWrite | StoredWrite | PreparedWrite | PublishedWrite = write or NOTHING
        self._delta_files: list[DeltaFile] = []  # written by this writer for a two-phase commit
        self._statements: list[PendingWrite] = []  # joined so far
        self._own: OwnWrites | None = None  # with the first `_laid` statements
        self._laid = 0

    @property
    def pending(self) -> PendingWrite:
        """Everything that was written."""
        write = self.write
        return write if isinstance(write, PendingWrite) else write.filled.pending

    @property
    def filled(self) -> tuple[Segment, ...]:
        """The segments that deltas became so far."""
        return () if isinstance(self.write, PendingWrite) else self.write.filled.filled

    @property
    def segments(self) -> list[Segment]:
        """Everything staged: whole rows, then filled deltas."""
        filled = self.filled
        return [*self.pending.row_segments, *filled]

    @property
    def prepared(self) -> PreparedWrite:
        """The write, once it is prepared and as long as it is not published."""
        assert isinstance(self.write, PreparedWrite)
        return self.write

    def is_small(self) -> bool:
        """Returns whether aligning needs a moment only."""
        return isinstance(self.write, PendingWrite) or rows_of(self.write.filled.published) <= SMALL_ROWS

    def can_wait(self) -> bool:
        """Returns whether preparing needs a moment only, and is best done as the next to publish."""
        write = self.write
        return isinstance(write, PendingWrite) and self.target.isolation is None and write.is_small

    def add_rows(self, *pieces: CheckedRows, rejected: int = 0) -> None:
        """Stages whole rows, in one piece or several, behind everything written before.

        Args:
            rejected: rows that were given with them and left out, for the metrics.
        """
        rows, pending, filled = sum([piece.visible.num_rows for piece in pieces]), self.pending, self.filled
        staged = self.target.stager.stage(*pieces)
        size = bytes_of(staged.segments)
        counts = VersionMetrics(rows + rejected, rows, rejected, staged.superseded, bytes_written=size)
        self.write = revised = pending.followed_by(PendingWrite((RowPart(staged.segments),), counts))
        if filled:
            self._delete_filled(filled)
        if revised.metrics.rows_loaded > _INDEXED_ROWS_MAX:
            for segment in revised.row_segments:
                segment.forget_index()

    def add_segments(self, staged: Sequence[tuple[SegmentMeta, bytes | None]], load: StagingId) -> None:
        """Adds segments that a `WriteTask` staged: metadata, and bytes where there are no files."""
        stager = self.target.stager
        part = RowPart(
            tuple(Segment(stager.disk, stager.directory, meta, stager.schema, data) for meta, data in staged)
        )
        kept = frozenset(meta.id for meta, _ in staged)
        self.add(PendingWrite((part,), kept=kept, loads=frozenset({load})))

    def add_delta(self, delta: Delta, options: FillOptions, counts: VersionMetrics = _NO_COUNTS) -> None:
        """Adds rows of a partial update on top of everything written before."""
        pending, filled = self.pending, self.filled
        part = DeltaPart((delta,), options, self.target.schema)
        last = pending.parts[-1] if pending.parts else None
        if isinstance(last, DeltaPart) and last.options == options:
            pending = replace(pending, parts=pending.parts[:-1])
            part = replace(last, deltas=(*last.deltas, delta))
        self.write = pending.followed_by(PendingWrite((part,), counts))
        if filled:
            self._delete_filled(filled)

    def add(self, more: PendingWrite) -> None:
        """Adds parts, metrics and rows to remove to what was written; before the write is prepared, or again
        after it."""
        filled = self.filled
        self.write = self.pending.followed_by(more)
        if filled:
            self._delete_filled(filled)

    def join(self, statement: PendingWrite, base: TableState | None) -> None:
        """Adds the write of a statement that is complete.

        Args:
            base: the state that the transaction reads, None if it does not see its own writes.

        Raises:
            InvalidInputError: its rows cannot be filled; nothing of the statement was added.
        """
        if base is not None and statement.has_deltas:  # an error is the statement's, not that of a later read
            self.laid_on(base)
            own = self._own = self._own or OwnWrites(base, self.target.stager)
            own.add(statement)
            self._laid += 1
        self._statements.append(statement)
        self.add(statement)

    def laid_on(self, base: TableState) -> TableState:
        """Returns the state that the transaction reads, with everything that it has written on it."""
        if self._laid < len(self._statements):
            own = self._own = self._own or OwnWrites(base, self.target.stager)
            for statement in self._statements[self._laid :]:
                own.add(statement)
                self._laid += 1
        return base if self._own is None else self._own.state

    @contextmanager
    def undoing(self) -> Iterator[None]:
        """Removes what a block joined, when it fails."""
        count, pending = len(self._statements), self.pending
        try:
            yield
        except BaseException:
            kept = {segment.meta.id for segment in pending.row_segments}
            lost = [each for each in self.pending.row_segments if each.meta.id not in kept]
            if len(self._statements) > count and isinstance(self.write, PendingWrite):
                self.write = pending
                del self._statements[count:]
                self._forget_own()
                remove_unpublished(self.table, lost)
            raise

    def _forget_own(self) -> None:
        own, self._own, self._laid = self._own, None, 0
        if own is not None:
            remove_unpublished(self.table, own.filled)

    def _own_preparation(self, state: TableState) -> PreparedWrite | None:
        """Returns the preparation that reads have made already, None if there is none for a state."""
        own, write = self._own, self.write
        if own is None:
            return None
        is_whole = isinstance(write, PendingWrite) and self._laid == len(self._statements)
        if not is_whole or own.base.version != state.version:
            self._forget_own()
            return None
        self._own = None
        return own.prepared(self.pending)

    def _delete_filled(self, filled: Sequence[Segment]) -> None:
        """Removes the files of an earlier preparation."""
        for segment in filled:
            if segment.meta.id not in self.pending.kept:
                segment.delete_files()

    def prepare(self) -> None:
        """Prepares the write against the newest version; no-op when that was done.

        Raises:
            ConflictError: rows that were read have changed.
        """
        write = self.write
        if isinstance(write, (PreparedWrite, PublishedWrite)):
            return
        state, lease = self.hold_checked()
        own = self._own_preparation(state)
        with span("prepare", table=self.table.name), Filling(self.target.stager) as filling:
            if own is not None:
                self.write = own
            elif isinstance(write, PendingWrite):
                self.write = prepare_write(write, state, filling)
            else:
                is_whole = self._has_all_tombstones(write.version, state)
                self.write = resume_write(self.target, write, state, filling, has_all_tombstones=is_whole)
        lease.release()

    def catch_up(self) -> None:
        """Prepares, or brings the plan up to the newest version.

        Raises:
            ConflictError: rows that were read have changed.
        """
        if isinstance(self.write, PreparedWrite):
            self.align(self.table.state())
        else:
            self.prepare()

    def hold_checked(self) -> tuple[TableState, Lease]:
        """Returns the newest state, as of the schema of the write, once the reads of its transaction are
        checked up to there; and its lease.

        Raises:
            ConflictError: rows that were read have changed.
        """
        state, lease = self.hold()
        self._check(state, None)
        return self._evolved(state), lease

    def hold(self) -> tuple[TableState, Lease]:
        """Returns the newest state, and the lease that keeps vacuum away from it.

        Raises:
            ProtocolChangedException: another table has the name by now.
            NotFoundError: none has.
        """
        table = self.table
        try:
            return table.hold()
        except NotFoundError as error:
            name = table.name.partition(".")[2]
            with table.catalog.read() as tx:
                found = catalog.find_table(tx, table.database_id, name)
                committed = creation(tx, found) if found not in (None, table.id) else []
            if found in (None, table.id):
                raise
            isolation = self.target.isolation
            current = CurrentTransaction(
                table.name,
                self.target.operation,
                isolation.base.version if isolation is not None else 0,
                isolation.level if isolation is not None else self.target.schema.isolation_level,
            )
            raise recreated_error(current, committed) from error

    def align_within(self, tx: CatalogTransaction) -> None:
        """Prepares the write, or brings it up to the newest version, within the transaction to publish it.

        Raises:
            ConflictError: rows that were read have changed.
        """
        self.prepare()
        self.align(self.table.advance(tx, None), tx)

    def align(self, now: TableState, tx: CatalogTransaction | None = None) -> None:
        """Brings the plan up to a newer state.

        Args:
            tx: the catalog transaction that is open, if one is.

        Raises:
            ConflictError: rows that were read have changed.
        """
        prepared = self.prepared
        if now.version == prepared.state.version:
            return
        self._check(now, tx)
        now = self._evolved(now)
        lease = self.table.lease(now.version)
        with Filling(self.target.stager) as filling:
            is_whole = self._has_all_tombstones(prepared.state.version, now, tx)
            self.write = aligned = align_write(prepared, now, filling, has_all_tombstones=is_whole)
        kept = {segment.meta.id for segment in aligned.filled.filled}
        self._delete_filled([each for each in prepared.filled.filled if each.meta.id not in kept])
        lease.release()

    def _has_all_tombstones(self, after: int, now: TableState, tx: CatalogTransaction | None = None) -> bool:
        """Returns whether a state has every tombstone that was written after a version; partial updates need
        it.

        Args:
            tx: the open transaction, if one is; the version of the state may be one of its own.
        """
        if self.pending.lone_delta is None:
            return True
        table = self.table
        with nullcontext(tx) if tx is not None else table.catalog.read() as found:
            return not may_lack_tombstones(found, table.id, now.version, now.schema, table.settings, after)

    def require_unpublished(self, tx: CatalogTransaction) -> None:
        """Raises unless the segments that tasks staged are still there and unpublished.

        Raises:
            ClosedError: a load of theirs has ended.
            AlreadyExistsError: it was published.
        """
        pending, loader = self.pending, self.table.loader
        for load in pending.loads:
            load.refuse_ended(loader.disk, loader.directory)
        for name in pending.kept:
            if tx.get("segments", catalog.segment_key(self.table.id, name)) is not None:
                raise AlreadyExistsError(
                    f"{self.table.name}: segment {name} was published before; stage the rows again to load "
                    "them again",
                    kind="already_published",
                )

    def table_write(self, milliseconds: int) -> TableWrite:
        """Returns the share of the table in the commit point.

        Raises:
            LoadRejectedError: rows are too late, and the table refuses such rows.
            InvalidInputError: stored rows would change, and the table is append-only.
        """
        target, prepared, isolation = self.target, self.prepared, self.target.isolation
        filled, plan, pending = prepared.filled, prepared.plan, prepared.filled.pending
        hidden, (replaced, deleted, lost) = plan.positions(), plan.effects()
        late, too_late = plan.rows_late, plan.rows_too_late
        if too_late and target.schema.refuses_too_late:
            raise self._too_late(too_late)
        columns = pending.columns
        superseded = pending.metrics.rows_superseded + filled.rows_superseded
        if not pending.has_deltas:  # else they are rows that were filled again, not other rows
            superseded += lost
        refuse_changes(target.schema, self.table.name, target.operation, replaced + deleted)
        metrics = replace(
            pending.metrics,
            rows_superseded=superseded,
            rows_late=late + filled.rows_late,
            rows_too_late=too_late,
            rows_replaced=replaced,
            rows_deleted=deleted,
            milliseconds=milliseconds,
        )
        has_written = pending.has_written
        has_read = isolation is not None and isolation.has_read
        only_reads = isolation is not None and has_read and not has_written
        return TableWrite(
            self.table.id,
            self.table.name,
            target.schema.revision,
            prepared.state.version,
            hidden,
            filled.published,
            metrics=metrics,
            commit_info=self._commit_info(prepared, columns),
            is_cleared=pending.replace_where is not None,
            must_be_newest=has_read,
            read_mark=isolation.base.version if isolation is not None and only_reads else 0,
            app=target.app,
        )

    def _check(self, state: TableState, tx: CatalogTransaction | None) -> None:
        """Checks the schema of the write and the reads of its transaction, up to a state.

        Rows cannot be filled or compared under another schema. So versions that have the schema of the write
        are compared first, and the version that changed it is an error (ISO7, ISO10).
        """
        target, isolation = self.target, self.target.isolation
        is_altered = state.schema.revision != target.base_revision
        if not is_altered and (isolation is None or state.version <= isolation.base.version):
            return
        written = self.pending.written() if isolation is not None else []
        with nullcontext(tx) if tx is not None else self.table.catalog.read() as reading:
            last = state.version
            if is_altered:
                last = schema_conflicts(reading, self.table.id, state.version, target.base_revision)[1]
            if isolation is not None:
                isolation.check(reading, last, written, target.operation)
            if is_altered:
                raise schema_error(
                    reading,
                    self.table.id,
                    name=self.table.name,
                    operation=target.operation,
                    revision=target.base_revision,
                    commit_info=self._claim(),
                )

    def _evolved(self, state: TableState) -> TableState:
        """Returns a state as of the schema of the write."""
        return state if self.target.evolution is None else state.with_schema(self.target.schema)

    def evolve(self, tx: CatalogTransaction, transaction: TransactionRecord, write: TableWrite) -> TableWrite:
        """Stores the schema that a write needs, if any; returns the write on top of it."""
        evolution = self.target.evolution
        return write if evolution is None else evolution.placed(tx, self.table, transaction, write)

    def _claim(self) -> CommitInfo:
        """Returns the version that its transaction has read, and the level."""
        isolation = self.target.isolation
        info = CommitInfo(is_blind=self.target.is_blind)
        if isolation is None:
            return info
        return replace(info, read_version=isolation.base.version, level=isolation.level)

    def _commit_info(self, prepared: PreparedWrite, columns: frozenset[int] | None) -> CommitInfo:
        target, pending, isolation = self.target, prepared.filled.pending, self.target.isolation
        if isolation is None and pending.replace_where is not None:
            return CommitInfo(is_blind=False, read_version=prepared.state.version)
        app = (target.app.app_id, target.app.version) if target.app is not None else None
        info = replace(self._claim(), columns=columns, app=app)
        if isolation is None:
            return info
        return replace(
            info,
            reads=isolation.reads.to_record() if not target.is_blind else None,
            tables=isolation.tables,
            is_unchecked=isolation.is_unchecked,
        )

    def _too_late(self, count: int) -> LoadRejectedError:
        """Returns the error for rows that may have been deleted long ago, where they are not just counted."""
        return LoadRejectedError(
            f"{count} {'row is' if count == 1 else 'rows are'} too late for {self.table.name}: older "
            "than what is remembered of deleted keys (tombstone_retention_seconds), and not stored; "
            "leave them out, or set the table's too_late_rows to count",
            kind="too_late",
            rejected=[],
            total=self.pending.metrics.rows_total,
        )

    def publish_state(self, tx: CatalogTransaction, version: int, hidden: Mapping[str, Positions]) -> None:
        """Derives the state of the version just stored, without reading the catalog."""
        prepared = self.prepared
        filled, state = prepared.filled, None
        if filled.published and filled.pending.replace_where is None:
            state = prepared.state.after_load(version, filled.published, hidden)
            self.table.made(tx, state)
        self.write = PublishedWrite(filled, state)

    def published(self) -> None:
        """Hands the table its version and the derived state, after the catalog transaction is committed.

        A state that could not be derived is read, so that maintenance removes what the write left dead.
        """
        state = self.write.state if isinstance(self.write, PublishedWrite) else None
        if state is None:
            with suppress(StoreError):  # the version is committed, whatever became of the table since
                state = self.table.state()
        self.table.published(self.target.schema, state)

    def write_delta_files(self) -> list[DeltaFile]:
        """Writes the deltas beside the segments and returns their files, in order."""
        stager = self.target.stager
        for part in self.pending.parts:
            if isinstance(part, DeltaPart):
                limit = stager.settings.inline_bytes_max
                self._delta_files.append(write_delta(stager.disk, stager.directory, part.delta, limit))
        if any(file.name for file in self._delta_files):
            stager.sync()
        return self._delta_files

    def delete_files(self) -> None:
        """Removes the files that this writer made; none where the version is stored after all."""
        kept, staged = self.pending.kept, self.segments
        if kept:
            staged = [segment for segment in staged if segment.meta.id not in kept]
        if self._own is not None:
            staged += self._own.filled
        self._own, self._laid = None, 0
        remove_unpublished(self.table, staged, self._delta_files)
