"""The deletion vector of a data file in a Puffin file of Iceberg.

The file ends with its footer: JSON that lists the blobs, the size of that JSON, flags (each 4 bytes, little
endian), and a magic number.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, BinaryIO, Final

from seqstore.loaders.lake.delta_vectors import blob_rows
from seqstore.loaders.lake.file_rows import Positions
from seqstore.store.errors import InvalidInputError

_MAGIC: Final = b"PFA1"
_TAIL: Final = struct.Struct("<iI4s")
_VECTOR: Final = "deletion-vector-v1"
_DATA_FILE: Final = "referenced-data-file"


def deleted_rows(path: str, data_file: str) -> Positions:
    """Returns the positions of the vector for a data file, ascending.

    Args:
        data_file: its location, as the metadata of the table name it.

    Raises:
        InvalidInputError: the file is damaged, compresses its footer, or has no such vector.
    """
    with open(path, "rb") as file:
        try:
            blobs = _blobs(file)
            found = [
                each
                for each in blobs
                if each["type"] == _VECTOR and each["properties"].get(_DATA_FILE) == data_file
            ]
            if len(found) != 1:
                raise ValueError(f"{len(found)} deletion vectors of {data_file}, expected 1")
            (blob,) = found
            offset, length, count = blob["offset"], blob["length"], int(blob["properties"]["cardinality"])
        except (ValueError, KeyError, TypeError, struct.error, OSError) as error:
            raise InvalidInputError(
                f"{path}: no readable Puffin file: {error}", kind="bad_iceberg"
            ) from error
    return blob_rows(path, offset, length, count)


def _blobs(file: BinaryIO) -> list[dict[str, Any]]:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL.size))
    length, flags, magic = _TAIL.unpack(file.read())
    if magic != _MAGIC or flags or not 0 <= length <= size:
        raise ValueError("its footer is damaged or compressed")
    file.seek(size - _TAIL.size - length)
    blobs: list[dict[str, Any]] = json.loads(file.read(length))["blobs"]
    return blobs
