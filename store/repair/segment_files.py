"""Segments found as files: their descriptions in key index files, and the proof that they are whole."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from seqstore.store.catalog.catalog import TABLES
from seqstore.store.errors import CorruptionError, StoreError, UnavailableError
from seqstore.store.maintenance.integrity import check_index
from seqstore.store.maintenance.recovery import TRASH
from seqstore.store.runtime.durable_directory import make_directory
from seqstore.store.schema.column import VERSION_COL
from seqstore.store.segment.description import Description, read_description
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.segment import INLINE, Segment, SegmentMeta, data_name, keys_name
from seqstore.store.segment.zone_map import ZoneMapBuilder

_KEYS: Final = ".keys"


class DiskWithTrash(Disk):
    """The local segment files of a store, those included that a sweep has moved to `trash/`.

    Attributes:
        restored: root of files that are from a backup, None without any.
    """

    restored: Path | None = None

    def path(self, name: str) -> Path:
        path = super().path(name)
        others = [super().path(_in_trash(name))]
        if self.restored is not None:
            others.insert(0, self.restored / name)  # goes before a file that has another size
            if others[0].exists():
                return others[0]
        return next((other for other in others if other.exists() and not path.exists()), path)

    def list(self, directory: str) -> list[str]:
        return sorted({*super().list(directory), *super().list(_in_trash(directory))})

    def take_back(self, name: str) -> None:
        """Gives a file of the trash or of a backup its place; its other name stays.

        Raises:
            UnavailableError: it cannot be linked.
        """
        path = self.path(name)
        if path != self.root / name:
            try:
                place = self.root / name
                make_directory(place.parent)
                if place.exists():  # it has another size
                    removed = self.root / _in_trash(name)
                    make_directory(removed.parent)
                    place.rename(removed)
                os.link(path, place)
            except OSError as error:
                raise UnavailableError(f"{path}: cannot be linked: {error}", kind="disk") from error


def _in_trash(name: str) -> str:
    return TRASH + name.removeprefix(TABLES)


def segment_ids(disk: Disk, directory: str) -> list[str]:
    """Returns the ids of all segments that have a key index file, the oldest first."""
    return sorted(name.removesuffix(_KEYS) for name in disk.list(directory) if name.endswith(_KEYS))


def describe(disk: Disk, directory: str, segment_id: str) -> Description:
    """Reads the description of a segment.

    Raises:
        CorruptionError: the key index file is damaged, or an earlier program wrote it.
    """
    name = f"{directory}/{segment_id}{_KEYS}"
    try:
        found = read_description(disk.map(name))
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise CorruptionError(f"{name}: {error}", path=name) from error
    if found is None:
        raise CorruptionError(f"{name}: an earlier program wrote it, without a description", path=name)
    return found


def described(disk: Disk, directory: str, description: Description) -> SegmentMeta:
    """Returns the metadata of a segment as its files have them.

    Raises:
        CorruptionError: bytes of its rows are missing or wrong.
    """
    meta = SegmentMeta.from_record(description.meta)
    keys = disk.map(f"{directory}/{meta.id}{_KEYS}")
    segment = Segment(disk, directory, meta, description.schema)
    zones = ZoneMapBuilder(segment.stored_schema, description.schema.key)
    for _ in zones.seen(segment.batch(i) for i in range(segment.batches)):
        pass
    checksum = xxhash.xxh3_64_intdigest(memoryview(keys))
    return replace(meta, keys_bytes=keys.size, keys_checksum=checksum, zones=zones.zones)


def missing_files(disk: Disk, directory: str, metas: Iterable[SegmentMeta]) -> list[str]:
    """Returns the names of files of segments that are missing, or have another size."""
    wrong = []
    for meta in metas:
        if meta.home == INLINE:
            continue
        sizes = {data_name(directory, meta): meta.data_bytes, keys_name(directory, meta): meta.keys_bytes}
        for name, size in sizes.items():
            try:
                found = disk.map(name).size
            except (StoreError, pa.ArrowException):
                found = -1
            if found != size:
                wrong.append(name)
    return wrong


@dataclass(frozen=True)
class FoundSegment:
    """A segment that can be added to a table.

    Attributes:
        created: the version that added it, 0 where it is not known.
        newest_row: the largest version that its rows store, 0 where they store none.
    """

    segment: Segment
    created: int = 0
    newest_row: int = 0


def proved(segment: Segment, created: int) -> FoundSegment:
    """Reads a segment and proves that it is whole.

    Raises:
        CorruptionError: bytes are missing or wrong; the message names the file.
    """
    try:
        rows = pa.Table.from_batches(
            [segment.batch(i) for i in range(segment.batches)], segment.stored_schema
        )
        findings = list(check_index(segment, segment.index, rows))
    except (ValueError, pa.ArrowException) as error:
        raise CorruptionError(f"segment {segment.meta.id}: {error}", path=segment.meta.id) from error
    if findings or len(rows) != segment.rows:
        raise CorruptionError((findings or [f"segment {segment.meta.id}: other rows"])[0])
    newest = 0
    if VERSION_COL in segment.meta.hidden:
        newest = pc.max(rows.column(VERSION_COL)).as_py() or 0
    return FoundSegment(segment, created, newest)
