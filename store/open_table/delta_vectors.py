"""Deletion vectors of Delta: files of Roaring bitmaps, as the protocol of Delta describes them.

A file has a version byte (1) and then, for each vector: the size of its data (4 bytes, big endian), the data,
and the CRC-32 of the data (4 bytes, big endian). The data are a magic number (4 bytes, little endian), the
number of 32-bit bitmaps (8 bytes, little endian), and for each its upper 32 bits and the bitmap in Roaring's
portable form. Positions in a segment have 32 bits, so there is one bitmap.

The log names a file by its UUID in the base 85 of ZeroMQ: four bytes are five characters.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyroaring import BitMap

_MAGIC: Final = 1681511377
_FILE_VERSION: Final = b"\x01"
_HEAD: Final = struct.Struct("<IQI")
_SIZE: Final = struct.Struct(">I")
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def file_name(identity: uuid.UUID) -> str:
    """Returns the name of the file of deletion vectors with a UUID."""
    return f"deletion_vector_{identity}.bin"


def packed_name(identity: uuid.UUID) -> str:
    """Returns the name of a file as descriptors state it."""
    return "".join(_digits(identity.bytes))


def pack_vectors(identity: uuid.UUID, vectors: Sequence[BitMap]) -> tuple[bytes, list[dict[str, Any]]]:
    """Returns the bytes of a file, and the descriptor of each of its vectors."""
    parts, descriptors, offset = [_FILE_VERSION], [], len(_FILE_VERSION)
    for rows in vectors:
        data = framed_vector(rows)
        parts.append(data)
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": packed_name(identity),
                "offset": offset,
                "sizeInBytes": len(data) - 2 * _SIZE.size,
                "cardinality": len(rows),
            }
        )
        offset += len(data)
    return b"".join(parts), descriptors


def framed_vector(rows: BitMap) -> bytes:
    """Returns the data of a vector with their size before them and their CRC-32 after them."""
    data = _HEAD.pack(_MAGIC, 1, 0) + rows.serialize()
    return b"".join((_SIZE.pack(len(data)), data, _SIZE.pack(zlib.crc32(data))))


def _digits(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), 4):
        (number,) = struct.unpack_from(">I", data, start)
        yield "".join(_DIGITS[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
