"""A version of a table as an Iceberg table beside it: the output of REORG ... APPLY (UPGRADE UNIFORM(...)).

Under `iceberg/<table>` of the data directory:

    data/v<version>-<n>-<token>.parquet       the live rows, about a million a file
    metadata/v<version>-files.avro            the manifest: every data file with its counts and bounds
    metadata/v<version>-manifests.avro        the manifest list: that one manifest
    metadata/v<version>.metadata.json         schema, snapshot, location
    metadata/version-hint.text                the newest version

1. Rows are read through an ordinary scan, so hidden rows, renamed and added columns need no special case;
   Iceberg's field ids are the ids of our columns.
2. Each file is durable before the next names it; the hint is written last, and renamed into place. Readers
   find one version or the other.
3. Files that neither this version nor the one before needs are then removed: readers of the version before
   may finish.

The Iceberg table has its own files: compaction and vacuum of this store do not touch it, and its rows need
their own space. The package pyiceberg describes the data files and writes the manifests; its transactions are
not used, because they choose file names and snapshot ids themselves, and step 3 goes by both.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata

from seqstore.store.errors import InvalidInputError
from seqstore.store.iceberg.iceberg_version import IcebergVersion
from seqstore.store.read.scan_task import ScanTask
from seqstore.store.schema.column import Column
from seqstore.store.schema.field_ids import nested_ids, numbered_type, with_id
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.disk import Disk
from seqstore.store.types.column_types import ColumnType

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

_FORMAT_VERSION: Final = 2
_COMPRESSION: Final = "zstd"
_DECIMAL_DIGITS_MAX: Final = 38
_OF_VERSION: Final = re.compile(r"v(\d+)[-.].*")
_NESTED: Final = ("ARRAY", "MAP", "STRUCT")


def check_types(schema: TableSchema, compatibility: int) -> None:
    """Checks that Iceberg has a type for every column.

    Raises:
        InvalidInputError: names the column.
    """
    for column in schema.columns:
        found = _unknown_type(column.type, compatibility)
        if found is not None:
            raise InvalidInputError(
                f"column {column.name!r} is {column.type.sql}: {found}; drop the column or change its type",
                kind="not_supported",
            )


def _unknown_type(kind: ColumnType, compatibility: int) -> str | None:
    if kind.name == "LARGEINT" or (kind.name == "DECIMAL" and kind.params[0] > _DECIMAL_DIGITS_MAX):
        return f"Iceberg's numbers have at most {_DECIMAL_DIGITS_MAX} digits"
    if kind.name in _NESTED and compatibility == 1:
        return "ICEBERG_COMPAT_VERSION = 1 has no nested types, 2 has"
    return next((why for child in kind.children if (why := _unknown_type(child, compatibility))), None)


def write_iceberg(table: VersionedTable, directory: str) -> IcebergVersion:
    """Writes the newest version of a table.

    Args:
        directory: of the Iceberg table, below the data directory.

    Raises:
        UnavailableError: no space, no permission.
    """
    disk = Disk(table.catalog.path.parent)
    with _alone(disk, table.id), table.snapshot() as snapshot:
        writer = _Writer(disk, directory, snapshot.schema, snapshot.version)
        tasks = table.scan_tasks(version=snapshot.version)
        files = [writer.write_rows(number, task) for number, task in enumerate(tasks)]
        return writer.finish([file for file in files if file is not None])


@contextmanager
def _alone(disk: Disk, table: int) -> Iterator[None]:
    """Locks a table's Iceberg directory against other writers; the system releases the lock after a crash."""
    directory = disk.path("locks")
    directory.mkdir(exist_ok=True)
    with (directory / f"iceberg-{table}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Writer:
    """Writes one version below one directory."""

    def __init__(self, disk: Disk, directory: str, schema: TableSchema, version: int) -> None:
        self._disk = disk
        self._directory = directory
        self._version = version
        self._arrow = pa.schema([_field(column) for column in schema.columns])
        self._metadata = _metadata(_location(disk.path(directory)), _iceberg_schema(schema, self._arrow))
        self._io = PyArrowFileIO()
        self._token = secrets.token_hex(4)
        for part in ("data", "metadata"):
            disk.path(f"{directory}/{part}").mkdir(parents=True, exist_ok=True)

    def write_rows(self, number: int, task: ScanTask) -> DataFile | None:
        """Writes the rows of a task as a data file; returns None when there are none."""
        name = f"{self._directory}/data/v{self._version}-{number}-{self._token}.parquet"
        rows = 0
        with (
            self._disk.create(name) as file,
            # Iceberg wants decimals of up to 18 digits as integers; before 0.11 pyiceberg insists on it.
            pq.ParquetWriter(
                file, self._arrow, compression=_COMPRESSION, store_decimal_as_integer=True
            ) as writer,
        ):
            for batch in task.read():
                rows += batch.num_rows
                writer.write_table(pa.Table.from_batches([batch]).cast(self._arrow))
        if not rows:
            self._disk.delete(name)
            return None
        return self._data_file(_location(self._disk.path(name)))

    def _data_file(self, location: str) -> DataFile:
        """Returns the counts and bounds of a data file. Times before the year 1 have none: Python has no such
        dates.
        """
        try:
            return self._described(location, self._metadata.properties)
        except OverflowError:
            times = [f.name for f in self._arrow if pa.types.is_date(f.type) or pa.types.is_timestamp(f.type)]
            only_counted = {f"write.metadata.metrics.column.{name}": "counts" for name in times}
            return self._described(location, only_counted)

    def _described(self, location: str, properties: dict[str, str]) -> DataFile:
        """Describes a data file; before 0.11 pyiceberg's own call for it refuses files with field ids."""
        file, schema = self._io.new_input(location), self._metadata.schema()
        with file.open() as stream:
            footer = pq.read_metadata(stream)
        statistics = data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=compute_statistics_plan(schema, properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=statistics.partition(self._metadata.spec(), schema),
            file_size_in_bytes=len(file),
            spec_id=self._metadata.default_spec_id,
            **statistics.to_serialized_dict(),
        )

    def finish(self, files: list[DataFile]) -> IcebergVersion:
        """Writes the metadata of the data files, and makes it the version that readers find."""
        self._disk.sync_directory(f"{self._directory}/data")
        metadata = self._with_snapshot(self._write_manifests(files))
        text = metadata.model_dump_json(by_alias=True, exclude_none=True)
        name = f"{self._directory}/metadata/v{self._version}.metadata.json"
        self._put(name, text.encode())
        hint = f"{self._directory}/metadata/version-hint.text"
        kept = {self._version}
        with suppress(FileNotFoundError):
            kept.add(int(self._disk.path(hint).read_text()))
        self._put(hint, str(self._version).encode())
        self._remove_all_but(kept)
        return IcebergVersion(
            self._version,
            self._disk.path(name),
            len(files),
            sum(file.record_count for file in files),
            sum(file.file_size_in_bytes for file in files),
        )

    def _write_manifests(self, files: list[DataFile]) -> Path:
        """Writes the manifest and the list of it, which is empty when there is no row."""
        listed = []
        if files:
            path = self._path("files.avro")
            with write_manifest(
                _FORMAT_VERSION,
                UNPARTITIONED_PARTITION_SPEC,
                self._metadata.schema(),
                self._io.new_output(_location(path)),
                self._version,
                "deflate",
            ) as manifest:
                for file in files:
                    manifest.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file))
            listed.append(manifest.to_manifest_file())
            self._sync(path)
        path = self._path("manifests.avro")
        output = self._io.new_output(_location(path))
        with write_manifest_list(
            _FORMAT_VERSION, output, self._version, None, self._version, "deflate"
        ) as manifests:
            manifests.add_manifests(listed)
        self._sync(path)
        return path

    def _with_snapshot(self, manifests: Path) -> TableMetadata:
        """Returns the metadata with the version as the only snapshot."""
        snapshot = Snapshot(
            snapshot_id=self._version,
            sequence_number=self._version,
            manifest_list=_location(manifests),
            summary=Summary(Operation.OVERWRITE),
            schema_id=self._metadata.current_schema_id,
        )
        current = SetSnapshotRefUpdate(
            ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id
        )
        return update_table_metadata(self._metadata, (AddSnapshotUpdate(snapshot=snapshot), current))

    def _path(self, name: str) -> Path:
        return self._disk.path(f"{self._directory}/metadata/v{self._version}-{self._token}-{name}")

    def _put(self, name: str, data: bytes) -> None:
        """Writes a small file atomically, and replaces an existing one."""
        with self._disk.create(f"{name}.{self._token}") as file:
            file.write(data)
        os.replace(self._disk.path(f"{name}.{self._token}"), self._disk.path(name))
        self._disk.sync_directory(f"{self._directory}/metadata")

    def _sync(self, path: Path) -> None:
        self._disk.sync_file(str(path.relative_to(self._disk.root)))

    def _remove_all_but(self, versions: set[int]) -> None:
        for part in ("data", "metadata"):
            for name in self._disk.list(f"{self._directory}/{part}"):
                found = _OF_VERSION.fullmatch(name)
                is_other_try = f"v{self._version}-" in name and self._token not in name
                if found is not None and (int(found[1]) not in versions or is_other_try):
                    self._disk.delete(f"{self._directory}/{part}/{name}")


def _location(path: Path) -> str:
    return f"file://{path.absolute()}"


def _metadata(location: str, schema: Schema) -> TableMetadata:
    """Returns the metadata of a table without rows.

    pyiceberg's own `new_table_metadata` would assign new column ids.
    """
    return TableMetadataV2(
        location=location,
        table_uuid=uuid.uuid5(uuid.NAMESPACE_URL, location),
        last_column_id=schema.highest_field_id,
        schemas=[schema],
        current_schema_id=schema.schema_id,
        partition_specs=[UNPARTITIONED_PARTITION_SPEC],
        default_spec_id=UNPARTITIONED_PARTITION_SPEC.spec_id,
        last_partition_id=UNPARTITIONED_PARTITION_SPEC.last_assigned_field_id,
        sort_orders=[UNSORTED_SORT_ORDER],
        default_sort_order_id=UNSORTED_SORT_ORDER.order_id,
    )


def _field(column: Column) -> pa.Field:
    kind = numbered_type(column.type, nested_ids(column), _exported)
    return with_id(column.name, kind, column.id, column.nullable)


def _exported(kind: ColumnType) -> pa.DataType:
    """Returns the Arrow type of a plain column in a data file: Iceberg has no integers below 32 bits."""
    return pa.int32() if kind.name in ("TINYINT", "SMALLINT") else kind.arrow


def _iceberg_schema(schema: TableSchema, arrow: pa.Schema) -> Schema:
    """Builds the Iceberg schema; it has the key if none of its columns may be NULL, as Iceberg requires."""
    fields = pyarrow_to_schema(arrow).fields
    key = [schema.column(name) for name in schema.unique_key]
    ids = [] if any(column.nullable for column in key) else [column.id for column in key]
    return Schema(*fields, schema_id=0, identifier_field_ids=ids)
