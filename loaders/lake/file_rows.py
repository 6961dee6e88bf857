"""The live rows of one Parquet file of a table of another format, batch by batch.

A column is found by its field id or by its name in files; one that a file lacks is NULL. Files may have
narrower types than the table. Hidden rows are left out by their place in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from seqstore.loaders.lake.conform import conformed
from seqstore.loaders.lake.field import LakeField
from seqstore.store.errors import InvalidInputError

Positions = npt.NDArray[np.uint32]
NONE_HIDDEN: Final[Positions] = np.empty(0, np.uint32)
_ROWS: Final = 64 * 1024
_BUFFER_BYTES: Final = 1 << 20
_FIELD_ID: Final = b"PARQUET:field_id"


class FileRows:
    """Reads the files of one table.

    Args:
        fields: the columns to read.
        zone: to which times with a zone are converted: a name, or an offset such as `+02:00`.
        kind: of errors of files, a stable word.
    """

    def __init__(self, fields: Sequence[LakeField], zone: str, kind: str) -> None:
        self._fields = fields
        self._zone = zone
        self._kind = kind

    def batches(
        self,
        path: str,
        hidden: Positions,
        constants: Mapping[str, pa.Scalar],
        needed: Mapping[str, str],
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a file.

        Args:
            hidden: the places of rows to leave out, ascending.
            constants: values of columns that the file need not have, by column.
            needed: columns that the file must have, with the reason.

        Raises:
            InvalidInputError: the file is damaged, or lacks what it must have.
        """
        try:
            yield from self._batches(path, hidden, constants, needed)
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, InvalidInputError):
                raise
            first = str(error).split("\n")[0][:300]
            raise InvalidInputError(f"{path}: cannot be read: {first}", kind=self._kind) from error

    def _batches(
        self, path: str, hidden: Positions, constants: Mapping[str, pa.Scalar], needed: Mapping[str, str]
    ) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(
            path,
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        ) as file:
            rows = file.metadata.num_rows
            if len(hidden) and int(hidden[-1]) >= rows:
                raise InvalidInputError(
                    f"{path}: its deletion vector names row {hidden[-1]} of {rows}", kind=self._kind
                )
            names = self._names(path, file.schema_arrow, constants)
            for field, name in zip(self._fields, names, strict=True):
                if name is None and field.name in needed and field.name not in constants:
                    raise InvalidInputError(f"{path}: {needed[field.name]}", kind="not_supported")
            start = 0
            wanted = [name for name in names if name is not None]
            for batch in file.iter_batches(batch_size=_ROWS, columns=wanted):
                columns = [
                    self._column(batch, field, name, constants)
                    for field, name in zip(self._fields, names, strict=True)
                ]
                live = _live(hidden, start, batch.num_rows)
                start += batch.num_rows
                found = pa.record_batch(columns, names=[field.name for field in self._fields])
                yield found if live is None else found.filter(pa.array(live))

    def _names(self, path: str, schema: pa.Schema, constants: Mapping[str, pa.Scalar]) -> list[str | None]:
        """Returns each column's name in a file, None for one that the file lacks."""
        by_id = {
            int(field.metadata[_FIELD_ID]): field.name
            for field in schema
            if field.metadata and _FIELD_ID in field.metadata
        }
        stored = [field for field in self._fields if field.name not in constants]
        if any(field.number is not None for field in stored) and not by_id and len(schema):
            raise InvalidInputError(
                f"{path}: its columns have no field ids, by which the table finds them", kind=self._kind
            )
        names = set(schema.names)
        found: list[str | None] = []
        for field in self._fields:
            if field.name in constants:
                found.append(None)
            elif field.number is not None:
                found.append(by_id.get(field.number))
            else:
                found.append(field.stored_name if field.stored_name in names else None)
        return found

    def _column(
        self, batch: pa.RecordBatch, field: LakeField, name: str | None, constants: Mapping[str, pa.Scalar]
    ) -> pa.Array:
        if field.name in constants:
            return pa.repeat(constants[field.name], batch.num_rows)
        if name is None:
            return pa.nulls(batch.num_rows, field.type.arrow)
        return conformed(batch.column(name), field, self._zone)


def _live(hidden: Positions, start: int, count: int) -> npt.NDArray[np.bool_] | None:
    """Returns which rows of a batch are not hidden, None for all."""
    first, last = np.searchsorted(hidden, [start, start + count])
    if first == last:
        return None
    live = np.ones(count, dtype=np.bool_)
    live[hidden[first:last].astype(np.int64) - start] = False
    return live
