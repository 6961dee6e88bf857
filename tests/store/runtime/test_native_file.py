"""Arrow's files read by Python: reads that fail keep no memory."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from seqstore.loaders.avro.container import BLOCK_BYTES_MAX, Container
from seqstore.loaders.avro.messages import UndecodableError
from seqstore.loaders.compress import open_compressed
from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.native_file import NativeReader, read_bytes
from tests.loaders.test_compress import COMPRESSED, PLAIN
from tests.support.hostile.usage import private_bytes

TIMES = 40
BLOCK_BYTES = 4 << 20


def growth(work: Callable[[], object], error: type[Exception], times: int = TIMES) -> int:
    """How many bytes each further failure of some work keeps."""
    for _ in range(3):
        with pytest.raises(error):
            work()
    before = private_bytes()
    for _ in range(times):
        with pytest.raises(error):
            work()
    return (private_bytes() - before) // times


@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_damaged_body_keeps_no_memory(compression: str) -> None:
    damaged = COMPRESSED[compression][:100] + b"noise" * 100

    def read() -> None:
        with open_compressed(io.BytesIO(damaged), compression) as body:
            while body.read(BLOCK_BYTES):
                pass

    assert growth(read, InvalidInputError) < BLOCK_BYTES // 4


def test_a_damaged_block_of_avro_keeps_no_memory() -> None:
    def varint(number: int) -> bytes:
        number, out = number << 1, b""
        while number >= 0x80:
            out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
        return out + bytes([number])

    def text(value: bytes) -> bytes:
        return varint(len(value)) + value

    sync, data = b"s" * 16, b"\x28\xb5\x2f\xfd" + b"noise" * 100
    meta = {b"avro.codec": b"zstandard", b"avro.schema": json.dumps("string").encode()}
    head = b"Obj\x01" + varint(2) + b"".join(text(k) + text(v) for k, v in meta.items()) + varint(0) + sync
    file = head + varint(1) + text(data) + sync

    def read() -> None:
        body: io.BufferedReader[Any] = io.BufferedReader(io.BytesIO(file))
        list(Container(body).blocks())

    assert growth(read, UndecodableError) < BLOCK_BYTES_MAX // 4


class _Broken(io.RawIOBase):
    """A connection that breaks at its first read."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        raise OSError("connection reset")


@pytest.mark.parametrize("size", [-1, BLOCK_BYTES])
def test_a_connection_that_breaks_keeps_no_memory(size: int) -> None:
    def work() -> None:
        with NativeReader(pa.PythonFile(_Broken(), mode="r")) as file:
            file.read(size)

    assert growth(work, OSError) < BLOCK_BYTES // 4


def test_the_reader_is_a_file_of_python() -> None:
    text = bytes(range(256)) * 10_000
    inner = pa.BufferReader(text)
    with NativeReader(inner) as file:
        assert read_bytes(inner, 3) == text[:3]
        assert (file.read(5), file.tell(), file.read(0)) == (text[3:8], 8, b"")
        assert file.seek(-4, io.SEEK_END) == len(text) - 4
        assert (file.read(100), file.read(100)) == (text[-4:], b"")
        file.seek(2)
        assert io.BufferedReader(file, 7).read() == text[2:]
    assert inner.closed
    stream = NativeReader(pa.CompressedInputStream(pa.BufferReader(COMPRESSED["zstd"]), "zstd"))
    assert not stream.seekable()
    assert stream.read() == PLAIN
