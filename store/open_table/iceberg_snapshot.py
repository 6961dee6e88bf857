"""One snapshot of an Iceberg table: its hidden rows, its manifests and their list."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from seqstore.store.open_table.appearance import Appearance, OpenFile
from seqstore.store.open_table.iceberg_bounds import column_metrics
from seqstore.store.open_table.iceberg_deletes import position_deletes, puffin
from seqstore.store.open_table.iceberg_files import MetadataFiles
from seqstore.store.open_table.iceberg_manifest import ADDED, DELETED, EXISTING, Entry, ManifestWriter
from seqstore.store.open_table.iceberg_metadata import VERSION
from seqstore.store.open_table.iceberg_state import Deletes, ShownFile, SnapshotFiles

_METRICS: Final = ("lower_bounds", "upper_bounds", "value_counts", "null_value_counts")


@dataclass
class KnownFile:
    """What does not change about a data file from one snapshot to the next.

    Attributes:
        metrics: of its columns.
        described: its description in a manifest as a file that exists already, None before the first.
    """

    metrics: Mapping[str, Any]
    described: bytes | None = None


class SnapshotWriter:
    """Writes the files of one snapshot, up to the list of its manifests.

    Args:
        metadata: of the appearance, without the snapshot.
        before: the files of the snapshot before, none where the history begins.
        known: data files by path, to which new files are added.
    """

    def __init__(
        self,
        files: MetadataFiles,
        appearance: Appearance,
        metadata: dict[str, Any],
        before: SnapshotFiles,
        known: dict[str, KnownFile],
    ) -> None:
        self._files = files
        self._appearance = appearance
        self._metadata = metadata
        self._before = before
        self._known = known
        self._version: int = metadata["format-version"]
        self._sequence: int = metadata["last-sequence-number"]
        self._snapshot = appearance.version
        self._name = f"{self._sequence}-{appearance.version}"
        self._writer = ManifestWriter(self._version, files.location, self._snapshot, self._sequence)

    def write(self) -> tuple[SnapshotFiles, dict[str, Any]]:
        """Writes the files, which `sync` makes durable.

        Returns:
            The state after them, and the snapshot as metadata name it.
        """
        first_row = self._metadata.get("next-row-id", 0)
        state = self._next_state(first_row)
        data, deletes = self._data_entries(state), self._delete_entries(state)
        schema = next(
            each
            for each in self._metadata["schemas"]
            if each["schema-id"] == self._metadata["current-schema-id"]
        )
        manifests = []
        for kind, entries, start in (("data", data, first_row), ("deletes", deletes, None)):
            if entries:
                made = self._writer.manifest(f"metadata/{kind}-{self._name}.avro", entries, schema, start)
                self._files.put(f"{kind}-{self._name}.avro", made.data)
                manifests.append(made)
        parent = self._metadata["snapshots"][-1]["snapshot-id"] if self._metadata["snapshots"] else None
        self._files.put(
            f"snap-{self._name}.avro", self._writer.manifest_list(manifests, parent, state.to_bytes())
        )
        return state, self._described(state, data, deletes, parent)

    def _next_state(self, first_row: int) -> SnapshotFiles:
        state = SnapshotFiles()
        for file in self._appearance.files:
            old = self._before.files.get(file.path)
            if old is None:
                old = ShownFile(
                    file.path, file.segment.meta.id, file.rows, file.bytes, first_row, self._sequence,
                    self._snapshot, None,
                )  # fmt: skip
                first_row += file.rows
            state.files[file.path] = old
        self._hide(state)
        return state

    def _hide(self, state: SnapshotFiles) -> None:
        """Writes the hidden rows that differ from those of the snapshot before."""
        segments = {file.path: file.segment.meta.id for file in self._appearance.files}
        stale = {
            name
            for name, packed in self._before.packed.items()
            if any(segments.get(path, segment) != segment for path, segment in packed.items())
        }
        fresh = []
        for file in self._appearance.files:
            old = state.files[file.path]
            deletes = old.deletes
            is_same = deletes is not None and old.segment == file.segment.meta.id
            if is_same and deletes.rows == len(file.hidden) and deletes.name not in stale:  # type: ignore[union-attr]
                continue
            state.files[file.path] = old.with_deletes(None, file.segment.meta.id)
            if file.hidden:
                fresh.append(file)
        if self._version > 2:
            self._put_vectors(state, fresh)
        else:
            self._put_positions(state, fresh)
        used = state.delete_files()
        state.packed |= {name: packed for name, packed in self._before.packed.items() if name in used}

    def _put_vectors(self, state: SnapshotFiles, fresh: list[OpenFile]) -> None:
        if not fresh:
            return
        name = f"deletes-{self._name}.puffin"
        data, places = puffin([(f"{self._files.location}/{file.path}", file.hidden) for file in fresh])
        self._files.put(name, data)
        for file, (offset, length) in zip(fresh, places, strict=True):
            deletes = Deletes(
                name, len(data), offset, length, len(file.hidden), self._sequence, self._snapshot
            )
            state.files[file.path] = state.files[file.path].with_deletes(deletes, file.segment.meta.id)
        state.packed[name] = {file.path: file.segment.meta.id for file in fresh}

    def _put_positions(self, state: SnapshotFiles, fresh: list[OpenFile]) -> None:
        for number, file in enumerate(fresh):
            name = f"deletes-{self._name}-{number}.parquet"
            data = position_deletes(f"{self._files.location}/{file.path}", file.hidden)
            self._files.put(name, data)
            deletes = Deletes(name, len(data), 0, 0, len(file.hidden), self._sequence, self._snapshot)
            state.files[file.path] = state.files[file.path].with_deletes(deletes, file.segment.meta.id)

    def _data_entries(self, state: SnapshotFiles) -> list[Entry]:
        """Returns the entries of data files, new ones last: they count their rows from the list's id."""
        entries = []
        for file in self._appearance.files:
            shown = state.files[file.path]
            is_new = shown.sequence == self._sequence
            known = self._known.get(file.path)
            if known is None:
                known = self._known[file.path] = KnownFile(column_metrics(file.segment))
            if is_new:
                described = self._writer.data_file(shown, known.metrics, is_new=True)
            elif known.described is None:
                described = known.described = self._writer.data_file(shown, known.metrics, is_new=False)
            else:
                described = known.described
            status = ADDED if is_new else EXISTING
            entries.append(Entry(status, shown.sequence, shown.snapshot, described, shown.rows))
        entries.sort(key=lambda entry: entry.status)
        gone = [each for path, each in self._before.files.items() if path not in state.files]
        for shown in gone:
            described = self._writer.data_file(shown, dict.fromkeys(_METRICS), is_new=False)
            entries.append(Entry(DELETED, shown.sequence, self._snapshot, described, shown.rows))
        return entries

    def _delete_entries(self, state: SnapshotFiles) -> list[Entry]:
        entries = []
        for path, shown in state.files.items():
            if shown.deletes is not None:
                status = ADDED if shown.deletes.sequence == self._sequence else EXISTING
                entries.append(self._delete_entry(path, shown.deletes, status, shown.deletes.snapshot))
        for path, shown in self._before.files.items():
            now = state.files.get(path)
            if shown.deletes is not None and (now is None or now.deletes != shown.deletes):
                entries.append(self._delete_entry(path, shown.deletes, DELETED, self._snapshot))
        return entries

    def _delete_entry(self, path: str, deletes: Deletes, status: int, snapshot: int) -> Entry:
        described = self._writer.delete_file(deletes, path)
        return Entry(status, deletes.sequence, snapshot, described, deletes.rows)

    def _described(
        self, state: SnapshotFiles, data: list[Entry], deletes: list[Entry], parent: int | None
    ) -> dict[str, Any]:
        added = sum(entry.rows for entry in data if entry.status == ADDED)
        found = {
            "snapshot-id": self._snapshot,
            "sequence-number": self._sequence,
            "timestamp-ms": self._metadata["last-updated-ms"],
            "manifest-list": f"{self._files.location}/metadata/snap-{self._name}.avro",
            "summary": self._summary(state, data, deletes),
            "schema-id": self._metadata["current-schema-id"],
        }
        if parent is not None:
            found["parent-snapshot-id"] = parent
        if self._version > 2:
            found |= {"first-row-id": self._metadata["next-row-id"], "added-rows": added}
            self._metadata["next-row-id"] += added
        return found

    def _summary(self, state: SnapshotFiles, data: list[Entry], deletes: list[Entry]) -> dict[str, str]:
        records = [record for _, record in self._appearance.commits]
        counts = {
            "added-data-files": sum(entry.status == ADDED for entry in data),
            "deleted-data-files": sum(entry.status == DELETED for entry in data),
            "added-records": sum(entry.rows for entry in data if entry.status == ADDED),
            "deleted-records": sum(entry.rows for entry in data if entry.status == DELETED),
            "total-data-files": len(state.files),
            "total-delete-files": sum(each.deletes is not None for each in state.files.values()),
            "total-records": sum(each.rows for each in state.files.values()),
            "total-position-deletes": sum(each.deletes.rows for each in state.files.values() if each.deletes),
        }
        return {
            "operation": self._operation(data, deletes),
            **{name: str(value) for name, value in counts.items()},
            VERSION: str(self._appearance.version),
            "seqstore.operation": ", ".join(dict.fromkeys(each.operation for each in records)) or "OPEN",
            "seqstore.labels": json.dumps([each.label for each in records if each.label]),
            **{f"seqstore.{name}": str(value) for name, value in self._appearance.metrics().items()},
        }

    def _operation(self, data: list[Entry], deletes: list[Entry]) -> str:
        if not self._appearance.has_data_change:
            return "replace"
        adds = any(entry.status == ADDED for entry in data)
        removes = any(entry.status == DELETED for entry in data) or any(
            entry.status != EXISTING for entry in deletes
        )
        if adds or not removes:
            return "overwrite" if removes else "append"
        return "delete"
