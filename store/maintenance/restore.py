"""RESTORE: an earlier version becomes the newest again, as a version of its own.

1. Hold the requested version, so that vacuum keeps its files.
2. Describe each of its segments again under a new id: the same files (`SegmentMeta.file`), or a copy of the
   bytes of inline segments. Rows keep their versions; where a segment does not store them, the new
   description states the version that wrote them (`written`).
3. Publish at head + 1: every segment of the newest version is dropped, the new descriptions are added, and
   rows that were hidden in the old version are hidden. No row is copied. A table that is append-only now
   keeps its rows: a version that lacks one of them, or has another in its place, is refused.
4. If the old version has another schema revision, store its schema as a new revision.

The record has `reset`: row versions do not show the changes, so a writer with a plan for an earlier version
must plan anew. Every version before stays unchanged, so a restore can itself be undone by a restore.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.transaction_record import TransactionRecord, TransactionStatus, now_ms
from seqstore.store.catalog.version_record import CommitInfo, VersionMetrics
from seqstore.store.publish.publish import TableWrite, put_version
from seqstore.store.publish.winner_test import Plan
from seqstore.store.publish.write_parts import refuse_changes
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.read.lost_rows import rows_lost
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.features import require_writable
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.load_marker import new_segment_id
from seqstore.store.segment.segment import Segment

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

OPERATION: Final = "RESTORE"


def restore(table: VersionedTable, version: int) -> int:
    """Makes the rows of a version the newest ones; returns the new version.

    Raises:
        VersionExpiredError: the version cannot be read.
        InvalidInputError: rows would be removed, and the table is append-only.
    """
    started = time.monotonic()
    state, lease = table.hold(version)
    try:
        with table.catalog.write() as tx:
            now = table.advance(tx, None)
            restored = _publish(tx, table, now, state, started)
    finally:
        lease.release()
    table.state()
    return restored


def _publish(
    tx: CatalogTransaction, table: VersionedTable, now: TableState, state: TableState, started: float
) -> int:
    if now.schema.is_append_only:
        refuse_changes(now.schema, table.name, OPERATION, rows_lost(now, state))
    staged: list[Segment] = []
    plan = Plan(now.version)
    for live in state.segments.values():
        if not live.deletes.live_count:
            continue
        segment = _described_again(live)
        staged.append(segment)
        if live.deletes.hidden:
            plan.own[segment.meta.id] = live.deletes.hidden_positions()
    transaction = TransactionRecord(
        0,
        table.database_id,
        table.name,
        "",
        TransactionStatus.VISIBLE,
        f"{OPERATION} TO VERSION {state.version}",
        now_ms(),
    )
    metrics = VersionMetrics(
        rows_total=state.row_count,
        rows_deleted=now.row_count,
        milliseconds=round((time.monotonic() - started) * 1000),
    )
    write = TableWrite(
        table.id,
        table.name,
        _restored_revision(tx, table, now.schema, state.schema),
        plan,
        staged,
        dropped=[live.segment.meta.id for live in now.segments.values()],
        metrics=metrics,
        restored=state.version,
        commit_info=_schema_facts(now.schema, state.schema),
    )
    put_version(tx, transaction, write, now.version + 1)
    return now.version + 1


def _restored_revision(
    tx: CatalogTransaction, table: VersionedTable, now: TableSchema, then: TableSchema
) -> int:
    """Runs step 4; returns the revision of the restored version."""
    if now.revision == then.revision:
        return now.revision
    require_writable([*now.features, *then.features])
    unused = [*(column.id + 1 for column in now.columns), now.next_column_id, then.next_column_id]
    restored = replace(then, revision=now.revision + 1, next_column_id=max(unused))
    tx.put("schemas", catalog.schema_key(table.id, restored.revision), restored.to_record())
    return restored.revision


def _schema_facts(now: TableSchema, then: TableSchema) -> CommitInfo | None:
    """Returns the commit info for loads that began under the earlier schema."""
    if now.revision == then.revision:
        return None
    added = [f"+{name}" for name in then.features if name not in now.features]
    removed = [f"-{name}" for name in now.features if name not in then.features]
    changes = [f"the schema (that of revision {then.revision} again)"]
    return CommitInfo(is_blind=True, changes=changes, features=[*added, *removed])


def _described_again(live: LiveSegment) -> Segment:
    """Returns another description of a segment's files."""
    old = live.segment
    meta = replace(old.meta, id=new_segment_id(), file=old.meta.file_id, written=live.row_version)
    return old.described_by(meta)
