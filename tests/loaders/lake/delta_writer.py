"""Delta tables made by hand: forms of logs and files that no package at hand writes.

A `HandMade` writes Parquet files and actions; `checkpoint_*` write the state of its commits as a checkpoint.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
Action = dict[str, Any]
_STRINGS: Final = pa.map_(pa.string(), pa.string())
_VECTOR: Final = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_ROWS: Final = pa.schema(
    [
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _STRINGS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _STRINGS),
                ]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _STRINGS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        ("sidecar", pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())])),
        ("checkpointMetadata", pa.struct([("version", pa.int64())])),
    ]
)


def field(name: str, kind: Any, *, stored: str = "", number: int = 0, nullable: bool = True) -> Action:
    """Returns a field of a schema, mapped when it has a stored name."""
    metadata: Action = {}
    if stored:
        metadata = {"delta.columnMapping.physicalName": stored, "delta.columnMapping.id": number}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


class HandMade:
    """A Delta table in a directory.

    Attributes:
        actions: of all commits: what a checkpoint of the newest one holds, if none of them removes a file.
    """

    def __init__(
        self,
        root: Path,
        fields: Sequence[Action],
        *,
        partitions: Sequence[str] = (),
        features: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self.log = root / "_delta_log"
        self.log.mkdir(parents=True)
        self.version = -1
        self.actions: list[Action] = []
        protocol: Action = {"minReaderVersion": 1, "minWriterVersion": 2}
        if features:
            names = list(features)
            protocol = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": names,
                "writerFeatures": names,
            }
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(fields)}),
            "partitionColumns": list(partitions),
            "configuration": dict(configuration or {}),
        }
        self.commit([{"protocol": protocol}, {"metaData": metadata}])

    def commit(self, actions: Sequence[Action]) -> None:
        self.version += 1
        self.actions += actions
        path = self.log / f"{self.version:020}.json"
        path.write_text("".join(json.dumps(each) + "\n" for each in actions))

    def add(self, name: str, rows: pa.Table, **more: Any) -> Action:
        """Writes a file and returns its action."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, row_group_size=max(1, len(rows) // 3))
        action = {"path": name, "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 0}
        return {"add": {**action, "dataChange": True, **more}}

    def vector(self, rows: Sequence[int], kind: str = "u", prefix: str = "") -> Action:
        """Writes a deletion vector, or returns an inline one."""
        data = struct.pack("<IQI", 1681511377, 1, 0) + BitMap(rows).serialize()
        described: Action = {"sizeInBytes": len(data), "cardinality": len(rows)}
        if kind == "i":
            padded = data + b"\0" * (-len(data) % 4)
            return {**described, "storageType": "i", "pathOrInlineDv": digits(padded)}
        identity = uuid.uuid4()
        path = self.root / prefix / f"deletion_vector_{identity}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        framed = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
        path.write_bytes(b"\x01" + b"before" + framed)
        name = prefix + digits(identity.bytes) if kind == "u" else path.as_uri()
        return {**described, "storageType": kind, "pathOrInlineDv": name, "offset": 7}

    def forget_commits(self) -> None:
        """Removes all commits: only a checkpoint is left."""
        for path in self.log.glob("*.json"):
            if "checkpoint" not in path.name:
                path.unlink()

    def _named(self, middle: str, suffix: str) -> Path:
        return self.log / f"{self.version:020}.checkpoint{middle}.{suffix}"

    def classic(self) -> None:
        """Writes a checkpoint of one file."""
        write_actions(self._named("", "parquet"), self.actions)

    def in_parts(self, count: int) -> list[Path]:
        """Writes a checkpoint of several parts."""
        paths = [self._named(f".{part + 1:010}.{count:010}", "parquet") for part in range(count)]
        for part, path in enumerate(paths):
            write_actions(path, self.actions[part::count])
        return paths

    def second_form(self, suffix: str, *, named: bool = True) -> Path:
        """Writes a v2 checkpoint with two sidecars, of which one is named by an escaped path."""
        (self.log / "_sidecars").mkdir(exist_ok=True)
        adds = [each for each in self.actions if "add" in each]
        head: list[Action] = [{"checkpointMetadata": {"version": self.version}}]
        head += [each for each in self.actions if "add" not in each]
        for number, part in enumerate((adds[::2], adds[1::2])):
            name = f"side car {number}.parquet"
            write_actions(self.log / "_sidecars" / name, part)
            head.append({"sidecar": {"path": name.replace(" ", "%20"), "sizeInBytes": 1}})
        path = self._named(f".{uuid.uuid4()}" if named else "", suffix)
        if suffix == "json":
            path.write_text("".join(json.dumps(each) + "\n" for each in head))
        else:
            write_actions(path, head)
        return path


def digits(data: bytes) -> str:
    """Encodes bytes in the base 85 of ZeroMQ."""
    numbers = [int.from_bytes(data[start : start + 4], "big") for start in range(0, len(data), 4)]
    return "".join(_Z85[number // 85**power % 85] for number in numbers for power in (4, 3, 2, 1, 0))


def write_actions(path: Path, actions: Sequence[Action]) -> None:
    """Writes actions as the rows of a Parquet file."""
    pq.write_table(pa.Table.from_pylist([_paired(each) for each in actions], _ROWS), path)


def _paired(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    maps = ("partitionValues", "configuration", "options")
    return {name: list(each.items()) if name in maps else _paired(each) for name, each in value.items()}
