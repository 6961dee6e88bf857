"""The declaration of a table for fields whose types are known: its key, its sequence, its properties."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.loaders.avro.body import open_plain
from seqstore.loaders.changes.change_rows import Messages
from seqstore.loaders.changes.reader import DIALECTS, split_keys
from seqstore.loaders.headers import StreamLoadOptions
from seqstore.loaders.inference.field_values import FieldValues, field_values
from seqstore.loaders.inference.needed_schema import NeededSchema
from seqstore.loaders.inference.text_types import STRING
from seqstore.loaders.json.fields import extract, mask_of
from seqstore.loaders.json.line_blocks import BLOCK_BYTES, cut_lines, read_blocks
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.column import Column, Default
from seqstore.store.schema.declaration import check_names, leading_columns
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.types.cast import evaluate, try_cast
from seqstore.store.types.column_types import ColumnType

_KEY_TEXT: Final = ColumnType("VARCHAR", (65533,))
_OF_CHANGES: Final = {
    "function_column.sequence_type": "LARGEINT",
    "enable_unique_key_skip_bitmap_column": "true",
}
_SEQUENCES: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "LARGEINT", "DATE", "DATETIME")


def declared_table(
    types: Mapping[str, ColumnType],
    key: Sequence[str],
    sequence: str | None,
    properties: Mapping[str, str],
    *,
    is_changes: bool,
    defaults: Mapping[str, Default | None] | None = None,
    required: Collection[str] = (),
) -> TableSchema:
    """Returns the declaration of a table.

    Args:
        types: the columns.
        key: names of the key columns; none for a duplicate table.
        sequence: the mapped column; change streams have a hidden sequence instead.
        properties: of the table, over those that follow from the arguments.
        defaults: of columns that are not in the key.
        required: columns that take no NULL, beside the key.

    Raises:
        InvalidInputError: there are no such columns, the sequence has no fitting type, or a property is bad.
    """
    names = {name.lower(): name for name in types}
    for name in (*key, *([sequence] if sequence else [])):
        if name.lower() not in names:
            raise InvalidInputError(
                f"column {name!r} is not among the columns of the files: {', '.join(types)[:500]}",
                kind="unknown_column",
            )
    keys = [names[name.lower()] for name in key]
    columns = [Column(name, _key_type(types[name]), nullable=False) for name in keys]
    given = defaults or {}
    columns += [
        Column(name, kind, nullable=name not in required, default=given.get(name))
        for name, kind in types.items()
        if name not in keys
    ]
    declared: dict[str, str] = {}
    if sequence:
        declared = _sequence(names[sequence.lower()], types)
    elif is_changes:
        declared = dict(_OF_CHANGES)
    return TableSchema.create(
        columns,
        keys,
        duplicate_key=None if keys else leading_columns(columns),
        properties={**declared, **properties},
        distribution=f"HASH({', '.join(f'`{name}`' for name in keys)}) BUCKETS AUTO" if keys else "",
    )


def _sequence(name: str, types: Mapping[str, ColumnType]) -> dict[str, str]:
    if types[name].name not in _SEQUENCES:
        raise InvalidInputError(
            f"sequence {name!r}: expected integers, dates or times, found {types[name].sql}",
            kind="bad_sequence",
        )
    return {"function_column.sequence_col": name}


def _key_type(kind: ColumnType) -> ColumnType:
    """Returns the type of a key column: a STRING cannot be a key."""
    return _KEY_TEXT if kind.name == "STRING" else kind


@dataclass(frozen=True)
class Rows:
    """Rows for a new table.

    Attributes:
        open: opens their body; each call begins at its start.
        options: how it is read.
        constants: the values of further columns, which win over fields of the body.
    """

    open: Callable[[], AbstractContextManager[BinaryIO]]
    options: StreamLoadOptions
    constants: Mapping[str, str] = field(default_factory=dict)

    def values(self) -> Iterator[FieldValues]:
        """Yields the fields of the rows."""
        given = {name.lower() for name in self.constants}
        with self.open() as body:
            for each in field_values(body, self.options, {}):
                if each.name.lower() not in given:
                    yield each
        for name, value in self.constants.items():
            yield FieldValues(name, pa.array([value], STRING.arrow))


def table_of(
    body: BinaryIO, options: StreamLoadOptions, left_out: dict[str, str] | None = None
) -> TableSchema:
    """Returns the declaration of a table for the rows of a body, by `auto_create` and its headers.

    Args:
        body: read to its end, and set back to its start.
        left_out: gets the fields that can be no column, with their reasons; None: such a field is an error.

    Raises:
        InvalidInputError: nothing names its columns, or those of the key.
    """

    @contextmanager
    def opened() -> Iterator[BinaryIO]:
        body.seek(0)
        yield body
        body.seek(0)

    return table_of_rows([Rows(opened, options)], left_out)


def table_of_rows(rows: Sequence[Rows], left_out: dict[str, str] | None = None) -> TableSchema:
    """Returns the declaration of one table for several bodies; the first one tells key and sequence.

    Args:
        left_out: see `table_of`.

    Raises:
        InvalidInputError: see `table_of`.
    """
    needed = NeededSchema(None, "add")
    for each in rows:
        needed.see(each.values())
    added = needed.added()
    if left_out is not None:
        added = [column for column in added if _is_named(column, left_out)]
    types = {column.name: column.type for column in added}
    defaults = {column.name: column.default for column in added}
    if not types:
        raise InvalidInputError(
            "auto_create: no row of the body has a field with a value; create the table first",
            kind="no_schema",
        )
    options = rows[0].options
    key = list(options.auto_create_key) or (_key_of_messages(rows) if options.is_changes else [])
    sequence = options.auto_create_sequence or None
    return declared_table(types, key, sequence, {}, is_changes=options.is_changes, defaults=defaults)


def _is_named(column: Column, left_out: dict[str, str]) -> bool:
    """Returns whether a column may have its name."""
    try:
        check_names([column])
    except InvalidInputError as error:
        left_out[column.name] = error.message
        return False
    return True


def _key_of_messages(rows: Sequence[Rows]) -> list[str]:
    """Returns the fields of the first key of a message, or the key that Canal's messages name.

    Only messages that make rows count: those of other tables have keys of their own (`change_table`).
    """
    for each in rows:
        with each.open() as body:
            if found := _key_within(open_plain(body, each.options), each.options):
                return found
    raise InvalidInputError(
        "auto_create: the messages have no keys, which name the key columns (a key, a tab and the value in "
        "each line); name them by the header auto_create_key, or create the table first",
        kind="no_key",
    )


def _key_within(plain: BinaryIO, options: StreamLoadOptions) -> list[str]:
    for block in read_blocks(plain, b"\n", lambda: BLOCK_BYTES):
        keys, values = split_keys(try_cast(cut_lines(block.data, b"\n")[0], STRING).values)
        kinds = evaluate(values, "CASE WHEN json_valid(c) THEN json_type(c) END")
        is_object = pa.array(mask_of(pc.equal(kinds, "OBJECT")))
        messages = Messages(values.filter(is_object), keys.filter(is_object), frozenset())
        ours = pa.array(np.unique(DIALECTS[options.format](messages, options.changes).origins))
        texts = messages.keys.take(ours).drop_null()
        found: Iterator[list[str]] = (_fields(text.as_py()) for text in texts)
        if options.format == "canal_json":
            named = extract(messages.values.take(ours), [["$.pkNames"]])[0]
            found = chain(found, map(_names, pc.unique(named.drop_null()).to_pylist()))
        if key := next(filter(None, found), None):
            return key
    return []


def _fields(text: str) -> list[str]:
    """Returns the fields of the key of a message; none where it is no object."""
    found = _parsed(text)
    if isinstance(found, dict) and "payload" in found and "schema" in found:
        found = found["payload"]
    return list(found) if isinstance(found, dict) else []


def _names(text: str) -> list[str]:
    """Returns the names of a list; none where it is no list of texts."""
    found = _parsed(text)
    is_list = isinstance(found, list) and all(isinstance(each, str) for each in found)
    return found if is_list else []


def _parsed(text: str) -> Any:
    """Returns a JSON value; None where Python cannot hold it, such as 10,000 lists within each other."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
