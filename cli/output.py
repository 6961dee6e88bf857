"""Everything the commands print: tables, JSON, CSV, Markdown, single lines. Nothing else prints.

A table looks as the MySQL client draws it: numbers to the right, the rest to the left, NULL as a word,
booleans as 1 and 0, characters of double width counted as two.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from seqstore.cli import progress

if TYPE_CHECKING:
    import pyarrow as pa

NULL: Final = "NULL"
CSV_NULL: Final = "\\N"  # what stream load reads as NULL


class Format(StrEnum):
    """The form of printed rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"


def say(text: str) -> None:
    """Prints a text as a line of its own."""
    _write(sys.stdout, text)


def error(message: str) -> None:
    """Prints one line on standard error."""
    _write(sys.stderr, "seqstore: " + " ".join(message.split()))


def reply(values: dict[str, Any]) -> None:
    """Prints a JSON object, one field a line, like the reply of a stream load."""
    say(json.dumps(values, ensure_ascii=False, indent=4))


def rows(table: pa.Table, form: Format) -> None:
    """Prints rows in the chosen form; of a table without rows nothing is printed, as in the MySQL client."""
    if form is Format.TABLE and table.num_rows == 0:
        return
    say(_FORMS[form](table))


def box(table: pa.Table) -> str:
    """Returns rows between rules of `+---+`; a value of several lines has several lines."""
    headings = table.schema.names
    columns = _texts(table)
    cells = [[_lines(value) for value in column] for column in columns]
    widths = [
        max([_width(heading), *(_width(line) for lines in column for line in lines)])
        for heading, column in zip(headings, cells, strict=True)
    ]
    right = [_is_number(kind) for kind in table.schema.types]
    rule = "".join(f"+{'-' * (width + 2)}" for width in widths) + "+"
    drawn = [rule, _row(headings, widths, [False] * len(widths)), rule]
    for row in zip(*cells, strict=True):
        height = max(map(len, row))
        drawn += [
            _row([lines[i] if i < len(lines) else "" for lines in row], widths, right) for i in range(height)
        ]
    return "\n".join([*drawn, rule] if table.num_rows else drawn)


def box_width(table: pa.Table) -> int:
    """Returns the width of a table in `box`."""
    widths = [
        max([_width(heading), *(_width(line) for value in column for line in _lines(value))])
        for heading, column in zip(table.schema.names, _texts(table), strict=True)
    ]
    return sum(width + 3 for width in widths) + 1


def vertical(table: pa.Table) -> str:
    """Formats each row on lines of its own, `heading: value`, like the MySQL client's \\G."""
    headings = table.schema.names
    width = max(map(_width, headings), default=0)
    drawn: list[str] = []
    for number, row in enumerate(zip(*_texts(table), strict=True), 1):
        drawn.append(f"{'*' * 27} {number}. row {'*' * 27}")
        for heading, value in zip(headings, row, strict=True):
            drawn.append(f"{' ' * (width - _width(heading))}{heading}: {chr(10).join(_lines(value))}")
    return "\n".join(drawn)


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        space = " " * (width - _width(cell))
        parts.append(f"| {space}{cell} " if to_right else f"| {cell}{space} ")
    return "".join(parts) + "|"


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _lines(text: str) -> list[str]:
    """Returns the lines of a value; other control characters would move the cursor and are written out."""
    return [
        "".join(c if c.isprintable() or c == "\u3000" else _escaped(c) for c in line)
        for line in text.split("\n")
    ]


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    )


def _texts(table: pa.Table, null: str = NULL) -> list[list[str]]:
    """Converts every value to text, column by column."""
    return [[null if v is None else text(v) for v in _values(column)] for column in table.columns]


def _values(column: pa.ChunkedArray) -> Iterable[Any]:
    import pyarrow as pa

    if pa.types.is_float32(column.type):
        # Shortest text that reads back as the same float, not that of the double it becomes in Python.
        return [
            None if v is None else float(t)
            for v, t in zip(column.to_pylist(), _float_texts(column), strict=True)
        ]
    try:
        moments = column.to_pylist()
    except (OverflowError, ValueError):
        if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
            raise
        return _times_of_year_0(column)
    if not pa.types.is_timestamp(column.type):
        return list(moments)
    digits = max((_fraction_digits(m) for m in moments if m is not None), default=0)
    return [None if m is None else _moment(m, digits) for m in moments]


def _times_of_year_0(column: pa.ChunkedArray) -> list[str | None]:
    """Returns dates and times as texts: Python has none of the year 0."""
    from seqstore.store.types.cast import try_cast
    from seqstore.store.types.column_types import parse_type

    shown: list[str | None] = try_cast(column, parse_type("STRING")).values.to_pylist()
    has_fraction = any(text is not None and "." in text and not text.endswith(".000000") for text in shown)
    return shown if has_fraction else [None if text is None else text.partition(".")[0] for text in shown]


def _float_texts(column: pa.ChunkedArray) -> list[str]:
    import numpy as np

    return [str(np.float32(v)) if v is not None else "" for v in column.to_pylist()]


def _fraction_digits(moment: datetime) -> int:
    return 0 if moment.microsecond == 0 else 3 if moment.microsecond % 1000 == 0 else 6


def _moment(moment: datetime, digits: int) -> str:
    """Formats a time; all values of a column have the same number of fraction digits."""
    spec = {0: "seconds", 3: "milliseconds", 6: "microseconds"}[digits]
    return moment.isoformat(sep=" ", timespec=spec)


def text(value: Any) -> str:
    """Returns a value as Doris prints it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return "{" + ", ".join(f"{_inner(k)}:{_inner(v)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inner, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_inner(k)}:{_inner(v)}" for k, v in value.items()) + "}"
    return str(value)


def _inner(value: Any) -> str:
    """Returns a value inside a nested one: text in quotes."""
    if value is None:
        return "null"
    if isinstance(value, (str, date)):
        return '"' + text(value) + '"'
    return text(value)


def as_json(table: pa.Table) -> str:
    """Returns an array of objects, one row a line; decimals keep all their digits."""
    headings = [json.dumps(name, ensure_ascii=False) for name in table.schema.names]
    columns = [[_json(value) for value in _values(column)] for column in table.columns]
    lines = (
        "{" + ", ".join(f"{h}: {v}" for h, v in zip(headings, row, strict=True)) + "}"
        for row in zip(*columns, strict=True)
    )
    return "[" + ",\n ".join(lines) + "]"


def _json(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return (
            "{" + ", ".join(f"{json.dumps(text(k), ensure_ascii=False)}: {_json(v)}" for k, v in value) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {_json(v)}" for k, v in value.items())
            + "}"
        )
    if value is None or isinstance(value, (str, bool, int, float)):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(text(value), ensure_ascii=False)


def as_csv(table: pa.Table) -> str:
    """Headings and rows with commas; NULL is `\\N`, as stream load reads it."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.schema.names)
    writer.writerows(zip(*_texts(table, CSV_NULL), strict=True))
    return buffer.getvalue().rstrip("\n")


def as_markdown(table: pa.Table) -> str:
    """Returns a pipe table."""
    columns = [
        [value.replace("|", "\\|").replace("\n", "<br>") for value in column] for column in _texts(table)
    ]
    headings = [name.replace("|", "\\|") for name in table.schema.names]
    rule = ["---:" if _is_number(kind) else "---" for kind in table.schema.types]
    lines = [headings, rule, *map(list, zip(*columns, strict=True))]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _write(stream: Any, line: str) -> None:
    progress.clear()
    try:
        try:
            stream.write(line + "\n")
        except UnicodeEncodeError:  # a terminal that is not UTF-8 shows what it can
            encoding = stream.encoding or "ascii"
            stream.write(line.encode(encoding, errors="backslashreplace").decode(encoding) + "\n")
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "standard error" if stream is sys.stderr else "standard output"
        raise OSError(error.errno, error.strerror, name) from None


_FORMS: Final[dict[Format, Callable[[Any], str]]] = {
    Format.TABLE: box,
    Format.JSON: as_json,
    Format.CSV: as_csv,
    Format.MARKDOWN: as_markdown,
}
