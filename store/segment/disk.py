"""Where segment files live: create, sync, map, look for, list, delete. The only module that touches them.

Files are written once under their final name and never changed. A file counts only after the catalog names
it, so no rename is needed (on object stores a rename is a copy); files no catalog names are swept by their
age and owner.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import io
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash

from seqstore.store.errors import CorruptionError, UnavailableError
from seqstore.store.runtime import failpoint

_DIRECT_BYTES_MIN: Final = 2**20
_BUFFER_BYTES: Final = 8 * 2**20
_BLOCK_BYTES: Final = 4096
_buffers = threading.local()
_madvise: Final = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_DONTNEED") else None
# Offset, length and xxh3 of a part of a file.
Range: TypeAlias = tuple[int, int, int]


class Disk:
    """Segment files below one local directory. Names are relative, with `/` between parts."""

    _check: Callable[[], None] | None = None

    def __init__(self, root: Path) -> None:
        self.root = root

    def guarded(self, check: Callable[[], None]) -> Self:
        """The same files, for somebody who may have to stop: `check` is called as soon as a new file has its
        name and when all of it is written, and what it raises takes the file away."""
        disk = object.__new__(type(self))
        disk.__dict__.update(self.__dict__, _check=check)
        return disk

    def path(self, name: str) -> Path:
        return self.root / name

    @contextmanager
    def create(self, name: str) -> Iterator[NewFile]:
        """A new file to be written; its bytes are durable at the end of the block (its name only after
        `sync_directory`). After an error there is no file.

        Raises:
            UnavailableError: no space, no permission.
        """
        with self._written(name, self._check) as file:
            yield file

    @contextmanager
    def _written(self, name: str, check: Callable[[], None] | None = None) -> Iterator[NewFile]:
        path = self.path(name)
        file = NewFile(path, check)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield file
            file.finish()
            failpoint.hit("disk.written")
            if check is not None:
                check()
        except OSError as error:
            file.discard()
            raise UnavailableError(
                f"{path}: cannot be written: {error}", kind="disk", path=str(path)
            ) from error
        except BaseException:
            file.discard()
            raise

    def sync_directory(self, name: str) -> None:
        """Makes the names of the files in a directory durable."""
        _sync(self.path(name))

    def sync_file(self, name: str) -> None:
        """Makes the bytes of a file durable that others wrote."""
        _sync(self.path(name))

    def map(self, name: str) -> pa.Buffer:
        """A file's bytes, mapped.

        Raises:
            CorruptionError: the file is not there.
            UnavailableError: it cannot be read.
        """
        try:
            return pa.memory_map(str(self.path(name))).read_buffer()
        except FileNotFoundError as error:
            path = str(self.path(name))
            raise CorruptionError(
                f"{path}: the catalog names this file, but it is missing", path=path
            ) from error
        except OSError as error:
            path = str(self.path(name))
            raise UnavailableError(f"{path}: cannot be read: {error}", kind="disk", path=path) from error

    def exists(self, name: str) -> bool:
        """Whether there is such a file, whoever made or removed it."""
        try:
            # Opened, not only looked up: a network file system may answer that from its cache.
            os.close(os.open(self.path(name), os.O_RDONLY))
        except FileNotFoundError:
            return False
        except OSError as error:
            path = str(self.path(name))
            raise UnavailableError(f"{path}: cannot be read: {error}", kind="disk", path=path) from error
        return True

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


class NewFile(io.RawIOBase):
    """A file that is being written from its first byte to its last, and the checksums of its ranges.

    Bytes gather in an aligned buffer of this thread and go to the disk past the page cache, because a new
    file's pages cost more than the disk: 7 MB took 27 ms with fsync through the cache and 4 ms past it on
    the machine this was measured on. What was just loaded is seldom read at once, and then at disk speed.
    Small files, and all of them where the file system cannot do so, are written through the cache. A thread
    writes one file at a time.

    Attributes:
        size: bytes written so far.
        ranges: offset, length and xxh3 of each range that was ended.
    """

    def __init__(self, path: Path, on_name: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.size = 0
        self.ranges: list[Range] = []
        self._path = path
        self._on_name = on_name
        self._buffer = _buffer()
        self._space = np.frombuffer(self._buffer, dtype=np.uint8)
        self._filled = 0
        self._descriptor: int | None = None
        self._is_direct = False
        self._checksum = xxhash.xxh3_64()
        self._range_start = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        """Appends the bytes of any buffer."""
        view = memoryview(data).cast("B")
        self._checksum.update(view)
        given = np.frombuffer(view, dtype=np.uint8)
        start = 0
        while start < len(given):
            piece = given[start : start + _BUFFER_BYTES - self._filled]
            self._space[self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
            start += len(piece)
            if self._filled == _BUFFER_BYTES:
                self._write_buffer(direct=True)
        self.size += len(given)
        return len(given)

    def end_range(self) -> None:
        """Ends a range of bytes that share a checksum; the next byte begins another."""
        length = self.size - self._range_start
        self.ranges.append((self._range_start, length, self._checksum.intdigest()))
        self._range_start = self.size
        self._checksum.reset()

    def finish(self) -> None:
        """Writes what is left and makes all bytes durable."""
        if self._filled or self._descriptor is None:
            self._write_buffer(direct=self.size >= _DIRECT_BYTES_MIN)
        assert self._descriptor is not None
        if self._is_direct:
            os.ftruncate(self._descriptor, self.size)
        os.fsync(self._descriptor)
        self._release()

    def discard(self) -> None:
        """Removes the file."""
        self._release()
        self._path.unlink(missing_ok=True)

    def _release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _write_buffer(self, *, direct: bool) -> None:
        """Writes the buffer; padded to whole blocks where the page cache is passed by."""
        if self._descriptor is None:
            self._open(direct)
            if self._on_name is not None:
                self._on_name()
        length = -(-self._filled // _BLOCK_BYTES) * _BLOCK_BYTES if self._is_direct else self._filled
        view, written = memoryview(self._buffer), 0
        while written < length:
            written += self._write_some(view[written:length])
        self._filled = 0

    def _open(self, direct: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        if direct:
            try:
                self._descriptor = os.open(self._path, flags | os.O_DIRECT, 0o644)
                self._is_direct = True
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        self._descriptor = os.open(self._path, flags, 0o644)

    def _write_some(self, view: memoryview) -> int:
        assert self._descriptor is not None
        try:
            return os.write(self._descriptor, view)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._is_direct:
                raise
        # The file system opens files so but does not write them.
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, 0)
        return os.write(self._descriptor, view)


def release_pages(buffer: pa.Buffer) -> None:
    """Takes the pages of a file that `Disk.map` mapped out of this process's memory; touched again they come
    back from the page cache, or the disk. Of no effect where the system cannot do so."""
    if _madvise is not None and buffer.address % mmap.PAGESIZE == 0:
        _madvise(ctypes.c_void_p(buffer.address), ctypes.c_size_t(buffer.size), mmap.MADV_DONTNEED)


def _buffer() -> mmap.mmap:
    """This thread's buffer: direct writes take page-aligned memory only.

    Private, or a forked child and its parent would write into one buffer.
    """
    buffer: mmap.mmap | None = getattr(_buffers, "buffer", None)
    if buffer is None:
        buffer = _buffers.buffer = mmap.mmap(-1, _BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return buffer


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
