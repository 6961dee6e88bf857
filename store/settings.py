"""Engine settings: sizes, times and switches, units in the names. `conf/default.toml` states the reason for
each.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from seqstore.store.errors import InvalidInputError

THINNING_FORM: Final = "AGE:STEP in seconds, each pair greater than the one before, or an empty text"
REGISTRIES: Final = "SEQSTORE_SCHEMA_REGISTRIES"
_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_MAY_BE_ZERO = frozenset(
    [
        "auto_compaction",
        "compaction_nice",
        "compaction_write_bytes_per_second",
        "ship_seconds",
        "version_retention_seconds",
        "tombstone_retention_seconds",
    ]
)


class ThinningStep(NamedTuple):
    """Of versions that are this old, the last one in each step of time is kept; both in seconds."""

    age: int
    step: int


def parse_thinning(text: str) -> tuple[ThinningStep, ...]:
    """Returns the steps of `AGE:STEP,AGE:STEP`, such as `900:60,3600:3600`; none of an empty text.

    Raises:
        InvalidInputError: another text, or ages and steps that do not grow.
    """
    steps = [each.strip().split(":") for each in text.split(",")] if text.strip() else []
    if not all(len(each) == 2 and all(part.isascii() and part.isdigit() for part in each) for each in steps):
        raise InvalidInputError(f"expected {THINNING_FORM}, found {text!r}", kind="bad_setting")
    found = tuple(ThinningStep(int(age), int(step)) for age, step in steps)
    grows = all(one.age < two.age and one.step < two.step for one, two in pairwise(found))
    if not grows or any(not step for _, step in found):
        raise InvalidInputError(f"expected {THINNING_FORM}, found {text!r}", kind="bad_setting")
    return found


SECTIONS: Final = ("store", "server")  # of a file of settings
INTEGER_MAX: Final = 2**63 - 1  # beyond it lmdb and the system take no number


@dataclass(frozen=True)
class Settings:
    """One immutable set of settings; `Settings.load(path)` reads the `[store]` table of a TOML file.

    Attributes:
        catalog_bytes_max: size of the catalog's memory map; it reserves address space, not disk, so set it
            high.
        inline_bytes_max: a load of at most this many Arrow bytes is stored in the catalog itself.
        segment_rows: rows of a segment where a large load is split.
        segment_bytes_max: a compaction cuts its segments before they reach this size, whatever their rows.
        segment_growth: how many times as large compactions make the segments of large tables; 1: they stay
            as they are loaded.
        batch_rows_max: rows of one record batch, the unit of reads, verification and pruning.
        batch_bytes_max: a batch is cut before it reaches this size, whatever its rows.
        clustered_rows_min: a segment of at least this many rows is sorted by key instead of by key code.
        label_keep_seconds: how long the label of a finished load stays taken (X18).
        auto_increment_values_reserved: values of an AUTO_INCREMENT column that a process reserves at once.
        precommitted_keep_seconds: how long a pre-committed transaction waits for its commit before it is
            aborted.
        rejected_rows_max: rejected rows that a result lists; all are counted.
        cache_bytes_max: size of the local cache of segment files on an object store.
        load_paths: directories and URIs below which LOAD LABEL and routine loads may read files.
        output_paths: directories and URIs below which users of a server may have backups and exports.
        kafka_brokers: brokers that routine loads may read, as host:port, host or a pattern; without any,
            every broker for administrators and none for others.
        kafka_properties: further properties of the Kafka client that routine loads may set.
        schema_registries: schema registries that loads of Avro may ask, as URLs (loaders.avro.registry).
        secret_references: secrets that jobs may name instead of holding them, as `env:NAME` and `file:/path`.
        load_spark_master: Spark master of broker loads' own sessions; empty: the one of `spark-submit`, else
            local[*].
        auto_compaction: tables are compacted after loads automatically; 0 disables it.
        compaction_segments_max: small segments that a table may have before some are merged.
        compaction_deleted_percent: dead rows that a large segment may have before it is rewritten.
        compaction_bytes_per_second: how fast large segments with few dead rows may be rewritten.
        compression_cold_seconds: age at which segments of tables with `compression = auto` are compressed.
        compaction_process: a process of its own compacts after loads, not threads of the loading one.
        compaction_nice: by how much that process raises its niceness, 0 to 19: higher is lower priority.
        compaction_write_bytes_per_second: how fast compactions of large segments may write on average; 0: as
            fast as they can.
        version_retention_seconds: how long a version can be read after the next one was published.
        version_thinning: which versions stay within that time as they grow old, as `AGE:STEP` in seconds;
            empty: all of them (`parse_thinning`).
        vacuum_seconds: the least time between two vacuums of a table after compactions.
        tombstone_retention_seconds: how late a row may arrive and still be compared with its key's tombstone.
        history_retention_seconds: how long the history lists versions that can no longer be read.
        conflict_check_seconds: time limit of a commit's comparison with rows of other transactions.
        update_lock_seconds: how long an UPDATE waits for another one on its table.
        mapped_reads: segment files are mapped, not read into memory.
        commit_wait_seconds: how long a writer waits for the write lock of the catalog.
        ship_seconds: how often commits are shipped, of a store that ships them; 0: each is shipped before it
            is acknowledged.
        follow_seconds: how often a follower looks for commits that were shipped.
        stale_seconds_max: reads of a follower fail that has not caught up for longer.
        enable_concurrent_update: False: updates of a table run one after the other; True: they run
            concurrently, and those that conflict fail (U2, U3). ADMIN SET FRONTEND CONFIG overrides it.
        columns_not_null_by_default: True: SQL declares a column with neither NULL nor NOT NULL as NOT NULL,
            as Doris did before 1.2. False: it may be NULL, key columns too.
    """

    catalog_bytes_max: int = 64 * _GIB
    inline_bytes_max: int = 256 * _KIB
    segment_rows: int = 1_000_000
    segment_bytes_max: int = 256 * _MIB
    segment_growth: int = 8
    batch_rows_max: int = 65_536
    batch_bytes_max: int = 64 * _MIB
    clustered_rows_min: int = 262_144
    label_keep_seconds: int = 3 * 24 * 3600
    auto_increment_values_reserved: int = 1_000
    precommitted_keep_seconds: int = 7 * 24 * 3600
    rejected_rows_max: int = 1_000
    cache_bytes_max: int = 16 * _GIB
    load_paths: tuple[str, ...] = ()
    output_paths: tuple[str, ...] = ()
    kafka_brokers: tuple[str, ...] = ()
    kafka_properties: tuple[str, ...] = ()
    schema_registries: tuple[str, ...] = ()
    secret_references: tuple[str, ...] = ()
    load_spark_master: str = ""
    auto_compaction: int = 1
    compaction_segments_max: int = 10
    compaction_deleted_percent: int = 30
    compaction_bytes_per_second: int = 4 * _MIB
    compression_cold_seconds: int = 3600
    compaction_process: bool = False
    compaction_nice: int = 5
    compaction_write_bytes_per_second: int = 0
    version_retention_seconds: int = 24 * 3600
    version_thinning: str = ""
    vacuum_seconds: int = 300
    tombstone_retention_seconds: int = 7 * 24 * 3600
    history_retention_seconds: int = 30 * 24 * 3600
    conflict_check_seconds: int = 30
    update_lock_seconds: int = 300
    commit_wait_seconds: int = 60
    ship_seconds: int = 1
    follow_seconds: int = 1
    stale_seconds_max: int = 60
    mapped_reads: bool = True
    enable_concurrent_update: bool = False
    columns_not_null_by_default: bool = False

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Reads a TOML file; settings that it does not name keep their default.

        Raises:
            InvalidInputError: unknown name, or a value of another type or range.
        """
        given = read_section(path, "store")
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


def read_section(path: Path, name: str) -> dict[str, Any]:
    """Returns a section of a TOML file of settings, empty if the file has none of that name.

    Raises:
        InvalidInputError: it is no TOML, or has something else than the known sections.
    """
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: not TOML: {error}", kind="bad_setting") from None
    for section, value in found.items():
        if section not in SECTIONS:
            raise InvalidInputError(
                f"{path}: unknown section or setting {section!r}; expected [{'], ['.join(SECTIONS)}]",
                kind="bad_setting",
            )
        if not isinstance(value, dict):
            raise InvalidInputError(
                f"{path}: {section!r} expects a section, [{section}], found {value!r}", kind="bad_setting"
            )
    given: dict[str, Any] = found.get(name, {})
    return given


def registries_of_environment() -> tuple[str, ...]:
    """Returns the setting `schema_registries` of programs that read no file of settings."""
    return tuple(os.environ.get(REGISTRIES, "").split())


def _expected(name: str, default: Any, value: Any) -> str | None:
    """Returns a description of the expected value, None if the value is acceptable."""
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, tuple):
        is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
        return None if is_list else "a list of texts"
    if name == "version_thinning" and isinstance(value, str):
        try:
            parse_thinning(value)
        except InvalidInputError:
            return THINNING_FORM
    if isinstance(default, str):
        return None if isinstance(value, str) else "a text"
    least = 0 if name in _MAY_BE_ZERO else 1
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= INTEGER_MAX:
        return None
    return ("a positive integer" if least else "an integer from 0") + " of 64 bits"
