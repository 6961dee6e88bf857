"""Table properties: known names, their values, and their effect.

There are three kinds. *Own* properties change the table's behaviour. *Carried* ones are Doris properties
without meaning on one host (replicas, buckets in memory, row store): they are stored, printed by SHOW CREATE
TABLE and otherwise ignored. *Refused* ones request behaviour that this store does not have. Any other name is
an error that suggests the nearest known name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from seqstore.store.errors import InvalidInputError, bad_property
from seqstore.store.schema import column_groups as groups
from seqstore.store.settings import parse_thinning

SEQUENCE_COL: Final = "function_column.sequence_col"
SEQUENCE_TYPE: Final = "function_column.sequence_type"
STORAGE_FORMAT: Final = "storage_format"
CLUSTER_BY: Final = "cluster_by"  # column names, separated by commas
COMPRESSION: Final = "compression"
COMPRESSION_COLD: Final = "compression_cold_seconds"
NO_AUTO_COMPACTION: Final = "disable_auto_compaction"
COMPACTION_SEGMENTS: Final = "compaction_segments_max"
COMPACTION_DELETED: Final = "compaction_deleted_percent"
COMPACTION_PACE: Final = "compaction_bytes_per_second"
VERSION_RETENTION: Final = "version_retention_seconds"
VERSION_THINNING: Final = "version_thinning"
TOMBSTONE_RETENTION: Final = "tombstone_retention_seconds"
TOO_LATE_ROWS: Final = "too_late_rows"
GROUP_COMMIT_MODE: Final = "group_commit_mode"
GROUP_COMMIT_OFF: Final = "off_mode"
GROUP_COMMIT_MODES: Final = ("async_mode", "sync_mode", GROUP_COMMIT_OFF)
ISOLATION_LEVEL: Final = "delta.isolationLevel"
MERGE_ON_WRITE: Final = "enable_unique_key_merge_on_write"
WITHOUT_KEYS: Final = "enable_duplicate_without_keys_by_default"
SKIP_BITMAP: Final = "enable_unique_key_skip_bitmap_column"
ROW_LEVEL: Final = "delta.enableDeletionVectors"
APPEND_ONLY: Final = "delta.appendOnly"
PARTITION_COLUMNS: Final = "partition_columns"
OPEN_FORMATS: Final = "delta.universalFormat.enabledFormats"
OPEN_EVERY: Final = "open_every_seconds"
COLUMN_MAPPING: Final = "delta.columnMapping.mode"
ICEBERG_VERSION: Final = "iceberg.format-version"
KNOWN_FORMATS: Final = ("delta", "iceberg")
_CARRIED: Final = frozenset(
    [
        "replication_num",
        "replication_allocation",
        "in_memory",
        "light_schema_change",
        "store_row_column",
        "row_store_page_size",
        "row_store_columns",
        "enable_single_replica_compaction",
        "group_commit_interval_ms",
        "group_commit_data_bytes",
        "compaction_policy",
        "bloom_filter_columns",
        "bloom_filter_fpp",
        "storage_medium",
        "storage_cooldown_time",
        "storage_policy",
        "min_load_replica_num",
        "estimate_partition_size",
        "is_being_synced",
        "enable_mow_light_delete",
        "colocate_with",
        "skip_write_index_on_load",
    ]
)
_REFUSED: Final = {
    "dynamic_partition.": "partitions are not created by a schedule here; add them by ALTER TABLE",
    "binlog.": "there is no binlog; read the change feed instead",
}


class IsolationLevel(StrEnum):
    """An isolation level, with its name in Delta Lake."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"


_BY_NAME = {level.lower(): level for level in IsolationLevel}


def parse_isolation_level(level: str) -> IsolationLevel:
    """Returns an isolation level, read without regard to case.

    Raises:
        InvalidInputError: any other name, `SnapshotIsolation` included, which is internal.
    """
    known = _BY_NAME.get(level.lower())
    if known is None:
        raise InvalidInputError(
            f"isolation level {level!r}: expected Serializable or WriteSerializable",
            kind="DELTA_INVALID_ISOLATION_LEVEL",
        )
    return known


def stricter(one: IsolationLevel, other: IsolationLevel) -> IsolationLevel:
    """Returns the level of two that allows fewer histories."""
    return IsolationLevel.SERIALIZABLE if IsolationLevel.SERIALIZABLE in (one, other) else one


_Parser = Callable[[str, str], str]  # of name and value; returns the stored value


def _one_of(expected: str, spellings: Mapping[str, str]) -> _Parser:
    """Returns the parser of a property with few values: by their spelling in lower case, the stored value."""

    def parse(name: str, value: str) -> str:
        stored = spellings.get(value.lower())
        if stored is None:
            raise bad_property(f"property {name!r}: expected {expected}, found {value!r}")
        return stored

    return parse


_boolean: Final = _one_of("true or false", {"true": "true", "false": "false"})


def _count(name: str, value: str) -> str:
    if not value.isascii() or not value.isdigit():
        raise bad_property(f"property {name!r}: expected a whole number from 0, found {value!r}")
    return str(int(value))


def _text(_name: str, value: str) -> str:
    return value


def _thinning(name: str, value: str) -> str:
    try:
        return ",".join(f"{age}:{step}" for age, step in parse_thinning(value))
    except InvalidInputError as error:
        raise bad_property(f"property {name!r}: {error.message}") from None


def _formats(name: str, value: str) -> str:
    """Returns the formats of an open table, sorted; empty where it is none."""
    wanted = sorted({each.strip().lower() for each in value.split(",") if each.strip()})
    for each in wanted:
        if each not in KNOWN_FORMATS:
            expected = "'delta', 'iceberg', 'delta,iceberg' or ''"
            raise bad_property(f"property {name!r}: expected {expected}, found {value!r}")
    return ",".join(wanted)


_OURS: Final[dict[str, _Parser]] = {
    SEQUENCE_COL: _text,
    SEQUENCE_TYPE: _text,
    STORAGE_FORMAT: _one_of(
        "one of arrow, parquet",
        # Doris's own layouts mean the default here
        {"v2": "arrow", "v3": "arrow", "default": "arrow", "arrow": "arrow", "parquet": "parquet"},
    ),
    COMPRESSION: _one_of(
        "none, lz4, zstd or auto",
        {
            "none": "none",
            "no_compression": "none",
            "default_compression": "default",
            "default": "default",
            "lz4": "lz4",
            "lz4f": "lz4",
            "zstd": "zstd",
            "auto": "auto",
        },
    ),
    COMPRESSION_COLD: _count,
    NO_AUTO_COMPACTION: _boolean,
    COMPACTION_SEGMENTS: _count,
    COMPACTION_DELETED: _count,
    COMPACTION_PACE: _count,
    VERSION_RETENTION: _count,
    VERSION_THINNING: _thinning,
    TOMBSTONE_RETENTION: _count,
    TOO_LATE_ROWS: _one_of("count or error", {"count": "count", "error": "error"}),
    GROUP_COMMIT_MODE: _one_of(
        "one of async_mode, sync_mode, off_mode", {mode: mode for mode in GROUP_COMMIT_MODES}
    ),
    ISOLATION_LEVEL: lambda _name, value: str(parse_isolation_level(value)),
    ROW_LEVEL: _boolean,
    APPEND_ONLY: _boolean,
    PARTITION_COLUMNS: _text,
    CLUSTER_BY: _text,
    OPEN_FORMATS: _formats,
    OPEN_EVERY: _count,
    COLUMN_MAPPING: _one_of("id or none", {"id": "id", "none": "none"}),
    ICEBERG_VERSION: _one_of("2 or 3", {"2": "2", "3": "3"}),
    MERGE_ON_WRITE: _boolean,
    SKIP_BITMAP: _boolean,
    WITHOUT_KEYS: _boolean,
}


def parse_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Checks names and values; returns them in their stored spelling, in the given order.

    Raises:
        InvalidInputError: unknown or refused name, or a value that the property does not accept.
    """
    parsed: dict[str, str] = {}
    for name, value in given.items():
        if name in _OURS:
            parsed[name] = _OURS[name](name, str(value))
        elif name in _CARRIED or name.startswith(groups.PREFIX):
            parsed[name] = str(value)
        else:
            raise bad_property(_refusal(name))
    if parsed.get(OPEN_FORMATS):
        if str(given.get(STORAGE_FORMAT, "")).lower() == "arrow":
            raise bad_property(
                f"property {STORAGE_FORMAT!r}: expected parquet where {OPEN_FORMATS!r} is set, found 'arrow'"
            )
        parsed[STORAGE_FORMAT] = "parquet"
    return parsed


def _refusal(name: str) -> str:
    for prefix, reason in _REFUSED.items():
        if name.startswith(prefix):
            return f"property {name!r} is not supported: {reason}"
    near = difflib.get_close_matches(name, [*_OURS, *_CARRIED], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"property {name!r} is not known{hint}"
