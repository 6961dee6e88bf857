"""A rewrite: all rows of a table under another schema revision, visible by one commit.

1. Merge the live rows of the newest version under the new revision (segment_merge, reshaping), a group of
   segments at a time, without any lock. Loads, compactions and readers continue.
2. Repeat for segments that joined the table meanwhile. Outputs of inputs that another writer dropped are
   discarded, and the segments in their place are written.
3. When few rows are left, write them as the next process to publish, and those that arrived even then under
   the writer lock. Publish at head + 1: the new revision, all outputs added, all other segments dropped, rows
   hidden since their merge hidden again.

Where different keys may become equal, step 3 looks for equal ones. Versions before the new one keep their
revision and their segments. A crash leaves files that no version names; the next opening removes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.version_record import CommitInfo, VersionMetrics
from seqstore.store.errors import CommitUnknownError
from seqstore.store.maintenance.compaction import unlabelled
from seqstore.store.maintenance.equal_keys import hide_equal_keys
from seqstore.store.maintenance.reshaping import Reshaping
from seqstore.store.maintenance.segment_merge import Merged, merge
from seqstore.store.publish.publish import TableWrite, check_revision, put_version
from seqstore.store.publish.tombstones import Purge
from seqstore.store.publish.unpublished_files import remove_unpublished
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.table_state import TableState
from seqstore.store.runtime import failpoint
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.segment import Segment
from seqstore.store.segment.stager import Stager

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_ROWS_AT_COMMIT: Final = 20_000  # so few are written while other writers wait
_PASSES_MAX: Final = 20


@dataclass
class Rewrite:
    """One rewrite of one table.

    Attributes:
        reshaping: from the table's revision to the next one.
        operation, changes: of the version, for its history.
        on_progress: called with the rows that are written and all rows, after each group.
        is_cancelled: called between parts.
        at_commit: called in the commit's transaction with the new version; its error undoes everything.
    """

    table: VersionedTable
    reshaping: Reshaping
    operation: str
    changes: Sequence[str]
    on_progress: Callable[[int, int], None]
    is_cancelled: Callable[[], bool]
    at_commit: Callable[[CatalogTransaction, int], None]

    def __post_init__(self) -> None:
        source, target = self.reshaping.source, self.reshaping.target
        self._revision = source.revision
        self._schema = replace(target, revision=source.revision + 1)
        loader = self.table.loader
        self._stager = Stager(self._schema, loader.disk, loader.directory, self.table.settings)
        self._done: list[Merged] = []
        self._started = time.monotonic()

    def run(self) -> int:
        """Returns the version that it made.

        Raises:
            InvalidInputError: a value does not fit, or two rows would have one key.
            ConflictError: another writer changed the schema meanwhile.
            NotFoundError: the table was dropped meanwhile.
            MergeCancelled: `is_cancelled` returned True.
        """
        is_committing = False
        try:
            self._write_most()
            is_committing = True
            version = self._commit()
        except BaseException as error:
            if not (is_committing and isinstance(error, CommitUnknownError)):  # else it may have happened
                remove_unpublished(self.table, [output for merged in self._done for output in merged.outputs])
            raise
        failpoint.hit("rewrite.after_commit")
        self.table.state()  # advances the handle at once
        self.table.published(self._schema)
        return version

    def _write_most(self) -> None:
        """Runs steps 1 and 2."""
        for number in range(_PASSES_MAX):
            state, lease = self.table.hold()
            try:
                with self.table.catalog.read() as tx:
                    self._check_revision(tx)
                missing = self._missing(state)
                if number and sum(live.deletes.live_count for live in missing) <= _ROWS_AT_COMMIT:
                    return
                for done in self._write(state, missing, self.is_cancelled):
                    self.on_progress(*done)
            finally:
                lease.release()

    def _missing(self, state: TableState) -> list[LiveSegment]:
        """Returns the segments of a state that are not written yet; discards outputs that it cannot use."""
        for merged in [each for each in self._done if not each.inputs.keys() <= state.slot_of.keys()]:
            merged.delete_files()
            self._done.remove(merged)
        known = {segment_id for merged in self._done for segment_id in merged.inputs}
        return [
            live
            for live in state.segments.values()
            if live.deletes.live_count and live.segment.meta.id not in known
        ]

    def _write(
        self, state: TableState, missing: Sequence[LiveSegment], is_cancelled: Callable[[], bool]
    ) -> Iterator[tuple[int, int]]:
        """Writes segments of a state anew; yields the rows written and all rows, after each group."""
        never = Purge(self._schema, 0, datetime.min)
        total = sum(live.deletes.live_count for live in state.segments.values())
        for group in self._groups(missing):
            merged = merge(
                state, group, self._stager, purge=never, is_cancelled=is_cancelled, reshaping=self.reshaping
            )
            self._done.append(merged)
            failpoint.hit("rewrite.merged")
            yield min(sum(each.rows for each in self._done), total), total

    def _groups(self, missing: Sequence[LiveSegment]) -> Iterator[list[LiveSegment]]:
        """Returns segments in groups of about the size of one output."""
        group: list[LiveSegment] = []
        rows = 0
        for live in missing:
            if group and rows + live.deletes.live_count > self.table.settings.segment_rows:
                yield group
                group, rows = [], 0
            group.append(live)
            rows += live.deletes.live_count
        if group:
            yield group

    def _commit(self) -> int:
        """Runs step 3."""
        table = self.table
        write: TableWrite | None = None

        def catch_up(now: TableState) -> TableWrite:
            if write is not None and write.base == now.version:
                return write
            return self._write_for(now)

        def prepare() -> None:
            nonlocal write
            state, lease = table.hold()
            try:
                write = catch_up(state)
            finally:
                lease.release()

        with table.catalog.write(prepare) as tx:
            self._check_revision(tx)
            return self._put_version(tx, catch_up(table.advance(tx, None)))

    def _write_for(self, now: TableState) -> TableWrite:
        """Returns the share of the commit on a version, with everything of it written."""
        # The writer lock may be held here: the job's record is neither read nor written.
        for _ in self._write(now, self._missing(now), lambda: False):
            pass
        outputs: list[Segment] = []
        hidden: dict[str, Positions] = {}
        for merged in self._done:
            outputs += merged.outputs
            hidden |= merged.hidden_since(now)
        if not self.reshaping.keeps_keys_apart:
            hidden = hide_equal_keys(self.table.name, self.reshaping, outputs, hidden)
        rows = sum(merged.rows for merged in self._done)
        size = sum(merged.bytes_written for merged in self._done)
        return TableWrite(
            self.table.id,
            self.table.name,
            self._schema.revision,
            now.version,
            hidden,
            outputs,
            dropped=[live.segment.meta.id for live in now.segments.values()],
            metrics=VersionMetrics(
                rows_total=rows,
                bytes_written=size,
                milliseconds=round((time.monotonic() - self._started) * 1000),
            ),
            commit_info=CommitInfo(is_blind=True, changes=list(self.changes)),
            has_data_change=False,
        )

    def _check_revision(self, tx: CatalogTransaction) -> int:
        transaction = unlabelled(self.table, self.operation)
        return check_revision(tx, transaction, self.table.id, self.table.name, self._revision)

    def _put_version(self, tx: CatalogTransaction, write: TableWrite) -> int:
        version = write.base + 1
        tx.put("schemas", catalog.schema_key(self.table.id, write.revision), self._schema.to_record())
        put_version(tx, unlabelled(self.table, self.operation), write, version)
        self.at_commit(tx, version)
        failpoint.hit("rewrite.before_commit")
        return version
