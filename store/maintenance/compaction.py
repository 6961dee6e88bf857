"""Compaction: merges a table's segments into fewer ones without dead rows, and changes no query result.

1. Choose segments of the newest version s (maintenance.compaction_policy, or the caller's choice).
2. Merge their live rows into new segments (segment_merge) without any lock; loads and readers continue.
3. Publish at head + 1, like any writer: the new segments are added, the old ones are dropped, and rows of the
   old ones that were hidden since s are hidden in the new ones (K5). The plan is made when this process is
   the next to publish (the prepare lock), and again under the writer lock only if another writer
   committed in between.
4. If another writer dropped some of the inputs meanwhile, the rest is merged anew; if none is left, there is
   no commit. A Z-order fails instead, because it orders all rows together.

Other processes can run step 2, such as Spark executors (range_merge).

Versions before the new one continue to read the old segments, which stay until no readable version has them
(maintenance.retention). A crash before 3 leaves files that no version names; the next opening removes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from seqstore.store.catalog.catalog import CatalogTransaction, segment_key
from seqstore.store.catalog.horizon import raise_watermark
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus, now_ms
from seqstore.store.catalog.version_record import VersionMetrics, read_version_record
from seqstore.store.conflict.conflict import Conflict, ConflictKind
from seqstore.store.conflict.conflict_errors import CurrentTransaction, committed_name, error_of
from seqstore.store.conflict.read_set import INPUT_REWRITTEN
from seqstore.store.errors import CommitUnknownError
from seqstore.store.maintenance.compaction_policy import (
    MaintenancePolicy,
    growth_of,
    merged_codec,
    rewritable,
    small_or_dirty,
)
from seqstore.store.maintenance.range_merge import RangeMerge, RunRanges, merged_elsewhere
from seqstore.store.maintenance.recovery import ending
from seqstore.store.maintenance.segment_merge import Merged, merge
from seqstore.store.publish import tombstones
from seqstore.store.publish.publish import TableWrite, check_revision, put_version
from seqstore.store.publish.tombstones import Purge
from seqstore.store.publish.unpublished_files import remove_unpublished
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime import failpoint
from seqstore.store.runtime.process_identity import this_process
from seqstore.store.schema.features import require_writable
from seqstore.store.segment.load_marker import StagingId
from seqstore.store.segment.stager import Stager

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

OPTIMIZE: Final = "OPTIMIZE"
PURGE: Final = "REORG PURGE"


@dataclass(frozen=True)
class CompactionResult:
    """The outcome of a compaction.

    Attributes:
        version: the version that it made, or the newest one when there was nothing to merge.
        segments_before, segments_after: removed and added.
        segments_lost: inputs that another writer had dropped meanwhile, left out.
        rows: rows written.
        rows_removed: hidden rows that were not copied.
        tombstones_removed: old enough to be removed.
        bytes_read, bytes_written: of data and key indexes.
        milliseconds: from start to end.
    """

    version: int
    segments_before: int = 0
    segments_after: int = 0
    segments_lost: int = 0
    rows: int = 0
    rows_removed: int = 0
    tombstones_removed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    milliseconds: int = 0

    @property
    def made_version(self) -> bool:
        """Whether any segment was rewritten."""
        return self.segments_before > 0


class InputsDropped(Exception):
    """Another writer dropped inputs of a compaction. Never leaves the engine."""


def optimize(
    table: VersionedTable,
    *,
    where: pc.Expression | None = None,
    zorder_by: Sequence[str] = (),
    full: bool = False,
    elsewhere: RunRanges | None = None,
) -> CompactionResult:
    """Runs OPTIMIZE: merges small segments and those with dead rows.

    Args:
        where: only segments that may hold a matching row, by their zone maps.
        zorder_by: columns to order rows by; every chosen segment is rewritten.
        full: rewrite every chosen segment, whether that improves it or not.
        elsewhere: merges in other processes; None means here.

    Raises:
        InvalidInputError: an unknown column.
        ConflictError: the schema changed meanwhile; of a Z-order, an input was dropped meanwhile.
    """
    names = [table.schema.column(name).name for name in zorder_by]

    def choose(state: TableState) -> list[LiveSegment]:
        chosen = list(state.segments.values())
        if where is not None:
            chosen = [live for live in chosen if live.segment.matching(where, state.schema)]
        if full or names:
            return chosen
        return small_or_dirty(chosen, table.settings, growth_of(state, table.settings))

    return Compaction(table, OPTIMIZE, choose, order_by=names, elsewhere=elsewhere).run()


def purge(table: VersionedTable) -> CompactionResult:
    """Runs REORG TABLE ... APPLY (PURGE): rewrites every segment with removable rows or tombstones."""

    def choose(state: TableState) -> list[LiveSegment]:
        return rewritable(state, purge_rule(table, state))

    return Compaction(table, PURGE, choose).run()


def purge_rule(table: VersionedTable, state: TableState) -> Purge:
    """Returns the rule for the tombstones of a state that may be removed now."""
    with table.catalog.read() as tx:
        return tombstones.old_enough(tx, table.id, state.version, state.schema, table.settings)


@dataclass
class Compaction:
    """One compaction of one table.

    Attributes:
        operation: its name in the history.
        choose: returns the inputs, given the state at its start.
        order_by: columns of a Z-order.
        is_cancelled: called between parts.
        elsewhere: runs the parts of step 2 in other processes; None means here.
    """

    table: VersionedTable
    operation: str
    choose: Callable[[TableState], list[LiveSegment]]
    order_by: Sequence[str] = field(default=(), kw_only=True)
    is_cancelled: Callable[[], bool] = field(default=lambda: False, kw_only=True)
    elsewhere: RunRanges | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._lost = 0
        self._load: StagingId | None = None  # of the outputs that other processes write

    def run(self) -> CompactionResult:
        """Chooses, merges, publishes.

        Raises:
            ConflictError: see `optimize`.
        """
        state, lease = self.table.hold()
        require_writable(state.schema.features)
        inputs = self.choose(state)
        read_version = state.version
        while inputs:
            rule = purge_rule(self.table, state)
            try:
                with self._staging():
                    return self.publish(state, self.merge(state, inputs, rule), rule)
            except InputsDropped:
                lease.release()
                before = inputs
                state, lease = self.table.hold()
                inputs = [
                    state.segments[state.slot_of[live.segment.meta.id]]
                    for live in inputs
                    if live.segment.meta.id in state.slot_of
                ]
                self._lost += len(before) - len(inputs)
                self._refuse_broken_order(read_version, before, state)
        lease.release()
        return CompactionResult(state.version, segments_lost=self._lost, milliseconds=self._elapsed())

    def merge(self, state: TableState, inputs: Sequence[LiveSegment], rule: Purge) -> Merged:
        """Runs step 2."""
        loader = self.table.loader
        settings, name = self.table.settings, self.table.name
        codec = merged_codec(inputs, MaintenancePolicy.of(state.schema, settings))
        stager = Stager(state.schema, loader.disk, loader.directory, settings, table=name, compression=codec)
        growth = growth_of(state, settings)
        if self.elsewhere is not None and self._load is not None:
            ranges = RangeMerge.of(state.schema, inputs, stager, self._load, self.order_by, rule, growth)
            merged = merged_elsewhere(ranges, self.elsewhere(ranges), state, inputs, rule)
        else:
            merged = merge(
                state,
                inputs,
                stager,
                order_by=self.order_by,
                purge=rule,
                is_cancelled=self.is_cancelled,
                growth=growth,
            )
        failpoint.hit("compaction.merged")
        return merged

    @contextmanager
    def _staging(self) -> Iterator[None]:
        """Lets other processes write outputs within the block, and removes those that it does not publish."""
        if self.elsewhere is None:
            yield
            return
        self._load = StagingId.of(this_process())
        self._load.begin(self.table.loader.disk, self.table.loader.directory)
        with ending(self.table, self._load):
            yield

    def publish(self, state: TableState, merged: Merged, rule: Purge) -> CompactionResult:
        """Runs step 3; removes the files if it failed.

        Raises:
            InputsDropped: step 4.
        """
        try:
            version = self._commit(state, merged, rule)
        except BaseException as error:
            if not isinstance(error, CommitUnknownError):
                remove_unpublished(self.table, merged.outputs)
            raise
        failpoint.hit("compaction.after_commit")
        self.table.state()  # advances the handle at once
        self.table.published(state.schema)
        return CompactionResult(
            version,
            segments_before=len(merged.inputs),
            segments_after=len(merged.outputs),
            segments_lost=self._lost,
            rows=merged.rows,
            rows_removed=sum(live.deletes.hidden for live in merged.inputs.values()),
            tombstones_removed=rule.gone,
            bytes_read=_bytes_of(merged.inputs.values()),
            bytes_written=merged.bytes_written,
            milliseconds=self._elapsed(),
        )

    def _commit(self, state: TableState, merged: Merged, rule: Purge) -> int:
        write = self._write_for(self.table.state(), state, merged)

        def catch_up(now: TableState) -> None:
            nonlocal write
            if now.version != write.base:
                write = self._write_for(now, state, merged)

        with self.table.catalog.write(lambda: catch_up(self.table.state())) as tx:
            catch_up(self.table.advance(tx, None))
            return self._put_version(tx, write, rule)

    def _write_for(self, now: TableState, state: TableState, merged: Merged) -> TableWrite:
        if not merged.inputs.keys() <= now.slot_of.keys():
            raise InputsDropped
        metrics = VersionMetrics(
            rows_total=merged.rows, bytes_written=merged.bytes_written, milliseconds=self._elapsed()
        )
        return TableWrite(
            self.table.id,
            self.table.name,
            state.schema.revision,
            now.version,
            merged.hidden_since(now),
            merged.outputs,
            dropped=list(merged.inputs),
            metrics=metrics,
            has_data_change=False,
        )

    def _put_version(self, tx: CatalogTransaction, write: TableWrite, rule: Purge) -> int:
        """Writes the version within the writer lock; the plan must fit the head."""
        transaction = unlabelled(self.table, self.operation)
        if self._load is not None:
            self._load.refuse_ended(self.table.loader.disk, self.table.loader.directory)
        head = check_revision(tx, transaction, write.table_id, write.name, write.revision)
        put_version(tx, transaction, write, head + 1)
        if rule.watermark is not None:
            raise_watermark(tx, self.table.id, rule.schema, rule.watermark)
        failpoint.hit("compaction.before_commit")
        return head + 1

    def _refuse_broken_order(self, read_version: int, inputs: Sequence[LiveSegment], now: TableState) -> None:
        if not self.order_by or not self._lost:
            return
        table = self.table
        with table.catalog.read() as tx:
            gone = [
                tx.get("segments", segment_key(table.id, live.segment.meta.id))
                for live in inputs
                if live.segment.meta.id not in now.slot_of
            ]
            versions = sorted({record["dropped"] for record in gone if record is not None})
            records = [read_version_record(tx, table.id, version) for version in versions]
        committed = [
            Conflict(ConflictKind.DELETE_DELETE, version, record.operation, record.label, INPUT_REWRITTEN)
            for version, record in zip(versions, records, strict=True)
            if record is not None
        ]
        others = ", ".join(f"{committed_name(it)} committed version {it.version}" for it in committed)
        current = CurrentTransaction(table.name, self.operation, read_version, now.schema.isolation_level)
        raise error_of(
            committed,
            current,
            f"{current.opening} for ZORDER BY ({', '.join(self.order_by)}); {others} and rewrote "
            f"{self._lost} of its segments {current.because(INPUT_REWRITTEN)}; run it again",
            kind=ConflictKind.DELETE_DELETE,
        )

    def _elapsed(self) -> int:
        return round((time.monotonic() - self._started) * 1000)


def unlabelled(table: VersionedTable, operation: str) -> TransactionRecord:
    """Returns the record of a version that no load made, which has no transaction of its own."""
    now, status = now_ms(), TransactionStatus.VISIBLE
    return TransactionRecord(0, table.database_id, table.name, "", status, operation, now, now)


def _bytes_of(inputs: Iterable[LiveSegment]) -> int:
    return sum(live.segment.meta.data_bytes + live.segment.meta.keys_bytes for live in inputs)
