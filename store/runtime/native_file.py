"""Arrow's files read by Python code: those of object stores, and streams that decompress.

`NativeFile.read` of Arrow 26 never frees its buffer when it raises, so each damaged body would take the
memory of a block from the server for good. `read_buffer` frees it.
"""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow as pa

_PIECE_BYTES: Final = 1 << 20


def read_bytes(file: pa.NativeFile, size: int) -> bytes:
    """Reads at most so many bytes, fewer only at the end of the file."""
    return bytes(file.read_buffer(size).to_pybytes())


class NativeReader(io.RawIOBase):
    """A file of Arrow as one of Python; closing it closes both."""

    def __init__(self, inner: pa.NativeFile) -> None:
        super().__init__()
        self._inner = inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._inner.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._inner.seek(offset, whence))

    def tell(self) -> int:
        return int(self._inner.tell())

    def read(self, size: int = -1) -> bytes:
        """Returns so many bytes, fewer only at the end; all that are left when it is negative."""
        if size >= 0:
            return read_bytes(self._inner, size)
        if self._inner.seekable():  # the size is known: one request to an object store
            return read_bytes(self._inner, self._inner.size() - self._inner.tell())
        return b"".join(iter(lambda: read_bytes(self._inner, _PIECE_BYTES), b""))

    def readinto(self, buffer: Any) -> int:
        return int(self._inner.readinto(buffer))

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()
