"""Avro object container files: as much of Avro as the manifests of Iceberg have.

A schema is the JSON of Avro as Python values. Records are mappings by field name. An array with the logical
type `map` is a mapping too: Iceberg stores maps with integer keys so. The package pyiceberg writes manifests
of the format version 3 no more than deletion vectors, and is no dependency of the store.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
Encoder: TypeAlias = Callable[[Any], bytes]
_PLAIN: Final[dict[str, Encoder]] = {}


def encoder(schema: Any) -> Encoder:
    """Returns the function that encodes values; an optional one is None or a value of its second branch."""
    if isinstance(schema, str):
        return _PLAIN[schema]
    if isinstance(schema, list):
        present = encoder(schema[1])
        return lambda value: b"\x00" if value is None else b"\x02" + present(value)
    if schema["type"] == "record":
        fields = [(each["name"], encoder(each["type"])) for each in schema["fields"]]
        return lambda value: b"".join([encode(value.get(name)) for name, encode in fields])
    return _array_encoder(encoder(schema["items"]), is_map=schema.get("logicalType") == "map")


def _array_encoder(item: Encoder, *, is_map: bool) -> Encoder:
    def encode(value: Any) -> bytes:
        values = [{"key": key, "value": each} for key, each in value.items()] if is_map else list(value)
        block = _long(len(values)) + b"".join([item(each) for each in values]) if values else b""
        return block + b"\x00"

    return encode


def container(schema: Mapping[str, Any], metadata: Mapping[str, bytes], rows: Sequence[bytes]) -> bytes:
    """Returns the bytes of a file of encoded rows."""
    head = {**metadata, "avro.schema": json.dumps(schema).encode(), "avro.codec": b"deflate"}
    pairs = b"".join(_string(name) + _bytes(value) for name, value in head.items())
    start = _MAGIC + _long(len(head)) + pairs + b"\x00"
    sync = hashlib.md5(start, usedforsecurity=False).digest()
    if not rows:
        return start + sync
    packer = zlib.compressobj(wbits=-15)
    block = packer.compress(b"".join(rows)) + packer.flush()
    return start + sync + _long(len(rows)) + _bytes(block) + sync


def metadata_of(data: bytes) -> dict[str, bytes]:
    """Returns the metadata at the beginning of a file.

    Raises:
        ValueError: the bytes are no such file.
    """
    if not data.startswith(_MAGIC):
        raise ValueError("the file does not begin as an Avro file does")
    found: dict[str, bytes] = {}
    at = len(_MAGIC)
    while True:
        count, at = _read_long(data, at)
        if count < 0:
            raise ValueError("the file has a block of metadata that no writer of this store makes")
        if not count:
            break
        for _ in range(count):
            name, at = _read_bytes(data, at)
            found[name.decode()], at = _read_bytes(data, at)
    if len(data) < at + _SYNC_BYTES:
        raise ValueError("the file ends within its metadata")
    return found


def _long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _string(value: str) -> bytes:
    return _bytes(value.encode())


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the file has a damaged number")
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (found >> 1) ^ -(found & 1), at


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    if size < 0 or at + size > len(data):
        raise ValueError("the file has a damaged length")
    return data[at : at + size], at + size


_PLAIN.update(int=_long, long=_long, string=_string, bytes=_bytes)
