"""Files with deletes of an Iceberg snapshot, and the data files that each applies to.

pyiceberg finds them by itself where no values delete rows; it plans no table with equality deletes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DeleteFile:
    """A file with deletes.

    Attributes:
        file: the `DataFile` of pyiceberg.
        is_equality: its rows are values, and no positions.
        sequence: its data sequence number.
        partition: the id of its partition spec, and its values.
    """

    file: Any
    is_equality: bool
    sequence: int
    partition: tuple[Any, ...]

    @classmethod
    def of(cls, manifest: Any, entry: Any) -> DeleteFile:
        """Returns the file of an entry of a manifest."""
        from pyiceberg.manifest import DataFileContent

        is_equality = entry.data_file.content == DataFileContent.EQUALITY_DELETES
        return cls(entry.data_file, is_equality, entry.sequence_number or 0, _partition(manifest, entry))

    def applies(self, data: Any, sequence: int, partition: tuple[Any, ...]) -> bool:
        """Returns whether rows of a data file may be deleted by this file."""
        if self.is_equality:
            return sequence < self.sequence and (self.partition == partition or len(self.partition) == 1)
        named = getattr(self.file, "referenced_data_file", None)
        if named:
            return bool(named == data.file_path) and sequence <= self.sequence
        return sequence <= self.sequence and self.partition == partition


def applying(deletes: Iterable[DeleteFile], manifest: Any, entry: Any) -> list[DeleteFile]:
    """Returns the files with deletes that may apply to the data file of an entry."""
    sequence, partition = entry.sequence_number or 0, _partition(manifest, entry)
    return [each for each in deletes if each.applies(entry.data_file, sequence, partition)]


def _partition(manifest: Any, entry: Any) -> tuple[Any, ...]:
    """Returns the id of the partition spec and the values; of a table without partitions the id alone."""
    record = entry.data_file.partition
    return (manifest.partition_spec_id, *(record[at] for at in range(len(record))))
