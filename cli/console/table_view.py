"""One table: its columns, its versions as a page, and its segments with what compaction will do next."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.cli.console.value_texts import texts
from seqstore.store.catalog.version_record import VersionRecord, newest_version_records
from seqstore.store.maintenance.compaction_policy import (
    MaintenancePolicy,
    choose_large,
    choose_tiny,
    is_cold,
    is_tiny,
)
from seqstore.store.publish.tombstones import retention_seconds
from seqstore.store.read.live_segment import LiveSegment
from seqstore.store.schema.column import VERSION_COL
from seqstore.store.segment.load_marker import made_at
from seqstore.store.segment.zone_map import Pruner
from seqstore.store.settings import Settings
from seqstore.store.table import Table

VERSIONS_MAX: Final = 1_000
SEGMENTS_MAX: Final = 1_000
_RANGE_ROWS_MAX: Final = 65_536


def described(table: Table) -> dict[str, Any]:
    """Returns the columns, keys and properties of a table, and the versions that can be read."""
    state = table.state()
    schema = state.schema
    columns = [
        {
            "name": column.name,
            "type": column.type.sql,
            "nullable": column.nullable,
            "key": column.name in schema.declared_key,
            "comment": column.comment,
            "default": column.default is not None,
        }
        for column in schema.columns
    ]
    partitioning = schema.partitioning
    return {
        "name": table.name,
        "columns": columns,
        "key": list(schema.declared_key),
        "kind": "DUPLICATE KEY" if schema.is_duplicate else "UNIQUE KEY",
        "sequence": schema.has_sequence,
        "properties": dict(schema.properties),
        "partitions": partitioning.sql if partitioning is not None else "",
        "comment": schema.comment,
        "rows": state.row_count,
        "version": state.version,
        "oldest": table.oldest_version,
        "segments": len(state.segments),
    }


def versions(table: Table, *, before: int | None, limit: int) -> dict[str, Any]:
    """Returns a page of the time line, newest first.

    Args:
        before: only earlier versions, None for the newest.
    """
    with table.catalog.read() as tx:
        found = list(islice(newest_version_records(tx, table.id, before=before), limit + 1))
    return {
        "versions": [_version(number, record) for number, record in found[:limit]],
        "has_more": len(found) > limit,
        "version": table.version,
        "oldest": table.oldest_version,
    }


def _version(number: int, record: VersionRecord) -> dict[str, Any]:
    return {
        "version": number,
        "time_ms": record.time_ms,
        "operation": record.operation,
        "label": record.label,
        "txn_id": record.txn_id,
        "changes_data": record.has_data_change,
        **record.metrics.__dict__,
    }


def segments(table: Table, settings: Settings) -> dict[str, Any]:
    """Returns the segments of the newest version, and what compaction does with them next, and why."""
    state = table.state()
    policy = MaintenancePolicy.of(state.schema, settings)
    tiny = {live.segment.meta.id for live in choose_tiny(state, policy, settings)}
    large = {live.segment.meta.id for live in choose_large(state, policy, settings)}
    found = sorted(state.segments.values(), key=lambda live: made_at(live.segment.meta.id))
    names = state.schema.declared_key
    lines = [_segment(live, tiny, large, policy, settings) for live in found[-SEGMENTS_MAX:]]
    return {
        "version": state.version,
        "total": len(found),
        "key": names[0] if names else "",
        "is_automatic": policy.is_automatic,
        "segments_max": policy.segments_max,
        "deleted_percent": policy.deleted_percent,
        "segment_rows": settings.segment_rows,
        "tombstone_retention_seconds": retention_seconds(state.schema, settings),
        "plan": _plan(tiny, large, policy),
        "segments": lines,
    }


def _plan(tiny: set[str], large: set[str], policy: MaintenancePolicy) -> str:
    if not policy.is_automatic:
        return (
            "Automatic compaction is off for this table (property disable_auto_compaction, or the setting "
            "auto_compaction): what the picture marks waits for OPTIMIZE."
        )
    if not tiny and not large:
        return (
            f"Nothing to do: a merge starts with more than {policy.segments_max} tiny or "
            f"{policy.segments_max // 2} small segments, a rewrite at {policy.deleted_percent} % dead rows, "
            "or when dead rows have rested."
        )
    parts = [f"merge {len(tiny)} tiny segments into one"] if tiny else []
    parts += [f"rewrite {len(large)} larger segments"] if large else []
    return f"Next compaction will {' and '.join(parts)}; it starts after the next load or maintenance."


def _segment(
    live: LiveSegment, tiny: set[str], large: set[str], policy: MaintenancePolicy, settings: Settings
) -> dict[str, Any]:
    meta, dead = live.segment.meta, live.deletes.hidden
    low, high = _key_range(live)
    dead_percent = 100 * dead / max(meta.rows, 1)
    chosen, why = "", "stays: large enough, and few of its rows are dead"
    if meta.id in tiny:
        chosen, why = "merge", "tiny (below a tenth of segment_rows and of segment_bytes_max), merged"
    elif meta.id in large and dead_percent >= policy.deleted_percent:
        chosen, why = "rewrite", f"{dead_percent:.0f} % dead rows, at least {policy.deleted_percent} %"
    elif meta.id in large and is_cold(live, policy):
        chosen, why = "rewrite", f"{policy.cold_seconds} s old or older, to be compressed"
    elif meta.id in large:
        chosen, why = "rewrite", "small for its table, or its dead rows have rested long enough"
    elif is_tiny(live, settings):
        why = f"stays: tiny, and not more than {policy.segments_max} tiny ones are there"
    return {
        "id": meta.id,
        "rows": meta.rows,
        "dead": dead,
        "tombstones": meta.tombstones,
        "bytes": meta.data_bytes + meta.keys_bytes,
        "home": meta.home,
        "created": live.created,
        "is_merged": VERSION_COL in meta.hidden,
        "age_seconds": max(time.time() - made_at(meta.id), 0),
        "low": low,
        "high": high,
        "next": chosen,
        "why": why,
    }


def _key_range(live: LiveSegment) -> tuple[str | None, str | None]:
    """Returns the smallest and the largest first key column, None where they are not known."""
    segment = live.segment
    keys = segment.schema.key_columns
    if not keys:
        return None, None
    column = keys[0]
    if column.name in segment.meta.zones:
        pruner = Pruner(segment.meta.zones, {column.name: column.name}, segment.schema.arrow, segment.batches)
        low, high, _ = pruner.bounds(column.name)
    elif segment.rows <= _RANGE_ROWS_MAX and segment.batches == 1:
        low = high = segment.batch(0, [column.name]).column(0)
    else:
        return None, None
    ends = [pc.min_max(low)["min"], pc.min_max(high)["max"] if high.null_count == 0 else None]
    found = [
        texts(pa.chunked_array([pa.array([end.as_py()], low.type)]))[0] if end is not None else None
        for end in ends
    ]
    return found[0], found[1]
