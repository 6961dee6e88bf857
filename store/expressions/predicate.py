"""Facts about a filter, its storage, and its evaluation on rows in memory.

An Arrow expression does not expose its parts: only its text can be inspected. Arrow cuts long strings of a
value set at a byte, perhaps within a character. Such a text cannot be decoded; the filter can then be
evaluated but not inspected.

The calling thread evaluates it: the start of a dataset scanner's threads costs several times as much as a few
rows.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.acero import Declaration, FilterNodeOptions, ProjectNodeOptions, TableSourceNodeOptions

from seqstore.store.errors import InvalidInputError

_BY_PLACE: Final = "FieldPath("  # Arrow's text for a column by position
_UNKNOWN: Final = re.compile(r"No match for FieldRef\.Name\((.*?)\) in ", re.DOTALL)  # of Arrow
_NAN: Final = re.compile(r"\bnan\b", re.IGNORECASE)
# The function with which pickle restores an expression; Arrow has no public one.
_DESERIALIZE: Final = pc.scalar(True).__reduce__()[0]


def text_of(predicate: pc.Expression) -> str | None:
    """Returns the filter as Arrow writes it, None if the text cannot be decoded."""
    try:
        return str(predicate)
    except UnicodeDecodeError:
        return None


def may_name_nan(predicate: pc.Expression) -> bool:
    """Returns whether NaN may be one of the filter's values."""
    text = text_of(predicate)
    return text is None or _NAN.search(text) is not None


def columns_of(predicate: pc.Expression, names: Sequence[str]) -> list[str] | None:
    """Returns those of some columns that the filter may read.

    A column whose name does not occur in the text is not read. None means that the filter may read any
    column: its text is unknown, or it refers to columns by position.
    """
    text = text_of(predicate)
    if text is None or _BY_PLACE in text:
        return None
    return [name for name in names if name in text]


def named_in(expression: pc.Expression, names: Sequence[str]) -> list[str]:
    """Returns those of some columns whose names occur in an expression as words.

    The result is never too small. It has all columns if the expression refers to columns by position or its
    text cannot be decoded.
    """
    found = columns_of(expression, names)
    if found is None:
        return list(names)
    return [name for name in found if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(expression))]


def to_bytes(expression: pc.Expression) -> bytes:
    """Serializes an expression as Arrow does; `from_bytes` restores it.

    Raises:
        InvalidInputError: Arrow cannot serialize it: it refers to columns by position instead of by name.
    """
    try:
        return bytes(memoryview(expression.__reduce__()[1][0]))
    except pa.ArrowNotImplementedError as error:
        raise InvalidInputError(
            f"{text_of(expression) or 'the filter'} cannot be stored: {error}; name its columns",
            kind="not_supported",
        ) from error


def from_bytes(data: bytes) -> pc.Expression:
    """Restores an expression that `to_bytes` serialized."""
    return _DESERIALIZE(pa.py_buffer(data))


def pack(expression: pc.Expression) -> bytes:
    """Packs an expression for the catalog, compressed; `unpack` restores it.

    Raises:
        InvalidInputError: see `to_bytes`.
    """
    return zlib.compress(to_bytes(expression))


def unpack(data: bytes) -> pc.Expression:
    """Restores an expression that `pack` packed."""
    return from_bytes(zlib.decompress(data))


def check_predicate(predicate: Any, schema: pa.Schema) -> None:
    """Checks that a value is a filter over the columns of a schema.

    Raises:
        InvalidInputError: no expression, unknown columns, types that do not fit, or no boolean.
    """
    if not isinstance(predicate, pc.Expression):
        raise InvalidInputError(
            f"filter: expected a pyarrow.compute expression, found {type(predicate).__name__}",
            kind="bad_filter",
        )
    nothing = pa.RecordBatchReader.from_batches(schema, [])
    try:
        bound = ds.Scanner.from_batches(nothing, columns={"filter": predicate}).projected_schema
    except pa.ArrowException as error:
        raise does_not_fit(predicate, error) from error
    found = bound.field(0).type
    if not pa.types.is_boolean(found):
        raise InvalidInputError(
            f"filter {text_of(predicate) or ''}: expected a boolean, found {found}", kind="bad_filter"
        )


def does_not_fit(predicate: pc.Expression, error: Exception) -> InvalidInputError:
    """Returns the error to raise for an error of Arrow's."""
    return InvalidInputError(
        f"filter {text_of(predicate) or ''} does not fit the table: {misfit(error)}", kind="bad_filter"
    )


def misfit(error: Exception) -> str:
    """Returns why an expression does not fit rows: the unknown column, or what Arrow says, on one line."""
    unknown = _UNKNOWN.match(str(error))
    return f"unknown column {unknown[1]!r}" if unknown else " ".join(str(error).split())


def evaluated(rows: pa.Table, columns: Mapping[str, pc.Expression]) -> pa.Table:
    """Computes expressions for each row, under the names of the resulting columns; rows keep their order.

    Raises:
        pa.ArrowException: an expression does not fit the columns.
    """
    return _run(rows, Declaration("project", ProjectNodeOptions(list(columns.values()), list(columns))))


def filtered(rows: pa.Table, predicate: pc.Expression) -> pa.Table:
    """Returns the rows that satisfy a predicate, in their order; NULL does not satisfy it.

    Raises:
        pa.ArrowException: it does not fit the columns.
    """
    return _run(rows, Declaration("filter", FilterNodeOptions(predicate)))


def _run(rows: pa.Table, step: Declaration) -> pa.Table:
    source = Declaration("table_source", TableSourceNodeOptions(rows))
    return Declaration.from_sequence([source, step]).to_table(use_threads=False)
