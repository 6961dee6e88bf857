"""Changes that the planner of a stream has computed, on their way to the tasks.

A plan travels through the driver's JVM, whose memory a version of millions of rows would fill. So the first
few megabytes of a batch travel with its plan. The rest is in files beside the table's segments, which tasks
on every host can read. The files belong to a load that is never published (segment.load_marker): they are
deleted when their batch is done, when the query ends, and at the latest after the end of the application.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import xxhash
from pyspark.sql.datasource import InputPartition

from seqstore.store import CorruptionError, Table
from seqstore.store.remote.remote_table import RemoteTable
from seqstore.store.remote.remote_tasks import RemoteChangeTask
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.load_marker import StagingId

ROWS_PER_SHARE: Final = 65_536
ROWS_PER_RANGE: Final = 1_000_000
_PLAN_BYTES_MAX: Final = 8 * 2**20


class ChangeShare(InputPartition):
    """Changes, as an Arrow stream.

    Attributes:
        data: the stream, empty when it is in a file.
        disk, name: where that is.
        checksum: xxh3 of the file.
    """

    def __init__(self, data: bytes, disk: Disk | None = None, name: str = "", checksum: int = 0) -> None:
        super().__init__(None)
        self.data, self.disk, self.name, self.checksum = data, disk, name, checksum

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yields the changes.

        Raises:
            CorruptionError: the file does not exist any more, because the query has ended, or its bytes are
                wrong.
        """
        yield from pa.ipc.open_stream(pa.py_buffer(self.data) if self.disk is None else self._verified())

    def _verified(self) -> pa.Buffer:
        assert self.disk is not None
        data = self.disk.map(self.name)
        if xxhash.xxh3_64_intdigest(memoryview(data)) != self.checksum:
            raise CorruptionError(
                f"{self.name}: the planned changes have a wrong checksum; start the query again",
                path=self.name,
            )
        return data


class ChangeShares:
    """The planned and unfinished batches of one query.

    Args:
        owner: process id and start time of the application's driver.
    """

    def __init__(self, table: Table, owner: tuple[int, int]) -> None:
        self._disk, self._directory = table.loader.disk, table.loader.directory
        self._load = StagingId.of(owner)
        self._attempt = self._load.attempt()
        self._files: list[tuple[int, str]] = []  # the version at which its batch ends, and the name
        self._has_begun = False

    def of(self, batches: Iterable[pa.RecordBatch], end: int) -> list[ChangeShare]:
        """Shares of the changes of a batch.

        Args:
            end: version at which the batch ends.
        """
        shares, held = [], 0
        for batch in batches:
            for at in range(0, batch.num_rows, ROWS_PER_SHARE):
                data = _packed(batch.slice(at, ROWS_PER_SHARE))
                held += data.size
                few = held <= _PLAN_BYTES_MAX
                shares.append(ChangeShare(data.to_pybytes()) if few else self._filed(data, end))
        return shares

    def done(self, version: int) -> None:
        """Batches up to a version will not be read again."""
        for _, name in (kept for kept in self._files if kept[0] <= version):
            self._disk.delete(name)
        self._files = [kept for kept in self._files if kept[0] > version]

    def close(self) -> None:
        """Deletes the files of all shares at the end of the query."""
        if self._has_begun:
            self._disk.delete(f"{self._directory}/{self._load.marker}")
            self._attempt.remove_files(self._disk, self._directory)

    def _filed(self, data: pa.Buffer, end: int) -> ChangeShare:
        if not self._has_begun:
            self._load.begin(self._disk, self._directory)
            self._has_begun = True
        name = f"{self._directory}/{self._attempt.new_segment_id()}.feed"
        with self._disk.create(name) as file:
            file.write(data)
        self._files.append((end, name))
        return ChangeShare(b"", self._disk, name, xxhash.xxh3_64_intdigest(memoryview(data)))


class ChangeRange(InputPartition):
    """The changes of some versions of a table elsewhere, which the task has its server compute."""

    def __init__(self, task: RemoteChangeTask) -> None:
        super().__init__(None)
        self.task = task

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yields the changes."""
        yield from self.task.read()


def change_ranges(table: RemoteTable, first: int, last: int) -> list[ChangeRange]:
    """Cuts the changes of versions `first` to `last` between versions, a range for many changes each."""
    kept, found, rows, start = table.kept_versions, [], 0, first
    for info in table.history():
        if not first <= info.version <= last:
            continue
        rows += info.metrics.rows_loaded + info.metrics.rows_deleted
        if info.version < last and rows >= ROWS_PER_RANGE and info.version in kept:
            found.append(ChangeRange(table.change_task(start, info.version)))
            rows, start = 0, info.version + 1
    return [*found, ChangeRange(table.change_task(start, last))]


def _packed(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
