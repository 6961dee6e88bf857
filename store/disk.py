"""Where segment files live: create, sync, map, list, delete. The only module that touches them.

Files are written once under their final name and never changed. A file counts only after the catalog names it, so no
rename is needed (on object stores a rename is a copy); files no catalog names are swept by their age and owner.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from store import failpoint
from store.errors import CorruptionError, UnavailableError


class Disk:
    """Segment files below one local directory. Names are relative, with `/` between parts."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        return self.root / name

    def create(self, name: str, write: Callable[[pa.NativeFile], None]) -> int:
        """Writes a new file through `write` and makes its bytes durable (its name only after `sync_directory`).

        Returns:
            Its size in bytes.

        Raises:
            UnavailableError: no space, no permission; what was written is removed.
        """
        path = self.path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with pa.OSFile(str(path), "wb") as sink:
                write(sink)
                size = int(sink.tell())
            failpoint.hit("disk.written")
            _sync(path)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise UnavailableError(f"{path}: cannot be written: {error}", kind="disk", path=str(path)) from error
        return size

    def sync_directory(self, name: str) -> None:
        """Makes the names of the files in a directory durable."""
        _sync(self.path(name))

    def map(self, name: str) -> pa.Buffer:
        """A file's bytes, mapped.

        Raises:
            CorruptionError: the file is not there.
        """
        try:
            return pa.memory_map(str(self.path(name))).read_buffer()
        except FileNotFoundError as error:
            path = str(self.path(name))
            raise CorruptionError(f"{path}: the catalog names this file, but it is missing", path=path) from error

    def list(self, directory: str) -> list[str]:
        """Names of the files in a directory, sorted; empty when there is no such directory."""
        path = self.path(directory)
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

    def age_seconds(self, name: str, now: float) -> float:
        """Seconds since the file was last written; 0 when it is gone."""
        try:
            return now - self.path(name).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def delete(self, name: str) -> None:
        """Removes a file; it is no error when it is gone already."""
        self.path(name).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
