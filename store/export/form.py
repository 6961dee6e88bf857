"""The forms of exported rows. What a stream load with the same options reads is equal to what was written.

CSV writes values as text, NULL as `\\N` and nested values as JSON. Without `enclose` a text that holds a
separator, or is `\\N`, cannot be told from others, and is refused.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast import evaluate, try_cast
from seqstore.store.types.column_types import parse_type

CSV: Final = "csv"
CSV_NAMES: Final = "csv_with_names"
CSV_TYPES: Final = "csv_with_names_and_types"
JSON: Final = "json"
PARQUET: Final = "parquet"
SUFFIXES: Final[Mapping[str, str]] = {
    CSV: "csv",
    CSV_NAMES: "csv",
    CSV_TYPES: "csv",
    JSON: "json",
    PARQUET: "parquet",
}
_NULL: Final = "\\N"
_STRING: Final = parse_type("STRING")
_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True)
class Form:
    """How rows become bytes.

    Attributes:
        name: a key of `SUFFIXES`.
        separator, delimiter: of CSV: between values, behind lines.
        enclose: one character around texts, empty for none.
        compression: codec of Parquet.
    """

    name: str = CSV
    separator: str = "\t"
    delimiter: str = "\n"
    enclose: str = ""
    compression: str = "snappy"

    def pieces(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
        """Yields the bytes of one file, as its batches are read."""
        if self.name == PARQUET:
            yield from self._parquet(batches, schema)
            return
        yield self._head(schema)
        for batch in batches:
            yield _lines(batch, self.delimiter) if self.name == JSON else self._csv(batch)

    def _head(self, schema: pa.Schema) -> bytes:
        if self.name not in (CSV_NAMES, CSV_TYPES):
            return b""
        lines = [schema.names]
        if self.name == CSV_TYPES:
            lines.append([doris_type(field.type) for field in schema])
        return "".join(self.separator.join(line) + self.delimiter for line in lines).encode()

    def _csv(self, batch: pa.RecordBatch) -> bytes:
        if not batch.num_rows:
            return b""
        columns = [
            self._cells(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        rows = pc.binary_join_element_wise(*columns, _text(self.separator))
        return _joined(rows, self.delimiter)

    def _cells(self, name: str, column: pa.Array) -> pa.Array:
        texts = try_cast(column, _STRING).values.cast(pa.large_string())
        if not _is_free(column.type):
            return texts.fill_null(_NULL)
        if self.enclose:
            for mark in {"\\", self.enclose}:
                texts = pc.replace_substring(texts, mark, mark * 2)
            texts = pc.binary_join_element_wise(_text(self.enclose), texts, _text(self.enclose), _text(""))
        else:
            self._require_plain(name, texts)
        return texts.fill_null(_NULL)

    def _require_plain(self, name: str, texts: pa.Array) -> None:
        """Refuses texts that a reader would take for something else."""
        found = pc.equal(texts, _NULL)
        for mark in {self.separator, self.delimiter, "\n", "\r"}:
            found = pc.or_(found, pc.match_substring(texts, mark))
        if pc.any(found).as_py():
            text = texts.filter(found)[0].as_py()
            raise InvalidInputError(
                f"column {name!r}: {text[:60]!r} holds the separator or a line end, or reads as NULL; set "
                "the property 'enclose', other separators, or another format",
                kind="not_writable",
            )

    def _parquet(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
        sink = _Collected()
        with pq.ParquetWriter(sink, schema, compression=self.compression) as writer:
            for batch in batches:
                writer.write_batch(batch)
                yield sink.take()
        yield sink.take()


class _Collected(io.RawIOBase):
    """A file whose bytes are taken while it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        """Keeps the bytes of any buffer."""
        self._parts.append(bytes(data))
        self._size += len(self._parts[-1])
        return len(self._parts[-1])

    def take(self) -> bytes:
        """Returns the bytes since the last call."""
        found, self._parts = b"".join(self._parts), []
        return found


def _is_free(kind: pa.DataType) -> bool:
    """Returns whether texts of a type may hold any character."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_nested(kind))


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _joined(rows: pa.Array, delimiter: str) -> bytes:
    """Returns the texts of an array, each with the delimiter behind it."""
    ended = pc.binary_join_element_wise(rows, _text(delimiter), _text("")).cast(pa.large_binary())
    _, offsets, data = ended.buffers()
    bounds = np.frombuffer(offsets, np.int64)[ended.offset : ended.offset + len(ended) + 1]
    return bytes(memoryview(data)[int(bounds[0]) : int(bounds[-1])])


def _lines(batch: pa.RecordBatch, delimiter: str) -> bytes:
    """Returns each row as a JSON object; decimals and times are texts, so no digit is lost."""
    if not batch.num_rows:
        return b""
    columns = [
        _portable(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    struct = pa.StructArray.from_arrays(columns, names=batch.schema.names)
    return _joined(evaluate(struct, "to_json(c)::VARCHAR").cast(pa.large_string()), delimiter)


def _portable(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_temporal(kind) or pa.types.is_nested(kind):
        return try_cast(column, _STRING).values
    if pa.types.is_floating(kind) and not np.isfinite(np.asarray(column.drop_null())).all():
        raise InvalidInputError(
            f"column {name!r}: a number is not finite, and JSON has no form for it; use csv or parquet",
            kind="not_writable",
        )
    return column


_NAMES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    parse_type("LARGEINT").arrow: "LARGEINT",
}


def doris_type(kind: pa.DataType) -> str:
    """Returns the name of the type that has an Arrow type."""
    types = pa.types
    if kind in _NAMES:
        return _NAMES[kind]
    if types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        return "DATETIME(6)"
    if types.is_struct(kind):
        inner = ",".join(f"{field.name}:{doris_type(field.type)}" for field in kind)
        return f"STRUCT<{inner}>"
    if types.is_map(kind):
        return f"MAP<{doris_type(kind.key_type)},{doris_type(kind.item_type)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"ARRAY<{doris_type(kind.value_type)}>"
    return "STRING"


def small_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields batches of some rows at most, so that files end near their size."""
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(start, _BATCH_ROWS)
