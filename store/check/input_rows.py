"""Rows as callers hand them over, as Arrow tables of one load step each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.arrow_versions import batch_bytes

_CHUNK_ROWS: Final = 2_000_000
_CHUNK_BYTES: Final = 512 * 2**20
# Rows that are checked and staged at a time.
_PIECE_ROWS_MIN: Final = 2**17
_PIECE_ROWS_MAX: Final = 2**20


def tables_of(data: Any) -> Iterator[pa.Table]:
    """Yields the data as Arrow tables; at least one, so that the columns of no rows are seen too.

    Args:
        data: an Arrow table, batch or reader, or any object with the Arrow PyCapsule interface.

    Raises:
        InvalidInputError: something else.
    """
    if isinstance(data, pa.Table):
        yield data
    elif isinstance(data, pa.RecordBatch):
        yield pa.Table.from_batches([data])
    elif isinstance(data, pa.RecordBatchReader):
        yield from chunks_of(data)
    elif hasattr(data, "__arrow_c_stream__"):
        yield from chunks_of(pa.RecordBatchReader.from_stream(data))
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.Table.from_batches([pa.record_batch(data)])
    else:
        raise InvalidInputError(
            f"rows come as an Arrow table, batch or reader, or an object with the Arrow PyCapsule interface "
            f"(pandas, Polars, DuckDB); found {type(data).__name__}",
            kind="bad_data",
        )


def chunks_of(reader: pa.RecordBatchReader, rows_max: int = _CHUNK_ROWS) -> Iterator[pa.Table]:
    """Gathers a reader's batches into tables large enough for good segments, small enough for memory."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    is_first = True
    for batch in reader:
        gathered.append(batch)
        rows += batch.num_rows
        size += batch_bytes(batch)
        if rows >= rows_max or size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(gathered, schema=reader.schema)
            gathered, rows, size, is_first = [], 0, 0, False
    if gathered or is_first:
        yield pa.Table.from_batches(gathered, schema=reader.schema)


def pieces_of(data: pa.Table) -> list[pa.Table]:
    """Returns a table in pieces to be checked one by one; at least one, a small table is one piece.

    Large chunks stay as they are, for joining chunks costs new memory; small ones are joined.
    """
    if len(data) <= _PIECE_ROWS_MIN:
        return [data]
    pieces: list[pa.Table] = []
    start = rows = 0
    for batch in data.to_batches(max_chunksize=_PIECE_ROWS_MAX):
        if rows and rows + batch.num_rows > _PIECE_ROWS_MIN:
            pieces.append(data.slice(start, rows))
            start, rows = start + rows, 0
        rows += batch.num_rows
    return [*pieces, data.slice(start)]
