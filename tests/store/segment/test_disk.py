"""Files of segments: written in any portions, past the page cache or not, with a checksum per range."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
import xxhash

from seqstore.store.errors import UnavailableError
from seqstore.store.segment.disk import Disk, release_pages

SIZES = [0, 1, 4095, 4096, 2**20 - 1, 2**20, 8 * 2**20, 8 * 2**20 + 1, 17 * 2**20 + 5]


def write(disk: Disk, name: str, data: bytes, seed: int) -> list[tuple[int, int, int]]:
    """Writes in portions of random sizes, a range each."""
    rng = random.Random(seed)
    with disk.create(name) as file:
        start = 0
        while start < len(data):
            size = rng.choice([1, 100, 5_000, 2**20, 9 * 2**20])
            assert file.tell() == start
            start += file.write(memoryview(data)[start : start + size])
            file.end_range()
    assert file.size == len(data)
    return file.ranges


@pytest.mark.parametrize("size", SIZES)
def test_a_file_holds_what_was_written_and_each_range_has_its_checksum(tmp_path: Path, size: int) -> None:
    disk, data = Disk(tmp_path), random.Random(size).randbytes(size)
    ranges = write(disk, "a/b", data, seed=size)
    assert (tmp_path / "a" / "b").read_bytes() == data
    assert sum(length for _, length, _ in ranges) == size
    for offset, length, checksum in ranges:
        assert checksum == xxhash.xxh3_64_intdigest(data[offset : offset + length])


@pytest.mark.parametrize("refusing", ["open", "write"])
def test_a_file_system_without_direct_writes_is_written_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusing: str
) -> None:
    """Some refuse when the file is opened, some when it is written."""
    open_file, write_file = os.open, os.write
    direct: set[int] = set()

    def refuse_open(path: Path, flags: int, mode: int = 0o777) -> int:
        if refusing == "open" and flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct writes")
        descriptor = open_file(path, flags, mode)
        if flags & os.O_DIRECT:
            direct.add(descriptor)
        return descriptor

    def refuse_write(descriptor: int, data: memoryview) -> int:
        if refusing == "write" and descriptor in direct:
            direct.remove(descriptor)
            raise OSError(errno.EINVAL, "no direct writes")
        return write_file(descriptor, data)

    data = random.Random(7).randbytes(9 * 2**20 + 7)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse_open)
        patch.setattr(os, "write", refuse_write)
        write(Disk(tmp_path), "f", data, seed=7)
    assert (tmp_path / "f").read_bytes() == data


def test_a_full_disk_is_an_error_with_the_path_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(UnavailableError, match=r"f: cannot be written: .*No space left"):
        write(Disk(tmp_path), "f", b"x" * 2**21, seed=1)
    assert not (tmp_path / "f").exists()


def test_an_error_of_the_writer_leaves_no_file(tmp_path: Path) -> None:
    disk = Disk(tmp_path)

    def fail() -> None:
        with disk.create("f") as file:
            file.write(b"x" * 2**24)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert disk.list(".") == []


@pytest.mark.parametrize("size", [0, 1, 4096, 3 * 2**20 + 5])
def test_files_that_are_read_have_the_bytes_of_mapped_ones(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    write(Disk(tmp_path), "a/b", data, seed=size)
    read = Disk(tmp_path, mapped_reads=False).map("a/b")
    assert read.to_pybytes() == data
    release_pages(read)  # would clear memory that is no file
    assert read.to_pybytes() == data


def test_files_that_are_synced_together_leave_no_descriptor_open(tmp_path: Path) -> None:
    disk, names = Disk(tmp_path), ["a/b", "a/c"]
    for name in names:
        with disk.create_unsynced(name) as file:
            file.write(b"x" * 5_000)
    before = sorted(os.listdir("/proc/self/fd"))
    disk.sync_files(names)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_file_that_was_left_and_is_moved_is_left_no_more(tmp_path: Path) -> None:
    """Sweeps would look for it under its old name for as long as the process runs."""
    disk = Disk(tmp_path)
    write(disk, "a/b", b"x", seed=1)
    disk.leave("a/b")
    assert disk.left("a") == {"b"}
    disk.move("a/b", "c/b")
    assert (disk.left("a"), disk.list("a"), disk.list("c")) == (set(), [], ["b"])
