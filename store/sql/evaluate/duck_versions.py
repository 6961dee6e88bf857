"""DuckDB from 1.4 on: the calls and settings that differ between its supported versions.

DuckDB 1.4 reads an object's Arrow stream once; only Arrow's own scanners may start another one. These
scanners read up to half a gigabyte ahead of a slow client. DuckDB 1.5.0 to 1.5.2 return no rows for
`ORDER BY .. NULLS FIRST LIMIT n` over such streams: the package's requirements exclude them.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import duckdb
import pyarrow as pa
import pyarrow.dataset

_READS_STREAMS_AGAIN: Final = hasattr(duckdb.DuckDBPyRelation, "to_arrow_reader")  # since 1.5
_DIVISION_SETTING: Final = "error_on_division_by_zero"  # since 2.0; before, a division by zero is NULL


class RepeatableRows(Protocol):
    """Rows that can be read again and again through Arrow's C stream interface."""

    def __arrow_c_schema__(self) -> Any: ...

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class _RepeatedScanner(pyarrow.dataset.Scanner):  # type: ignore[misc]  # pyarrow has no types
    """A scanner of Arrow in name, for DuckDB 1.4: each `to_reader` starts from the first row."""

    def __init__(self, rows: RepeatableRows) -> None:  # Arrow's own initializer refuses every call
        self._rows = rows

    @property
    def projected_schema(self) -> pa.Schema:
        return pa.schema(self._rows)

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_stream(self._rows)


def readable_source(rows: RepeatableRows) -> Any:
    """Returns the object to register, so that a statement may scan the rows more than once."""
    return rows if _READS_STREAMS_AGAIN else _RepeatedScanner(rows)


def arrow_reader(relation: duckdb.DuckDBPyRelation, batch_rows: int) -> pa.RecordBatchReader:
    """Starts a query and returns its answer in batches of `batch_rows` rows."""
    if _READS_STREAMS_AGAIN:
        return relation.to_arrow_reader(batch_rows)
    return relation.fetch_record_batch(batch_rows)


def null_for_division_by_zero(connection: duckdb.DuckDBPyConnection) -> None:
    """Makes a division by zero NULL, as in Doris, for all connections of a database."""
    known = "SELECT 1 FROM duckdb_settings() WHERE name = ?"
    if connection.execute(known, [_DIVISION_SETTING]).fetchone():
        connection.execute(f"SET GLOBAL {_DIVISION_SETTING} = false")
