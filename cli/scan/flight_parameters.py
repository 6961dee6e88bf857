"""Values of the parameters of prepared statements, as Arrow Flight SQL uploads them: they become literals.

A prepared statement is its text, and one that has its values is the text with them: the server keeps nothing
between the calls of a client.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from seqstore.cli.mysql.prepared import Prepared, float_literal, text_literal
from seqstore.store import InvalidInputError

ROWS_MAX: Final = 10_000
_TYPES: Final = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
)


def parameter_count(text: str) -> int:
    """Returns how many `?` a text has."""
    return len(Prepared.of(text).places) if "?" in text else 0


def check_bound(text: str) -> None:
    """Checks that a statement has all of its values.

    Raises:
        InvalidInputError: it has parameters.
    """
    count = parameter_count(text)
    if count:
        raise InvalidInputError(
            f"the statement has {count} parameters without values; bind them before it runs",
            kind="missing_parameters",
        )


def columns_texts(text: str) -> list[str]:
    """Returns texts that have the columns of a statement, the first that can be read counts."""
    prepared = Prepared.of(text)
    return [prepared.filled_with(each) for each in ("NULL", "1")] if prepared.places else [text]


def bound_texts(text: str, reader: Any) -> Iterator[str]:
    """Yields a statement for each uploaded row of values.

    Args:
        reader: of the upload, with the values of a parameter in each column.

    Raises:
        InvalidInputError: other numbers of columns or rows, or a value that is no literal.
    """
    prepared = Prepared.of(text)
    rows = 0
    while True:
        try:
            batch = reader.read_chunk().data
        except StopIteration:
            return
        batch.validate(full=True)
        if batch.num_columns != len(prepared.places):
            raise InvalidInputError(
                f"expected values of {len(prepared.places)} parameters, found {batch.num_columns} columns",
                kind="bad_parameters",
            )
        rows += batch.num_rows
        if rows > ROWS_MAX:
            raise InvalidInputError(
                f"a statement for each of more than {ROWS_MAX:,} rows; load them by bulk ingest",
                kind="too_many_rows",
            )
        columns = [_literals(column) for column in batch.columns]
        for literals in zip(*columns, strict=True):
            yield prepared.filled_by(literals)


def bound_text(text: str, reader: Any) -> str:
    """Returns the statement for the one row of values that was uploaded.

    Raises:
        InvalidInputError: there are more rows, or none.
    """
    found = list(bound_texts(text, reader))
    if len(found) != 1:
        raise InvalidInputError(
            f"expected one row of parameters, found {len(found)}; run a query once for each row",
            kind="bad_parameters",
        )
    return found[0]


def _literals(column: pa.Array) -> list[str]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    is_zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    if is_zoned or not any(fits(kind) for fits in _TYPES):
        why = "; convert it to the time zone of the statement" if is_zoned else ""
        raise InvalidInputError(
            f"a parameter is of type {kind}, which no literal has{why}", kind="bad_parameters"
        )
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        column = column.cast(
            pa.timestamp("us") if pa.types.is_timestamp(kind) else pa.time64("us"), safe=False
        )
    return [_literal(value) for value in column.to_pylist()]


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return float_literal(value)
    if isinstance(value, (int, Decimal)):
        return f"{value:f}" if isinstance(value, Decimal) else str(value)
    if isinstance(value, dt.datetime):
        return f"'{value:%Y-%m-%d %H:%M:%S.%f}'" if value.year > 999 else f"'{value.isoformat(' ')}'"
    if isinstance(value, (dt.date, dt.time)):
        return f"'{value.isoformat()}'"
    return text_literal(value.encode() if isinstance(value, str) else value)
