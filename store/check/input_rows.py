"""Rows as callers hand them over, as Arrow tables of one load step each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.arrow_versions import batch_bytes

_CHUNK_ROWS: Final = 2_000_000
_CHUNK_BYTES: Final = 512 * 2**20


def tables_of(data: Any) -> Iterable[pa.Table]:
    """Returns the data as Arrow tables; at least one, so that the columns of no rows are seen too.

    Args:
        data: an Arrow table, batch or reader, or any object with the Arrow PyCapsule interface.

    Raises:
        InvalidInputError: something else.
    """
    if isinstance(data, pa.Table):
        return [data]
    if isinstance(data, pa.RecordBatch):
        return [pa.Table.from_batches([data])]
    if isinstance(data, pa.RecordBatchReader):
        return chunks_of(data)
    if hasattr(data, "__arrow_c_stream__"):
        return chunks_of(pa.RecordBatchReader.from_stream(data))
    if hasattr(data, "__arrow_c_array__"):
        return [pa.Table.from_batches([pa.record_batch(data)])]
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
