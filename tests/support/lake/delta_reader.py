"""A reader of Delta's protocol that shares no code with the engine: what its writer must agree with.

It replays the JSON commits of a log up to a version, and reads the files that are left with pyarrow, without
the rows of their deletion vectors. Columns are found by field id, as mode `id` of column mapping asks for; a
reader that finds them by their physical name gets the same, which `by_name` shows.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAPS: Final = ("configuration", "options", "partitionValues", "tags")
_TYPES: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
}


@dataclass
class DeltaTable:
    """A version of a Delta table.

    Attributes:
        version: of the log.
        files: `add` actions by path.
        metadata, protocol: their last actions.
        info: the `commitInfo` of the version.
        apps: the last `txn` version of each application.
    """

    root: Path
    version: int
    files: dict[str, dict[str, Any]]
    metadata: dict[str, Any]
    protocol: dict[str, Any]
    info: dict[str, Any]
    apps: dict[str, int]

    @property
    def fields(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.metadata["schemaString"])["fields"]
        return found

    @property
    def shown(self) -> int:
        """The version of the store that this one shows."""
        return int(self.info["seqstoreVersion"])

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([(each["name"], arrow_type(each["type"])) for each in self.fields])

    def read(self, *, by_name: bool = False) -> pa.Table:
        """Returns the live rows of all files."""
        parts = [self._read_file(add, by_name=by_name) for add in self.files.values()]
        return pa.concat_tables(parts) if parts else self.arrow.empty_table()

    def _read_file(self, add: dict[str, Any], *, by_name: bool) -> pa.Table:
        path = self.root / add["path"]
        assert path.stat().st_size == add["size"], path
        rows = pq.read_table(path, partitioning=None)
        stats = json.loads(add["stats"])
        assert stats["numRecords"] == len(rows), path
        hidden = self._vector(add["deletionVector"]) if "deletionVector" in add else BitMap()
        assert not (hidden and stats["tightBounds"]), path
        columns = []
        for field, wanted in zip(self.fields, self.arrow, strict=True):
            found = self._find(rows, field, by_name=by_name)
            columns.append(
                rows.column(found).cast(wanted.type) if found else pa.nulls(len(rows), wanted.type)
            )
            if found:
                _check_statistics(stats, field, columns[-1])
        keep = sorted(set(range(len(rows))) - set(hidden))
        return pa.table(columns, schema=self.arrow).take(pa.array(keep, pa.int64()))

    def _find(self, rows: pa.Table, field: dict[str, Any], *, by_name: bool) -> str | None:
        metadata = field["metadata"]
        if "delta.columnMapping.id" not in metadata:
            return field["name"] if field["name"] in rows.schema.names else None
        if by_name:
            name = metadata["delta.columnMapping.physicalName"]
            return name if name in rows.schema.names else None
        wanted = str(metadata["delta.columnMapping.id"]).encode()
        return next(
            (each.name for each in rows.schema if (each.metadata or {}).get(b"PARQUET:field_id") == wanted),
            None,
        )

    def _vector(self, described: dict[str, Any]) -> BitMap:
        assert described["storageType"] == "u"
        path = self.root / f"deletion_vector_{uuid.UUID(bytes=_from_z85(described['pathOrInlineDv']))}.bin"
        data = path.read_bytes()
        assert data[0] == 1
        at, size = described["offset"], described["sizeInBytes"]
        assert struct.unpack_from(">I", data, at) == (size,)
        body = data[at + 4 : at + 4 + size]
        assert struct.unpack_from(">I", data, at + 4 + size) == (zlib.crc32(body),)
        magic, count = struct.unpack_from("<IQ", body)
        assert magic == 1681511377
        assert count == 1
        assert struct.unpack_from("<I", body, 12) == (0,)
        rows = BitMap.deserialize(body[16:])
        assert len(rows) == described["cardinality"]
        return rows


def _check_statistics(stats: dict[str, Any], field: dict[str, Any], column: pa.ChunkedArray) -> None:
    name = field["metadata"].get("delta.columnMapping.physicalName", field["name"])
    if name in stats["nullCount"]:
        assert stats["nullCount"][name] == column.null_count, (name, stats)
    values = [_comparable(value) for value in column.to_pylist() if value is not None]
    if values and name in stats["minValues"]:
        assert stats["minValues"][name] <= min(values), (name, stats)
    if values and name in stats["maxValues"]:
        assert stats["maxValues"][name] >= max(values), (name, stats)


def _comparable(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if hasattr(value, "hour"):
        return value.isoformat(timespec="microseconds")
    return value.isoformat() if hasattr(value, "isoformat") else value


def arrow_type(kind: Any) -> pa.DataType:
    """Returns the Arrow type of a type of Delta."""
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            digits, scale = kind[8:-1].split(",")
            return pa.decimal128(int(digits), int(scale))
        return _TYPES[kind]
    if kind["type"] == "array":
        return pa.list_(arrow_type(kind["elementType"]))
    if kind["type"] == "map":
        return pa.map_(arrow_type(kind["keyType"]), arrow_type(kind["valueType"]))
    return pa.struct([(each["name"], arrow_type(each["type"])) for each in kind["fields"]])


def _from_z85(text: str) -> bytes:
    groups = [text[start : start + 5] for start in range(0, len(text), 5)]
    numbers = [sum(_Z85.index(digit) * 85 ** (4 - i) for i, digit in enumerate(group)) for group in groups]
    return b"".join(struct.pack(">I", number) for number in numbers)


def commits(root: Path) -> list[int]:
    """Returns the numbers of the commits of a log, ascending."""
    return sorted(int(path.stem) for path in (root / "_delta_log").glob("*.json") if path.stem.isdigit())


def open_delta(root: Path, version: int | None = None) -> DeltaTable:
    """Replays a log up to a version, the newest when None."""
    numbers = commits(root)
    assert numbers, "no commit"
    last = numbers[-1] if version is None else version
    found = DeltaTable(root, last, {}, {}, {}, {}, {})
    first = _from_checkpoint(found, numbers[0]) if numbers[0] else 0
    assert numbers[: last + 1 - numbers[0]] == list(range(numbers[0], last + 1))
    for number in range(first, last + 1):
        text = (root / "_delta_log" / f"{number:020}.json").read_text()
        actions = [json.loads(line) for line in text.splitlines()]
        _refuse_both(actions)
        for action in sorted(actions, key=lambda action: "remove" not in action):
            _apply(found, action)
    return found


def _from_checkpoint(found: DeltaTable, number: int) -> int:
    path = found.root / "_delta_log" / f"{number:020}.checkpoint.parquet"
    for action in _checkpoint_actions(path):
        _apply(found, action)
    return number + 1


def _checkpoint_actions(path: Path) -> Iterator[dict[str, Any]]:
    for row in pq.read_table(path).to_pylist():
        yield {
            kind: {
                name: dict(value) if name in _MAPS and isinstance(value, list) else value
                for name, value in action.items()
                if value is not None
            }
            for kind, action in row.items()
            if action is not None
        }


def checkpointed(root: Path, number: int) -> DeltaTable:
    """Returns the state of a checkpoint alone."""
    found = DeltaTable(root, number, {}, {}, {}, {}, {})
    _from_checkpoint(found, number)
    return found


def _refuse_both(actions: list[dict[str, Any]]) -> None:
    """One commit must not remove and add one file with one deletion vector: readers may keep either."""
    keys = [
        (kind, action[kind]["path"], json.dumps(action[kind].get("deletionVector"), sort_keys=True))
        for action in actions
        for kind in action
        if kind in ("add", "remove")
    ]
    assert len({key[1:] for key in keys}) == len(keys), keys


def _apply(found: DeltaTable, action: dict[str, Any]) -> None:
    if "add" in action:
        found.files[action["add"]["path"]] = action["add"]
    elif "remove" in action:
        del found.files[action["remove"]["path"]]
    elif "metaData" in action:
        found.metadata = action["metaData"]
    elif "protocol" in action:
        found.protocol = action["protocol"]
    elif "commitInfo" in action:
        found.info = action["commitInfo"]
    elif "txn" in action:
        found.apps[action["txn"]["appId"]] = action["txn"]["version"]
