"""The records of the versions of tables: databases `versions` and `bitmaps`, by table id | version.

A record names what made the version, the segments that it added and dropped, its metrics, and the commit info
against which later transactions are checked. It stays as long as a transaction that reads an older version
may commit, and as the history shows it.

Fields of a stored record: `revision`, `txn`, `label`, `operation`, `time_ms`, `added`, `dropped`, `figures`;
`state`; where they are not the default, `cleared`, `reset` with `restored`, `data_change` and `facts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import xxhash
from pyroaring import BitMap

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import CatalogTransaction, lost_record
from seqstore.store.segment.delete_bitmap import HiddenRows, Positions, bitmap_of, children, unite

_WORD: Final = 2**64


@dataclass(frozen=True)
class VersionMetrics:
    """The counts of one version that the history shows, beside those of its segments."""

    rows_total: int = 0
    rows_loaded: int = 0
    rows_filtered: int = 0
    rows_superseded: int = 0
    rows_late: int = 0
    rows_replaced: int = 0
    rows_deleted: int = 0
    rows_too_late: int = 0
    bytes_written: int = 0
    milliseconds: int = 0

    def __add__(self, other: VersionMetrics) -> VersionMetrics:
        more = other.__dict__
        return VersionMetrics(**{name: value + more[name] for name, value in self.__dict__.items()})


@dataclass(frozen=True)
class CommitInfo:
    """The part of a version record against which later transactions are checked.

    Attributes:
        is_blind: the transaction read nothing anywhere. A blind one stores no reads.
        columns: ids of the columns written, None for whole rows.
        read_version: the version that was read.
        level: the isolation level of the transaction.
        reads: the reads as `conflict.read_set.ReadLog` stores them, None where they cannot be stored.
        tables: the number of tables in the transaction.
        is_unchecked: its reads were not checked.
        changes: changes of schema and properties, as messages name them.
        features: table features that were added (`+name`) or dropped (`-name`).
        app: application id and version of an idempotent write.
    """

    is_blind: bool
    columns: frozenset[int] | None = None
    read_version: int = 0
    level: str = ""
    reads: Mapping[str, Any] | None = None
    tables: int = 1
    is_unchecked: bool = False
    changes: Sequence[str] = ()
    features: Sequence[str] = ()
    app: tuple[str, int] | None = None

    def to_record(self) -> dict[str, Any]:
        columns = sorted(self.columns) if self.columns is not None else None
        record: dict[str, Any] = {"blind": self.is_blind, "columns": columns}
        if not self.is_blind:
            record["read_version"] = self.read_version
            record["level"] = str(self.level)
            record["reads"] = self.reads if self.reads is not None else {"opaque": True}
        if self.tables > 1:
            record["tables"] = self.tables
        if self.is_unchecked:
            record["unchecked"] = True
        lists = {"changes": self.changes, "features": self.features, "app": self.app}
        return record | {name: list(values) for name, values in lists.items() if values}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CommitInfo:
        columns, app = record.get("columns"), record.get("app")
        return cls(
            bool(record.get("blind")),
            frozenset(columns) if columns is not None else None,
            int(record.get("read_version", 0)),
            record.get("level", ""),
            record.get("reads"),
            int(record.get("tables", 1)),
            bool(record.get("unchecked")),
            tuple(record.get("changes", ())),
            tuple(record.get("features", ())),
            (app[0], app[1]) if app else None,
        )


@dataclass(frozen=True)
class VersionState:
    """What a version record states: the segments that are live, and the records it belongs to.

    Attributes:
        segments: the number of live segments.
        total: the sum of the hashes of their ids, modulo 2^64.
        bitmap: checksum of the version's own record in `bitmaps`, None without one.
        before: checksum of the record of the version before, None where it is gone.
    """

    segments: int
    total: int
    bitmap: bytes | None = None
    before: bytes | None = None

    def to_record(self) -> dict[str, Any]:
        record = {"segments": self.segments, "sum": self.total, "bitmap": self.bitmap, "before": self.before}
        return {name: value for name, value in record.items() if value is not None}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> VersionState:
        return cls(record["segments"], record["sum"], record.get("bitmap"), record.get("before"))

    def followed_by(self, added: Iterable[str], dropped: Iterable[str]) -> VersionState:
        """Returns the segments of the next version."""
        new, old = list(added), list(dropped)
        total = self.total + _sum(new) - _sum(old)
        return VersionState(self.segments + len(new) - len(old), total % _WORD)


EMPTY: Final = VersionState(0, 0)


def state_of(segment_ids: Iterable[str]) -> VersionState:
    """Returns the state of a version with some live segments."""
    return EMPTY.followed_by(segment_ids, ())


def _sum(segment_ids: Iterable[str]) -> int:
    return sum(xxhash.xxh3_64_intdigest(segment.encode()) for segment in segment_ids)


@dataclass(frozen=True)
class VersionRecord:
    """One version of a table.

    Attributes:
        revision: of its schema.
        txn_id, label, operation: of the transaction that made it.
        time_ms: Unix time; times of later versions are never smaller.
        added, dropped: ids of segments.
        commit_info: None for versions that no transaction needs to be checked against.
        has_data_change: False where rows only moved (compaction).
        is_cleared: rows were removed by a condition, or all of them (TRUNCATE, a dropped partition).
        restored: the version whose rows were brought back, None for no RESTORE.
        state: what belongs to the version, None in records of earlier programs (catalog.version_chain).
    """

    revision: int
    txn_id: int
    label: str
    operation: str
    time_ms: int
    added: Sequence[str] = ()
    dropped: Sequence[str] = ()
    metrics: VersionMetrics = field(default_factory=VersionMetrics)
    commit_info: CommitInfo | None = None
    has_data_change: bool = True
    is_cleared: bool = False
    restored: int | None = None
    state: VersionState | None = None

    @property
    def is_restore(self) -> bool:
        """Whether the versions of its rows do not show which rows changed."""
        return self.restored is not None

    @property
    def removes_rows(self) -> bool:
        """Whether rows are gone without a newer row of their key."""
        return self.is_restore or self.is_cleared or (bool(self.dropped) and self.has_data_change)

    def to_record(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "revision": self.revision,
            "txn": self.txn_id,
            "label": self.label,
            "operation": self.operation,
            "time_ms": self.time_ms,
            "added": list(self.added),
            "dropped": list(self.dropped),
            "figures": self.metrics.__dict__,
        }
        if self.is_cleared:
            record["cleared"] = True
        if self.restored is not None:
            record |= {"reset": True, "restored": self.restored}
        if not self.has_data_change:
            record["data_change"] = False
        if self.commit_info is not None:
            record["facts"] = self.commit_info.to_record()
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> VersionRecord:
        facts = record.get("facts")
        return cls(
            record["revision"],
            record["txn"],
            record["label"],
            record["operation"],
            record["time_ms"],
            record["added"],
            record["dropped"],
            VersionMetrics(**record["figures"]),
            CommitInfo.from_record(facts) if facts else None,
            record.get("data_change", True),
            bool(record.get("cleared")),
            record.get("restored", 0) if record.get("reset") else None,
            VersionState.from_record(record["state"]) if "state" in record else None,
        )


def put_version_record(
    tx: CatalogTransaction,
    table_id: int,
    version: int,
    record: VersionRecord,
    hidden: Mapping[str, Positions] | None = None,
) -> None:
    """Stores a version, with a time that is not before that of the version before.

    Args:
        hidden: the rows that it hides; its own record of them covers those of earlier versions too.
    """
    earlier, digest = None, None
    if version > 1:
        earlier, digest = tx.get_with_digest("versions", catalog.version_key(table_id, version - 1))
    key = catalog.version_key(table_id, version)
    bitmap = _put_bitmap(tx, table_id, version, key, hidden or {})
    stored = record.to_record()
    if earlier is not None:
        stored["time_ms"] = max(record.time_ms, earlier["time_ms"])
    state = _state_before(tx, table_id, version, earlier).followed_by(record.added, record.dropped)
    stored["state"] = replace(state, bitmap=bitmap, before=digest).to_record()
    tx.put_new("versions", key, stored)


def _state_before(
    tx: CatalogTransaction, table_id: int, version: int, earlier: Mapping[str, Any] | None
) -> VersionState:
    """Returns the segments of the version before, counted where an earlier program made it."""
    if earlier is not None and "state" in earlier:
        return VersionState.from_record(earlier["state"])
    return state_of(live_segments(tx, table_id, version - 1))


def _put_bitmap(
    tx: CatalogTransaction, table_id: int, version: int, key: bytes, hidden: Mapping[str, Positions]
) -> bytes | None:
    """Stores the delete bitmap record of a version; returns its checksum, None without one."""
    own = {name: bitmap_of(positions) for name, positions in hidden.items()}
    union, covered = own, list(children(version))
    if covered:  # no later version has the segments that were dropped before this one (K6)
        union = unite([own, *(read_hidden(tx, table_id, child) for child in covered)])
        union = {name: rows for name, rows in union.items() if name in own or _is_live(tx, table_id, name)}
    if not union:
        return None
    return tx.put("bitmaps", key, hidden_record(union))


def _is_live(tx: CatalogTransaction, table_id: int, segment_id: str) -> bool:
    record = tx.get("segments", catalog.segment_key(table_id, segment_id))
    return record is not None and not record["dropped"]


def read_version_record(tx: CatalogTransaction, table_id: int, version: int) -> VersionRecord | None:
    """Returns the record of a version, None when the history does not have it, or has forgotten it."""
    record = tx.get("versions", catalog.version_key(table_id, version))
    return None if record is None else VersionRecord.from_record(record)


def version_time_ms(tx: CatalogTransaction, table_id: int, version: int) -> int:
    """Returns the Unix time at which a version that the history has became visible."""
    time_ms: int = tx.require("versions", catalog.version_key(table_id, version))["time_ms"]
    return time_ms


def version_records(tx: CatalogTransaction, table_id: int) -> Iterator[tuple[int, VersionRecord]]:
    """Yields the versions of a table that the history has, and their records, oldest first."""
    for key, record in tx.records("versions", catalog.table_key(table_id)):
        yield int.from_bytes(key[8:]), VersionRecord.from_record(record)


def newest_version_records(
    tx: CatalogTransaction, table_id: int, *, before: int | None = None
) -> Iterator[tuple[int, VersionRecord]]:
    """Yields the versions of a table that the history has, and their records, newest first.

    Args:
        before: only earlier versions, None for all.
    """
    end = None if before is None else catalog.version_key(table_id, before)
    for key, record in tx.records_before("versions", catalog.table_key(table_id), end):
        yield int.from_bytes(key[8:]), VersionRecord.from_record(record)


def hidden_record(hidden: HiddenRows) -> dict[str, bytes]:
    """Returns a delete bitmap record (segment.delete_bitmap)."""
    return {segment: rows.serialize() for segment, rows in hidden.items()}


def hidden_of(record: Mapping[str, bytes]) -> HiddenRows:
    """Returns the hidden rows of a delete bitmap record."""
    return {segment: BitMap.deserialize(rows) for segment, rows in record.items()}


def read_hidden(tx: CatalogTransaction, table_id: int, version: int) -> HiddenRows:
    """Reads the delete bitmap record of a version, empty when it wrote none.

    Raises:
        CorruptionError: it is not the one that the version states.
    """
    require_bitmap(tx, table_id, version)
    record = tx.get("bitmaps", catalog.version_key(table_id, version))
    return {} if record is None else hidden_of(record)


def live_segments(tx: CatalogTransaction, table_id: int, version: int) -> list[str]:
    """Returns the ids of the segments that the catalog has for a version."""
    return [
        key[8:].decode()
        for key, record in tx.records("segments", catalog.table_key(table_id))
        if record["created"] <= version and not 0 < record["dropped"] <= version
    ]


def require_segments(
    stated: VersionState | None, segment_ids: Iterable[str], table_id: int, version: int
) -> None:
    """Raises unless segments are those that a version states.

    Raises:
        CorruptionError: some are missing, or too many.
    """
    if stated is None:
        return
    found = state_of(segment_ids)
    if (found.segments, found.total) != (stated.segments, stated.total):
        key = catalog.version_key(table_id, version)
        raise lost_record(
            "versions",
            key,
            f"states {stated.segments} segments of table {table_id} version {version}, and the catalog has "
            f"{found.segments} or others",
        )


def require_bitmap(tx: CatalogTransaction, table_id: int, version: int) -> None:
    """Raises unless the delete bitmap record of a version is the one that was stored.

    Raises:
        CorruptionError: it is missing, or another one.
    """
    key = catalog.version_key(table_id, version)
    horizon = tx.get("horizons", catalog.table_key(table_id)) or {}
    if version <= int(horizon.get("oldest", 0)) and "bitmaps" in horizon:
        stated = dict(map(tuple, horizon["bitmaps"])).get(version)
    else:
        record = tx.get("versions", key)
        if record is None or "state" not in record:
            return
        stated = record["state"].get("bitmap")
    if tx.digest("bitmaps", key) != stated:
        raise lost_record("bitmaps", key, "is not the one that its version states")
