"""The files of a snapshot of an Iceberg table, in the form in which the next snapshot continues them.

A manifest list has them in the metadata at its beginning, as JSON behind its CRC-32. So a process that has
not written the last snapshot need not read the manifests.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Deletes:
    """The hidden rows of a data file.

    Attributes:
        name: of the file, in the directory `metadata`.
        bytes: of the whole file.
        offset, length: of the vector in a Puffin file, 0 in a file of positions.
        rows: how many are hidden.
        sequence, snapshot: those that added it.
    """

    name: str
    bytes: int
    offset: int
    length: int
    rows: int
    sequence: int
    snapshot: int


@dataclass(frozen=True)
class ShownFile:
    """A data file of a snapshot.

    Attributes:
        path: below the directory of the table.
        segment: the id of the segment whose rows it has; RESTORE gives a file another one.
        first_row: the id of its first row.
        sequence, snapshot: those that added it.
        deletes: None where no row is hidden.
    """

    path: str
    segment: str
    rows: int
    bytes: int
    first_row: int
    sequence: int
    snapshot: int
    deletes: Deletes | None

    def with_deletes(self, deletes: Deletes | None, segment: str) -> ShownFile:
        """Returns the same file with other hidden rows."""
        return replace(self, deletes=deletes, segment=segment)

    def to_row(self) -> list[Any]:
        """Returns the values of the fields in their order."""
        deletes = None if self.deletes is None else [*vars(self.deletes).values()]
        return [*[*vars(self).values()][:-1], deletes]


@dataclass
class SnapshotFiles:
    """The files of a snapshot.

    Attributes:
        files: by path.
        packed: for each Puffin file that is in use, the segments of the vectors in it by path. Some readers
            read all vectors of a file, so one that shows rows hidden that are not any more must leave use.
    """

    files: dict[str, ShownFile] = field(default_factory=dict)
    packed: dict[str, dict[str, str]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Returns the form in a manifest list."""
        text = json.dumps({"files": [each.to_row() for each in self.files.values()], "packed": self.packed})
        return f"{zlib.crc32(text.encode()):08x}{text}".encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> SnapshotFiles:
        """Reads that form.

        Raises:
            ValueError: it is damaged.
        """
        checksum, text = data[:8], data[8:]
        if checksum != f"{zlib.crc32(text):08x}".encode():
            raise ValueError("the files of the snapshot are damaged")
        record: dict[str, Any] = json.loads(text)
        rows: list[list[Any]] = record["files"]
        found = [ShownFile(*[*row[:7], Deletes(*row[7]) if row[7] else None]) for row in rows]
        return cls({each.path: each for each in found}, record["packed"])

    def delete_files(self) -> set[str]:
        """Returns the names of the files with hidden rows."""
        return {each.deletes.name for each in self.files.values() if each.deletes is not None}
