"""Doris's implicit casts in plain Python: a value of each type, and the answer of every comparison of two."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

MORNING = datetime(2024, 1, 2, 3, 4, 5, 500_000)
TEN = datetime(2024, 1, 3, 10)
# Name of a column -> its type and its values in three rows.
COLUMNS: Final[dict[str, tuple[str, list[Any]]]] = {
    "bo": ("BOOLEAN", [True, False, None]),
    "ti": ("TINYINT", [1, 5, None]),
    "si": ("SMALLINT", [2024, 7, None]),
    "i": ("INT", [20240102, 7, None]),
    "bi": ("BIGINT", [20240103100000, 7, None]),
    "li": ("LARGEINT", [Decimal(2**100), Decimal(7), None]),
    "de": ("DECIMAL(20,3)", [Decimal("20240102.000"), Decimal("7.500"), None]),
    "fl": ("FLOAT", [1.0, 7.5, None]),
    "do": ("DOUBLE", [20240102.0, 7.5, None]),
    "da": ("DATE", [date(2024, 1, 2), date(2024, 1, 3), None]),
    "dt": ("DATETIME", [datetime(2024, 1, 2), TEN, None]),
    "dm": ("DATETIME(3)", [MORNING, TEN, None]),
    "ch": ("CHAR(30)", ["2024-01-02", "7.5", None]),
    "vc": ("VARCHAR(30)", ["20240102", "7.50", None]),
    "st": ("STRING", ["2024-01-02 03:04:05.5", "abc", None]),
    "js": ("JSON", ["1", "7.5", None]),
}
OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXTS: Final = ("CHAR", "VARCHAR", "STRING", "JSON")
_TRUTH: Final = {"1": True, "true": True, "0": False, "false": False}


def comparisons() -> Iterator[tuple[str, list[Any]]]:
    """Yields each comparison of two columns with its three answers."""
    for left, (left_type, left_values) in COLUMNS.items():
        for right, (right_type, right_values) in COLUMNS.items():
            kinds = (left_type, right_type)
            pairs = [
                tuple(converted(value, kinds) for value in pair)
                for pair in zip(left_values, right_values, strict=True)
            ]
            for name, compare in OPERATORS.items():
                answers = [None if None in pair else compare(*pair) for pair in pairs]
                yield f"{left} {name} {right}", answers
            equal = [None if None in pair else pair[0] == pair[1] for pair in pairs]
            yield f"{left} IN ({right})", equal
            yield f"{left} BETWEEN {right} AND {right}", equal
            yield f"{left} <=> {right}", [pair[0] == pair[1] for pair in pairs]
            yield f"CASE {left} WHEN {right} THEN true ELSE false END", [bool(answer) for answer in equal]


def converted(value: Any, kinds: tuple[str, ...]) -> Any:
    """Converts a value to the type in which values of these types are compared."""
    families = {_family(kind) for kind in kinds}
    if value is None or families in ({"text"}, {"number"}, {"BOOLEAN"}):
        return value
    if families == {"BOOLEAN", "text"}:
        return _TRUTH.get(value) if isinstance(value, str) else value
    if families & {"number", "BOOLEAN"}:
        return number(value)
    return moment(value)


def number(value: Any) -> Any:
    """Reads any value as a number, a date as its digits; None for a text that is no number."""
    if isinstance(value, datetime):
        return int(f"{value:%Y%m%d%H%M%S}")
    if isinstance(value, date):
        return int(f"{value:%Y%m%d}")
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return int(value) if isinstance(value, bool) else value


def moment(value: Any) -> datetime | None:
    """Reads a date or a text as a moment; None for a text that is none."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    for form in ("%Y-%m-%d", "%Y%m%d", "%Y-%m-%d %H:%M:%S.%f"):
        try:
            return datetime.strptime(value, form)
        except ValueError:
            continue
    return None


def _family(kind: str) -> str:
    if kind.startswith(_TEXTS):
        return "text"
    if kind.startswith("DATE"):
        return "time"
    return "BOOLEAN" if kind == "BOOLEAN" else "number"
