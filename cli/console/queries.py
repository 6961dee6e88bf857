"""Statements of the console: their rows as texts, and files of all rows of a query."""

from __future__ import annotations

import csv
import io
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from seqstore.cli.clients.audit_log import Event
from seqstore.cli.console.value_texts import texts
from seqstore.store import InvalidInputError
from seqstore.store.sql import Session
from seqstore.store.sql.parse.statement_values import Query

ROWS_MAX: Final = 10_000
STATEMENTS_MAX: Final = 50
FILE_BYTES_MAX: Final = 1 << 30
_TEXT_BYTES_MAX: Final = 16 << 20
_NULL: Final = "\\N"  # as stream load reads it


def run(session: Session, event: Event, statements: Sequence[Any], rows_max: int) -> list[dict[str, Any]]:
    """Runs statements in order; returns the outcome of each, with at most so many rows.

    Raises:
        StoreError: of a statement; those before it have run.
    """
    if not statements or len(statements) > STATEMENTS_MAX:
        raise InvalidInputError(
            f"expected 1 to {STATEMENTS_MAX} statements, found {len(statements)}", kind="bad_request"
        )
    return [_run(session, event, statement, rows_max) for statement in statements]


def _run(session: Session, event: Event, statement: Any, rows_max: int) -> dict[str, Any]:
    begun = time.monotonic()
    if isinstance(statement, Query):
        with session.stream(statement, is_answer=True) as reader:
            found = _rows(reader.schema, reader, rows_max)
    else:
        result = session.run(statement)
        event.rows_written += result.affected_rows
        found = {"affected": result.affected_rows, "info": result.info, "warnings": list(result.warnings)}
        if result.rows is not None:
            found |= _rows(result.rows.schema, result.rows.to_batches(), rows_max)
    event.rows_read += len(found.get("rows", ()))
    found["milliseconds"] = round((time.monotonic() - begun) * 1000)
    return found


def _rows(schema: pa.Schema, batches: Any, rows_max: int) -> dict[str, Any]:
    """Returns the first rows, fewer of them where they are long."""
    rows: list[list[str | None]] = []
    size, is_cut = 0, False
    for batch in batches:
        part = pa.table(batch) if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        columns = [texts(column) for column in part.slice(0, rows_max - len(rows) + 1).columns]
        for row in zip(*columns, strict=True):
            if len(rows) == rows_max or size > _TEXT_BYTES_MAX:
                is_cut = True
                break
            size += sum(len(value) for value in row if value is not None)
            rows.append(list(row))
        if is_cut:
            break
    described = [{"name": field.name, "type": _kind(field.type), "sql": str(field.type)} for field in schema]
    return {"columns": described, "rows": rows, "is_cut": is_cut}


def _kind(arrow: pa.DataType) -> str:
    """Returns how the grid and the chart treat a type."""
    if pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow):
        return "number"
    return "time" if pa.types.is_timestamp(arrow) or pa.types.is_date(arrow) else "text"


def file_of(session: Session, event: Event, statements: Sequence[Any], form: str) -> IO[bytes]:
    """Runs one query and writes all of its rows to a file without a name; returns it at its start.

    Raises:
        InvalidInputError: it is no single query, the form is another one, or the file is too large.
    """
    if len(statements) != 1 or not isinstance(statements[0], Query):
        raise InvalidInputError("a download needs exactly one query", kind="bad_request")
    file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - the caller sends and closes it
    try:
        with session.stream(statements[0], is_answer=True) as reader:
            if form == "parquet":
                _write_parquet(file, reader, event)
            else:
                _write_csv(file, reader, event)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


def _write_parquet(file: IO[bytes], reader: pa.RecordBatchReader, event: Event) -> None:
    names = [field.name for field in reader.schema]
    if len(set(names)) != len(names):
        raise InvalidInputError(
            f"Parquet needs different column names, found {names}; name them by AS", kind="bad_request"
        )
    with pq.ParquetWriter(file, reader.schema) as writer:
        _write(reader, event, file, writer.write_batch)


def _write_csv(file: IO[bytes], reader: pa.RecordBatchReader, event: Event) -> None:
    def write(batch: pa.RecordBatch) -> None:
        text = io.StringIO()
        columns = [texts(column, None) for column in pa.Table.from_batches([batch]).columns]
        marked = [[_NULL if value is None else value for value in column] for column in columns]
        csv.writer(text, lineterminator="\n").writerows(zip(*marked, strict=True))
        file.write(text.getvalue().encode())

    heading = io.StringIO()
    csv.writer(heading, lineterminator="\n").writerow([field.name for field in reader.schema])
    file.write(heading.getvalue().encode())
    _write(reader, event, file, write)


def _write(
    reader: pa.RecordBatchReader, event: Event, file: IO[bytes], write: Callable[[pa.RecordBatch], object]
) -> None:
    for batch in reader:
        write(batch)
        event.rows_read += batch.num_rows
        if file.tell() > FILE_BYTES_MAX:
            raise InvalidInputError(
                f"the file is larger than {FILE_BYTES_MAX >> 30} GiB; read so many rows by Arrow Flight SQL, "
                "Spark or INTO OUTFILE of a client",
                kind="too_large",
            )
