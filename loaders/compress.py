"""Compressed bodies as plain byte streams, read piece by piece.

gz, bz2, zlib and deflate are those of Python's library, LZ4 frames and zstd from Arrow. lz4_block and
snappy_block are Hadoop's framing: the plain length of a block (4 bytes, big end first), then parts of
(compressed length, bytes) until that many plain bytes were made.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.native_file import NativeReader

_PIECE_BYTES: Final = 1 << 20
_BLOCK_BYTES_MAX: Final = 64 << 20  # Hadoop writes 256 KiB


def open_compressed(body: BinaryIO, compression: str) -> BinaryIO:
    """Returns a stream of the plain bytes; the body itself when nothing is compressed.

    Reading raises `InvalidInputError` when the bytes are not of that compression or stop in the middle.
    """
    if not compression:
        return body
    opened = cast(BinaryIO, _OPENERS[compression](body))
    return cast(BinaryIO, _Guarded(opened, compression))


class _Guarded(io.RawIOBase):
    """Turns the many errors of decompressors into one."""

    def __init__(self, inner: BinaryIO, compression: str) -> None:
        self._inner = inner
        self._compression = compression

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            return self._inner.read(size)
        except (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException, ValueError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(
                f"the body cannot be read as {self._compression}: {error}", kind="bad_compression"
            ) from error


class _Pieces(io.RawIOBase):
    """A stream over an iterator of byte pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Reads `size` bytes, fewer only at the end; the search for a line end reads more and more."""
        taken: list[memoryview] = []
        left = size if size >= 0 else sys.maxsize
        while left:
            if not self._rest:
                self._rest = memoryview(next(self._pieces, b""))
            if not self._rest:
                break
            taken.append(self._rest[:left])
            self._rest = self._rest[left:]
            left -= len(taken[-1])
        return b"".join(taken)


def _inflate(body: BinaryIO) -> Iterator[bytes]:
    """Decompresses zlib streams, or bare deflate without a zlib header; consecutive streams form one text."""
    data = body.read(_PIECE_BYTES)
    while data:
        has_header = len(data) > 1 and data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
        stream = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        while not stream.eof:
            if not data:
                raise EOFError("it stops in the middle of a stream")
            plain = stream.decompress(data, _PIECE_BYTES)
            if plain:
                yield plain
            data = stream.unconsumed_tail or (b"" if stream.eof else body.read(_PIECE_BYTES))
        data = stream.unused_data or body.read(_PIECE_BYTES)


def _bunzip2(body: BinaryIO) -> Iterator[bytes]:
    data = body.read(_PIECE_BYTES)
    while data:
        stream = bz2.BZ2Decompressor()
        while not stream.eof:
            if stream.needs_input and not data:
                raise EOFError("it stops in the middle of a stream")
            plain = stream.decompress(data, _PIECE_BYTES)
            if plain:
                yield plain
            data = b"" if stream.eof or not stream.needs_input else body.read(_PIECE_BYTES)
        data = stream.unused_data or body.read(_PIECE_BYTES)


def _hadoop_blocks(body: BinaryIO, codec: pa.Codec) -> Iterator[bytes]:
    while (header := _exactly(body, 4, may_end=True)) != b"":
        left = int.from_bytes(header, "big")
        if left > _BLOCK_BYTES_MAX:
            raise ValueError(f"a block of {left} bytes is larger than {_BLOCK_BYTES_MAX}")
        while left:
            size = int.from_bytes(_exactly(body, 4), "big")
            if size > _BLOCK_BYTES_MAX:
                raise ValueError(f"a part of {size} bytes is larger than {_BLOCK_BYTES_MAX}")
            part = _exactly(body, size)
            plain = codec.decompress(part, _plain_length(part, codec.name, left), asbytes=True)
            if not 0 < len(plain) <= left:
                raise ValueError("a block is longer than its header says")
            yield plain
            left -= len(plain)


def _plain_length(part: bytes, codec: str, left: int) -> int:
    """Returns the plain length: from Snappy's header, or for LZ4 the rest of the block."""
    if codec != "snappy":
        return left
    length = snappy_length(part)
    if length > left:
        raise ValueError("a block is longer than its header says")
    return length


def snappy_length(part: bytes) -> int:
    """Returns the plain length in the header of a part: 7 bits a byte, the lowest first."""
    length = shift = 0
    for byte in part[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return length


def _exactly(body: BinaryIO, size: int, *, may_end: bool = False) -> bytes:
    data = b""
    while len(data) < size:
        piece = body.read(size - len(data))
        if not piece:
            if may_end and not data:
                return b""
            raise EOFError("it stops in the middle of a block")
        data += piece
    return data


def _arrow(codec: str) -> Callable[[BinaryIO], Any]:
    return lambda body: NativeReader(pa.CompressedInputStream(pa.PythonFile(body, mode="r"), codec))


_OPENERS: Final[dict[str, Callable[[BinaryIO], Any]]] = {
    "gz": lambda body: gzip.GzipFile(fileobj=body),
    "bz2": lambda body: _Pieces(_bunzip2(body)),
    "lz4": _arrow("lz4"),
    "zstd": _arrow("zstd"),
    "zlib": lambda body: _Pieces(_inflate(body)),
    "deflate": lambda body: _Pieces(_inflate(body)),
    "lz4_block": lambda body: _Pieces(_hadoop_blocks(body, pa.Codec("lz4_raw"))),
    "snappy_block": lambda body: _Pieces(_hadoop_blocks(body, pa.Codec("snappy"))),
}
