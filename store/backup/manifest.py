"""The manifest of a backup: the catalog records of its tables, and with them the names of its files.

A file of `manifests/` is

    magic (8 bytes) | xxh3-128 of the rest (16 bytes) | msgpack

The records are those of the catalog (docs/format.md) without the table's id. A segment's description has
the checksums of all byte ranges of its file, and that of its key index. A file's name at the target holds a
digest of them: one name never stands for two contents, and no file is read to find out whether it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import msgpack
import xxhash

from seqstore.store.backup.target import Target
from seqstore.store.catalog import catalog
from seqstore.store.errors import CorruptionError, FormatError, InvalidInputError, NotFoundError
from seqstore.store.segment.disk import Range
from seqstore.store.segment.load_marker import is_segment_id
from seqstore.store.segment.segment import HOMES, INLINE, SegmentMeta, data_name, keys_name

FILES: Final = "files"
MANIFESTS: Final = "manifests"
FORMAT: Final = 1
_MAGIC: Final = b"SEQBACK1"
_HEADER: Final = len(_MAGIC) + 16
_ZONES_APART: Final = timedelta(hours=28)  # between local times of one moment, with an hour to spare twice


class CopiedFile(NamedTuple):
    """One file of a backup.

    Attributes:
        name: at the target.
        ending: of its name in a table's directory, with the slash.
        bytes: its size.
        ranges: offset, length and xxh3 of its byte ranges, which together are the whole file.
    """

    name: str
    ending: str
    bytes: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class TableCopy:
    """A table at one version; the fields are those of its records in the catalog.

    Attributes:
        revision: of its schema.
        time_ms: when the version became visible.
        schemas: every schema revision, by number.
        segments: the version that added each live segment, and its description.
        inline: bytes of inline segments, by id.
        bitmaps: delete bitmap records of the version's chain, by version.
        counters: next values of AUTO_INCREMENT columns, by column id.
        horizon: the tombstone watermark.
        apps: pairs of idempotent writes, by the rest of their key.
    """

    name: str
    version: int
    revision: int
    time_ms: int
    schemas: tuple[Mapping[str, Any], ...]
    segments: tuple[tuple[int, Mapping[str, Any]], ...]
    inline: Mapping[str, bytes]
    bitmaps: tuple[tuple[int, Mapping[str, bytes]], ...]
    counters: Mapping[int, int]
    horizon: Mapping[str, Any]
    apps: tuple[tuple[bytes, Mapping[str, Any]], ...]

    @cached_property
    def metas(self) -> list[SegmentMeta]:
        """The descriptions of its segments."""
        return [SegmentMeta.from_record(dict(record)) for _, record in self.segments]

    @cached_property
    def files(self) -> list[CopiedFile]:
        """The files of its segments, each once."""
        found = {}
        for meta in self.metas:
            if meta.home == INLINE:
                continue
            keys = ((0, meta.keys_bytes, meta.keys_checksum),)
            for name, size, ranges in (
                (data_name("", meta), meta.data_bytes, meta.ranges),
                (keys_name("", meta), meta.keys_bytes, keys),
            ):
                found[name] = CopiedFile(_target_name(name, ranges), name, size, tuple(ranges))
        return list(found.values())


@dataclass(frozen=True)
class Manifest:
    """One backup.

    Attributes:
        timestamp: distinguishes backups of one label, `2024-05-01-10-00-00-123`, local time.
        views: records of views of the database, by name.
    """

    database: str
    label: str
    timestamp: str
    time_ms: int
    tables: tuple[TableCopy, ...] = ()
    views: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name at the target."""
        return f"{MANIFESTS}/{manifest_name(self.label, self.timestamp, self.database)}"

    @property
    def files(self) -> dict[str, CopiedFile]:
        """Its files by their names at the target."""
        return {file.name: file for table in self.tables for file in table.files}

    @property
    def objects(self) -> list[str]:
        """The names of its tables and views, sorted."""
        return sorted([*(table.name for table in self.tables), *self.views])

    def pack(self) -> bytes:
        """Returns the bytes of the file."""
        record = {
            "format": FORMAT,
            "catalog": catalog.FORMAT,
            **{name: value for name, value in self.__dict__.items() if name != "tables"},
            "tables": [_plain(table) for table in self.tables],
        }
        body: bytes = msgpack.packb(record, use_bin_type=True)
        return _MAGIC + xxhash.xxh3_128_digest(body) + body


def _plain(table: TableCopy) -> dict[str, Any]:
    return {name: getattr(table, name) for name in table.__dataclass_fields__}


def unpack(name: str, data: bytes) -> Manifest:
    """Reads a manifest.

    Args:
        name: of the file, for messages.

    Raises:
        CorruptionError: its bytes are not those that were written, or it stands under another name.
        FormatError: a newer program wrote it.
    """
    body = data[_HEADER:]
    if data[: len(_MAGIC)] != _MAGIC or xxhash.xxh3_128_digest(body) != data[len(_MAGIC) : _HEADER]:
        raise CorruptionError(f"the manifest {name} of a backup does not match its checksum", path=name)
    record = msgpack.unpackb(body, strict_map_key=False)
    if record.pop("format") > FORMAT or record.pop("catalog") > catalog.FORMAT:
        raise FormatError(f"a newer program wrote the backup {name}; upgrade this one")
    tables = tuple(_table(each) for each in record.pop("tables"))
    _refuse_odd_files(name, tables)
    found = Manifest(**record, tables=tables)
    if found.name.rpartition("/")[2] != name.rpartition("/")[2]:
        raise CorruptionError(f"the manifest {name} is that of {found.name}", path=name)
    return found


def read_manifest(target: Target, name: str) -> Manifest:
    """Reads a manifest of a target by its file name; raises as `unpack` and `Target.read`."""
    return unpack(name, target.read(f"{MANIFESTS}/{name}"))


def _refuse_odd_files(name: str, tables: Sequence[TableCopy]) -> None:
    """Raises if a segment has another id than this program makes: files are written under it.

    Raises:
        CorruptionError: see there; a manifest comes from a place that others may write to.
    """
    for table in tables:
        for meta in table.metas:
            if not (is_segment_id(meta.id) and is_segment_id(meta.file_id)) or meta.home not in HOMES:
                raise CorruptionError(
                    f"the manifest {name} of a backup names the file {meta.file_id}.{meta.home} of table "
                    f"{table.name!r}: that is no name of a segment, and nothing was restored",
                    path=name,
                )


def _table(record: dict[str, Any]) -> TableCopy:
    lists = {
        "schemas": tuple(record["schemas"]),
        "segments": tuple((created, meta) for created, meta in record["segments"]),
        "bitmaps": tuple((version, rows) for version, rows in record["bitmaps"]),
        "apps": tuple((key, app) for key, app in record["apps"]),
    }
    return TableCopy(**{**record, **lists})


def _target_name(name: str, ranges: tuple[Range, ...]) -> str:
    stem, _, suffix = name.strip("/").rpartition(".")
    return f"{stem}-{xxhash.xxh3_128_hexdigest(msgpack.packb(ranges))}.{suffix}"


def manifest_name(label: str, timestamp: str, database: str) -> str:
    """Returns the file name of a manifest; `split_name` takes it apart."""
    return ".".join(quote(part, safe="").replace(".", "%2E") for part in (label, timestamp, database))


def manifest_names(target: Target) -> list[str]:
    """Returns the file names of the manifests of a target, sorted; of files that others put there none.

    Raises:
        UnavailableError: the target cannot be read.
    """
    parts = ((name, name.split(".")) for name in sorted(target.sizes(MANIFESTS)))
    return [name for name, split in parts if len(split) == 3 and all(split)]


def split_name(name: str) -> tuple[str, str, str]:
    """Returns label, timestamp and database of the file name of a manifest.

    Raises:
        CorruptionError: it is no such name.
    """
    parts = name.split(".")
    if len(parts) != 3:
        raise CorruptionError(f"{MANIFESTS}/{name} is no manifest of a backup", path=name)
    label, timestamp, database = map(unquote, parts)
    return label, timestamp, database


def timestamp_of(time_ms: int) -> str:
    """Returns the timestamp of a backup, in local time."""
    return f"{datetime.fromtimestamp(time_ms / 1000):%Y-%m-%d-%H-%M-%S}-{time_ms % 1000:03d}"


def choose(target: Target, label: str, timestamp: str, database: str) -> str:
    """Returns the file name of the manifest that a restoration means.

    Timestamps are local times of the hosts that made the backups. Those of the last day are compared by the
    time in their manifests.

    Args:
        timestamp: empty for the newest backup of the label.
        database: to restore into; a backup of the same database goes before those of others.

    Raises:
        NotFoundError: there is none.
        InvalidInputError: backups of several other databases have the label.
        CorruptionError: one that may be the newest is damaged.
    """
    found, place = [], target.shown
    for name in manifest_names(target):
        its_label, its_timestamp, its_database = split_name(name)
        if its_label == label and timestamp in ("", its_timestamp):
            found.append((its_database != database, its_database, its_timestamp, name))
    if not found:
        wanted = f"{label!r} at {timestamp!r}" if timestamp else repr(label)
        raise NotFoundError(
            f"{place} has no backup {wanted}; SHOW SNAPSHOT ON '{place}' lists them", kind="unknown_snapshot"
        )
    found = [each for each in found if each[0] == min(found)[0]]
    databases = sorted({each[1] for each in found})
    if len(databases) > 1:
        raise InvalidInputError(
            f"{place} has backups {label!r} of the databases {', '.join(databases)}; restore into a database "
            "of the same name, or name a backup by the property backup_timestamp",
            kind="ambiguous_snapshot",
        )
    latest = _local_time(max(each[2] for each in found))
    names = [each[3] for each in found if latest - _local_time(each[2]) <= _ZONES_APART]
    return max(names, key=lambda each: read_manifest(target, each).time_ms) if names[1:] else names[0]


def _local_time(timestamp: str) -> datetime:
    """Returns the time in a timestamp, to the second."""
    try:
        return datetime.strptime(timestamp[:19], "%Y-%m-%d-%H-%M-%S")
    except ValueError:  # of another program: the last one is as good as any
        return datetime.min
