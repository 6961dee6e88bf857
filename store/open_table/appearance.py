"""One version of an open table as readers of other formats see it.

A writer of a format receives an `Appearance` and needs nothing else of the engine: the schema with its column
ids, a Parquet file for each segment that has live rows, and the positions in it that count as deleted. These
are rows that newer ones superseded and tombstones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap

from seqstore.store.catalog.version_record import VersionRecord
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.segment import Segment, data_name


@dataclass(frozen=True)
class OpenFile:
    """A data file of an open table.

    Attributes:
        segment: its rows; its home is Parquet, with field ids.
        hidden: positions of the rows that readers must not see.
    """

    segment: Segment
    hidden: BitMap

    @property
    def path(self) -> str:
        """The name of the file below the directory of the table."""
        return data_name("", self.segment.meta).removeprefix("/")

    @property
    def rows(self) -> int:
        return self.segment.meta.rows

    @property
    def bytes(self) -> int:
        return self.segment.meta.data_bytes


@dataclass(frozen=True)
class Appearance:
    """A version to be shown.

    Attributes:
        name: `database.table`.
        directory: of the table's files, below the data directory.
        version: of the table.
        schema: of the version.
        files: those with a live row.
        commits: the versions since the one that was shown last, with their records, oldest first; records
            that the history has forgotten are left out. None before the first appearance.
        retention_seconds: how long a version stays readable after the next one was shown.
    """

    name: str
    directory: str
    version: int
    schema: TableSchema
    files: Sequence[OpenFile]
    commits: Sequence[tuple[int, VersionRecord]]
    retention_seconds: int

    @property
    def has_data_change(self) -> bool:
        """Whether a version since the last one that was shown did more than move rows."""
        return not self.commits or any(record.has_data_change for _, record in self.commits)

    @property
    def app_versions(self) -> Mapping[str, int]:
        """Application ids of idempotent writes, and the last version of each."""
        return {
            info.app[0]: info.app[1]
            for _, record in self.commits
            if (info := record.commit_info) is not None and info.app is not None
        }

    def metrics(self) -> dict[str, Any]:
        """Returns the sums of the metrics of the versions."""
        total: dict[str, int] = {}
        for _, record in self.commits:
            for name, value in record.metrics.__dict__.items():
                total[name] = total.get(name, 0) + value
        return {name: value for name, value in total.items() if value}
