"""Object container files of Avro: their head, and their blocks unfolded within a limit.

fastavro unfolds a block whole, however large it becomes, so blocks are read here. Values are its part.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa

from seqstore.loaders.avro.messages import UndecodableError, decode
from seqstore.loaders.avro.writer_schema import avro_library
from seqstore.loaders.compress import snappy_length
from seqstore.store.runtime.native_file import read_bytes

BLOCK_BYTES_MAX: Final = 64 << 20  # unfolded or not
_HEAD_BYTES_MAX: Final = 16 << 20
_XZ_MEMORY: Final = 128 << 20  # its largest level needs half of it
_SYNC_BYTES: Final = 16
_HEAD: Final = {
    "type": "record",
    "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _SYNC_BYTES}},
    ],
}


@dataclass(frozen=True)
class Block:
    """Some values.

    Attributes:
        count: of the values.
        data: their bytes, unfolded.
    """

    count: int
    data: bytes


class Container:
    """A file, from its first byte on.

    Args:
        body: plain bytes.

    Attributes:
        schema: of the values, as parsed JSON.

    Raises:
        UndecodableError: the head is none of a container file.
    """

    def __init__(self, body: io.BufferedReader[Any]) -> None:
        self._body = body
        self._read = avro_library().schemaless_reader
        head = decode(partial(self._read, _Limited(body), _HEAD))
        self._sync: bytes = head["sync"]
        codec = head["meta"].get("avro.codec", b"null").decode("utf-8", "replace")
        unfold = _CODECS.get(codec)
        if unfold is None:
            raise _broken(f"expected one of the codecs {', '.join(_CODECS)}, found {codec[:40]!r}")
        self._codec, self._unfold = codec, unfold
        try:
            self.schema: Any = json.loads(head["meta"].get("avro.schema", b""))
        except RecursionError as error:
            raise _broken("the schema is nested too deep") from error
        except ValueError as error:
            raise _broken(f"the schema in the head is no JSON: {error}") from error

    def blocks(self) -> Iterator[Block]:
        """Yields the blocks.

        Raises:
            UndecodableError: one is broken or too large.
        """
        while self._body.peek(1):
            count, size = (decode(partial(self._read, self._body, "long")) for _ in range(2))
            if not 0 <= size <= BLOCK_BYTES_MAX or count < 0:
                raise _broken(
                    f"a block has {count} values in {size} bytes, expected {BLOCK_BYTES_MAX >> 20} MB at most"
                )
            data = self._body.read(size)
            if len(data) < size:
                raise _broken("the bytes end before a block does")
            if self._body.read(_SYNC_BYTES) != self._sync:
                raise _broken("a block does not end with the mark of the file")
            yield Block(count, self._plain(data))

    def _plain(self, data: bytes) -> bytes:
        try:
            plain = self._unfold(data)
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
            raise _broken(f"a block cannot be unfolded by {self._codec}: {error}") from error
        if len(plain) > BLOCK_BYTES_MAX:
            raise _too_large()
        return plain


def _deflate(data: bytes) -> bytes:
    return _to_its_end(zlib.decompressobj(-15), data)


def _bzip2(data: bytes) -> bytes:
    return _to_its_end(bz2.BZ2Decompressor(), data)


def _xz(data: bytes) -> bytes:
    return _to_its_end(lzma.LZMADecompressor(memlimit=_XZ_MEMORY), data)


def _to_its_end(unfolding: Any, data: bytes) -> bytes:
    plain: bytes = unfolding.decompress(data, BLOCK_BYTES_MAX + 1)
    if not unfolding.eof and len(plain) <= BLOCK_BYTES_MAX:
        raise ValueError("the bytes end early")
    return plain


def _zstandard(data: bytes) -> bytes:
    with pa.input_stream(pa.py_buffer(data), compression="zstd") as stream:
        return read_bytes(stream, BLOCK_BYTES_MAX + 1)


def _snappy(data: bytes) -> bytes:
    """Unfolds a block that begins with its size as a varint and ends with a checksum."""
    plain = _of_size("snappy", data[:-4], snappy_length(data))
    if zlib.crc32(plain).to_bytes(4, "big") != data[-4:]:
        raise ValueError("the checksum is wrong")
    return plain


def _lz4(data: bytes) -> bytes:
    """Unfolds a block that begins with its size in four bytes, as the library lz4 writes them."""
    return _of_size("lz4_raw", data[4:], int.from_bytes(data[:4], "little"))


def _of_size(codec: str, data: bytes, size: int) -> bytes:
    if size > BLOCK_BYTES_MAX:
        raise _too_large()
    plain: bytes = pa.Codec(codec).decompress(data, size, asbytes=True) if size else b""
    return plain


_CODECS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": _deflate,
    "bzip2": _bzip2,
    "snappy": _snappy,
    "zstandard": _zstandard,
    "lz4": _lz4,
    "xz": _xz,
}


class _Limited:
    """The head of a file: a small one may claim a value of any size."""

    def __init__(self, body: io.BufferedReader[Any]) -> None:
        self._body = body
        self._left = _HEAD_BYTES_MAX

    def read(self, size: int) -> bytes:
        self._left -= size
        if size < 0 or self._left < 0:
            raise _broken(f"the head is longer than {_HEAD_BYTES_MAX >> 20} MB")
        return self._body.read(size)


def _too_large() -> UndecodableError:
    return _broken(f"a block unfolds to more than {BLOCK_BYTES_MAX >> 20} MB; write smaller blocks")


def _broken(reason: str) -> UndecodableError:
    return UndecodableError(reason, kind="data_quality")
