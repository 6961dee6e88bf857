"""The change feed: the rows that versions changed, derived from segments and delete bitmaps without a second
copy.

For each version, given the state before and after it:

1. Removed rows are the rows that it hid, and the live rows of segments that it dropped. Added rows are the
   live rows of segments that it added. A compaction only moves rows and is skipped.
2. Match removed and added rows by key. Two rows of the same row version are the same row (a RESTORE may
   restore a row that still exists): no change.
3. Readers do not see tombstones. The rest has a kind: `+I` for a new key, `-U` and `+U` for the row before
   and after an update, `-D` for a deleted row.

Where versions were thinned out, a step leads from one kept version to the next: it has the net changes of all
versions in between, under the number and time of the later one.

The feed never has rows of a load that lost to larger sequences: no reader ever saw them. It has the columns
of its last version; values of a column that had another type before are converted. Rows are matched by the
key of their own version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seqstore.store.catalog.kept_versions import whole_versions
from seqstore.store.catalog.leases import Lease
from seqstore.store.catalog.version_record import read_version_record
from seqstore.store.errors import InvalidInputError
from seqstore.store.read.live_segment import LiveSegment, converted
from seqstore.store.read.table_state import TableState
from seqstore.store.schema.column import DELETE_SIGN, VERSION_COL, initial_values
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.dedupe import group_rows
from seqstore.store.segment.key_codes import encode_keys, have_same_codes, prove_keys
from seqstore.store.segment.key_index import Matches, Positions
from seqstore.store.types.column_types import ColumnType, is_wider
from seqstore.store.types.type_changes import is_allowed

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
FEED_FIELDS: Final = (
    pa.field(CHANGE_TYPE, pa.string(), False),
    pa.field(COMMIT_VERSION, pa.int64(), False),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us"), False),
)
_KINDS: Final = pa.array(["+I", "-U", "+U", "-D"])
_NONE: Final = -1


def changes(table: VersionedTable, first: int, last: int | None = None) -> pa.RecordBatchReader:
    """Returns the changes of versions `first` to `last`; see `Table.changes`."""
    last = table.version if last is None else last
    first = max(first, 2)  # version 1 is the creation
    if last < first - 1:
        raise InvalidInputError(
            f"changes of versions {first} to {last}: the first is above the last", kind="bad_range"
        )
    before, lease = table.hold(first - 1)
    newest, end = table.hold(last)
    schema = _widest(table, before.schema.revision, newest.schema)
    fields = feed_schema(schema)
    return pa.RecordBatchReader.from_batches(fields, _feed(table, before, last, schema, (lease, end)))


def _widest(table: VersionedTable, first: int, schema: TableSchema) -> TableSchema:
    """Returns a schema with types that hold the rows of every revision from the first one on.

    A RESTORE can make a column narrower than the rows that it removed.
    """
    with table.catalog.read() as tx:
        revisions = [table.loader.schema(tx, number) for number in range(first, schema.revision)]
    columns = list(schema.columns)
    for i, column in enumerate(columns):
        for other in (known for revision in revisions for known in revision.columns if known.id == column.id):
            if _holds(other.type, columns[i].type):
                columns[i] = replace(column, type=other.type)
    # Revision 0 differs from all: files written under the schema itself may need a cast too.
    return replace(schema, columns=tuple(columns), revision=0) if columns != list(schema.columns) else schema


def _holds(other: ColumnType, kind: ColumnType) -> bool:
    """Returns whether the values of a type can become those of another one, and only in that direction."""
    return is_wider(kind, other) or (is_allowed(kind, other) and not is_allowed(other, kind))


def feed_schema(schema: TableSchema) -> pa.Schema:
    """Returns the columns of a table's feed."""
    return pa.schema([*(field.with_nullable(True) for field in schema.arrow), *FEED_FIELDS])


def _feed(
    table: VersionedTable,
    before: TableState,
    last: int,
    schema: TableSchema,
    leases: tuple[Lease, Lease],
) -> Iterator[pa.RecordBatch]:
    """Yields the changes step by step; leases hold the version before a step, and the last one."""
    lease, _end = leases
    while before.version < last:
        version, lease = _next_kept(table, before.version, last, lease)
        with table.catalog.read() as tx:
            record = read_version_record(tx, table.id, version)
            after = table.loader.advance(tx, before, version, record)
        assert record is not None  # else the loader had no state of the version
        if record.has_data_change or version > before.version + 1:
            is_same_key = have_same_codes(after.schema.key_columns, schema.key_columns)
            changed = changes_between(before, after, schema if is_same_key else after.schema)
            if len(changed):
                changed = changed if is_same_key else _as_of(changed, after.schema, schema)
                yield _stamped(changed, version, record.time_ms, feed_schema(schema))
        before = after


def _next_kept(table: VersionedTable, before: int, last: int, lease: Lease) -> tuple[int, Lease]:
    """Returns the next whole version up to a last one, which is held, and the lease that keeps it.

    Among thinned versions only a lease on the version itself keeps it, behind them one on any earlier one.
    """
    while True:
        with table.catalog.read() as tx:
            whole = whole_versions(tx, table.id)
        version = min(whole.following(before + 1), last)
        if before >= whole.every:
            return version, lease
        following = table.lease(version)
        with table.catalog.read() as tx:
            if version in whole_versions(tx, table.id):
                return version, following
        following.release()  # a vacuum thinned it out in between


def _as_of(changed: pa.Table, before: TableSchema, schema: TableSchema) -> pa.Table:
    """Returns changes of a version with another key as the feed shows them."""
    known = {column.id: column for column in before.columns}
    arrays = [
        converted(changed.column(known[column.id].name), known[column.id], column)
        if column.id in known
        else initial_values(column, len(changed))
        for column in schema.columns
    ]
    return pa.Table.from_arrays([*arrays, changed.column(CHANGE_TYPE)], names=[*schema.names, CHANGE_TYPE])


def _stamped(changed: pa.Table, version: int, time_ms: int, fields: pa.Schema) -> pa.RecordBatch:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC).replace(tzinfo=None)
    columns = [
        *changed.columns,
        pa.array(np.full(len(changed), version, dtype=np.int64)),
        pa.repeat(pa.scalar(moment, pa.timestamp("us")), len(changed)),
    ]
    table = pa.Table.from_arrays(columns, schema=fields).combine_chunks()
    return table.to_batches(max_chunksize=len(table))[0]


def changes_between(before: TableState, after: TableState, schema: TableSchema) -> pa.Table:
    """Runs steps 1 to 3 for one version; returns the columns of `schema` and the kind of each row."""
    removed, added = _moved(before, after)
    names = [*dict.fromkeys([*schema.names, *schema.key]), DELETE_SIGN, VERSION_COL]
    old = replace(before, schema=schema).take(removed, names)
    new = replace(after, schema=schema).take(added, names)
    rows = pa.concat_tables([old, new]).combine_chunks()
    if not len(rows):
        return rows.select(schema.names).append_column(FEED_FIELDS[0], pa.array([], pa.string()))
    old_of, new_of = _by_key(rows, len(old), schema)
    signs = np.append(np.asarray(rows.column(DELETE_SIGN).combine_chunks()), 1)  # -1 reads as no row
    versions = np.append(np.asarray(rows.column(VERSION_COL).combine_chunks()), _NONE)
    was, now = signs[old_of] == 0, signs[new_of] == 0
    updated = was & now & (versions[old_of] != versions[new_of])
    chosen = ((new_of, now & ~was), (old_of, updated), (new_of, updated), (old_of, was & ~now))
    key = np.concatenate([np.flatnonzero(is_change) for _, is_change in chosen])
    order = np.argsort(key, kind="stable")  # the row before and the row after are adjacent
    picked = np.concatenate([of_key[is_change] for of_key, is_change in chosen])[order]
    kinds = np.repeat(np.arange(len(chosen)), [np.count_nonzero(is_change) for _, is_change in chosen])[order]
    visible = rows.select(schema.names).take(pa.array(picked))
    return visible.append_column(FEED_FIELDS[0], _KINDS.take(pa.array(kinds)))


def _by_key(
    rows: pa.Table, old_rows: int, schema: TableSchema
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Returns for each key the removed row and the added row, -1 where there is none."""
    keys = [rows.column(column.name).combine_chunks() for column in schema.key_columns]
    codes = encode_keys(keys, exact=schema.has_exact_key)
    groups = group_rows(codes, keys, exact=prove_keys(codes, schema.key_columns))
    count = int(groups.group[-1]) + 1
    old_of, new_of = np.full(count, _NONE), np.full(count, _NONE)
    is_old = groups.order < old_rows
    old_of[groups.group[is_old]] = groups.order[is_old]
    new_of[groups.group[~is_old]] = groups.order[~is_old]
    return old_of, new_of


def _moved(before: TableState, after: TableState) -> tuple[Matches, Matches]:
    """Performs step 1: finds the removed and the added rows."""
    removed, added = [], []
    for slot, live in before.segments.items():
        later = after.slot_of.get(live.segment.meta.id)
        if later is None:
            removed.append((slot, _live_rows(live)))
        else:
            removed.append((slot, after.segments[later].deletes.hidden_since(live.deletes)))
    for slot, live in after.segments.items():
        if live.segment.meta.id not in before.slot_of:
            added.append((slot, _live_rows(live)))
    return _matches(removed), _matches(added)


def _live_rows(live: LiveSegment) -> Positions:
    every = np.arange(live.segment.rows, dtype=np.uint32)
    return every[live.deletes.is_live(every)]


def _matches(parts: list[tuple[int, Positions]]) -> Matches:
    if not parts:
        return Matches.none(with_sequence=False)
    slots, positions = zip(*parts, strict=True)
    of_rows = np.repeat(np.array(slots, dtype=np.uint32), [len(rows) for rows in positions])
    return Matches(np.arange(len(of_rows)), of_rows, np.concatenate(positions), None)
