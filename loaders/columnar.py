"""Parquet, ORC and Arrow bodies.

Parquet and ORC keep their table of contents at the end, so the body is written to an unnamed temporary file
first; Arrow streams and files are read in their order, a file by way of the same temporary file. Columns
match by name (Q1), and have types of their own.

Row groups and stripes are read piece by piece, so the memory is that of some pages of each column, whatever
their size. A record batch of Arrow cannot be cut before it is read: it needs its whole memory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet

from seqstore.loaders.prefixed_body import PrefixedBody
from seqstore.loaders.source import BadRow, Place, SourceBatch, described_max
from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.format_value import format_value

_ROWS: Final = 64 * 1024
_COPY_BYTES: Final = 4 << 20
_BUFFER_BYTES: Final = 1 << 20  # of a column; without, all of its bytes in a row group are read at once
_ARROW_FILE: Final = b"ARROW1"


class ColumnarReader:
    """Reads one file; fields are its columns, or those of `names` when it has them.

    Args:
        body: the bytes of the file.
        file_format: `parquet`, `orc` or `arrow`.
    """

    def __init__(self, body: BinaryIO, file_format: str) -> None:
        self._body = body
        self._format = file_format
        self._file: Any = None
        self._opened: tuple[pa.Schema, Iterator[pa.RecordBatch]] | None = None

    @property
    def schema(self) -> pa.Schema:
        """Returns the file's columns.

        Raises:
            InvalidInputError: the body is no such file.
        """
        return self._open()[0]

    def batches(self) -> Iterator[SourceBatch]:
        """Reads to the end.

        Raises:
            InvalidInputError: the body is no such file, or breaks off.
        """
        _, batches = self._open()
        before = 0
        while (batch := self._next(batches)) is not None:
            if batch.num_rows:
                yield _sourced(batch, before)
            before += batch.num_rows

    def close(self) -> None:
        """Removes the temporary file."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        if self._opened is None:
            try:
                self._opened = {"parquet": self._parquet, "orc": self._orc, "arrow": self._arrow}[
                    self._format
                ]()
                _check_names(self._opened[0])
            except (pa.ArrowException, OSError, ValueError) as error:
                raise self._unreadable(error) from error
        return self._opened

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> InvalidInputError:
        is_name = isinstance(error, UnicodeDecodeError)  # values are looked at by their rows
        first = "the name of a column is not UTF-8" if is_name else str(error).split("\n")[0][:300]
        return InvalidInputError(f"the body cannot be read as {self._format}: {first}", kind="data_quality")

    def _spooled(self, head: bytes = b"") -> Any:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the reader
        self._file.write(head)
        shutil.copyfileobj(self._body, self._file, _COPY_BYTES)
        self._file.seek(0)
        return self._file

    def _parquet(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        file = pa.parquet.ParquetFile(self._spooled(), pre_buffer=False, buffer_size=_BUFFER_BYTES)
        return file.schema_arrow, file.iter_batches(batch_size=_ROWS)

    def _orc(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        file = pa.dataset.OrcFileFormat().make_fragment(self._spooled())  # ORCFile reads whole stripes
        scanner = file.scanner(batch_size=_ROWS, batch_readahead=1, fragment_readahead=0, use_threads=False)
        return file.physical_schema, scanner.to_batches()

    def _arrow(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        head = self._body.read(len(_ARROW_FILE))
        if head == _ARROW_FILE:
            file = pa.ipc.open_file(self._spooled(head))
            batches = (_checked(file.get_batch(i)) for i in range(file.num_record_batches))
            return file.schema, (piece for batch in batches for piece in _cut(batch))
        stream = pa.ipc.open_stream(pa.PythonFile(PrefixedBody(head, self._body), mode="r"))
        return stream.schema, (piece for batch in stream for piece in _cut(_checked(batch)))


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Checks that the buffers of a batch hold what its metadata declares.

    Arrow does not validate IPC buffers on read, and a read beyond one would end the process. Text that is no
    UTF-8 is left to the rows.
    """
    for column in batch.columns:
        if pa.types.is_string(column.type):
            column.view(pa.binary()).validate(full=True)
        elif pa.types.is_large_string(column.type):
            column.view(pa.large_binary()).validate(full=True)
        else:
            column.validate(full=True)
    return batch


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Checks that the names of columns and nested fields are text.

    Arrow accepts any bytes as a name and only decodes them on access.

    Raises:
        UnicodeDecodeError: one is no UTF-8.
    """
    for field in fields:
        _ = field.name
        if pa.types.is_nested(field.type):
            _check_names(field.type.field(i) for i in range(field.type.num_fields))


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, _ROWS):
        yield batch.slice(start, _ROWS)


def _sourced(batch: pa.RecordBatch, before: int) -> SourceBatch:
    """Returns the rows whose texts are UTF-8; others are bad (V10), and DuckDB could not bear them."""
    places = _places(before, batch)
    spoiled = _spoiled(batch)
    if not spoiled.any():
        return SourceBatch(pa.Table.from_batches([batch]), places)
    lost, kept = np.flatnonzero(spoiled), np.flatnonzero(~spoiled)
    described = places(lost[: described_max()].tolist())
    return SourceBatch(
        pa.Table.from_batches([batch.take(pa.array(kept))]),
        lambda rows: places(kept[list(rows)].tolist()),
        len(lost),
        [BadRow(place, "the row is not encoded in UTF-8") for place in described],
    )


def _spoiled(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    lost = np.zeros(batch.num_rows, dtype=np.bool_)
    for column in batch.columns:
        _mark_spoiled(column, lost)
    return lost


def _mark_spoiled(column: pa.Array, lost: npt.NDArray[np.bool_]) -> None:
    """Halves the column until only spoiled values are left: few rows cost little, whatever the others are."""
    if not len(column) or _is_utf8(column):
        return
    if pa.types.is_nested(column.type):  # of a slice of lists all that the whole has was looked at
        column = column.take(pa.array(np.arange(len(column))))
        if _is_utf8(column):
            return
    if len(column) == 1:
        lost[0] = True
        return
    half = len(column) // 2
    _mark_spoiled(column.slice(0, half), lost[:half])
    _mark_spoiled(column.slice(half), lost[half:])


def _is_utf8(column: pa.Array) -> bool:
    if not (_is_text(column.type) or pa.types.is_nested(column.type)):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        return "UTF8" not in str(error)
    return True


def _is_text(kind: pa.DataType) -> bool:
    return any(
        check(kind) for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def _places(before: int, batch: pa.RecordBatch) -> Any:
    def places(rows: Sequence[int]) -> list[Place]:
        return [Place(before + row + 1, _shown(batch.slice(row, 1))[:2000]) for row in rows]

    return places


def _shown(row: pa.RecordBatch) -> str:
    """Returns a row for the error log."""
    return str(
        {name: format_value(cell[0]) for name, cell in zip(row.schema.names, row.columns, strict=True)}
    )
