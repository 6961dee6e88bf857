"""Histories as rows: of a table, the origin of each version; of a key, the outcome of each write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from seqstore.store.history.key_history import KeyEvent
    from seqstore.store.read.versioned_table import VersionedTable

_METRICS: Final = (
    "rows_total",
    "rows_loaded",
    "rows_filtered",
    "rows_superseded",
    "rows_late",
    "rows_too_late",
    "rows_replaced",
    "rows_deleted",
    "bytes_written",
    "milliseconds",
)


def history_table(table: VersionedTable, *, newest_first: bool = False) -> pa.Table:
    """Returns one row per version: time (UTC), operation, label, metrics, and the commit info that isolation
    uses.
    """
    versions = table.history()
    if newest_first:
        versions.reverse()
    kept = table.kept_versions
    columns: dict[str, pa.Array] = {
        "version": pa.array([v.version for v in versions], pa.int64()),
        "time (UTC)": pa.array([v.timestamp.strftime("%Y-%m-%d %H:%M:%S") for v in versions], pa.string()),
        "operation": pa.array([v.operation for v in versions], pa.string()),
        "label": pa.array([v.label for v in versions], pa.string()),
        "txn_id": pa.array([v.txn_id for v in versions], pa.int64()),
    }
    for name in _METRICS:
        columns[name] = pa.array([getattr(v.metrics, name) for v in versions], pa.int64())
    columns["readable"] = pa.array([v.version in kept for v in versions], pa.bool_())
    columns["data_change"] = pa.array([v.has_data_change for v in versions], pa.bool_())
    columns["blind"] = pa.array([v.commit_info.get("blind") for v in versions], pa.bool_())
    columns["read_version"] = pa.array([v.commit_info.get("read_version") for v in versions], pa.int64())
    columns["isolation_level"] = pa.array([v.commit_info.get("level") or None for v in versions], pa.string())
    return pa.table(columns)


def key_history_table(events: Sequence[KeyEvent]) -> pa.Table:
    """Returns one row per write of a key, as `Table.key_history` lists them."""
    times = [event.timestamp.replace(tzinfo=None) if event.timestamp else None for event in events]
    sequences = [None if event.sequence is None else str(event.sequence) for event in events]
    rows = [json.dumps(dict(event.row), default=str, ensure_ascii=False) for event in events]
    return pa.table(
        {
            "version": pa.array([event.version for event in events], pa.int64()),
            "time": pa.array(times, pa.timestamp("us")),
            "operation": pa.array([event.operation for event in events], pa.string()),
            "label": pa.array([event.label for event in events], pa.string()),
            "txn_id": pa.array([event.txn_id for event in events], pa.int64()),
            "sequence": pa.array(sequences, pa.string()),
            "outcome": pa.array([event.outcome for event in events], pa.string()),
            "until_version": pa.array([event.until for event in events], pa.int64()),
            "explanation": pa.array([event.explanation for event in events], pa.string()),
            "row": pa.array(rows, pa.string()),
        }
    )
