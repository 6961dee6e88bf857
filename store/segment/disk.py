"""The home of segment files: create, sync, map, look up, list, delete. Only this module accesses them.

Files are written once under their final name and never changed. A file counts only after the catalog names
it, so no rename is needed (on object stores a rename is a copy). Recovery removes files that no catalog
names, by age and owner.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import io
import logging
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash

from seqstore.store.errors import CorruptionError, UnavailableError
from seqstore.store.runtime import failpoint
from seqstore.store.runtime.durable_directory import make_directory, sync_path

_LOG: Final = logging.getLogger(__name__)
_left: Final[set[Path]] = set()  # files of this process that it could not remove
_DIRECT_BYTES_MIN: Final = 2**20
_BUFFER_BYTES: Final = 8 * 2**20
_BLOCK_BYTES: Final = 4096
_START_WRITING: Final = 2  # SYNC_FILE_RANGE_WRITE of Linux
_OFF_PAGE: Final = 64
_buffers = threading.local()
_madvise: Final = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_DONTNEED") else None
_sync_file_range: Final = getattr(ctypes.CDLL(None), "sync_file_range", None)
# Offset, length and xxh3 of a part of a file.
Range: TypeAlias = tuple[int, int, int]


class Disk:
    """Segment files below one local directory. Names are relative, with `/` between parts.

    Args:
        mapped_reads: files are mapped; else each is read into memory. The system ends a process (SIGBUS) that
            accesses a part of a mapped file that was cut off, or that the medium cannot read.
    """

    _check: Callable[[], None] | None = None
    # Each host reads a copy of its own, so a checksum that one of them verified says nothing of the others'.
    has_copies: ClassVar[bool] = False

    def __init__(self, root: Path, *, mapped_reads: bool = True) -> None:
        self.root = root
        self.mapped_reads = mapped_reads

    def guarded(self, check: Callable[[], None]) -> Self:
        """Returns the same files for a writer that may have to stop.

        `check` runs as soon as a new file has its name, and again when the file is complete. An error of
        `check` removes the file.
        """
        disk = object.__new__(type(self))
        disk.__dict__.update(self.__dict__, _check=check)
        return disk

    def path(self, name: str) -> Path:
        return self.root / name

    @contextmanager
    def create(self, name: str) -> Iterator[NewFile]:
        """Creates a file whose bytes are durable at the end of the block; its name is durable after
        `sync_directory`.

        After an error there is no file.

        Raises:
            UnavailableError: no space, no permission.
        """
        with self._written(name, self._check) as file:
            yield file

    @contextmanager
    def create_unsynced(self, name: str) -> Iterator[NewFile]:
        """Creates a file whose bytes are durable after `sync_files`, its name after `sync_directory`.

        Raises:
            UnavailableError: no space, no permission.
        """
        with self._written(name, self._check, is_synced=False) as file:
            yield file

    def sync_files(self, names: Sequence[str]) -> None:
        """Makes the bytes of several files durable at once: the disk writes all before the first wait.

        It needs no threads, which a process that ends can start no more.

        Raises:
            UnavailableError: the disk fails.
        """
        for name in names if len(names) > 1 else ():
            self._start_writing(self.path(name))
        for name in names:
            self.sync_file(name)

    def _start_writing(self, path: Path) -> None:
        if _sync_file_range is None:
            return
        with suppress(OSError):  # the sync that follows names what is wrong
            descriptor = os.open(path, os.O_RDONLY)
            try:
                _sync_file_range(
                    ctypes.c_int(descriptor),
                    ctypes.c_int64(0),
                    ctypes.c_int64(0),
                    ctypes.c_uint(_START_WRITING),
                )
            finally:
                os.close(descriptor)

    @contextmanager
    def _written(
        self, name: str, check: Callable[[], None] | None = None, *, is_synced: bool = True
    ) -> Iterator[NewFile]:
        path = self.path(name)
        file = NewFile(path, check)
        try:
            make_directory(path.parent)
            yield file
            file.finish(is_synced=is_synced)
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
        """Makes the names of the files in a directory durable.

        Raises:
            UnavailableError: the disk fails.
        """
        self._sync(self.path(name))

    def sync_file(self, name: str) -> None:
        """Makes the bytes of a file durable that another library wrote.

        Raises:
            UnavailableError: the disk fails.
        """
        self._sync(self.path(name))

    def _sync(self, path: Path) -> None:
        try:
            sync_path(path)
        except OSError as error:
            raise UnavailableError(
                f"{path}: cannot be synced: {error}", kind="disk", path=str(path)
            ) from error

    def map(self, name: str) -> pa.Buffer:
        """Maps a file's bytes, or reads them; see `mapped_reads`.

        Raises:
            CorruptionError: the file is missing.
            UnavailableError: it cannot be read.
        """
        try:
            return self._bytes(self.path(name))
        except OSError as error:
            path = str(self.path(name))
            if isinstance(error, FileNotFoundError):
                message = f"{path}: the catalog names this file, but it is missing"
                raise CorruptionError(message, path=path) from error
            raise UnavailableError(f"{path}: cannot be read: {error}", kind="disk", path=path) from error

    def will_read(self, name: str) -> None:
        """Has the system read a file into its page cache, without waiting; needs `mapped_reads`.

        Large files are written past the page cache, so their first reader waits for the disk.
        """
        if not self.mapped_reads or not hasattr(os, "posix_fadvise"):
            return
        with suppress(OSError):  # the read that follows names what is wrong
            descriptor = os.open(self.path(name), os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(descriptor)

    def _bytes(self, path: Path) -> pa.Buffer:
        if self.mapped_reads:
            return pa.memory_map(str(path)).read_buffer()
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            space = np.empty(size + mmap.PAGESIZE + _OFF_PAGE, dtype=np.uint8)
            start = -space.ctypes.data % mmap.PAGESIZE + _OFF_PAGE  # so that `release_pages` leaves it alone
            view, filled = space[start : start + size].data, 0
            while filled < size and (count := file.readinto(view[filled:])):
                filled += count
            return pa.py_buffer(view[:filled])

    def exists(self, name: str) -> bool:
        """Returns whether a file exists, even if another host created or removed it."""
        try:
            # `open`, not `stat`: a network file system may serve `stat` from its cache.
            os.close(os.open(self.path(name), os.O_RDONLY))
        except FileNotFoundError:
            return False
        except OSError as error:
            path = str(self.path(name))
            raise UnavailableError(f"{path}: cannot be read: {error}", kind="disk", path=path) from error
        return True

    def list(self, directory: str) -> list[str]:
        """Returns the names of the files in a directory, sorted; empty when the directory does not exist.

        Raises:
            UnavailableError: it cannot be read.
        """
        path = self.path(directory)
        try:
            return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
        except OSError as error:
            raise UnavailableError(f"{path}: cannot be read: {error}", kind="disk", path=str(path)) from error

    def age_seconds(self, name: str, now: float) -> float:
        """Returns the seconds since the file was last written; 0 when it does not exist."""
        try:
            return now - self.path(name).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def delete(self, name: str) -> None:
        """Removes a file, if it exists.

        Raises:
            UnavailableError: it cannot be removed.
        """
        path = self.path(name)
        try:
            path.unlink(missing_ok=True)
            _left.discard(path)
        except OSError as error:
            raise UnavailableError(
                f"{path}: cannot be removed: {error}", kind="disk", path=str(path)
            ) from error

    def move(self, name: str, to: str) -> None:
        """Renames a file, if it exists; its age starts anew. No durable name is promised.

        Raises:
            UnavailableError: it cannot be renamed.
        """
        path, target = self.path(name), self.path(to)
        try:
            make_directory(target.parent)
            os.utime(path)
            path.rename(target)
            _left.discard(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise UnavailableError(
                f"{path}: cannot be moved: {error}", kind="disk", path=str(path)
            ) from error

    def discard(self, name: str) -> None:
        """Removes a file of this process that no catalog names; where that fails, as `leave` does."""
        try:
            self.delete(name)
        except UnavailableError as error:
            self.leave(name)
            _LOG.warning("the next sweep removes a file that is not needed: %s", error)

    def leave(self, name: str) -> None:
        """Leaves a file of this process to the next sweep, which removes it unless the catalog names it."""
        _left.add(self.path(name))

    def left(self, directory: str) -> set[str]:
        """Returns the names of the files of a directory that `leave` was called for."""
        parent = self.path(directory)
        return {path.name for path in _left if path.parent == parent}


class NewFile(io.RawIOBase):
    """A file that is written from its first byte to its last, and the checksums of its ranges.

    Bytes are buffered in aligned memory of this thread and written to the disk past the page cache, because a
    new file's pages cost more than the disk: 7 MB took 27 ms with fsync through the cache and 4 ms past it on
    the measured machine. Freshly loaded rows are seldom read at once, and then at disk speed.
    Small files are written through the cache, and so are all files where the file system does not support
    direct writes. A thread writes one file at a time.

    Attributes:
        size: bytes written so far.
        ranges: offset, length and xxh3 of each ended range.
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
        """Ends a range of bytes that share a checksum; the next byte starts another."""
        length = self.size - self._range_start
        self.ranges.append((self._range_start, length, self._checksum.intdigest()))
        self._range_start = self.size
        self._checksum.reset()

    def finish(self, *, is_synced: bool = True) -> None:
        """Writes the buffered rest and makes all bytes durable, unless that is left to a later sync."""
        if self._filled or self._descriptor is None:
            self._write_buffer(direct=self.size >= _DIRECT_BYTES_MIN)
        assert self._descriptor is not None
        if self._is_direct:
            os.ftruncate(self._descriptor, self.size)
        if is_synced:
            os.fsync(self._descriptor)
        self._release()

    def discard(self) -> None:
        """Removes the file, or leaves it to the next sweep."""
        try:
            self._release()
            self._path.unlink(missing_ok=True)
        except OSError:
            _left.add(self._path)

    def _release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _write_buffer(self, *, direct: bool) -> None:
        """Writes the buffer; direct writes are padded to whole blocks."""
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
        # Some file systems open files with O_DIRECT but refuse direct writes.
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, 0)
        return os.write(self._descriptor, view)


def release_pages(buffer: pa.Buffer) -> None:
    """Removes the pages of a mapped file from this process's memory.

    A later access maps them again from the page cache or the disk. Has no effect where the system lacks
    `madvise`.
    """
    if _madvise is not None and buffer.address % mmap.PAGESIZE == 0:
        _madvise(ctypes.c_void_p(buffer.address), ctypes.c_size_t(buffer.size), mmap.MADV_DONTNEED)


def _buffer() -> mmap.mmap:
    """Returns this thread's buffer; direct writes need page-aligned memory.

    It is private: with a shared mapping, a forked child and its parent would write into one buffer.
    """
    buffer: mmap.mmap | None = getattr(_buffers, "buffer", None)
    if buffer is None:
        buffer = _buffers.buffer = mmap.mmap(-1, _BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return buffer
