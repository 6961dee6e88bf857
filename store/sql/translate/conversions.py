"""Conversions of a value to the type that an operator or function takes, as DuckDB calls.

The noted type (sql.translate.value_types) decides which conversion it is; a value that has the type stays as
it is. Where no type is noted, a macro with a body for each type is called, and DuckDB chooses a body.
DuckDB cannot choose for a column of a query two levels above, so that such a call fails there.
A text that cannot be read is NULL, not an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.calls import call
from seqstore.store.sql.translate.value_types import (
    ANY_TIME,
    INTEGERS,
    NULL,
    NUMBERS,
    TEXTS,
    fraction_digits,
    is_iso_date,
    is_quoted,
    is_time,
    note,
    type_of,
)
from seqstore.store.types.cast import try_cast
from seqstore.store.types.cast.outcome import BLANKS
from seqstore.store.types.cast.times import MOMENT_TEXT
from seqstore.store.types.column_types import ColumnType

DATETIME_NAMES: Final = ("DATETIME", "TIMESTAMP", "TIMESTAMPTZ")  # of one type, as sqlglot reads its words
TEXT_NUMBER: Final = "text_number"  # note at a column of texts: the type of its numbers, instead of DOUBLE
_FLOATING: Final = frozenset(["FLOAT", "DOUBLE"])
_PLAIN_NUMBER: Final = re.compile(r"[+-]?(\d{1,38}|(?=[\d.]{1,39}$)\d+\.\d+)")
_MOMENT: Final = re.compile(MOMENT_TEXT, re.ASCII)
_DIGITS_OF_DATE: Final = "%Y%m%d"


def as_number(value: exp.Expr) -> exp.Expr:
    """Converts a value to a number for a comparison: a date to its digits, true to 1."""
    kind = type_of(value)
    if kind is None:
        return _unless_null("d_as_number", value)
    if kind in TEXTS:
        return _number_of_text(value)
    if kind == "BOOLEAN":
        return _as(value, "INT")
    return _digits_of_time(value, kind) if is_time(kind) else value


def as_operand(value: exp.Expr) -> exp.Expr:
    """Converts a value to a number for arithmetic, with small integers as BIGINT."""
    kind = type_of(value)
    if kind is None:
        return _unless_null("d_number", value)
    if kind in TEXTS:
        return _number_of_text(value)
    if is_time(kind):
        return _digits_of_time(value, kind)
    is_small = kind in ("BOOLEAN", "TINYINT", "SMALLINT", "INT") and not isinstance(value, exp.Literal)
    return _as(value, "BIGINT") if is_small else value


def as_numeric(value: exp.Expr) -> exp.Expr:
    """Converts a text to a number, and true to 1; other values stay."""
    kind = type_of(value)
    if kind in TEXTS:
        return _number_of_text(value)
    if kind is not None and is_time(kind):
        return _digits_of_time(value, kind)
    return _as(value, "INT") if kind == "BOOLEAN" else value


def as_whole(value: exp.Expr) -> exp.Expr:
    """Converts a value to a whole number, without its fraction; integers and values of no known type stay."""
    kind = type_of(value)
    if kind is None or kind in INTEGERS or kind == NULL or _group(kind) is None:
        return value
    whole = exp.TryCast(this=as_integer(value), to=exp.DataType.build("BIGINT"))
    return note(whole, "BIGINT")


def as_condition(value: exp.Expr) -> exp.Expr:
    """Converts a text or a time to a truth value; DuckDB reads numbers as one."""
    kind = type_of(value)
    if kind in TEXTS:
        return _as(value, "BOOLEAN", safe=True)
    return _as(_digits_of_time(value, kind), "BOOLEAN") if kind is not None and is_time(kind) else value


def as_text(value: exp.Expr) -> exp.Expr:
    """Converts a value to text: a DATETIME with the digits of its type, true to 1, a DOUBLE of 100 to `100`.

    Arrays and maps stay.
    """
    kind = type_of(value)
    if kind in TEXTS or kind == NULL or is_quoted(value) or (kind is not None and "<" in kind):
        return value
    if kind is None or kind == "BOOLEAN":
        return note(call("d_text", value), "STRING")
    if kind in _FLOATING:
        return note(call("d_double_shown", value), "STRING")
    if kind == "DATE":
        return note(call("strftime", value, exp.Literal.string("%Y-%m-%d")), "STRING")
    digits = fraction_digits(kind) if is_time(kind) else None
    if digits is None:
        return _as(value, "TEXT", "STRING")
    shown = call("strftime", value, exp.Literal.string("%Y-%m-%d %H:%M:%S" + (".%f" if digits else "")))
    if 0 < digits < 6:
        shown = call("left", shown, exp.Literal.number(len("2024-01-01 00:00:00.") + digits))
    return note(shown, "STRING")


def as_moment(value: exp.Expr) -> exp.Expr:
    """Converts a value to a DATETIME."""
    return _chosen("d_ts", value, ANY_TIME, _MOMENTS)


def cast_digits(to: exp.DataType) -> int:
    """Returns the fraction digits of a DATETIME to which a value is cast."""
    return min(int(to.expressions[0].name), 6) if to.expressions else 0


def as_date(value: exp.Expr) -> exp.Expr:
    """Converts a value to a DATE."""
    return _chosen("d_date", value, "DATE", _DATES)


def as_integer(value: exp.Expr) -> exp.Expr:
    """Prepares a value for a cast to an integer: fractions are cut, dates become their digits."""
    return _chosen("d_integer", value, None, _WHOLES)


def as_cut_moment(value: exp.Expr, digits: int) -> exp.Expr:
    """Converts a value to a DATETIME that is rounded to `digits` next; a text is not rounded before it."""
    if digits == 6 or type_of(value) not in TEXTS:
        return as_moment(value)
    return note(_constant_moment(value, digits) or call("d_moment_cut", value), ANY_TIME)


def as_read(value: exp.Expr, name: str) -> exp.Expr:
    """Prepares a value for a cast to DECIMAL, FLOAT, DOUBLE or BOOLEAN, which DuckDB reads in more forms."""
    macro = _READ_TEXTS.get(name)
    return call(macro, value) if macro is not None and type_of(value) in TEXTS else value


def add_to_date(moment: exp.Expr, interval: exp.Expr) -> exp.Expr:
    """Adds an interval; a DATE stays a DATE."""
    kind = type_of(moment)
    if kind == "DATE":
        return note(exp.cast(exp.Paren(this=exp.Add(this=moment, expression=interval)), "DATE"), "DATE")
    if kind is None:
        return call("d_add_date", moment, interval)
    added = exp.Paren(this=exp.Add(this=as_moment(moment), expression=interval))
    return note(added, kind if is_time(kind) else ANY_TIME)


def truncated_date(unit: exp.Expr, moment: exp.Expr) -> exp.Expr:
    """Truncates a moment to a unit; a DATE stays a DATE."""
    kind = type_of(moment)
    if kind is None:
        return call("d_date_trunc", unit, moment)
    is_date = kind == "DATE"
    cut = call("date_trunc", unit, moment if is_date else as_moment(moment))
    return exp.cast(cut, "DATE" if is_date else "TIMESTAMP")


def whole_quotient(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Divides two numbers, without the fraction."""
    kinds = {type_of(left), type_of(right)}
    if None in kinds:
        return call("d_int_div", left, right)
    if kinds <= INTEGERS | {"BOOLEAN"}:
        return exp.Paren(this=exp.IntDiv(this=exp.Paren(this=left), expression=exp.Paren(this=right)))
    return call("d_int_div_of", left, right)


def literal_beside(text: exp.Expr, kind: str) -> exp.Expr:
    """Converts text in quotes to a value of the type on the other side of a comparison."""
    if kind == "BOOLEAN":
        return _as(text, "BOOLEAN", safe=True)
    if kind in NUMBERS:
        written = text.name.strip()
        if kind not in _FLOATING and _PLAIN_NUMBER.fullmatch(written):
            number: exp.Expr = exp.Literal.number(written.lstrip("+-"))
            return exp.Neg(this=number) if written.startswith("-") else number
        return _as(text, "DOUBLE", safe=True)
    if is_time(kind):
        return _literal_moment(text)
    return text


def _literal_moment(text: exp.Expr) -> exp.Expr:
    return _as(text, "DATE") if is_iso_date(text) else note(_moment_of_text(text), ANY_TIME)


def _moment_of_text(value: exp.Expr) -> exp.Expr:
    return _constant_moment(value, 6) or call("d_moment", value)


def _constant_moment(value: exp.Expr, digits: int) -> exp.Expr | None:
    """Reads a text in quotes as loads do, which is faster than DuckDB's binding of a macro.

    None for other values and for a text with an offset: the macro knows the session's time zone.
    """
    if not is_quoted(value):
        return None
    try:
        parts = _MOMENT.match(value.name.strip(BLANKS))
        if parts is not None and (parts["zone1"] or parts["zone2"]):
            return None
        kind = ColumnType("DATETIME", (digits,))
        moment = try_cast(pa.array([value.name], pa.string()), kind).values[0].as_py()
    except (ValueError, OverflowError):  # the year 0, or characters that have no UTF-8
        return None
    shown = exp.null() if moment is None else exp.Literal.string(moment.isoformat(sep=" "))
    return exp.cast(shown, "TIMESTAMP")


def _number_of_text(value: exp.Expr) -> exp.Expr:
    kind = str(value.meta.get(TEXT_NUMBER, "DOUBLE"))
    return _as(value, kind, "DECIMAL" if kind.startswith("DECIMAL") else _NAMES.get(kind, kind), safe=True)


def _digits_of_time(value: exp.Expr, kind: str) -> exp.Expr:
    wanted = _DIGITS_OF_DATE if kind == "DATE" else _DIGITS_OF_DATE + "%H%M%S"
    return _as(call("strftime", value, exp.Literal.string(wanted)), "BIGINT")


def _of_digits(value: exp.Expr) -> exp.Expr:
    """Reads the digits of a number as a moment, as `20240131`."""
    return call("d_moment_of_digits", value)


def _as(value: exp.Expr, to: str, kind: str | None = None, *, safe: bool = False) -> exp.Expr:
    made = (exp.TryCast if safe else exp.Cast)(this=value, to=exp.DataType.build(to))
    return note(made, kind or to)


def _unless_null(name: str, value: exp.Expr) -> exp.Expr:
    """Calls a macro on a value; not on NULL, which fits every body."""
    return value if isinstance(value.unnest(), exp.Null) else call(name, value)


_Conversion = Callable[[exp.Expr], exp.Expr]


def _chosen(name: str, value: exp.Expr, to: str | None, by_type: Mapping[str, _Conversion]) -> exp.Expr:
    """Applies the conversion for the noted type; without one, the macro `name` chooses."""
    kind = type_of(value)
    group = _group(kind)
    conversion = by_type.get(group) if group is not None else None
    if conversion is None:
        return call(name, value)
    made = conversion(value)
    return made if made is value else note(made, to)


def _group(kind: str | None) -> str | None:
    """Returns the group of types that have one conversion."""
    if kind is None or kind == "DATE" or kind == "BOOLEAN":
        return kind
    if is_time(kind):
        return ANY_TIME
    if kind in TEXTS:
        return "STRING"
    if kind in INTEGERS:
        return "BIGINT"
    return "DOUBLE" if kind in NUMBERS else None


def _same(value: exp.Expr) -> exp.Expr:
    return value


_NAMES: Final = {"INT128": "LARGEINT"}
_READ_TEXTS: Final = {"DECIMAL": "d_number_text", "FLOAT": "d_double_text", "DOUBLE": "d_double_text",
                      "BOOLEAN": "d_truth_text"}  # fmt: skip
_MOMENTS: Final[dict[str, _Conversion]] = {
    ANY_TIME: _same,
    "DATE": lambda value: exp.cast(value, "TIMESTAMP"),
    "STRING": _moment_of_text,
    "BIGINT": _of_digits,
    "DOUBLE": _of_digits,
}
_DATES: Final[dict[str, _Conversion]] = {
    "DATE": _same,
    **{
        kind: lambda value, convert=convert: exp.cast(convert(value), "DATE")  # type: ignore[misc]
        for kind, convert in _MOMENTS.items()
        if kind != "DATE"
    },
}
_WHOLES: Final[dict[str, _Conversion]] = {
    "BIGINT": _same,
    "DOUBLE": lambda value: call("trunc", value),
    "BOOLEAN": lambda value: _as(value, "INT"),
    "DATE": lambda value: _digits_of_time(value, "DATE"),
    ANY_TIME: lambda value: _digits_of_time(value, ANY_TIME),
    "STRING": lambda value: call("d_whole_text", value),
}


def as_assigned(value: exp.Expr, kind: ColumnType) -> exp.Expr:
    """Returns a value for a column: of X'41' the number 65, where the column has numbers."""
    bare = value.unnest()
    is_number = isinstance(bare, exp.HexString) and kind.name in NUMBERS | {"LARGEINT"}
    return hexadecimal_number(bare) if is_number else value


def hexadecimal_number(node: exp.Expr) -> exp.Expr:
    """Returns the number of a hexadecimal literal."""
    return exp.Literal.number(int(str(node.this) or "0", 16))
