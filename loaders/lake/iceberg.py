"""Tables of Iceberg on a local disk: pyiceberg reads metadata and manifests, this module the rows.

Position deletes (files of positions of format version 2, deletion vectors of 3) and equality deletes are
applied. What is refused by name: files that are not Parquet or have no field ids, and columns whose values
are only in the metadata (defaults of version 3, identity partitions of migrated tables).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from seqstore.loaders.lake.equality_deletes import EqualityDelete, EqualityDeletes
from seqstore.loaders.lake.field import LakeField
from seqstore.loaders.lake.file_rows import NONE_HIDDEN, FileRows, Positions
from seqstore.loaders.lake.iceberg_deletes import DeleteFile, applying
from seqstore.loaders.lake.iceberg_schema import iceberg_fields
from seqstore.loaders.lake.places import Places
from seqstore.loaders.lake.puffin import deleted_rows
from seqstore.loaders.lake.source import LakeTable
from seqstore.store.errors import (
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnavailableError,
    VersionExpiredError,
)
from seqstore.store.schema.column import Column

_METADATA: Final = "metadata"
_HINT: Final = "version-hint.text"
_NUMBERED: Final = re.compile(r"v?(\d+)(-[^.]*)?(\.gz)?\.metadata\.json(\.gz)?")
_BAD: Final = "bad_iceberg"
_PARQUET: Final = "PARQUET"
_PUFFIN: Final = "PUFFIN"


def open_iceberg(path: str, places: Places, snapshot: int | None, zone: str) -> LakeTable:
    """Opens a table at a snapshot, the current one when None.

    Args:
        path: of the table's directory, or of a metadata file.

    Raises:
        NotFoundError, VersionExpiredError: there is no such table, file or snapshot.
        AccessDeniedError: a file is not below an allowed directory.
        InvalidInputError: the table cannot be read as it is.
        UnavailableError: the package pyiceberg is not installed.
    """
    _require_package()
    file = _metadata_file(path, places)
    try:
        scan, metadata, io = _scan(file, snapshot)
        found = scan.snapshot()
        fields = iceberg_fields(scan.projection())
        rows = _Rows(places, fields, zone, _needed(metadata, fields, scan.projection()))
        tasks = rows.plan(scan, found, io) if found is not None else []
    except StoreError:
        raise
    except (
        Exception
    ) as error:  # of pyiceberg, pydantic and the decoders of foreign bytes: they share no class
        first = str(error).split("\n")[0][:300]
        raise InvalidInputError(f"{file}: the Iceberg table cannot be read: {first}", kind=_BAD) from error
    return LakeTable(
        str(metadata.table_uuid),
        found.snapshot_id if found is not None else 0,
        [Column(field.name, field.type, nullable=field.nullable) for field in fields],
        lambda: rows.batches(tasks),
        metadata.properties.get("comment", ""),
    )


def _require_package() -> None:
    if find_spec("pyiceberg") is None:
        raise UnavailableError(
            "tables of Iceberg are read by the package 'pyiceberg', which is not installed; "
            "pip install 'seqstore[iceberg]'",
            kind="missing_package",
        )


def _scan(file: str, snapshot: int | None) -> tuple[Any, Any, Any]:
    """Returns a scan of a snapshot, the metadata of its table, and what reads files for pyiceberg."""
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    io = PyArrowFileIO()  # not the class that the metadata may name
    metadata = FromInputFile.table_metadata(io.new_input(file))
    known = [each.snapshot_id for each in metadata.snapshots]
    if snapshot is not None and snapshot not in known:
        raise VersionExpiredError(
            f"{file}: the Iceberg table has no snapshot {snapshot}; it has {known[-5:]}",
            kind="version_expired",
        )
    table = StaticTable(("import", "import"), metadata, file, io, None)
    return table.scan(snapshot_id=snapshot), metadata, io


def _metadata_file(path: str, places: Places) -> str:
    """Returns the metadata file: the one named, that of the hint, or the newest of a directory."""
    if path.endswith((".metadata.json", ".metadata.json.gz")):
        return places.file(path)
    root = places.directory(path)
    folder = os.path.join(root, _METADATA)
    if not os.path.isdir(folder):
        raise NotFoundError(
            f"{root}: no Iceberg table; expected a directory {_METADATA} in it", kind="no_files"
        )
    names = os.listdir(places.directory(folder))
    numbered = {name: int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))}
    if _HINT in names:
        with open(places.file(os.path.join(folder, _HINT)), encoding="utf-8") as file:
            hint = file.read(100).strip()
        named = [
            name for name in (hint, f"v{hint}.metadata.json", f"v{hint}.gz.metadata.json") if name in names
        ]
        numbered = dict.fromkeys(named, 0) or numbered
    if not numbered:
        raise NotFoundError(f"{folder}: no Iceberg table; no file *.metadata.json", kind="no_files")
    return places.file(os.path.join(folder, max(numbered, key=lambda name: numbered[name])))


def _needed(metadata: Any, fields: Sequence[LakeField], schema: Any) -> dict[str, str]:
    """Returns the columns that no file may lack, with the reason: their values would be in the metadata."""
    found = {}
    identity = {
        each.source_id
        for spec in metadata.partition_specs
        for each in spec.fields
        if str(each.transform) == "identity"
    }
    for field in fields:
        if field.number in identity:
            found[field.name] = (
                f"lacks column {field.name}, whose value is that of the partition; files of migrated tables "
                "are not imported: rewrite them first"
            )
        elif getattr(schema.find_field(field.number), "initial_default", None) is not None:
            found[field.name] = (
                f"lacks column {field.name}, whose default is in the metadata; rewrite the file first"
            )
    return found


@dataclass(frozen=True)
class _Task:
    """A data file and the files with its deletes, `DataFile` values of pyiceberg, with their local paths.

    Attributes:
        equal: files of values by which its rows are deleted.
    """

    path: str
    name: str
    deletes: tuple[tuple[str, Any], ...]
    equal: tuple[EqualityDelete, ...] = ()


class _Rows:
    """The rows of one snapshot."""

    def __init__(
        self, places: Places, fields: Sequence[LakeField], zone: str, needed: dict[str, str]
    ) -> None:
        self._places = places
        self._files = FileRows(fields, zone, _BAD)
        self._equality = EqualityDeletes(fields, zone, _BAD)
        self._needed = needed

    def plan(self, scan: Any, snapshot: Any, io: Any) -> list[_Task]:
        """Returns the files of a snapshot; all of them are below the allowed directories.

        Raises:
            InvalidInputError: a file is not Parquet, or deletes by a column that the table does not have.
        """
        from pyiceberg.manifest import DataFileContent, ManifestContent

        self._path(snapshot.manifest_list)
        manifests = snapshot.manifests(io)
        entries: list[tuple[Any, Any]] = []
        for manifest in manifests:
            self._path(manifest.manifest_path)
            if manifest.content == ManifestContent.DELETES:
                entries += [(manifest, entry) for entry in manifest.fetch_manifest_entry(io)]
        if not any(entry.data_file.content == DataFileContent.EQUALITY_DELETES for _, entry in entries):
            return [self._task(each.file, each.delete_files) for each in scan.plan_files()]
        deletes = [DeleteFile.of(manifest, entry) for manifest, entry in entries]
        tasks = []
        for manifest in manifests:
            if manifest.content == ManifestContent.DATA:
                for entry in manifest.fetch_manifest_entry(io):
                    found = applying(deletes, manifest, entry)
                    equal = [each.file for each in found if each.is_equality]
                    others = [each.file for each in found if not each.is_equality]
                    tasks.append(self._task(entry.data_file, others, equal))
        return tasks

    def _equal(self, file: Any) -> EqualityDelete:
        delete = EqualityDelete(self._path(file.file_path), tuple(file.equality_ids or ()))
        self._equality.check(delete)
        return delete

    def _task(self, data: Any, delete_files: Iterable[Any], equal: Iterable[Any] = ()) -> _Task:
        delete_files, equal = list(delete_files), list(equal)
        for file in (data, *delete_files, *equal):
            kind = _kind(file)
            if kind not in (_PARQUET, _PUFFIN) or (
                kind != _PARQUET and not any(file is each for each in delete_files)
            ):
                raise InvalidInputError(
                    f"{file.file_path}: the file is {kind}; tables of Parquet files are imported",
                    kind="not_supported",
                )
        deletes = tuple((self._path(each.file_path), each) for each in delete_files)
        return _Task(
            self._path(data.file_path), data.file_path, deletes, tuple(self._equal(each) for each in equal)
        )

    def _path(self, location: str) -> str:
        """Returns the local path that pyiceberg opens for a location, where that may be read."""
        from pyiceberg.io.pyarrow import PyArrowFileIO

        scheme, _, path = PyArrowFileIO.parse_location(location)
        return self._places.file(path if scheme == "file" else location)

    def batches(self, tasks: Sequence[_Task]) -> Iterator[pa.RecordBatch]:
        """Yields the live rows of the files."""
        for task in tasks:
            for batch in self._files.batches(task.path, _hidden(task), {}, self._needed):
                yield self._equality.live(batch, task.equal) if task.equal else batch


def _kind(file: Any) -> str:
    """Returns the format of a `DataFile`, which older pyiceberg has as text."""
    return str(getattr(file.file_format, "value", file.file_format)).upper()


def _hidden(task: _Task) -> Positions:
    """Returns the deleted rows of a file, ascending."""
    parts = []
    for path, file in task.deletes:
        if _kind(file) == _PUFFIN:
            parts.append(deleted_rows(path, task.name))
        else:
            found = ds.dataset(path, format="parquet").to_table(
                columns=["pos"], filter=pc.field("file_path") == task.name
            )
            parts.append(found.column("pos").to_numpy().astype(np.uint32))
    return np.unique(np.concatenate(parts)) if parts else NONE_HIDDEN
