"""Manifests and manifest lists of Iceberg: the Avro files that name the files of a snapshot.

A snapshot has one manifest of data files and one of hidden rows, each complete, and a list of the two. Files
of the snapshot before it are EXISTING entries, and files that left with it are DELETED ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seqstore.store.open_table.avro import container, encoder
from seqstore.store.open_table.iceberg_deletes import PATH_ID
from seqstore.store.open_table.iceberg_state import Deletes, ShownFile

EXISTING: Final = 0
ADDED: Final = 1
DELETED: Final = 2
STATE: Final = "seqstore.files"
_DATA: Final = 0
_DELETES: Final = 1


def _field(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": number}


def _optional(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {**_field(number, name, ["null", kind]), "default": None}


def _map(key: int, value: int, kind: str) -> dict[str, Any]:
    fields = [_field(key, "key", "int"), _field(value, "value", kind)]
    items = {"type": "record", "name": f"k{key}_v{value}", "fields": fields}
    return {"type": "array", "logicalType": "map", "items": items}


def _array(element: int, kind: str) -> dict[str, Any]:
    return {"type": "array", "items": kind, "element-id": element}


_DATA_FILE: Final = [
    _field(134, "content", "int"),
    _field(100, "file_path", "string"),
    _field(101, "file_format", "string"),
    _field(102, "partition", {"type": "record", "name": "r102", "fields": []}),
    _field(103, "record_count", "long"),
    _field(104, "file_size_in_bytes", "long"),
    _optional(108, "column_sizes", _map(117, 118, "long")),
    _optional(109, "value_counts", _map(119, 120, "long")),
    _optional(110, "null_value_counts", _map(121, 122, "long")),
    _optional(137, "nan_value_counts", _map(138, 139, "long")),
    _optional(125, "lower_bounds", _map(126, 127, "bytes")),
    _optional(128, "upper_bounds", _map(129, 130, "bytes")),
    _optional(131, "key_metadata", "bytes"),
    _optional(132, "split_offsets", _array(133, "long")),
    _optional(135, "equality_ids", _array(136, "int")),
    _optional(140, "sort_order_id", "int"),
]
_SINCE_3: Final = [
    _optional(142, "first_row_id", "long"),
    _optional(143, "referenced_data_file", "string"),
    _optional(144, "content_offset", "long"),
    _optional(145, "content_size_in_bytes", "long"),
]
_FILES: Final = {
    number: {"type": "record", "name": "r2", "fields": fields}
    for number, fields in ((2, [*_DATA_FILE, _SINCE_3[1]]), (3, [*_DATA_FILE, *_SINCE_3]))
}
_START_FIELDS: Final = [
    _field(0, "status", "int"),
    _optional(1, "snapshot_id", "long"),
    _optional(3, "sequence_number", "long"),
    _optional(4, "file_sequence_number", "long"),
]
_LIST_FIELDS: Final = [
    _field(500, "manifest_path", "string"),
    _field(501, "manifest_length", "long"),
    _field(502, "partition_spec_id", "int"),
    _field(517, "content", "int"),
    _field(515, "sequence_number", "long"),
    _field(516, "min_sequence_number", "long"),
    _field(503, "added_snapshot_id", "long"),
    _field(504, "added_files_count", "int"),
    _field(505, "existing_files_count", "int"),
    _field(506, "deleted_files_count", "int"),
    _field(512, "added_rows_count", "long"),
    _field(513, "existing_rows_count", "long"),
    _field(514, "deleted_rows_count", "long"),
    _optional(519, "key_metadata", "bytes"),
]
_LISTS: Final = {
    2: {"type": "record", "name": "manifest_file", "fields": _LIST_FIELDS},
    3: {
        "type": "record",
        "name": "manifest_file",
        "fields": [*_LIST_FIELDS, _optional(520, "first_row_id", "long")],
    },
}
_ENCODE_START: Final = encoder({"type": "record", "name": "start", "fields": _START_FIELDS})
_ENCODE_FILE: Final = {number: encoder(schema) for number, schema in _FILES.items()}
_ENCODE_LINE: Final = {number: encoder(schema) for number, schema in _LISTS.items()}


@dataclass(frozen=True)
class Entry:
    """An entry of a manifest.

    Attributes:
        status: EXISTING, ADDED or DELETED.
        sequence: of the snapshot that added the file.
        snapshot: the one that added it, or that deleted it.
        file: the encoded description of the file.
        rows: how many the file has.
    """

    status: int
    sequence: int
    snapshot: int
    file: bytes
    rows: int

    def start(self) -> dict[str, int]:
        """Returns the fields before the description of the file."""
        numbers = {"sequence_number": self.sequence, "file_sequence_number": self.sequence}
        return {"status": self.status, "snapshot_id": self.snapshot, **numbers}


@dataclass(frozen=True)
class Manifest:
    """A manifest that is to be named by a list: its bytes, and its line there."""

    data: bytes
    line: dict[str, Any]


class ManifestWriter:
    """Makes the manifests of one snapshot.

    Args:
        version: of Iceberg's format, 2 or 3.
        location: of the table.
        snapshot, sequence: the numbers of the snapshot.
    """

    def __init__(self, version: int, location: str, snapshot: int, sequence: int) -> None:
        self._version = version
        self._location = location
        self._snapshot = snapshot
        self._sequence = sequence

    def data_file(self, file: ShownFile, metrics: Mapping[str, Any], *, is_new: bool) -> bytes:
        """Returns the description of a data file. The id of a new one's first row follows from the list."""
        known = {name: value or None for name, value in metrics.items()}
        return self._described(
            content=_DATA,
            file_path=f"{self._location}/{file.path}",
            file_format="PARQUET",
            record_count=file.rows,
            file_size_in_bytes=file.bytes,
            first_row_id=None if is_new else file.first_row,
            **known,
        )

    def delete_file(self, deletes: Deletes, path: str) -> bytes:
        """Returns the description of the hidden rows of a data file."""
        location = f"{self._location}/{path}"
        bound = {PATH_ID: location.encode()}
        is_vector = deletes.name.endswith(".puffin")
        return self._described(
            content=_DELETES,
            file_path=f"{self._location}/metadata/{deletes.name}",
            file_format="PUFFIN" if is_vector else "PARQUET",
            record_count=deletes.rows,
            file_size_in_bytes=deletes.bytes,
            lower_bounds=bound,
            upper_bounds=bound,
            referenced_data_file=location,
            content_offset=deletes.offset if is_vector else None,
            content_size_in_bytes=deletes.length if is_vector else None,
        )

    def _described(self, **values: Any) -> bytes:
        return _ENCODE_FILE[self._version]({"partition": {}, **values})

    def manifest(
        self, path: str, entries: Sequence[Entry], schema: Mapping[str, Any], first_row: int | None
    ) -> Manifest:
        """Returns a manifest.

        Args:
            path: its name below the directory of the table.
            first_row: the id of the first row of its new data files, None for hidden rows.
        """
        content = _DELETES if first_row is None else _DATA
        head = {
            "schema": json.dumps(schema),
            "schema-id": str(schema["schema-id"]),
            "partition-spec": "[]",
            "partition-spec-id": "0",
            "format-version": str(self._version),
            "content": "deletes" if content else "data",
        }
        whole: dict[str, Any] = {"type": "record", "name": "manifest_entry"}
        whole["fields"] = [*_START_FIELDS, _field(2, "data_file", _FILES[self._version])]
        rows = [_ENCODE_START(each.start()) + each.file for each in entries]
        data = container(whole, {name: value.encode() for name, value in head.items()}, rows)
        return Manifest(data, self._line(path, len(data), content, entries, first_row))

    def _line(
        self, path: str, size: int, content: int, entries: Sequence[Entry], first_row: int | None
    ) -> dict[str, Any]:
        line: dict[str, Any] = {
            "manifest_path": f"{self._location}/{path}",
            "manifest_length": size,
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": self._sequence,
            "min_sequence_number": min(
                (each.sequence for each in entries if each.status != DELETED), default=self._sequence
            ),
            "added_snapshot_id": self._snapshot,
            "first_row_id": first_row,
        }
        for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
            chosen = [each.rows for each in entries if each.status == status]
            line |= {f"{name}_files_count": len(chosen), f"{name}_rows_count": sum(chosen)}
        return line

    def manifest_list(self, manifests: Sequence[Manifest], parent: int | None, state: bytes) -> bytes:
        """Returns the list of the manifests of the snapshot."""
        head = {
            "snapshot-id": str(self._snapshot),
            "parent-snapshot-id": "null" if parent is None else str(parent),
            "sequence-number": str(self._sequence),
            "format-version": str(self._version),
        }
        encoded = {name: value.encode() for name, value in head.items()}
        lines = [_ENCODE_LINE[self._version](each.line) for each in manifests]
        return container(_LISTS[self._version], {**encoded, STATE: state}, lines)
