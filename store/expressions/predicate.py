"""What can be told of a filter, an Arrow expression that keeps its parts to itself.

Its text is all there is to look at. Arrow cuts long strings of a value set at a byte, perhaps within a
character; such a text cannot be had, and then nothing is known of the filter but that it may be evaluated.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from seqstore.store.errors import InvalidInputError

_BY_PLACE: Final = "FieldPath("  # how a column that is counted is written
_NAN: Final = re.compile(r"\bnan\b", re.IGNORECASE)
# The function that pickle calls for an expression; Arrow offers its bytes in no other way.
_DESERIALIZE: Final = pc.scalar(True).__reduce__()[0]


def text_of(predicate: pc.Expression) -> str | None:
    """The filter as Arrow writes it, None when it cannot be written."""
    try:
        return str(predicate)
    except UnicodeDecodeError:
        return None


def may_name_nan(predicate: pc.Expression) -> bool:
    """Whether NaN may be one of its values."""
    text = text_of(predicate)
    return text is None or _NAN.search(text) is not None


def columns_of(predicate: pc.Expression, names: Sequence[str]) -> list[str] | None:
    """Those of some columns that the filter may read, None when it may be any, or it counts them.

    A column whose name does not occur in the text is not among them.
    """
    text = text_of(predicate)
    if text is None or _BY_PLACE in text:
        return None
    return [name for name in names if name in text]


def named_in(expression: pc.Expression, names: Sequence[str]) -> list[str]:
    """Those of some columns whose names occur in an expression as words: never too few, all of them where it
    counts columns or cannot be written."""
    text = text_of(expression)
    if text is None or _BY_PLACE in text:
        return list(names)
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]


def pack(expression: pc.Expression) -> bytes:
    """An expression for the catalog, compressed; `unpack` reads it back.

    Raises:
        InvalidInputError: Arrow cannot write it: it counts columns instead of naming them.
    """
    try:
        return zlib.compress(memoryview(expression.__reduce__()[1][0]))
    except pa.ArrowNotImplementedError as error:
        raise InvalidInputError(
            f"{text_of(expression) or 'the filter'} cannot be stored: {error}; name its columns",
            kind="not_supported",
        ) from error


def unpack(data: bytes) -> pc.Expression:
    """What `pack` made."""
    return _DESERIALIZE(pa.py_buffer(zlib.decompress(data)))


def check_predicate(predicate: Any, schema: pa.Schema) -> None:
    """Refuses what is no filter over some columns.

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
    """The error to raise for one of Arrow's."""
    reason = " ".join(str(error).split())  # Arrow lists columns on lines of their own
    return InvalidInputError(
        f"filter {text_of(predicate) or ''} does not fit the table: {reason}", kind="bad_filter"
    )
