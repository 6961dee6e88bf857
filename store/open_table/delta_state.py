"""The state of a Delta log: what its commits, replayed in order, amount to; and its form as a checkpoint."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from seqstore.store.errors import CorruptionError
from seqstore.store.runtime.arrow_versions import python_rows

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
_CHECKPOINT: Final = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
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
                    ("tags", _STRINGS),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()),
                    ("partitionValues", _STRINGS),
                    ("size", pa.int64()),
                    ("deletionVector", _VECTOR),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _STRINGS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _STRINGS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
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
            "domainMetadata",
            pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
        ),
    ]
)

_NAMES: Final = {
    "add": ("path",),
    "remove": ("path",),
    "txn": ("appId",),
    "domainMetadata": ("domain", "configuration"),
}


@dataclass
class LogState:
    """The state after a commit.

    Attributes:
        number: of the commit, -1 before the first.
        files: `add` actions by path.
        metadata, protocol: the last action of each kind.
        apps: `txn` actions by application id.
        domains: `domainMetadata` actions by domain.
    """

    number: int = -1
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    apps: dict[str, dict[str, Any]] = field(default_factory=dict)
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)

    def apply(self, number: int, actions: Iterable[Mapping[str, Any]]) -> None:
        """Replays the actions of the next commit.

        Raises:
            ValueError: one of them lacks its name; the state is as before.
        """
        actions = list(actions)
        for action in actions:
            _check(action)
        for action in actions:  # a file may be removed and added again, with another deletion vector
            if "remove" in action:
                self.files.pop(action["remove"]["path"], None)
        for action in actions:
            self._apply(action)
        self.number = number

    def _apply(self, action: Mapping[str, Any]) -> None:
        if "add" in action:
            self.files[action["add"]["path"]] = action["add"]
        elif "metaData" in action:
            self.metadata = action["metaData"]
        elif "protocol" in action:
            self.protocol = action["protocol"]
        elif "txn" in action:
            self.apps[action["txn"]["appId"]] = action["txn"]
        elif "domainMetadata" in action:
            self.domains[action["domainMetadata"]["domain"]] = action["domainMetadata"]

    def actions(self) -> list[dict[str, Any]]:
        """Returns the actions that make the state from nothing."""
        return [
            {"protocol": self.protocol},
            {"metaData": self.metadata},
            *({"txn": each} for each in self.apps.values()),
            *({"domainMetadata": each} for each in self.domains.values()),
            *({"add": {**each, "dataChange": False}} for each in self.files.values()),
        ]

    def checkpoint(self) -> tuple[bytes, int]:
        """Returns the bytes of a checkpoint, and the number of its actions."""
        actions = self.actions()
        file = io.BytesIO()
        with pq.ParquetWriter(file, _CHECKPOINT, compression="snappy", write_page_checksum=True) as writer:
            writer.write_table(pa.Table.from_pylist([_as_row(each) for each in actions], _CHECKPOINT))
        return file.getvalue(), len(actions)

    @classmethod
    def from_checkpoint(cls, path: str, number: int) -> LogState:
        """Reads a checkpoint of this program.

        Raises:
            CorruptionError: the file is damaged.
        """
        state = cls()
        try:
            rows = python_rows(pq.read_table(path, page_checksum_verification=True))
            state.apply(
                number,
                [{kind: _plain(value) for kind, value in row.items() if value is not None} for row in rows],
            )
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise CorruptionError(f"{path}: the checkpoint cannot be read: {error}", path=path) from error
        return state


def _check(action: Mapping[str, Any]) -> None:
    """Raises ValueError when an action lacks the fields by which it is found."""
    for kind, names in _NAMES.items():
        value = action.get(kind)
        if value is None:
            continue
        if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in names):
            raise ValueError(f"an action {kind} lacks one of {', '.join(names)}")


def _as_row(action: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an action as Arrow takes it: maps are lists of pairs."""
    return {kind: _paired(value) for kind, value in action.items()}


def _paired(value: Mapping[str, Any]) -> dict[str, Any]:
    maps = ("partitionValues", "tags", "configuration", "options")
    return {
        name: list(each.items())
        if name in maps and isinstance(each, dict)
        else (_paired(each) if isinstance(each, dict) else each)
        for name, each in value.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    return value
