"""The columns of files: by their schema, or by all of their values.

Parquet, ORC and Arrow files declare their columns. CSV names them in its first line, JSON by the keys of its
objects, and their types are those that take every value. Messages of Debezium have the schema of their rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import BinaryIO, Final, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.avro.body import AvroBody, open_plain
from seqstore.loaders.changes.field_type import FieldType, row_types
from seqstore.loaders.columnar import ColumnarReader
from seqstore.loaders.compress import open_compressed
from seqstore.loaders.csv.reader import CsvReader
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.inference.text_types import STRING, TextType
from seqstore.loaders.json.fields import extract, mask_of
from seqstore.loaders.json.line_blocks import BLOCK_BYTES, cut_lines, read_blocks
from seqstore.loaders.prefixed_body import PrefixedBody
from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast import evaluate, text_literal, try_cast
from seqstore.store.types.column_types import ColumnType, type_from_arrow

_NAMES_BYTES_MAX: Final = 1 << 20
_QUOTED: Final = re.compile(rb'"((?:[^"]|"")*)"?')
_BASES: Final = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "array": "JSON",
    "map": "JSON",
    "struct": "JSON",
}
_JSON: Final = ColumnType("JSON")
_MOMENT: Final = ColumnType("DATETIME", (6,))


class File(Protocol):
    """A file that may be opened several times."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    def open(self) -> BinaryIO:
        """Returns its bytes, from the beginning."""


def columns_of(file: File, options: StreamLoadOptions) -> dict[str, ColumnType]:
    """Returns the types of a file's columns, by name.

    Raises:
        InvalidInputError: it is no file of its format, or its format declares no columns.
        OSError: it cannot be read.
    """
    with ExitStack() as opened:
        body = open_plain(opened.enter_context(file.open()), options)
        if options.is_csv:
            return _of_csv(body, options, file.name)
        if options.format == "json":
            return declared_types(body.fields) if isinstance(body, AvroBody) else _of_json(body)
        if options.format == "debezium_json":
            return _of_debezium(body, file.name)
        if options.is_changes:
            raise InvalidInputError(
                f"{file.name}: messages of {options.format} declare no types; create the table first",
                kind="no_schema",
            )
        reader = ColumnarReader(body, options.format)
        opened.callback(reader.close)
        return {field.name: stored_type(field.type) for field in reader.schema}


def stored_type(arrow: pa.DataType) -> ColumnType:
    """Returns the column type for an Arrow type; a time with a zone is one of the load's zone."""
    has_zone = pa.types.is_timestamp(arrow) and arrow.tz is not None
    return _MOMENT if has_zone else type_from_arrow(arrow)


def joined_columns(parts: Sequence[Mapping[str, ColumnType]]) -> dict[str, ColumnType]:
    """Returns the columns of all files: the wider type of each, else STRING."""
    types: dict[str, ColumnType] = {}
    for part in parts:
        for name, kind in part.items():
            known = next((each for each in types if each.lower() == name.lower()), name)
            types[known] = _wider(types.get(known, kind), kind)
    return types


_WIDER: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT", "DOUBLE")


def _wider(one: ColumnType, other: ColumnType) -> ColumnType:
    if one == other:
        return one
    names = {one.name, other.name}
    if names <= set(_WIDER):
        return max((one, other), key=lambda kind: _WIDER.index(kind.name))
    if names <= {"DATE", "DATETIME"}:
        return _MOMENT
    if names == {"DECIMAL"}:
        scale = max(one.params[1], other.params[1])
        digits = max(one.params[0] - one.params[1], other.params[0] - other.params[1])
        return replace(one, params=(min(digits + scale, 76), scale))
    return STRING


def csv_names(file: File, options: StreamLoadOptions) -> list[str]:
    """Returns the names in the first line of a CSV file.

    Raises:
        InvalidInputError: a column has no name, or the name of another one.
    """
    with file.open() as opened:
        return first_line(open_compressed(opened, options.compression), options, file.name)[0]


def first_line(body: BinaryIO, options: StreamLoadOptions, name: str) -> tuple[list[str], bytes]:
    """Returns the names, and the bytes that were read for them.

    Raises:
        InvalidInputError: a column has no name, or the name of another one, or the line is too long.
    """
    head = b""
    while options.csv.delimiter not in head and len(head) < _NAMES_BYTES_MAX:
        piece = body.read(1 << 16)
        if not piece:
            break
        head += piece
    line, end, _ = head.removeprefix(b"\xef\xbb\xbf").partition(options.csv.delimiter)
    if not end and len(head) >= _NAMES_BYTES_MAX:
        raise InvalidInputError(
            f"{name}: the first line, which must name the columns, is longer than {_NAMES_BYTES_MAX >> 20} "
            f"MB; is {options.csv.delimiter!r} the line delimiter?",
            kind="no_schema",
        )
    fields = _fields_of(line.rstrip(b"\r"), options.csv.separator)
    names = [each.decode("utf-8", "replace").strip() for each in fields]
    if not names or not all(names) or len({each.lower() for each in names}) < len(names):
        raise InvalidInputError(
            f"{name}: the first line must name the columns, each once; found {str(names[:20])[:500]}",
            kind="no_schema",
        )
    return names, head


def _fields_of(line: bytes, separator: bytes) -> list[bytes]:
    """Cuts a line into fields, which may stand in double quotes, by a separator of one or more bytes."""
    fields = []
    at = 0
    while True:
        quoted = _QUOTED.match(line, at)
        at = at if quoted is None else quoted.end()
        end = line.find(separator, at)
        inner = b"" if quoted is None else quoted[1].replace(b'""', b'"')
        fields.append(inner + line[at : len(line) if end < 0 else end])
        if end < 0:
            return fields
        at = end + len(separator)


def _of_csv(body: BinaryIO, options: StreamLoadOptions, name: str) -> dict[str, ColumnType]:
    """Reads the names in the first line, and all values."""
    names, head = first_line(body, options, name)
    found = {each: TextType() for each in names}
    reader = CsvReader(cast(BinaryIO, PrefixedBody(head, body)), names, options.csv)
    for batch in reader.batches():
        for each, kind in found.items():
            kind.see(batch.rows.column(each))
    return {each: kind.type for each, kind in found.items()}


def _of_json(body: BinaryIO) -> dict[str, ColumnType]:
    """Reads lines of objects: scalars by their values, other values are JSON."""
    found: dict[str, TextType] = {}
    nested: set[str] = set()
    for block in read_blocks(body, b"\n", lambda: BLOCK_BYTES):
        for key, values, is_nested in json_values(cut_lines(block.data, b"\n")[0]):
            if is_nested:
                nested.add(key)
            found.setdefault(key, TextType()).see(values)
    return {key: _JSON if key in nested else kind.type for key, kind in found.items()}


def json_values(lines: pa.Array) -> Iterator[tuple[str, pa.Array, bool]]:
    """Yields the keys of lines that are objects, their values as texts, and whether one is no scalar."""
    texts = try_cast(lines, STRING).values
    kinds = evaluate(texts, "CASE WHEN json_valid(c) THEN json_type(c) END")
    objects = texts.filter(pa.array(mask_of(pc.equal(kinds, "OBJECT"))))
    keys = json_keys(objects)
    paths = [[f'$."{key}"'] for key in keys]
    for key, values, path in zip(keys, extract(objects, paths) if keys else [], paths, strict=True):
        is_nested = evaluate(objects, f"json_type(c, {text_literal(path[0])})")
        yield key, values, bool(mask_of(pc.is_in(is_nested, pa.array(["OBJECT", "ARRAY"]))).any())


def json_keys(objects: pa.Array) -> list[str]:
    """Returns the keys of objects, without those that no path can name."""
    lists = evaluate(objects, "CASE json_type(c) WHEN 'OBJECT' THEN json_keys(c) END")
    keys = pc.unique(pc.list_flatten(lists)).to_pylist()
    return [key for key in keys if not any(mark in key for mark in '"\\*')]


def _of_debezium(body: BinaryIO, name: str) -> dict[str, ColumnType]:
    """Reads the schemas of the messages; their last one declares the columns."""
    types: dict[str, ColumnType] = {}
    for block in read_blocks(body, b"\n", lambda: BLOCK_BYTES):
        texts = try_cast(cut_lines(block.data, b"\n")[0], STRING).values
        values = pc.replace_substring_regex(texts, r"^[^\t]*\t", "")
        valid = mask_of(evaluate(values, "json_valid(c)").cast(pa.bool_()))
        documents = values.filter(pa.array(valid))
        schemas, sources, ops = extract(documents, [["$.schema"], ["$.payload.source"], ["$.payload.op"]])
        has_rows = np.asarray(mask_of(sources.is_valid()) & mask_of(ops.is_valid()))
        for text in pc.unique(schemas.filter(pa.array(has_rows)).drop_null()).to_pylist():
            types |= {key: declared_type(kind) for key, kind in row_types(text).items()}
    if not types:
        raise InvalidInputError(
            f"{name}: the messages have no schema (schemas.enable=true adds it); create the table first",
            kind="no_schema",
        )
    return types


def declared_types(fields: Mapping[str, FieldType]) -> dict[str, ColumnType]:
    """Returns the column types of declared fields."""
    return {name: declared_type(kind) for name, kind in fields.items()}


def declared_type(kind: FieldType) -> ColumnType:
    """Returns the column type for a field of Debezium."""
    name = kind.name.rpartition(".")[2]
    if name in ("Date", "IsoDate"):
        return ColumnType("DATE")
    if name.endswith("Timestamp"):
        return _MOMENT
    if name == "Decimal":
        return ColumnType("DECIMAL", (38, min(max(kind.scale, 0), 38)))
    if name == "Bits" and kind.length <= 63:
        return ColumnType("BIGINT")
    if name in ("Json", "VariableScaleDecimal"):
        return _JSON if name == "Json" else STRING
    if name in ("Time", "MicroTime", "NanoTime"):
        return STRING
    return ColumnType(_BASES.get(kind.base, "STRING"))
