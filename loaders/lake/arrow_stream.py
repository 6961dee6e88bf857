"""Batches as the bytes of an Arrow stream, made while they are read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.ipc


class ArrowStream(io.RawIOBase):
    """A body of rows in Arrow's stream format; holds one batch at a time.

    Args:
        batches: with that schema.
    """

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        super().__init__()
        self._batches = batches
        self._written = _Written()
        self._writer: Any = pa.ipc.new_stream(self._written, schema)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        ready = self._written.ready
        while not ready and self._writer is not None:
            batch = next(self._batches, None)
            if batch is None:
                self._writer.close()
                self._writer = None
            else:
                self._writer.write_batch(batch)
        count = min(len(view), len(ready))
        view[:count] = ready[:count]
        del ready[:count]
        return count

    def read(self, size: int = -1) -> bytes:
        """Returns so many bytes, fewer only at the end."""
        pieces = []
        while size and (piece := super().read(size)):
            pieces.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(pieces)


class _Written(io.RawIOBase):
    """What the writer wrote and the reader has not read yet."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.ready += data
        return len(data)
