"""DuckDB from 1.4 on as the evaluator of queries: no files, network or settings, exact types on both sides.

LARGEINT is wider than any decimal that DuckDB reads, but has the 128 bits of DuckDB's HUGEINT. Its values
travel as `decimal128(38, 0)`, whatever their number of digits, and DuckDB reads them as HUGEINT.

DuckDB 1.4 reads an object's Arrow stream once; only Arrow's own scanners may start another one. These
scanners read up to half a gigabyte ahead of a slow client. DuckDB 1.5.0 to 1.5.2 return no rows for
`ORDER BY .. NULLS FIRST LIMIT n` over such streams: the package's requirements exclude them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from seqstore.store.errors import InvalidInputError, StoreError
from seqstore.store.runtime import memory_limit
from seqstore.store.runtime.call_room import RoomyIterator
from seqstore.store.runtime.cancellation import Cancellation, check, current, within
from seqstore.store.sql.evaluate.connections import Connection, common_bytes
from seqstore.store.sql.evaluate.duck_errors import translated
from seqstore.store.sql.translate.macros.catalog import reads_zone, zone_setting
from seqstore.store.sql.translate.value_types import fraction_digits, is_time
from seqstore.store.types.cast import try_cast
from seqstore.store.types.column_types import ColumnType
from seqstore.store.types.fraction_digits import with_fraction_digits

LARGEINT_ARROW: Final = pa.decimal256(39, 0)
TABLES_BYTES_MAX: Final = 128 << 20  # that the sources of a join may need beside the stored batches
_TABLES_SHARE: Final = 16  # that is at most this part of the memory of all queries
_ANSWER_ROWS: Final = 4_096  # of a batch: bounds the memory of an answer with wide rows
_CARRIER: Final = pa.decimal128(38, 0)
_TOO_WIDE: Final = (
    "holds a value of more than 38 digits; queries compute with at most 38, select such a column on its own"
)
_BEYOND_BIGINT: Final = "of the answer is beyond BIGINT; cast the operands to LARGEINT"


@dataclass
class Source:
    """Rows that DuckDB may read several times, each time from the start.

    Attributes:
        schema: of the batches that `open` reads, with the names under which DuckDB knows the columns.
        open: starts a new scan.
        owned_bytes: returns the memory of the batches read so far beyond that of the stored ones; None if
            each batch has its own.
        statement: that reads it. DuckDB reads on threads of its own, which know nothing of the statement.
        error: the error of a scan; DuckDB passes on only its text.
    """

    schema: pa.Schema
    open: Callable[[], pa.RecordBatchReader]
    owned_bytes: Callable[[], int] | None = None
    error: BaseException | None = field(default=None, init=False)
    statement: Cancellation | None = field(default=None, init=False)

    @property
    def largeint_columns(self) -> frozenset[str]:
        """The columns that must be read as HUGEINT."""
        return largeint_columns(self.schema)

    def __arrow_c_schema__(self) -> Any:
        return _carried_schema(self.schema).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        carried = _carried_schema(self.schema)
        batches = RoomyIterator(self._batches(carried))  # DuckDB's threads read it
        return pa.RecordBatchReader.from_batches(carried, batches).__arrow_c_stream__()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Reads all rows once, in the types in which DuckDB gets them."""
        return self._batches(_carried_schema(self.schema))

    def read(self, bytes_max: int) -> tuple[pa.Table, int] | None:
        """Reads all rows; returns them and their own memory, None where that would be more than allowed."""
        carried = _carried_schema(self.schema)
        own_bytes = self.owned_bytes if carried.equals(self.schema) else None
        batches, owned = [], 0
        for batch in self._batches(carried):
            batches.append(batch)
            owned = own_bytes() if own_bytes is not None else owned + batch.nbytes
            if owned > bytes_max:
                return None
        return pa.Table.from_batches(batches, carried), owned

    def _batches(self, carried: pa.Schema) -> Iterator[pa.RecordBatch]:
        reader: pa.RecordBatchReader | None = None
        try:
            while True:
                with within(self.statement):
                    check()
                    if reader is None:
                        reader = self.open()
                    batch = next(reader, None)
                if batch is None:
                    return
                yield _carried_batch(batch, carried)
        except BaseException as error:
            self.error = error
            raise
        finally:
            if reader is not None:
                reader.close()


def largeint_columns(schema: pa.Schema) -> frozenset[str]:
    """Returns the columns that must be read as HUGEINT."""
    return frozenset(column.name for column in schema if column.type.equals(LARGEINT_ARROW))


@dataclass(eq=False)
class _Work:
    """A statement of DuckDB, which ends when the statement of the session is cancelled."""

    connection: Connection
    cursor: duckdb.DuckDBPyConnection
    sources: dict[str, Source]
    statement: Cancellation | None

    def interrupt(self) -> None:
        with suppress(duckdb.ConnectionException):  # the cursor is being closed
            self.cursor.interrupt()

    def reason(self, error: BaseException) -> BaseException:
        """Returns the error to raise for one of DuckDB's. Copies of columns end where memory is missing."""
        if self.statement is not None and self.statement.error is not None:
            return self.statement.error
        found = translated(error, self.sources.values())
        copies = self.connection.copies
        is_short = isinstance(found, StoreError) and found.kind == memory_limit.OUT_OF_MEMORY
        if copies is not None and is_short:
            copies.relieve()
        return found

    def close(self) -> None:
        if self.statement is not None:
            self.statement.remove(self.interrupt)
        self.cursor.close()


def run(
    connection: Connection,
    sql: str,
    sources: dict[str, Source],
    *,
    has_largeint: bool,
    zone: str,
    kinds: Sequence[str | None] = (),
    needs_counts: bool = False,
    begin: Callable[[duckdb.DuckDBPyConnection], None] = lambda _: None,
) -> tuple[pa.RecordBatchReader, Callable[[], None]]:
    """Starts a rendered statement. In a server the caller waits for room before (`memory_limit`).

    Args:
        sources: by the name under which the statement reads them, in the schema `temp.main`.
        kinds: the types of the answer's columns, for the fraction digits of DATETIME; none if not known.
        has_largeint: LARGEINT values take part, so sums stay LARGEINT; other sums are BIGINT, or overflow.
        zone: the session's time zone, into which texts with an offset are converted (Y13).
        needs_counts: DuckDB's plan depends on the numbers of rows of the sources.
        begin: begins what the statement reads of DuckDB's own tables.

    Returns:
        The answer, and a function that ends the statement.

    Raises:
        InvalidInputError: DuckDB refuses the statement or a value; its message, without the rendered text.
    """
    work = _Work(connection, connection.cursor(), sources, current())
    try:
        relation = _planned(sql, work, zone, begin, needs_counts=needs_counts)
        wide = [str(kind) == "HUGEINT" for kind in relation.types]
        read = relation.to_arrow_reader if _READS_STREAMS_AGAIN else relation.fetch_record_batch
        reader = read(_ANSWER_ROWS)
    except BaseException as error:
        work.close()
        raise work.reason(error) from error
    schema = _answer_schema(reader.schema, wide, kinds, has_largeint=has_largeint)
    return pa.RecordBatchReader.from_batches(schema, _answers(reader, schema, work)), work.close


def _answers(reader: pa.RecordBatchReader, schema: pa.Schema, work: _Work) -> Iterator[pa.RecordBatch]:
    """Yields the answer's batches in their exact types, as long as the statement may continue."""
    try:
        for batch in reader:
            if work.statement is not None and work.statement.error is not None:
                raise work.statement.error
            yield _answer_batch(batch, schema)
    except BaseException as error:
        if isinstance(error, GeneratorExit):
            raise
        raise work.reason(error) from error
    finally:
        reader.close()


def _planned(
    sql: str,
    work: _Work,
    zone: str,
    begin: Callable[[duckdb.DuckDBPyConnection], None],
    *,
    needs_counts: bool,
) -> duckdb.DuckDBPyRelation:
    """Returns the plan of a statement that its cancellation ends, over its registered sources."""
    if work.statement is not None:
        work.statement.add(work.interrupt)
    for source in work.sources.values():
        source.statement = work.statement
    work.connection.create_macros(sql)
    if reads_zone(sql):
        work.cursor.execute(zone_setting(zone))
    begin(work.cursor)  # behind the macros, which the transaction would not see
    for name, rows in _registered(work.sources, needs_counts=needs_counts).items():
        work.cursor.register(name, rows)
    return work.cursor.sql(sql)


def _registered(sources: dict[str, Source], *, needs_counts: bool) -> dict[str, Any]:
    """Returns the objects that DuckDB reads for the sources of a statement.

    DuckDB orders joins by the number of rows of each side. It knows that of a table, and of no stream. So the
    sources of a join are read before it, in place as far as they are stored so. If they need too much memory
    all of them are streams: beside tables, the largest source would seem the smallest. The first rows of an
    order need the number, too: DuckDB sorts all rows if they seem to be fewer than the limit.
    """
    if _COUNTS_ROWS and needs_counts:
        tables: dict[str, Any] = {}
        left = min(TABLES_BYTES_MAX, (common_bytes() or TABLES_BYTES_MAX * _TABLES_SHARE) // _TABLES_SHARE)
        for name, source in sources.items():
            found = source.read(left)
            if found is None:
                break
            tables[name] = found[0]
            left -= found[1]
        else:
            return tables
    if _READS_STREAMS_AGAIN:
        return dict(sources)
    return {name: _RepeatedScanner(source) for name, source in sources.items()}


def _carried_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(column.name, _carried_type(column.type), True) for column in schema])


def _carried_type(kind: pa.DataType) -> pa.DataType:
    if kind.equals(LARGEINT_ARROW):
        return _CARRIER
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal256(kind) and kind.scale <= 38 else kind


def _carried_batch(batch: pa.RecordBatch, carried: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for column, wanted in zip(batch.columns, carried, strict=True):
        if column.type.equals(LARGEINT_ARROW):
            arrays.append(_low_half(column))
        elif column.type.equals(wanted.type):
            arrays.append(column)
        else:
            arrays.append(_cast(column, wanted, "too_wide", _TOO_WIDE))
    return pa.RecordBatch.from_arrays(arrays, schema=carried)


def _low_half(array: pa.Array) -> pa.Array:
    """Extracts the lower 128 of the 256 bits of each value; a LARGEINT has no others."""
    words = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 4)
    lower = np.ascontiguousarray(words[array.offset : array.offset + len(array), :2])
    validity = None
    if array.null_count:
        bits = np.packbits(pc.is_valid(array).to_numpy(zero_copy_only=False), bitorder="little")
        validity = pa.py_buffer(bits.tobytes())
    return pa.Array.from_buffers(_CARRIER, len(array), [validity, pa.py_buffer(lower)])


def _answer_schema(
    schema: pa.Schema, wide: Sequence[bool], kinds: Sequence[str | None], *, has_largeint: bool
) -> pa.Schema:
    fields = []
    if len(kinds) != len(wide):  # `*` hid the columns, or showed hidden ones
        kinds = [None] * len(wide)
    for column, is_wide, declared in zip(schema, wide, kinds, strict=True):
        kind = column.type
        if is_wide:
            kind = LARGEINT_ARROW if has_largeint else pa.int64()
        elif isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_timestamp(kind):
            kind = pa.timestamp("us")
        field = pa.field(column.name, kind)
        if declared is not None and pa.types.is_timestamp(kind) and is_time(declared):
            field = with_fraction_digits(field, fraction_digits(declared))
        fields.append(field)
    return pa.schema(fields)


def _answer_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns a batch in its exact types; dates and times outside of the years 0 to 9999 become NULL."""
    arrays = []
    for column, wanted in zip(batch.columns, schema, strict=True):
        array = column.storage if isinstance(column, pa.ExtensionArray) else column
        if not array.type.equals(wanted.type):
            array = _cast(array, wanted, "overflow", _BEYOND_BIGINT)
        kind = _TIMES.get(wanted.type)
        arrays.append(array if kind is None else try_cast(array, kind).values)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, wanted: pa.Field, kind: str, message: str) -> pa.Array:
    try:
        return array.cast(wanted.type)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"column {wanted.name!r} {message}", kind=kind) from error


# Computed dates and times may be beyond the range of the type.
_TIMES: Final = {pa.date32(): ColumnType("DATE"), pa.timestamp("us"): ColumnType("DATETIME", (6,))}
_READS_STREAMS_AGAIN: Final = hasattr(duckdb.DuckDBPyRelation, "to_arrow_reader")  # since 1.5
_COUNTS_ROWS: Final = int(duckdb.__version__.partition(".")[0]) >= 2  # of Arrow tables, for its plans


class _RepeatedScanner(pyarrow.dataset.Scanner):  # type: ignore[misc]  # pyarrow has no types
    """A scanner of Arrow in name, for DuckDB 1.4: each `to_reader` starts from the first row."""

    def __init__(self, rows: Source) -> None:  # Arrow's own initializer refuses every call
        self._rows = rows

    @property
    def projected_schema(self) -> pa.Schema:
        return pa.schema(self._rows)

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_stream(self._rows)
