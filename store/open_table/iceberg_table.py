"""The Iceberg table of an open table: writes an appearance as the next snapshot.

1. `refresh` reads the newest metadata and the state of its snapshot. Metadata that another program wrote are
   moved to `metadata/_foreign/` and named in the program's log.
2. `show` compares the files of an appearance with those of the snapshot before. It writes the new deletion
   vectors into one Puffin file, two manifests, their list, and the metadata, which appear as a whole.
3. Metadata name snapshots of the retention: the newest hundred, and of older ones one for each hundredth of
   it. Every tenth snapshot removes the files of snapshots that are older.

The id of a snapshot is the version of the table. The files are those of the Delta table.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from seqstore.store.errors import UnavailableError
from seqstore.store.open_table.appearance import Appearance
from seqstore.store.open_table.avro import metadata_of
from seqstore.store.open_table.iceberg_files import MetadataFiles, metadata_name
from seqstore.store.open_table.iceberg_manifest import STATE
from seqstore.store.open_table.iceberg_metadata import TABLE, VERSION, next_metadata, numbered
from seqstore.store.open_table.iceberg_snapshot import KnownFile, SnapshotWriter
from seqstore.store.open_table.iceberg_state import SnapshotFiles
from seqstore.store.segment.disk import Disk

_CLEAN_EVERY: Final = 10
_METADATA_KEPT: Final = 100
_TRIES: Final = 5
_LOG: Final = logging.getLogger(__name__)


class IcebergTable:
    """The Iceberg table of one table; its caller holds the lock of the open table.

    Args:
        directory: of the table's files.
        identity: of the table, which our metadata carry.
    """

    def __init__(self, disk: Disk, directory: str, identity: str) -> None:
        self.files = MetadataFiles(disk, directory)
        self._identity = identity
        self._number = 0
        self._metadata: dict[str, Any] = {}
        self._state = SnapshotFiles()
        self._known: dict[str, KnownFile] = {}

    @property
    def shown(self) -> int:
        """The version of the table that the newest snapshot shows, 0 for none."""
        return int(self._metadata["properties"][VERSION]) if self._metadata else 0

    @property
    def metadata_path(self) -> str:
        """The local path of the newest metadata."""
        return str(self.files.disk.path(f"{self.files.directory}/{metadata_name(self._number)}"))

    def refresh(self) -> None:
        """Reads what other processes have shown, and moves metadata of other programs aside."""
        if self._number and self.files.has(self._number) and not self.files.has(self._number + 1):
            return
        self._number, self._metadata, self._state = 0, {}, SnapshotFiles()
        self._known.clear()
        if not self.files.exists():
            return
        self.files.remove_unfinished()
        others = []
        for number in reversed(self.files.numbers()):
            if self._read(number):
                break
            others.append(number)
        if others:
            self._move_aside(others)
        if self._number:
            self.files.sync()  # the process that wrote them may have been killed before it did
        if self._number and self.files.hint() != str(self._number):
            self.files.put_hint(self._number)  # the process that wrote the metadata was killed, or is foreign

    def _read(self, number: int) -> bool:
        """Takes the metadata of a number over; states whether they are ours and sound."""
        try:
            found = json.loads(self.files.read(metadata_name(number)))
            properties = found["properties"]
            if properties[TABLE] != self._identity or numbered(properties) != number:
                return False
            int(properties[VERSION])
            listed = found["snapshots"][-1]["manifest-list"].rpartition("/")[2]
            state = SnapshotFiles.from_bytes(metadata_of(self.files.read(listed))[STATE])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, FileNotFoundError):
            return False
        self._number, self._metadata, self._state = number, found, state
        return True

    def _move_aside(self, numbers: list[int]) -> None:
        moved = self.files.move_aside(numbers)
        _LOG.warning(
            "%s: another program wrote %s into the Iceberg metadata, which only this store may write, or "
            "they are damaged; moved to metadata/_foreign, and versions of the store appear further on",
            self.files.directory,
            ", ".join(moved),
        )

    def show(self, appearance: Appearance) -> int:
        """Writes an appearance as the next snapshot; returns the number of its metadata.

        Raises:
            UnavailableError: the disk fails, or another program writes the metadata without end.
        """
        for _ in range(_TRIES):
            self.refresh()
            begun = self._metadata.get("location") != self.files.location or (
                self._metadata.get("format-version") != appearance.schema.iceberg_version
            )
            if begun:
                self._known.clear()
            before = SnapshotFiles() if begun else self._state  # a moved table has other locations
            number = self._number + 1
            metadata = next_metadata(
                appearance, self._metadata, self.files.location, self._identity, number, is_begun=begun
            )
            writer = SnapshotWriter(self.files, appearance, metadata, before, self._known)
            state, snapshot = writer.write()
            metadata["snapshots"].append(snapshot)
            if self.files.put_metadata(number, metadata):
                self._number, self._metadata, self._state = number, metadata, state
                self._keep_only(state)
                if number % _CLEAN_EVERY == 0:
                    self.forget(appearance.retention_seconds)
                return number
        raise UnavailableError(
            f"{appearance.name}: another program writes its Iceberg metadata; stop it, only this store may "
            "write",
            kind="open_table",
        )

    def _keep_only(self, state: SnapshotFiles) -> None:
        for path in self._known.keys() - state.files.keys():
            del self._known[path]

    def forget(self, retention_seconds: float) -> None:
        """Removes the files of snapshots that are older than the retention, and old metadata."""
        oldest = self.files.version_before(retention_seconds)
        if oldest is None:
            return
        used = self._state.delete_files() | set(self._state.packed)
        for snapshot in self._metadata["snapshots"]:
            name = snapshot["manifest-list"].rpartition("/")[2]
            try:
                state = SnapshotFiles.from_bytes(metadata_of(self.files.read(name))[STATE])
            except (ValueError, KeyError, FileNotFoundError) as error:
                _LOG.error("%s/%s: %s; older files stay", self.files.directory, name, error)
                return
            used |= state.delete_files()
            if snapshot["sequence-number"] >= oldest[0]:
                break  # later ones use these files or newer ones
        kept = set(range(self._number - _METADATA_KEPT + 1, self._number + 1))
        self.files.remove_before(oldest[0], used, kept)

    def needed_version(self, retention_seconds: float) -> int | None:
        """Returns the oldest version that readers may still need, None where nothing was shown.

        That is the version that was the newest one shown so many seconds ago.
        """
        found = self.files.version_before(retention_seconds)
        return None if found is None else found[1]


def newest_metadata(disk: Disk, directory: str) -> tuple[str, bytes] | None:
    """Returns location and text of the newest metadata of a table, None where nothing was shown.

    Raises:
        UnavailableError: they cannot be read.
    """
    files = MetadataFiles(disk, directory)
    for number in reversed(files.numbers()):
        name = metadata_name(number)
        try:
            return f"{files.location}/metadata/{name}", files.read(name)
        except FileNotFoundError:
            continue  # removed meanwhile
    return None
