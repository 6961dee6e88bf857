"""Table metadata of Iceberg: the JSON at which a reader starts."""

from __future__ import annotations

import time
from typing import Any, Final

from seqstore.store.open_table.appearance import Appearance
from seqstore.store.open_table.iceberg_files import metadata_name
from seqstore.store.open_table.iceberg_schema import iceberg_schema, largest_id

TABLE: Final = "seqstore.table"
VERSION: Final = "seqstore.version"
_NUMBER: Final = "seqstore.metadata"
_NEWEST_KEPT: Final = 100
_OLDER_KEPT: Final = 100
_UNPARTITIONED: Final = {
    "default-spec-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "last-partition-id": 999,
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "statistics": [],
    "partition-statistics": [],
}


def numbered(properties: dict[str, str]) -> int:
    """Returns the number that metadata state for themselves; those of other programs state an older one."""
    return int(properties[_NUMBER])


def next_metadata(
    appearance: Appearance,
    before: dict[str, Any],
    location: str,
    identity: str,
    number: int,
    *,
    is_begun: bool,
) -> dict[str, Any]:
    """Returns the metadata of an appearance, all but its snapshot.

    Args:
        before: the metadata before it, empty for none.
        number: of the metadata.
        is_begun: the history begins anew, as the files have other locations or another format.
    """
    now = max(round(time.time() * 1000), before.get("last-updated-ms", 0))
    kept = [] if is_begun else _kept(before.get("snapshots", []), now, appearance.retention_seconds)
    sequence = before.get("last-sequence-number", 0) + 1
    schemas, current = _schemas(appearance, before.get("schemas", []), {each["schema-id"] for each in kept})
    largest = max(largest_id(schemas), before.get("last-column-id", 0))
    logged = [] if is_begun else before.get("metadata-log", [])
    if before and not is_begun:
        name = f"{location}/metadata/{metadata_name(number - 1)}"
        logged = [*logged, {"timestamp-ms": before["last-updated-ms"], "metadata-file": name}]
    found = {
        "format-version": appearance.schema.iceberg_version,
        "table-uuid": identity,
        "location": location,
        "last-sequence-number": sequence,
        "last-updated-ms": now,
        "last-column-id": largest,
        "current-schema-id": current,
        "schemas": schemas,
        **_UNPARTITIONED,
        "properties": _properties(appearance, identity, number),
        "current-snapshot-id": appearance.version,
        "refs": {"main": {"snapshot-id": appearance.version, "type": "branch"}},
        "snapshots": kept,
        "snapshot-log": [
            {"timestamp-ms": each["timestamp-ms"], "snapshot-id": each["snapshot-id"]} for each in kept
        ]
        + [{"timestamp-ms": now, "snapshot-id": appearance.version}],
        "metadata-log": logged[-_NEWEST_KEPT:],
    }
    if appearance.schema.iceberg_version > 2:
        found["next-row-id"] = 0 if is_begun else before.get("next-row-id", 0)
    return found


def _properties(appearance: Appearance, identity: str, number: int) -> dict[str, str]:
    found = {TABLE: identity, VERSION: str(appearance.version), _NUMBER: str(number)}
    comment = appearance.schema.comment
    return {**found, "comment": comment} if comment else found


def _kept(snapshots: list[dict[str, Any]], now: int, retention_seconds: int) -> list[dict[str, Any]]:
    """Returns the snapshots that metadata go on to name."""
    limit = now - retention_seconds * 1000
    ends = [each["timestamp-ms"] for each in snapshots[1:]] + [now]
    within = [each for each, end in zip(snapshots, ends, strict=True) if end > limit or end == now]
    span = max(retention_seconds * 1000 // _OLDER_KEPT, 1)
    older = {each["timestamp-ms"] // span: each for each in within[:-_NEWEST_KEPT]}
    return [*older.values(), *within[-_NEWEST_KEPT:]]


def _schemas(
    appearance: Appearance, known: list[dict[str, Any]], used: set[int]
) -> tuple[list[dict[str, Any]], int]:
    """Returns the schemas of the snapshots, and the id of the current one."""
    for each in known:
        if each == iceberg_schema(appearance.schema, each["schema-id"]):
            current = each
            break
    else:
        number = max((each["schema-id"] for each in known), default=-1) + 1
        current = iceberg_schema(appearance.schema, number)
        known = [*known, current]
    # The newest id stays known, so that no other schema gets it.
    last = known[-1]
    chosen = [each for each in known if each["schema-id"] in used or each is current or each is last]
    return chosen, current["schema-id"]
