"""Copies files of segments between a store and a target, and compares every byte range with its checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import xxhash

from seqstore.store.backup.manifest import FILES, CopiedFile
from seqstore.store.backup.target import Target
from seqstore.store.errors import CorruptionError
from seqstore.store.runtime import failpoint
from seqstore.store.segment.disk import Disk, release_pages

_PIECE: Final = 8 * 2**20
Check = Callable[[], None]  # raises where a copy must not go on


def upload(disk: Disk, directory: str, file: CopiedFile, target: Target, check: Check) -> None:
    """Copies a file of a table to the target.

    Raises:
        CorruptionError: the file is not as the catalog describes it; the target has no such file.
        UnavailableError: it cannot be read or written.
    """
    name = directory + file.ending
    buffer = disk.map(name)
    view = memoryview(buffer)

    def pieces() -> Iterator[memoryview]:
        found = (
            (view[offset : offset + length], checksum) for offset, length, checksum in _whole(file, len(view))
        )
        for data, checksum in found:
            digest = xxhash.xxh3_64()
            for start in range(0, len(data), _PIECE):
                check()
                piece = data[start : start + _PIECE]
                digest.update(piece)
                yield piece
            if digest.intdigest() != checksum:
                raise _damaged(name)

    try:
        target.write(f"{FILES}/{file.name}", pieces())
    finally:
        if disk.mapped_reads:
            release_pages(buffer)
    failpoint.hit("backup.copied")


def _whole(file: CopiedFile, size: int) -> Iterator[tuple[int, int, int]]:
    """Yields the ranges of a file, which must be the whole file."""
    end = 0
    for offset, length, checksum in file.ranges:
        if offset != end:
            raise _damaged(file.name)
        end += length
        yield offset, length, checksum
    if end != size or size != file.bytes:
        raise _damaged(file.name)


def _damaged(name: str) -> CorruptionError:
    return CorruptionError(f"{name} is damaged: its bytes do not match their checksums", path=name)


def download(target: Target, file: CopiedFile, disk: Disk, directory: str, check: Check) -> None:
    """Copies a file of the target into a table's directory; durable after the directory was synced.

    Raises:
        CorruptionError: the target's file is damaged or missing; there is no file then.
        UnavailableError: it cannot be read or written.
    """
    with disk.create(directory + file.ending) as copy:
        for data, is_end in _checked(target, file, check):
            copy.write(data)
            if is_end:
                copy.end_range()
    failpoint.hit("restore.copied")


def verify(target: Target, file: CopiedFile, check: Check = lambda: None) -> None:
    """Reads a file of the target.

    Raises:
        CorruptionError: it is damaged or missing.
        UnavailableError: it cannot be read.
    """
    for _ in _checked(target, file, check):
        pass


def _checked(target: Target, file: CopiedFile, check: Check) -> Iterator[tuple[memoryview, bool]]:
    """Yields the pieces of a file, each with whether a range ends behind it; compares checksums."""
    sizes = [size for _, length, _ in _whole(file, file.bytes) for size in _pieces(length)]
    digests = iter([checksum for _, _, checksum in file.ranges])
    ends = [is_end for _, length, _ in file.ranges for is_end in _ends(length)]
    digest = xxhash.xxh3_64()
    chunks = target.chunks(f"{FILES}/{file.name}", sizes)
    for size, is_end in zip(sizes, ends, strict=True):
        check()
        data = next(chunks)
        digest.update(data)
        if len(data) != size or (is_end and digest.intdigest() != next(digests)):
            raise _damaged(f"{target.shown}/{FILES}/{file.name}")
        if is_end:
            digest.reset()
        yield data, is_end
    if len(next(chunks)):
        raise _damaged(f"{target.shown}/{FILES}/{file.name}")


def _pieces(length: int) -> list[int]:
    whole, rest = divmod(length, _PIECE)
    return [_PIECE] * whole + ([rest] if rest or not whole else [])


def _ends(length: int) -> list[bool]:
    count = len(_pieces(length))
    return [False] * (count - 1) + [True]


def is_stored(disk: Disk, directory: str, file: CopiedFile) -> bool:
    """Returns whether a table's directory has the file, with the bytes that it should have."""
    name = directory + file.ending
    if not disk.exists(name):
        return False
    buffer = disk.map(name)
    view = memoryview(buffer)
    try:
        ranges = _whole(file, len(view))
        return all(
            xxhash.xxh3_64_intdigest(view[offset : offset + length]) == checksum
            for offset, length, checksum in ranges
        )
    except CorruptionError:
        return False
