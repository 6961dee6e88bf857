"""DuckDB as the evaluator of queries: no files, network or settings, and exact types on both sides.

LARGEINT is wider than any decimal DuckDB reads, but its 128 bits are what DuckDB's HUGEINT is made of: the
values travel as `decimal128(38, 0)` whatever their number of digits, and are read as HUGEINT at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError, StoreError, UnavailableError
from seqstore.store.runtime.forks import new_lock
from seqstore.store.sql.evaluate.duck_versions import arrow_reader, null_for_division_by_zero, readable_source
from seqstore.store.sql.translate.macros import INTERNAL, macro_statements

LARGEINT_ARROW: Final = pa.decimal256(39, 0)
OVERLOADS: Final = "overloads"  # kind of the error for a macro of which no body could be chosen
_ANSWER_ROWS: Final = 4_096  # of a batch: what an answer holds in memory, however wide its rows
_CARRIER: Final = pa.decimal128(38, 0)
_CONFIG: Final = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
}
_lock: Final = new_lock()
# What DuckDB adds behind its message: the rendered statement, which the user did not write.
_ECHO: Final = re.compile(r"\n+(LINE \d+:|Candidate |Did you mean).*", re.DOTALL)
_INTERNAL: Final = re.compile(r"\b(INTERNAL|FATAL) Error: ")
_ENDED: Final = re.compile(r"\bFATAL Error: .*database has been invalidated")
_PREFIX: Final = re.compile(r"^[A-Z][A-Za-z ]* Error: ")
_UNKNOWN_COLUMN: Final = re.compile(
    r"(?:Referenced column|Column) \"(.*?)\" (?:(?:was )?not found|referenced that exists)"
)
_UNTAKEN: Final = re.compile(r"Macro d_(\w+)\(\) does not support the supplied arguments")
_SOURCE_NAME: Final = re.compile(r"(temp\.main\.)?\"?__source_\d+\"?\.?")


@dataclass
class _Databases:
    """The database of each process, and how many an internal error has ended."""

    of_process: dict[int, duckdb.DuckDBPyConnection] = field(default_factory=dict)
    ended: int = 0


_databases: Final = _Databases()


def connect() -> duckdb.DuckDBPyConnection:
    """A connection that evaluates and can do nothing else; its configuration is locked.

    All of a process share one empty database, for making its macros takes longer than most queries; what a
    connection registers it alone sees. An internal error of DuckDB ends it for all who use it; the next to
    connect gets another.
    """
    with _lock:
        database = _databases.of_process.get(os.getpid())  # its threads do not survive a fork
        if database is None:
            database = _databases.of_process[os.getpid()] = _new_database()
        return database.cursor()


def databases_ended() -> int:
    """How many databases internal errors have ended: connections that were made before are of no use."""
    return _databases.ended


def _forget_ended() -> None:
    """Another database for the next to connect, if that of this process answers no more."""
    with _lock:
        database = _databases.of_process.get(os.getpid())
        if database is None:
            return
        try:
            database.cursor().execute("SELECT 1")
        except duckdb.Error:
            del _databases.of_process[os.getpid()]
            _databases.ended += 1


def _new_database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=dict(_CONFIG))
    null_for_division_by_zero(connection)
    connection.execute(";".join(macro_statements()))
    connection.execute("SET lock_configuration = true")
    return connection


@dataclass
class Source:
    """Rows for DuckDB to read, as often as it likes, each time from the start.

    Attributes:
        schema: of the batches that `open` gives.
        open: starts a new scan.
        error: what a scan raised; DuckDB passes on only its text.
    """

    schema: pa.Schema
    open: Callable[[], pa.RecordBatchReader]
    error: BaseException | None = field(default=None, init=False)

    @property
    def largeint_columns(self) -> list[str]:
        """Columns that must be read as HUGEINT."""
        return [column.name for column in self.schema if column.type.equals(LARGEINT_ARROW)]

    def __arrow_c_schema__(self) -> Any:
        return _carried_schema(self.schema).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        carried = _carried_schema(self.schema)
        return pa.RecordBatchReader.from_batches(carried, self._batches(carried)).__arrow_c_stream__()

    def _batches(self, carried: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            with self.open() as reader:
                for batch in reader:
                    yield _carried_batch(batch, carried)
        except BaseException as error:
            self.error = error
            raise


def run(
    connection: duckdb.DuckDBPyConnection, sql: str, sources: dict[str, Source], *, has_largeint: bool
) -> tuple[pa.RecordBatchReader, Callable[[], None]]:
    """Starts a rendered statement.

    Args:
        sources: by the name under which the statement reads them, in the schema `temp.main`.
        has_largeint: LARGEINT values take part; sums stay LARGEINT then, else they are BIGINT as far as they
            fit.

    Returns:
        The answer, and a function that ends the statement.

    Raises:
        InvalidInputError: DuckDB does not take the statement or a value; its words, without the rendered
            text.
    """
    cursor = connection.cursor()
    try:
        for name, source in sources.items():
            cursor.register(name, readable_source(source))
        relation = cursor.sql(sql)
        wide = [str(kind) == "HUGEINT" for kind in relation.types]
        reader = arrow_reader(relation, _ANSWER_ROWS)
    except BaseException as error:
        cursor.close()
        raise translated(error, sources.values()) from error
    schema = _answer_schema(reader.schema, wide, has_largeint=has_largeint)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                yield _answer_batch(batch, schema)
        except BaseException as error:
            if isinstance(error, GeneratorExit):
                raise
            raise translated(error, sources.values()) from error
        finally:
            reader.close()

    return pa.RecordBatchReader.from_batches(schema, batches()), cursor.close


def translated(error: BaseException, sources: Any = ()) -> BaseException:
    """The error to raise for one that came out of DuckDB: what a scan raised goes first."""
    for source in sources:
        if isinstance(source.error, StoreError):
            return source.error
    if isinstance(error, StoreError) or not isinstance(
        error, (duckdb.Error, pa.ArrowException, RuntimeError)
    ):
        return error
    text = str(error)
    if "INTERRUPT" in text.upper()[:60]:
        return KeyboardInterrupt()
    if _INTERNAL.search(text[:200]):
        _forget_ended()
    if _ENDED.search(text[:200]):
        return UnavailableError(
            "the query was ended by an internal error of DuckDB that another one met; run it again",
            kind="engine",
        )
    message = _SOURCE_NAME.sub("", _PREFIX.sub("", _ECHO.sub("", text).strip()).split("\n")[0]).strip()
    unknown = _UNKNOWN_COLUMN.search(text)
    if unknown is not None:
        return InvalidInputError(
            f"unknown column {unknown[1]!r} in the query", kind="unknown_column", column=unknown[1]
        )
    called = _UNTAKEN.search(message)
    if called is not None:
        what = "an operator or date function" if called[1] in INTERNAL else f"function {called[1]!r}"
        return InvalidInputError(
            f"{what} does not take arguments of this number or type", kind="bad_argument"
        )
    if "multiple overloads that match" in message:
        return InvalidInputError(f"the query cannot be evaluated: {message}", kind=OVERLOADS)
    if "Max expression depth" in message:
        return InvalidInputError(
            "expected less deeply nested expressions, found more than 1,000 levels; write lists as IN (...)",
            kind="query",
        )
    if isinstance(error, duckdb.OutOfMemoryException):
        return UnavailableError(f"the query needs more memory than there is: {message}", kind="out_of_memory")
    return InvalidInputError(f"the query cannot be evaluated: {message}", kind="query")


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
            arrays.append(_narrowed(column, wanted))
    return pa.RecordBatch.from_arrays(arrays, schema=carried)


def _low_half(array: pa.Array) -> pa.Array:
    """The lower 128 of the 256 bits of each value: all of it, for a LARGEINT."""
    words = np.frombuffer(array.buffers()[1], np.uint64).reshape(-1, 4)
    lower = np.ascontiguousarray(words[array.offset : array.offset + len(array), :2])
    validity = None
    if array.null_count:
        bits = np.packbits(pc.is_valid(array).to_numpy(zero_copy_only=False), bitorder="little")
        validity = pa.py_buffer(bits.tobytes())
    return pa.Array.from_buffers(_CARRIER, len(array), [validity, pa.py_buffer(lower)])


def _narrowed(array: pa.Array, wanted: pa.Field) -> pa.Array:
    try:
        return array.cast(wanted.type)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"column {wanted.name!r} holds a value of more than 38 digits; queries compute with at most 38, "
            "select such a column on its own",
            kind="too_wide",
        ) from error


def _answer_schema(schema: pa.Schema, wide: Sequence[bool], *, has_largeint: bool) -> pa.Schema:
    fields = []
    for column, is_wide in zip(schema, wide, strict=True):
        kind = column.type
        if is_wide:
            kind = LARGEINT_ARROW if has_largeint else pa.int64()
        elif isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_timestamp(kind):
            kind = pa.timestamp("us")
        fields.append(pa.field(column.name, kind))
    return pa.schema(fields)


def _answer_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for column, wanted in zip(batch.columns, schema, strict=True):
        array = column.storage if isinstance(column, pa.ExtensionArray) else column
        if not array.type.equals(wanted.type):
            array = _answered(array, wanted)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _answered(array: pa.Array, wanted: pa.Field) -> pa.Array:
    try:
        return array.cast(wanted.type)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"column {wanted.name!r} of the answer is beyond BIGINT; cast the operands to LARGEINT",
            kind="overflow",
        ) from error
