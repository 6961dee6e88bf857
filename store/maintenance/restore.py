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
from functools import reduce
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction
from seqstore.store.catalog.version_record import CommitInfo, VersionMetrics
from seqstore.store.maintenance.compaction import unlabelled
from seqstore.store.maintenance.schema_change_job import refuse_during_change
from seqstore.store.publish.publish import TableWrite, put_version
from seqstore.store.publish.write_states import refuse_changes
from seqstore.store.read.live_segment import LiveSegment, Projection
from seqstore.store.read.lookup import find
from seqstore.store.read.table_state import TableState
from seqstore.store.schema import properties as props
from seqstore.store.schema.column import DELETE_SIGN, VERSION_COL
from seqstore.store.schema.features import require_writable
from seqstore.store.schema.field_ids import require_open_types
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.key_codes import have_same_codes
from seqstore.store.segment.key_index import Positions
from seqstore.store.segment.load_marker import new_segment_id
from seqstore.store.segment.segment import Segment
from seqstore.store.types.cast.outcome import merge_masks
from seqstore.store.types.type_changes import convert

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

OPERATION: Final = "RESTORE"


def restore(table: VersionedTable, version: int) -> int:
    """Makes the rows of a version the newest ones; returns the new version.

    Raises:
        VersionExpiredError: the version cannot be read.
        InvalidInputError: rows would be removed, and the table is append-only; or a job changes its schema.
    """
    started = time.monotonic()
    state, lease = table.hold(version)
    try:
        with table.catalog.write() as tx:
            refuse_during_change(tx, table.id, table.name)
            now = table.advance(tx, None)
            restored = _publish(tx, table, now, state, started)
    finally:
        lease.release()
    table.published(table.state().schema)
    return restored


def _publish(
    tx: CatalogTransaction, table: VersionedTable, now: TableState, state: TableState, started: float
) -> int:
    if now.schema.is_append_only:
        refuse_changes(now.schema, table.name, OPERATION, _rows_lost(now, state))
    staged: list[Segment] = []
    hidden: dict[str, Positions] = {}
    for live in state.segments.values():
        if not live.deletes.live_count:
            continue
        old = live.segment
        meta = replace(old.meta, id=new_segment_id(), file=old.meta.file_id, written=live.row_version)
        segment = old.described_by(meta)
        staged.append(segment)
        if live.deletes.hidden:
            hidden[segment.meta.id] = live.deletes.hidden_positions()
    transaction = unlabelled(table, f"{OPERATION} TO VERSION {state.version}")
    metrics = VersionMetrics(
        rows_total=state.row_count,
        rows_deleted=now.row_count,
        milliseconds=round((time.monotonic() - started) * 1000),
    )
    revision, info = _restored_schema(tx, table, now.schema, state.schema)
    write = TableWrite(
        table.id,
        table.name,
        revision,
        now.version,
        hidden,
        staged,
        dropped=[live.segment.meta.id for live in now.segments.values()],
        metrics=metrics,
        restored=state.version,
        commit_info=info,
    )
    put_version(tx, transaction, write, now.version + 1)
    return now.version + 1


def _restored_schema(
    tx: CatalogTransaction, table: VersionedTable, now: TableSchema, then: TableSchema
) -> tuple[int, CommitInfo | None]:
    """Runs step 4; returns the restored revision, and the commit info for loads that began under another."""
    if now.revision == then.revision:
        return now.revision, None
    require_writable([*now.features, *then.features])
    unused = [*(column.id + 1 for column in now.columns), now.next_column_id, then.next_column_id]
    restored = replace(
        then, revision=now.revision + 1, next_column_id=max(unused), properties=_properties(now, then)
    )
    require_open_types(restored)
    tx.put("schemas", catalog.schema_key(table.id, restored.revision), restored.to_record())
    added = [f"+{name}" for name in then.features if name not in now.features]
    removed = [f"-{name}" for name in now.features if name not in then.features]
    changes = [f"the schema (that of revision {then.revision} again)"]
    return restored.revision, CommitInfo(is_blind=True, changes=changes, features=[*added, *removed])


def _properties(now: TableSchema, then: TableSchema) -> dict[str, str]:
    """Returns the restored properties. How versions appear to others is none of a version."""
    if now.open_formats == then.open_formats:
        return dict(then.properties)
    fixed = (props.OPEN_FORMATS, props.OPEN_EVERY, props.STORAGE_FORMAT, props.ICEBERG_VERSION)
    kept = {name: value for name, value in then.properties.items() if name not in fixed}
    return kept | {name: now.properties[name] for name in fixed if name in now.properties}


def _rows_lost(now: TableState, then: TableState) -> int:
    """Counts the rows of `now` that `then` lacks, or has as another version of the row.

    A row is identified by its key and the version that wrote it. Live rows of a file that both versions use
    need no look-up; rows of other files, such as a compaction's, are looked up by their keys.
    """
    known = {live.segment.meta.file_id: live for live in then.segments.values()}
    return sum(
        _lost_of(now, then, live, known.get(live.segment.meta.file_id)) for live in now.segments.values()
    )


def _lost_of(now: TableState, then: TableState, live: LiveSegment, same: LiveSegment | None) -> int:
    positions = np.arange(live.segment.rows, dtype=np.uint32)
    positions = positions[live.deletes.is_live(positions)]
    if same is not None:
        positions = positions[~same.deletes.is_live(positions)]
    if not len(positions):
        return 0
    rows = live.take(positions, Projection(now.schema, (*now.schema.key, DELETE_SIGN, VERSION_COL)))
    rows = rows.filter(pc.equal(rows.column(DELETE_SIGN), 0))
    keys, kept = _keys_of(rows, now.schema, then.schema)
    if not len(kept):
        return len(rows)
    entries, matches = find(then, keys)
    found = then.take(matches, [DELETE_SIGN, VERSION_COL])
    is_same = (found.column(DELETE_SIGN).to_numpy() == 0) & (
        found.column(VERSION_COL).to_numpy() == kept.column(VERSION_COL).to_numpy()[entries]
    )
    return len(rows) - int(is_same.sum())


def _keys_of(rows: pa.Table, now: TableSchema, then: TableSchema) -> tuple[list[pa.Array], pa.Table]:
    """Returns the keys of rows under the earlier schema, and the rows that have one there: a key that was
    written after its column got a wider type may have no form in the narrower one."""
    arrays = [rows.column(name).combine_chunks() for name in now.key]
    if have_same_codes(now.key_columns, then.key_columns):
        return arrays, rows
    given = {column.id: (column, array) for column, array in zip(now.key_columns, arrays, strict=True)}
    casts = []
    for column in then.key_columns:
        before, array = given[column.id]
        casts.append(convert(array, before.type, column.type))
    failed = reduce(merge_masks, [cast.failed for cast in casts])
    if failed is None:
        return [cast.values for cast in casts], rows
    fits = pc.invert(failed)
    return [cast.values.filter(fits) for cast in casts], rows.filter(fits)
