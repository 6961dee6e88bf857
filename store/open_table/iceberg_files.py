"""The directory `metadata` of a table: names, durable writes, commits of other programs.

Metadata appears by a hard link from a complete, synced file: it is whole or absent, and never replaces other
metadata. The hint at the newest appears by a rename.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterable
from typing import Any, Final

from seqstore.store.errors import UnavailableError
from seqstore.store.runtime import failpoint
from seqstore.store.segment.disk import Disk

METADATA: Final = "metadata"
_FOREIGN: Final = "_foreign"
HINT: Final = "version-hint.text"
_NUMBERED: Final = re.compile(r"v(\d+)\.metadata\.json")
_OF_SNAPSHOT: Final = re.compile(r"(snap|data|deletes)-(\d+)-(\d+)(?:-\d+)?\.(avro|puffin|parquet)")


class MetadataFiles:
    """The metadata of one table.

    Args:
        directory: of the table's files, below the root of the disk.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = f"{directory}/{METADATA}"
        self.location = f"file://{disk.path(directory).absolute()}"
        self._unsynced: list[str] = []

    def exists(self) -> bool:
        """Returns whether the table has metadata."""
        return self.disk.path(self.directory).is_dir()

    def has(self, number: int) -> bool:
        """Returns whether metadata of a number exist."""
        return self.disk.path(f"{self.directory}/{metadata_name(number)}").exists()

    def numbers(self) -> list[int]:
        """Returns the numbers of the metadata, ascending."""
        found = (_NUMBERED.fullmatch(name) for name in self.disk.list(self.directory))
        return sorted(int(match[1]) for match in found if match)

    def read(self, name: str) -> bytes:
        """Returns the bytes of a file.

        Raises:
            UnavailableError: it cannot be read.
            FileNotFoundError: there is none of that name.
        """
        path = self.disk.path(f"{self.directory}/{name}")
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnavailableError(f"{path}: cannot be read: {error}", kind="disk", path=str(path)) from error

    def put(self, name: str, data: bytes) -> None:
        """Writes a file that no metadata name yet; `sync` makes it durable."""
        path = f"{self.directory}/{name}"
        with self.disk.create_unsynced(path) as file:
            file.write(data)
        self._unsynced.append(path)

    def sync(self) -> None:
        """Makes the files that were written durable in one go, and then their names."""
        unsynced, self._unsynced = self._unsynced, []
        self.disk.sync_files(unsynced)
        self.disk.sync_directory(self.directory)

    def put_metadata(self, number: int, metadata: dict[str, Any]) -> bool:
        """Writes metadata unless there are some of that number; returns whether it did.

        Raises:
            UnavailableError: they cannot be written.
        """
        unfinished = self._unfinished(json.dumps(metadata).encode())
        hint = self._unfinished(str(number).encode())
        final = self.disk.path(f"{self.directory}/{metadata_name(number)}")
        try:
            self.sync()
            failpoint.hit("open.before_commit")
            os.link(self.disk.path(unfinished), final)
        except FileExistsError:
            self.disk.discard(hint)
            return False
        except (OSError, UnavailableError) as error:
            self.disk.discard(hint)
            if isinstance(error, UnavailableError):
                raise
            raise UnavailableError(
                f"{final}: cannot be written: {error}", kind="disk", path=str(final)
            ) from error
        finally:
            self.disk.discard(unfinished)
        self.sync()  # before the hint, which leads readers to the metadata
        self._rename_hint(hint)
        failpoint.hit("open.after_commit")
        return True

    def put_hint(self, number: int) -> None:
        """Writes the number of the newest metadata for readers of the directory."""
        hint = self._unfinished(str(number).encode())
        self.sync()
        self._rename_hint(hint)

    def _rename_hint(self, hint: str) -> None:
        target = self.disk.path(f"{self.directory}/{HINT}")
        try:
            self.disk.path(hint).replace(target)
        except OSError as error:
            self.disk.discard(hint)
            raise UnavailableError(
                f"{target}: cannot be written: {error}", kind="disk", path=str(target)
            ) from error
        self.sync()

    def hint(self) -> str:
        """Returns the text of the hint, empty where there is none."""
        try:
            return self.read(HINT).decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def _unfinished(self, data: bytes) -> str:
        name = f".{secrets.token_hex(8)}.tmp"
        self.put(name, data)
        return f"{self.directory}/{name}"

    def remove_unfinished(self) -> None:
        """Removes what a process that was killed had begun to write; its lock is held here now."""
        for name in self.disk.list(self.directory):
            if name.startswith(".") and name.endswith(".tmp"):
                self.disk.delete(f"{self.directory}/{name}")

    def move_aside(self, numbers: Iterable[int]) -> list[str]:
        """Moves metadata of other programs out of the way; returns their names."""
        moved = [metadata_name(number) for number in numbers]
        for name in moved:
            target = f"{self.directory}/{_FOREIGN}/{name}.{secrets.token_hex(4)}"
            self.disk.move(f"{self.directory}/{name}", target)
        self.sync()
        return moved

    def version_before(self, seconds: float) -> tuple[int, int] | None:
        """Returns sequence number and version of the snapshot that was the newest so many seconds ago.

        None where nothing was shown. A table that is younger has its oldest snapshot.
        """
        found = sorted(
            (sequence, version, name)
            for kind, sequence, version, name in self._of_snapshots()
            if kind == "snap"
        )
        limit, chosen = time.time(), None
        for sequence, version, name in found:
            is_old = self.disk.age_seconds(f"{self.directory}/{name}", limit) >= seconds
            if chosen is None or is_old:
                chosen = sequence, version
        return chosen

    def remove_before(self, sequence: int, used: set[str], kept: set[int]) -> None:
        """Removes files of snapshots before one, except used ones, and metadata that are not to be kept."""
        for _, number, _, name in self._of_snapshots():
            if number < sequence and name not in used:
                self.disk.delete(f"{self.directory}/{name}")
        for number in self.numbers():
            if number not in kept:
                self.disk.delete(f"{self.directory}/{metadata_name(number)}")

    def _of_snapshots(self) -> list[tuple[str, int, int, str]]:
        """Returns kind, sequence number, version and name of the files of snapshots."""
        found = ((name, _OF_SNAPSHOT.fullmatch(name)) for name in self.disk.list(self.directory))
        return [(match[1], int(match[2]), int(match[3]), name) for name, match in found if match]


def metadata_name(number: int) -> str:
    """Returns the name of metadata by their number."""
    return f"v{number}.metadata.json"
