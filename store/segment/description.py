"""The description of a segment beside its rows, in the key index file: a lost catalog is rebuilt from it.

Schema metadata `segment` of the `.keys` file: xxh3 of the rest (8 bytes, big endian), then msgpack of the
table's name, the schema revision that wrote the rows, and the segment's metadata without the fields that are
only known afterwards (`keys_bytes`, `keys_checksum`) or follow from the rows (`zones`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgpack
import pyarrow as pa
import pyarrow.ipc as ipc
import xxhash

from seqstore.store.schema.table_schema import TableSchema

DESCRIPTION: Final = b"segment"
_LEFT_OUT: Final = ("keys_bytes", "keys_checksum", "zones")
_CHECKSUM_BYTES: Final = 8


@dataclass(frozen=True)
class Description:
    """What a key index file states about its segment.

    Attributes:
        table: `database.table` when the rows were written; empty where it was not known.
        schema: the revision that wrote the rows.
        meta: record of the segment, as `SegmentMeta.to_record` makes it, with values for the fields left out.
    """

    table: str
    schema: TableSchema
    meta: dict[str, Any]


def pack_description(table: str, schema: TableSchema, meta: dict[str, Any]) -> bytes:
    """Returns the metadata of a key index file."""
    stated = {name: value for name, value in meta.items() if name not in _LEFT_OUT}
    body: bytes = msgpack.packb({"table": table, "schema": schema.to_record(), "segment": stated})
    return xxhash.xxh3_64_digest(body) + body


def read_description(keys: pa.Buffer) -> Description | None:
    """Reads the description of a segment from the bytes of its key index file.

    Returns:
        None for a file of an earlier program, which has no description.

    Raises:
        ValueError: the file or its description is damaged.
    """
    metadata = ipc.open_file(pa.BufferReader(keys)).schema.metadata or {}
    data = metadata.get(DESCRIPTION)
    if data is None:
        return None
    body = data[_CHECKSUM_BYTES:]
    if xxhash.xxh3_64_digest(body) != data[:_CHECKSUM_BYTES]:
        raise ValueError("the description does not match its checksum")
    record = msgpack.unpackb(body)
    meta = {**record["segment"], "keys_bytes": 0, "keys_checksum": 0, "zones": {}}
    return Description(record["table"], TableSchema.from_record(record["schema"]), meta)
