"""The fields of a body with their values: what decides which columns a table needs.

Names are as the body spells them. Values are texts for CSV, JSON and change streams, and have types of their
own in Parquet, ORC and Arrow. Lines and messages that are none are left to the load, which counts them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.avro.body import AvroBody, open_plain
from seqstore.loaders.changes.change_rows import Messages
from seqstore.loaders.changes.field_table import found_fields
from seqstore.loaders.changes.field_type import FieldType
from seqstore.loaders.changes.logical_types import decoded
from seqstore.loaders.changes.reader import DIALECTS, split_keys
from seqstore.loaders.columnar import ColumnarReader
from seqstore.loaders.csv.reader import CsvReader
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.inference.file_columns import (
    declared_type,
    declared_types,
    first_line,
    json_keys,
    json_values,
    stored_type,
)
from seqstore.loaders.inference.text_types import STRING
from seqstore.loaders.json.array_lines import lines_of
from seqstore.loaders.json.fields import mask_of, one_array
from seqstore.loaders.json.line_blocks import BLOCK_BYTES, cut_lines, read_blocks
from seqstore.loaders.prefixed_body import PrefixedBody
from seqstore.store.schema.column import hidden_name
from seqstore.store.types.cast import evaluate, try_cast
from seqstore.store.types.column_types import ColumnType

_JSON: Final = ColumnType("JSON")


@dataclass(frozen=True)
class FieldValues:
    """Some values of one field.

    Attributes:
        declared: the type that the body declares, None where only the values tell it.
        default: the value of rows without the field, as the body declares it; None where it does not.
    """

    name: str
    values: pa.Array
    declared: ColumnType | None = None
    default: str | None = None


def field_values(
    body: BinaryIO, options: StreamLoadOptions, columns: Mapping[str, ColumnType]
) -> Iterator[FieldValues]:
    """Yields the fields of a body, batch by batch.

    Args:
        columns: the types of the table's columns, by name in lower case.

    Raises:
        InvalidInputError: the body is none of its format.
    """
    plain = open_plain(body, options)
    found = _of_body(plain, options, columns)
    yield from (each for each in found if not _is_hidden(each.name, options))


def _of_body(
    body: BinaryIO, options: StreamLoadOptions, columns: Mapping[str, ColumnType]
) -> Iterator[FieldValues]:
    if options.is_csv:
        return _of_csv(body, options)
    if options.format == "json":
        return _of_json(body, options)
    if options.is_changes:
        return _of_changes(body, options, columns)
    return _of_file(body, options)


def _is_hidden(name: str, options: StreamLoadOptions) -> bool:
    """Returns whether a field is no column: hidden ones, and what flattened messages say of themselves."""
    return hidden_name(name) is not None or (options.is_changes and name.startswith("__"))


def _of_csv(body: BinaryIO, options: StreamLoadOptions) -> Iterator[FieldValues]:
    names, head = first_line(body, options, "the body")
    for batch in CsvReader(cast(BinaryIO, PrefixedBody(head, body)), names, options.csv).batches():
        for name in names:
            yield FieldValues(name, one_array(batch.rows.column(name)))


def _of_json(body: BinaryIO, options: StreamLoadOptions) -> Iterator[FieldValues]:
    delimiter = options.json.delimiter
    if options.json.strip_outer_array:
        body, delimiter = io.BytesIO(lines_of(body.read()) or b""), b"\n"
    for block in read_blocks(body, delimiter, lambda: BLOCK_BYTES):
        declared = declared_types(body.fields) if isinstance(body, AvroBody) else {}
        for name, values, is_nested in json_values(cut_lines(block.data, delimiter)[0]):
            kind = declared.get(name, _JSON if is_nested else None)
            yield FieldValues(name, one_array(values), kind)


def _of_file(body: BinaryIO, options: StreamLoadOptions) -> Iterator[FieldValues]:
    with ExitStack() as opened:
        reader = ColumnarReader(body, options.format)
        opened.callback(reader.close)
        declared = {
            field.name: stored_type(field.type) for field in reader.schema if not pa.types.is_null(field.type)
        }
        for batch in reader.batches():
            for name, kind in declared.items():
                yield FieldValues(name, one_array(batch.rows.column(name)), kind)


def _of_changes(
    body: BinaryIO, options: StreamLoadOptions, columns: Mapping[str, ColumnType]
) -> Iterator[FieldValues]:
    for block in read_blocks(body, b"\n", lambda: BLOCK_BYTES):
        keys, values = split_keys(try_cast(cut_lines(block.data, b"\n")[0], STRING).values)
        kinds = evaluate(values, "CASE WHEN json_valid(c) THEN json_type(c) END")
        is_object = pa.array(mask_of(pc.equal(kinds, "OBJECT")))
        messages = Messages(values.filter(is_object), keys.filter(is_object), frozenset(columns))
        rows = DIALECTS[options.format](messages, options.changes)
        names = json_keys(rows.documents)
        types = {name: columns[name.lower()] for name in names if name.lower() in columns}
        declared: dict[str, FieldType] = {}
        for shape in rows.types:
            declared |= shape
        found = found_fields(rows, names, types, (), options.changes.time_unit)
        for name in names:
            field = declared.get(name)
            kind = None if field is None else declared_type(field)
            default = None if field is None else _default(field, kind)
            yield FieldValues(name, one_array(found.columns[name]), kind, default)


def _default(field: FieldType, kind: ColumnType | None) -> str | None:
    """Returns the declared default of a field as the text of its column."""
    if field.default is None:
        return None
    text = decoded(pa.array([field.default]), field, kind, "auto")[0].as_py()
    return None if text is None else str(text)
