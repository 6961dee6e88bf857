"""Catalog records as msgpack, each wrapped with its format number and a checksum.

record = xxh3_64 of the rest (8 bytes, big endian) | format number (1 byte) | msgpack
"""

from __future__ import annotations

from typing import Any, Final

import msgpack
import xxhash

from seqstore.store.errors import CorruptionError, FormatError

FORMAT: Final = 1
_HEADER: Final = 9


def pack(value: Any) -> bytes:
    """Packs a value as a record.

    The value consists of lists, dicts with string keys, strings, bytes, numbers, booleans and None.
    """
    body: bytes = bytes([FORMAT]) + msgpack.packb(value, use_bin_type=True)
    return xxhash.xxh3_64_digest(body) + body


def unpack(data: bytes | memoryview) -> Any:
    """Returns the value of a record.

    Raises:
        CorruptionError: the checksum does not match.
        FormatError: a newer program wrote it.
    """
    view = memoryview(data)
    if len(view) <= _HEADER or xxhash.xxh3_64_digest(view[8:]) != bytes(view[:8]):
        raise CorruptionError("a catalog record does not match its checksum; run check", path="catalog")
    if view[8] != FORMAT:
        raise FormatError(f"a catalog record has format {view[8]}, this program reads {FORMAT}; upgrade it")
    return msgpack.unpackb(view[_HEADER:], strict_map_key=False)
