"""`loaders.compress`: every compression the rules list, whole, cut short, and not compressed at all."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib

import pyarrow as pa
import pytest

from seqstore.loaders.compress import open_compressed
from seqstore.store.errors import InvalidInputError

PLAIN = b"".join(b"%d,some text %d\n" % (i, i % 7) for i in range(60_000))


def _stream(codec: str) -> bytes:
    buffer = pa.BufferOutputStream()
    stream = pa.CompressedOutputStream(buffer, codec)
    stream.write(PLAIN)
    stream.close()
    return bytes(buffer.getvalue())


def _deflate() -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(PLAIN) + stream.flush()


def _hadoop(codec: str) -> bytes:
    """Blocks of 256 KB, each of one part."""
    out = b""
    for start in range(0, len(PLAIN), 1 << 18):
        block = PLAIN[start : start + (1 << 18)]
        part = pa.Codec(codec).compress(block, asbytes=True)
        out += len(block).to_bytes(4, "big") + len(part).to_bytes(4, "big") + part
    return out


COMPRESSED = {
    "gz": gzip.compress(PLAIN),
    "bz2": bz2.compress(PLAIN),
    "zlib": zlib.compress(PLAIN),
    "deflate": _deflate(),
    "lz4": _stream("lz4"),
    "zstd": _stream("zstd"),
    "lz4_block": _hadoop("lz4_raw"),
    "snappy_block": _hadoop("snappy"),
}


def read(body: bytes, compression: str, size: int = 100_000) -> bytes:
    stream = open_compressed(io.BytesIO(body), compression)
    out = b""
    while piece := stream.read(size):
        assert len(piece) <= size
        out += piece
    return out


@pytest.mark.parametrize("name", COMPRESSED)
def test_what_was_compressed_comes_back(name: str) -> None:
    """LH22."""
    assert read(COMPRESSED[name], name) == PLAIN
    assert read(COMPRESSED[name], name, size=1001) == PLAIN


@pytest.mark.parametrize("name", COMPRESSED)
def test_two_files_in_a_row_are_one_text(name: str) -> None:
    assert read(COMPRESSED[name] * 2, name) == PLAIN * 2


@pytest.mark.parametrize("name", COMPRESSED)
def test_an_empty_body_is_an_empty_text(name: str) -> None:
    """V12."""
    assert read(b"", name) == b""


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize("cut", [1, 10, 5000])
def test_a_body_that_stops_in_the_middle_is_refused(name: str, cut: int) -> None:
    with pytest.raises(InvalidInputError, match=f"cannot be read as {name}"):
        read(COMPRESSED[name][:-cut], name)


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_body_of_another_kind_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"cannot be read as {name}"):
        read(b"1,plain text that nobody compressed\n" * 20, name)


def test_a_small_body_that_unfolds_to_much_is_read_piece_by_piece() -> None:
    stream = open_compressed(io.BytesIO(gzip.compress(bytes(50 << 20))), "gz")
    assert sum(len(piece) for piece in iter(lambda: stream.read(1 << 16), b"")) == 50 << 20
