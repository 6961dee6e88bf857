"""Reads deletion vectors of Delta: in files, relative or absolute, and within the log; and those of Iceberg.

Both formats have the same bytes; `store/open_table/delta_vectors.py`, which writes them, describes them.
"""

from __future__ import annotations

import os
import struct
import uuid
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from seqstore.loaders.lake.places import Places
from seqstore.store.errors import InvalidInputError

_MAGIC: Final = 1681511377
_FILE_VERSION: Final = 1
_HEAD: Final = struct.Struct("<IQ")
_BITMAP: Final = struct.Struct("<I")
_SIZE: Final = struct.Struct(">I")
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_DIGITS: Final = 20


def hidden_rows(described: Mapping[str, Any], root: str, places: Places) -> npt.NDArray[np.uint32]:
    """Returns the positions of a deletion vector, ascending.

    Raises:
        InvalidInputError: the vector is damaged, or of an unknown form.
        NotFoundError: its file is missing.
    """
    try:
        return _rows(_data(described, root, places), described["cardinality"])
    except (ValueError, TypeError, struct.error, IndexError, KeyError) as error:
        if isinstance(error, InvalidInputError):
            raise
        name = str(described.get("pathOrInlineDv"))[:60]
        raise InvalidInputError(f"deletion vector {name!r}: {error}", kind="bad_delta") from error


def blob_rows(path: str, offset: int, length: int, count: int) -> npt.NDArray[np.uint32]:
    """Returns the positions of a deletion vector of Iceberg: a blob of a Puffin file, ascending.

    Raises:
        InvalidInputError: the vector is damaged.
    """
    try:
        with open(path, "rb") as file:
            return _rows(_unframed(path, file, offset, length - 2 * _SIZE.size), count)
    except (ValueError, struct.error, IndexError) as error:
        raise InvalidInputError(f"deletion vector of {path}: {error}", kind="bad_iceberg") from error


def _rows(data: bytes, expected: int) -> npt.NDArray[np.uint32]:
    magic, count = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError(f"magic number {magic}, expected {_MAGIC}")
    rows = _only_bitmap(data, count)
    if len(rows) != expected:
        raise ValueError(f"{len(rows)} rows, expected {expected}")
    return np.frombuffer(rows.to_array(), dtype=np.uint32) if rows else np.empty(0, np.uint32)


def _only_bitmap(data: bytes, count: int) -> BitMap:
    """Returns the bitmap of positions below 2**32: no Parquet file has as many rows."""
    if not count:
        return BitMap()
    (upper,) = _BITMAP.unpack_from(data, _HEAD.size)
    if count != 1 or upper:
        raise ValueError("positions above 2**32")
    return BitMap.deserialize(data[_HEAD.size + _BITMAP.size :])


def _data(described: Mapping[str, Any], root: str, places: Places) -> bytes:
    kind, text = described["storageType"], described["pathOrInlineDv"]
    if kind == "i":
        return _from_digits(text)[: described["sizeInBytes"]]
    if kind == "u":
        prefix, digits = text[:-_UUID_DIGITS], text[-_UUID_DIGITS:]
        name = f"deletion_vector_{uuid.UUID(bytes=_from_digits(digits))}.bin"
        path = places.file(os.path.join(root, prefix, name))
    elif kind == "p":
        path = places.file(text, root)
    else:
        raise ValueError(f"storage type {kind!r}, expected u, p or i")
    return _framed(path, described.get("offset"), described["sizeInBytes"])


def _framed(path: str, offset: int | None, size: int) -> bytes:
    """Reads the data of a vector from a file; their size and checksum must be those stated."""
    with open(path, "rb") as file:
        if file.read(1) != bytes([_FILE_VERSION]):
            raise ValueError(f"{path}: no file of deletion vectors of version {_FILE_VERSION}")
        return _unframed(path, file, 1 if offset is None else offset, size)


def _unframed(path: str, file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    framed = file.read(size + 2 * _SIZE.size)
    data = framed[_SIZE.size : _SIZE.size + size]
    if len(data) != size or _SIZE.unpack_from(framed) != (size,):
        raise ValueError(f"{path}: a size that is not {size}")
    if _SIZE.unpack_from(framed, _SIZE.size + size) != (zlib.crc32(data),):
        raise ValueError(f"{path}: a wrong checksum")
    return data


def _from_digits(text: str) -> bytes:
    """Decodes the base 85 of ZeroMQ."""
    groups = [text[start : start + 5] for start in range(0, len(text), 5)]
    numbers = [sum(_DIGITS.index(digit) * 85 ** (4 - i) for i, digit in enumerate(group)) for group in groups]
    return b"".join(_SIZE.pack(number) for number in numbers)
