"""Engine settings: sizes, times and switches, units in the names. `conf/default.toml` says the reason of
each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from seqstore.store.errors import InvalidInputError

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_MAY_BE_ZERO = frozenset(["auto_compaction", "version_retention_seconds", "tombstone_retention_seconds"])


@dataclass(frozen=True)
class Settings:
    """One immutable set of settings; `Settings.load(path)` reads the `[store]` table of a TOML file.

    Attributes:
        catalog_bytes_max: size of the catalog's memory map; address space, not disk, so take it large.
        inline_bytes_max: a load of at most this many Arrow bytes lives in the catalog itself.
        segment_rows: rows a segment is built for when a load is large enough to be split.
        segment_bytes_max: a compaction cuts its segments before they reach this size, whatever their rows.
        batch_rows_max: rows of one record batch: what is read, verified and pruned at a time.
        batch_bytes_max: a batch is cut before it reaches this size, whatever its rows.
        clustered_rows_min: from this many rows on, a segment is sorted by key rather than by key code.
        label_keep_seconds: how long the label of a finished load stays taken (X18).
        auto_increment_values_reserved: values of an AUTO_INCREMENT column that a process takes at once.
        precommitted_keep_seconds: how long a pre-committed transaction waits for its commit before it is
            aborted.
        rejected_rows_max: rejected rows a result lists; all are counted.
        cache_bytes_max: size of the local cache of segment files that live on an object store.
        load_paths: directories and URIs below which LOAD LABEL and routine loads may read files.
        load_spark_master: where broker loads run Spark sessions of their own; empty: as `spark-submit`
            says, else local[*].
        auto_compaction: tables are compacted after loads without being asked; 0 switches it off.
        compaction_segments_max: small segments a table may have before some are merged.
        compaction_deleted_percent: dead rows a large segment may have before it is rewritten.
        compaction_bytes_per_second: how fast large segments with few dead rows may be rewritten.
        version_retention_seconds: how long a version can be read after the next one came.
        tombstone_retention_seconds: how late a row may come and still find that its key was deleted.
        history_retention_seconds: how long the history tells of versions that cannot be read any more.
        conflict_check_seconds: how long a commit looks at the rows of others before it gives up.
        update_lock_seconds: how long an UPDATE waits for another one on its table.
        enable_concurrent_update: False: updates of a table wait for each other; True: they run at once and
            those that meet fail (U2, U3). ADMIN SET FRONTEND CONFIG overrules it.
    """

    catalog_bytes_max: int = 64 * _GIB
    inline_bytes_max: int = 256 * _KIB
    segment_rows: int = 1_000_000
    segment_bytes_max: int = 256 * _MIB
    batch_rows_max: int = 65_536
    batch_bytes_max: int = 64 * _MIB
    clustered_rows_min: int = 262_144
    label_keep_seconds: int = 3 * 24 * 3600
    auto_increment_values_reserved: int = 1_000
    precommitted_keep_seconds: int = 7 * 24 * 3600
    rejected_rows_max: int = 1_000
    cache_bytes_max: int = 16 * _GIB
    load_paths: tuple[str, ...] = ()
    load_spark_master: str = ""
    auto_compaction: int = 1
    compaction_segments_max: int = 10
    compaction_deleted_percent: int = 30
    compaction_bytes_per_second: int = 4 * _MIB
    version_retention_seconds: int = 24 * 3600
    tombstone_retention_seconds: int = 7 * 24 * 3600
    history_retention_seconds: int = 30 * 24 * 3600
    conflict_check_seconds: int = 30
    update_lock_seconds: int = 300
    enable_concurrent_update: bool = False

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Reads a TOML file; settings it does not name keep their default.

        Raises:
            InvalidInputError: unknown name or a value that is no positive integer.
        """
        with path.open("rb") as file:
            given: dict[str, Any] = tomllib.load(file).get("store", {})
        known = {field.name for field in fields(cls)}
        for name, value in list(given.items()):
            if name not in known:
                raise InvalidInputError(f"{path}: unknown setting {name!r} in [store]", kind="bad_setting")
            expected = _expected(name, getattr(cls, name), value)
            if expected is not None:
                raise InvalidInputError(
                    f"{path}: setting {name!r} expects {expected}, found {value!r}", kind="bad_setting"
                )
            if isinstance(value, list):
                given[name] = tuple(value)
        return cls(**given)


def _expected(name: str, default: Any, value: Any) -> str | None:
    """What a setting should have been, None when it is."""
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, tuple):
        is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
        return None if is_list else "a list of texts"
    if isinstance(default, str):
        return None if isinstance(value, str) else "a text"
    least = 0 if name in _MAY_BE_ZERO else 1
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return None
    return "a positive integer" if least else "an integer from 0"
