"""Texts of dates and times in MySQL's formats: `date_format`, `time_format`.

DuckDB's `strftime` writes the letters that it knows; macros write the others, such as %D and those of weeks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.calls import EvaluationContext, call
from seqstore.store.sql.translate.computed_once import once
from seqstore.store.sql.translate.conversions import as_moment, as_text
from seqstore.store.sql.translate.parsed_dates import NAMED_FORMATS
from seqstore.store.sql.translate.value_types import is_quoted

# MySQL's format letters -> strftime's of DuckDB.
_FORMAT_LETTERS: Final = {
    "%": "%%", "H": "%H", "I": "%I", "M": "%B", "S": "%S", "T": "%H:%M:%S", "W": "%A", "Y": "%Y", "a": "%a",
    "b": "%b", "c": "%-m", "d": "%d", "e": "%-d", "f": "%f", "h": "%I", "i": "%M", "j": "%j", "k": "%-H",
    "l": "%-I", "m": "%m", "p": "%p", "r": "%I:%M:%S %p", "s": "%S", "v": "%V", "w": "%w", "x": "%G",
    "y": "%y",
}  # fmt: skip
# Letters that DuckDB's strftime does not have, or reads otherwise.
_LETTER_MACROS: Final = {
    "%D": "d_day_ordinal",
    "%U": "d_two_digit_week_0",
    "%u": "d_two_digit_week_1",
    "%V": "d_two_digit_week_2",
    "%v": "d_two_digit_week_3",
    "%X": "d_year_of_week_2",
    "%x": "d_year_of_week_3",
}
_TIME_LETTERS: Final = "HhIiklprSsTf"
_BY_MACRO: Final = re.compile("%[DUuVvXx]")
_PIECES: Final = re.compile("(%%|%[DUuVvXx])")
_TIME_PIECES: Final = re.compile("(%%|%[HkT])")


def _strftime_format(name: str, node: exp.Expr) -> exp.Expr:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise InvalidInputError(
            f"function {name!r}: expected a format in quotes, found {node.sql()}", kind="bad_argument"
        )
    letters = iter(NAMED_FORMATS.get(node.this, node.this))
    parts: list[str] = []
    for letter in letters:
        if letter != "%":
            parts.append(letter)
            continue
        following = next(letters, "%")
        if following not in _FORMAT_LETTERS and following.isalpha():
            raise InvalidInputError(
                f"function {name!r}: format letter %{following} is not supported", kind="bad_argument"
            )
        parts.append(_FORMAT_LETTERS.get(following, following))
    return exp.Literal.string("".join(parts))


def date_format(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `date_format(moment, format)`."""
    return formatted(name, as_moment(arguments[0]), arguments[1])


def formatted(name: str, moment: exp.Expr, wanted: exp.Expr, plain: str = "strftime") -> exp.Expr:
    """Builds the text of a moment in one of MySQL's formats; NULL for an empty format.

    Args:
        plain: the DuckDB function that writes the letters which `strftime` knows.
    """
    if isinstance(wanted, exp.Null) or (is_quoted(wanted) and not wanted.name):
        return exp.cast(exp.null(), "TEXT")
    if not is_quoted(wanted) or not _BY_MACRO.search(wanted.name):
        return call(plain, moment, _strftime_format(name, wanted))

    def joined(value: exp.Expr) -> exp.Expr:
        found: exp.Expr | None = None
        for piece in filter(None, _PIECES.split(wanted.name)):
            macro = _LETTER_MACROS.get(piece)
            if macro is not None:
                part: exp.Expr = exp.cast(call(macro, value.copy()), "TEXT")
            else:
                part = call(plain, value.copy(), _strftime_format(name, exp.Literal.string(piece)))
            found = part if found is None else exp.DPipe(this=found, expression=part)  # NULL if one is
        return exp.paren(found or exp.null())

    return once([moment], joined)


def time_format(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `time_format`: the hours of a time may be more than 23, and it may be negative."""
    wanted = arguments[1]
    if not is_quoted(wanted):
        raise InvalidInputError(
            f"function {name!r}: expected a format in quotes, found {wanted.sql()}", kind="bad_argument"
        )
    for letter in re.findall(r"%(.)", wanted.name):
        if letter.isalpha() and letter not in _TIME_LETTERS:
            raise InvalidInputError(
                f"function {name!r}: format letter %{letter} is of a date; expected one of "
                f"{', '.join(f'%{each}' for each in _TIME_LETTERS)}",
                kind="bad_argument",
            )

    def joined(time: exp.Expr) -> exp.Expr:
        found: exp.Expr = call("regexp_extract", call("d_time_of_day", time), exp.Literal.string("^-?"))
        for piece in _time_pieces(wanted.name):
            if piece in ("%H", "%k"):
                digits = exp.Literal.string("%02d" if piece == "%H" else "%d")
                part = call("printf", digits, call("d_time_hours", time.copy()))
            else:
                letters = _strftime_format(name, exp.Literal.string(piece))
                part = call("strftime", call("d_clock", time.copy()), letters)
            found = exp.DPipe(this=found, expression=part)  # NULL if one of them is
        return exp.paren(found)

    return once([as_text(arguments[0])], joined)


def _time_pieces(wanted: str) -> Iterator[str]:
    """Yields the parts of a format of times; the letters of hours are parts of their own."""
    for piece in filter(None, _TIME_PIECES.split(wanted)):
        yield from ("%H", ":%i:%s") if piece == "%T" else (piece,)
