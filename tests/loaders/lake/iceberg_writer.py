"""Equality deletes of Iceberg, written with pyiceberg's own manifests: it has no call that writes them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

_numbers = itertools.count()


class _Writer(ManifestWriterV2):  # type: ignore[misc]
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_equal(table: Any, values: pa.Table, ids: Sequence[int], partition: Sequence[Any] = ()) -> None:
    """Commits a snapshot whose only new file deletes the rows that equal one of the values.

    Args:
        table: of a catalog of pyiceberg.
        values: columns named as those of the table.
        ids: field ids of the columns that count.
        partition: of the rows, for a table that has partitions.
    """
    fields = [
        pa.field(name, values.schema.field(name).type, metadata={"PARQUET:field_id": str(number)})
        for name, number in zip(values.column_names, ids, strict=True)
    ]
    root = Path(urlsplit(table.location()).path)
    path = root / "data" / f"equal-{next(_numbers)}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(values.cast(pa.schema(fields)), path)
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=len(values),
        file_size_in_bytes=path.stat().st_size,
        equality_ids=list(ids),
        spec_id=table.spec().spec_id,
    )
    with table.transaction() as transaction:
        _Snapshot(Operation.APPEND, transaction, table.io, file).commit()


class _Snapshot(_FastAppendFiles):  # type: ignore[misc]
    def __init__(self, operation: Operation, transaction: Any, io: Any, file: DataFile) -> None:
        super().__init__(operation, transaction, io)
        self._file = file

    def _manifests(self) -> list[Any]:
        metadata = self._transaction.table_metadata
        writer = _Writer(
            metadata.spec(), metadata.schema(), self.new_manifest_output(), self._snapshot_id, "null"
        )
        with writer:
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=self._file,
                )
            )
        return [writer.to_manifest_file(), *self._existing_manifests()]
