"""The durable form of a delta: a pre-committed partial update keeps it until it is committed.

One Arrow IPC file of one record batch beside the segments, or its bytes in the catalog record when they are
few. Its columns: `row:<name>` for a column of the rows, `has:<name>` for the mask of one that only some rows
supply, `sign`, `sequence`, `has_sequence`, `id`. Written once, read back whole, verified by its checksum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import xxhash
from pyarrow import ipc

from seqstore.store.check.delta import Delta
from seqstore.store.errors import CorruptionError
from seqstore.store.segment.disk import Disk
from seqstore.store.segment.load_marker import Attempt, new_segment_id

_ROW: Final = "row:"
_HAS: Final = "has:"


@dataclass(frozen=True)
class DeltaFile:
    """Where a delta is.

    Attributes:
        name: of its file, without directory; empty when `data` has the bytes.
        data: the bytes, None when they are in the file.
        checksum: xxh3 of the bytes.
    """

    name: str
    data: bytes | None
    checksum: int

    def to_record(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def delete(self, disk: Disk, directory: str) -> None:
        """Removes the file; one that cannot be removed is left to the next sweep, for its write has ended."""
        if self.name:
            disk.discard(f"{directory}/{self.name}")


def write_delta(
    disk: Disk, directory: str, delta: Delta, inline_bytes_max: int, staging: Attempt | None = None
) -> DeltaFile:
    """Makes a delta durable, but for its file's name (`Disk.sync_directory`).

    Args:
        staging: whose file it is, when that is not this process.
    """
    data = _encode(delta)
    checksum = xxhash.xxh3_64_intdigest(data)
    if data.size <= inline_bytes_max:
        return DeltaFile("", data.to_pybytes(), checksum)
    name = f"{staging.new_segment_id() if staging else new_segment_id()}.delta"
    with disk.create(f"{directory}/{name}") as file:
        file.write(data)
    return DeltaFile(name, None, checksum)


def read_delta(disk: Disk, directory: str, file: DeltaFile) -> Delta:
    """Returns the delta that was written.

    Raises:
        CorruptionError: its file is missing or was changed.
    """
    name = f"{directory}/{file.name}"
    buffer = disk.map(name) if file.data is None else pa.py_buffer(file.data)
    if xxhash.xxh3_64_intdigest(buffer) != file.checksum:
        raise CorruptionError(f"{name}: delta does not match its checksum", path=name)
    return _decode(buffer)


def _encode(delta: Delta) -> pa.Buffer:
    columns: dict[str, Any] = {_ROW + name: cells for name, cells in delta.cells().items()}
    columns |= {_HAS + name: mask for name, mask in delta.supplied.items()}
    more = {
        "sign": delta.signs,
        "sequence": delta.sequence,
        "has_sequence": delta.sequence_supplied,
        "id": delta.ids,
    }
    columns |= {name: cells for name, cells in more.items() if cells is not None}
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _decode(data: pa.Buffer) -> Delta:
    batch = ipc.open_file(pa.BufferReader(data)).get_batch(0)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    masks = {
        name: each.to_numpy(zero_copy_only=False)
        for name, each in columns.items()
        if name.startswith(_HAS) or name == "has_sequence"
    }
    return Delta(
        pa.table({name[len(_ROW) :]: each for name, each in columns.items() if name.startswith(_ROW)}),
        {name[len(_HAS) :]: mask for name, mask in masks.items() if name.startswith(_HAS)},
        np.asarray(columns["sign"]) if "sign" in columns else None,
        columns.get("sequence"),
        masks.get("has_sequence"),
        columns.get("id"),
    )
