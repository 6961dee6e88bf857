"""What the machine itself can do: raw writes, reads and syncs, the least that a durable store could cost."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

_BATCH_ROWS: Final = 65_536
_FILE_ROWS: Final = 1_000_000


class SyncedFile:
    """A file that 4 KiB are appended to and synced, again and again."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._block = os.urandom(4096)

    def append(self, _: int = 0) -> None:
        self._file.write(self._block)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class BareCatalog:
    """An LMDB environment into which each commit puts one record."""

    def __init__(self, path: Path) -> None:
        self._environment = lmdb.open(str(path), map_size=4 * 2**30)

    def commit(self, number: int, record: bytes) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.put(number.to_bytes(8), record)

    def close(self) -> None:
        self._environment.close()


def serialised(rows: pa.Table) -> bytes:
    """The rows as one Arrow message."""
    result: bytes = rows.combine_chunks().to_batches()[0].serialize().to_pybytes()
    return result


def write_arrow(directory: Path, rows: Iterable[pa.Table]) -> None:
    """Plain Arrow files of a million rows at most, each synced."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(_parts(rows)):
        path = directory / f"{number}.arrow"
        with pa.OSFile(str(path), "wb") as sink, ipc.new_file(sink, part.schema) as writer:
            writer.write_table(part, max_chunksize=_BATCH_ROWS)
        sync(path)


def write_parquet(directory: Path, rows: Iterable[pa.Table]) -> None:
    """Parquet files (zstd) of a million rows at most, each synced."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(_parts(rows)):
        path = directory / f"{number}.parquet"
        pq.write_table(part, path, compression="zstd", compression_level=1)
        sync(path)


def _parts(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for table in tables:
        for start in range(0, len(table), _FILE_ROWS):
            yield table.slice(start, _FILE_ROWS)


def mapped_batches(directory: Path) -> Iterator[pa.RecordBatch]:
    """The rows of Arrow files, mapped: their bytes are read when they are touched."""
    for path in sorted(directory.iterdir()):
        with pa.memory_map(str(path)) as source:
            reader = ipc.open_file(source)
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)


def read_batches(directory: Path) -> Iterator[pa.RecordBatch]:
    """The rows of Arrow files, each read into memory."""
    for path in sorted(directory.iterdir()):
        with pa.OSFile(str(path)) as source:
            yield from ipc.open_file(source).read_all().to_batches()


def consume(batches: Iterable[pa.RecordBatch]) -> int:
    """Reads every byte of every buffer; returns how many rows came."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        for column in batch.columns:
            for buffer in column.buffers():
                if buffer is not None:
                    _sum(buffer)
    return rows


def _sum(buffer: pa.Buffer) -> Any:
    """Whole 64-bit words only: at most seven bytes at the end are left out."""
    return np.frombuffer(buffer, np.uint64, count=buffer.size // 8).sum()


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
