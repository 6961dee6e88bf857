"""Backups as a copy for a repair: records of their tables, under the ids of the damaged store, and files.

A table of the newest backup that has it is the table of the store which has a segment of it, by a record or
by a file. Without one it is the table of its name, if the catalog no longer tells which tables there were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from seqstore.store.backup.install import put_table
from seqstore.store.backup.manifest import MANIFESTS, Manifest, TableCopy, manifest_names, read_manifest
from seqstore.store.backup.target import Target
from seqstore.store.backup.transfer import download
from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import TABLES, pack, unpack
from seqstore.store.errors import StoreError
from seqstore.store.repair.salvage import Salvage
from seqstore.store.repair.segment_files import DiskWithTrash, describe, missing_files, segment_ids
from seqstore.store.repair.table_records import TableRecords, records_of_tables
from seqstore.store.schema.column import VERSION_COL
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.load_marker import made_at
from seqstore.store.segment.segment import INLINE, SegmentMeta

# Of these a single record replaces a lost one; the others describe a table that has one version.
SINGLE: Final = ("databases", "views", "schemas", "segments", "inline", "bitmaps", "counters", "apps")
_OPERATION: Final = "REPAIR"


@dataclass(frozen=True)
class _Copy:
    """A table of a backup."""

    database: str
    table: TableCopy
    manifest: Manifest

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table.name}"


@dataclass
class _Records:
    """Takes records as a transaction of a catalog does."""

    found: Salvage = field(default_factory=Salvage)

    def put(self, database: str, key: bytes, value: Any) -> bytes:
        data = pack(database, key, value)
        self.found.records[database][key] = data
        return data[:8]

    put_new = put


def is_place_of_backups(place: str) -> bool:
    """Returns whether a path or a URI names backups, not a copy of a data directory."""
    return "://" in place or (Path(place) / MANIFESTS).is_dir()


class BackedUp:
    """The tables of all backups of a place.

    Args:
        place: a directory or a URI.
        damaged: what is left of the catalog.
        disk: has the segment files of the store.

    Attributes:
        salvage: the records of the tables, each at one version.
        tables: the same by table id.
        findings: about backups that cannot be read and tables that may be others, a sentence each.

    Raises:
        UnavailableError: the place cannot be read.
    """

    def __init__(self, place: str, damaged: Salvage, disk: Disk) -> None:
        self._target = Target(place)
        self._damaged = damaged
        self._disk = disk
        self.findings: list[str] = []
        self._copies: dict[int, _Copy] = {}
        records, newest = _Records(), self._newest()
        databases = self._databases(records, newest)
        for table_id, copy in self._with_ids(newest):
            self._copies[table_id] = copy
            put_table(records, table_id, databases[copy.database], copy.name, copy.table, _OPERATION)
        self.salvage = records.found
        self.tables = records_of_tables(self.salvage)
        for table_id, table in self.tables.items():
            table.backed_up_at = self._copies[table_id].manifest.time_ms / 1000

    def _newest(self) -> list[_Copy]:
        """Returns each table of the newest backup that has it."""
        found: dict[str, _Copy] = {}
        for name in manifest_names(self._target):
            try:
                manifest = read_manifest(self._target, name)
            except StoreError as error:
                self.findings.append(f"a backup is left out: {error.message}")
                continue
            for table in manifest.tables:
                copy = _Copy(manifest.database, table, manifest)
                known = found.get(copy.name)
                if known is None or known.manifest.time_ms < manifest.time_ms:
                    found[copy.name] = copy
        return list(found.values())

    def _databases(self, records: _Records, copies: Iterable[_Copy]) -> dict[str, int]:
        """Stores the databases and their views; returns the ids, new ones where none is known."""
        known = self._damaged.records["databases"]
        ids = {key.decode(): int(unpack("databases", key, data)["id"]) for key, data in known.items()}
        for copy in copies:
            if copy.database not in ids:
                ids[copy.database] = max(ids.values(), default=0) + 1
            records.put("databases", copy.database.encode(), {"id": ids[copy.database]})
            for view, record in copy.manifest.views.items():
                records.put("views", catalog.name_key(ids[copy.database], view), dict(record))
        return ids

    def _with_ids(self, copies: Iterable[_Copy]) -> Iterable[tuple[int, _Copy]]:
        """Yields the tables that the store has or may have had, with their ids."""
        by_segment, by_name = self._known_segments(), self._stated_names()
        numbers = {int(name) for name in self._disk.list(TABLES) if name.isdecimal()}
        numbers |= {int.from_bytes(key) for key in self._damaged.records["tables"]}
        taken: set[int] = set()
        for copy in copies:
            found = {by_segment[meta.id] for meta in copy.table.metas if meta.id in by_segment}
            if found:
                table_id = min(found)
            elif not self._damaged.lost.get("tables"):
                continue
            else:
                table_id = by_name.get(copy.name) or max(numbers | taken, default=0) + 1
                self.findings.append(
                    f"{copy.name} is matched with the backup by its name alone: if it was dropped, emptied "
                    "or made anew since, it has the rows of the backup again"
                )
            if table_id not in taken:
                taken.add(table_id)
                yield table_id, copy

    def _known_segments(self) -> Mapping[str, int]:
        """Returns the table of each segment that has a record or a file."""
        found = {key[8:].decode(): int.from_bytes(key[:8]) for key in self._damaged.records["segments"]}
        found |= {key[8:].decode(): int.from_bytes(key[:8]) for key in self._damaged.records["inline"]}
        for name in self._disk.list(TABLES):
            if name.isdecimal():
                found |= dict.fromkeys(segment_ids(self._disk, f"{TABLES}/{name}"), int(name))
        return found

    def _stated_names(self) -> Mapping[str, int]:
        """Returns the tables that files name and no record does; of several the one made last."""
        found = {}
        for number in sorted(int(name) for name in self._disk.list(TABLES) if name.isdecimal()):
            if catalog.table_key(number) in self._damaged.records["tables"]:
                continue
            for name in reversed(segment_ids(self._disk, f"{TABLES}/{number}")):
                with suppress(StoreError):
                    found[describe(self._disk, f"{TABLES}/{number}", name).table] = number
                    break
        return found

    def shown(self, table_id: int) -> str:
        """Returns the backup of a table for messages."""
        manifest = self._copies[table_id].manifest
        return f"{manifest.database}.{manifest.label} of {manifest.timestamp} in {self._target.shown}"

    def put_back(
        self, table: TableRecords, directory: str, disk: DiskWithTrash, *, is_behind: bool
    ) -> list[str]:
        """Copies lost files of a table into `disk.restored`; returns a sentence for each kind of outcome.

        A file that is missing because a later compaction has replaced it is not put back: rows that were
        deleted before would be back.

        Args:
            is_behind: which segments the newest version has is not known.
        """
        copy = self._copies.get(table.id)
        if copy is None or disk.restored is None:
            return []
        metas = [SegmentMeta.from_record(table.segments[name]["meta"]) for name in table.live(table.head)]
        missing = set(missing_files(disk, directory, metas))
        files = [file for file in copy.table.files if directory + file.ending in missing]
        if not files or (is_behind and self._is_rewritten(table, directory)):
            return []
        done, told = 0, []
        for file in files:
            try:
                download(self._target, file, Disk(disk.restored), directory, lambda: None)
                done += 1
            except StoreError as error:
                told.append(f"a file of the backup is left out: {error.message}")
        if done:
            Disk(disk.restored).sync_directory(directory)
            told.append(f"{done} lost files are from the backup {self.shown(table.id)}")
        return told

    def _is_rewritten(self, table: TableRecords, directory: str) -> bool:
        """Returns whether a file that the records do not name has the rows of other segments."""
        for name in segment_ids(self._disk, directory):
            if name not in table.segments and made_at(name) >= table.backed_up_at:
                with suppress(StoreError):
                    meta = SegmentMeta.from_record(describe(self._disk, directory, name).meta)
                    if VERSION_COL in meta.hidden or meta.written or meta.home == INLINE:
                        return True
        return False
