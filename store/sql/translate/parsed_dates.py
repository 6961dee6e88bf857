"""`str_to_date`: texts read by a format, as Doris and MySQL read them.

1. The format becomes a regular expression. Blanks before an item and text behind the last one are skipped;
   the text may end before any item but the first. An item takes as many digits, or as long a word, as it may:
   a character of its own is put between digits and letters, so that `\\b` is the end of both.
2. A part that the text does not have is 0, or 1 for a month and a day of a format without times.
3. Texts in a usual form of the format are read by DuckDB's parser, which is ten times faster.
4. The parts become a date and a time. Parts that are none, such as a month of 13, become NULL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.calls import EvaluationContext, call
from seqstore.store.sql.translate.computed_once import once
from seqstore.store.sql.translate.conversions import as_text
from seqstore.store.sql.translate.value_types import is_quoted

NAMED_FORMATS: Final = {
    "yyyyMMdd": "%Y%m%d",
    "yyyy-MM-dd": "%Y-%m-%d",
    "yyyy-MM-dd HH:mm:ss": "%Y-%m-%d %H:%i:%s",
}
_COMPOSED: Final = {"%T": "%H:%i:%s", "%r": "%I:%i:%s %p"}
_MONTHS: Final = ("january", "february", "march", "april", "may", "june", "july", "august", "september",
                  "october", "november", "december")  # fmt: skip


def _one_of(words: Iterable[str]) -> str:
    return rf"(?i:{'|'.join(words)})\b"


def _digits(most: int) -> str:
    return rf"\d{{{most}}}|\d{{1,{most - 1}}}\b"


_TWO_DIGITS: Final = _digits(2)
_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
# Letter -> the name of its part and the expression of its text.
_PARTS: Final = {
    "Y": ("year", _digits(4)),
    "y": ("year", _TWO_DIGITS),
    **dict.fromkeys("mc", ("month", _TWO_DIGITS)),
    "M": ("month", _one_of(_MONTHS)),
    "b": ("month", _one_of(month[:3] for month in _MONTHS)),
    **dict.fromkeys("de", ("day", _TWO_DIGITS)),
    "D": ("day", _TWO_DIGITS),
    "j": ("day_of_year", _digits(3)),
    **dict.fromkeys("Xx", ("year_of_week", _digits(4))),
    **dict.fromkeys("VvUu", ("week", _TWO_DIGITS)),
    "W": ("weekday", _one_of(_DAYS)),
    "a": ("weekday", _one_of(day[:3] for day in _DAYS)),
    "w": ("weekday", "[0-6]"),
    **dict.fromkeys("Hk", ("hour", _TWO_DIGITS)),
    **dict.fromkeys("hIl", ("hour_of_half", _TWO_DIGITS)),
    "p": ("half", "(?i:am|pm)"),
    "i": ("minute", _TWO_DIGITS),
    **dict.fromkeys("sS", ("second", _TWO_DIGITS)),
    "f": ("fraction", _digits(6)),
}  # fmt: skip
_TIMES: Final = ("hour", "hour_of_half", "half", "minute", "second", "fraction")
_STRPTIME: Final = {"Y": "%Y", "m": "%m", "c": "%-m", "d": "%d", "e": "%-d", "H": "%H", "k": "%-H", "i": "%M",
                    "s": "%S", "S": "%S", "f": "%f"}  # fmt: skip
_BLANKS: Final = r"[\s\x1f]*"
_BEHIND_DAY: Final = r"(?:\x1f?.{2}|.?$)"  # of %D: two characters, as the th of 4th
_YEAR_OF: Final = {"V": "X", "v": "x", "U": "Yy", "u": "Yy"}


def parsed_date(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `str_to_date(text, format)`: a DATE, or a DATETIME if the format has a part of a time.

    Raises:
        InvalidInputError: the format is not in quotes, or has a letter that is not known.
    """
    text, wanted = as_text(arguments[0]), arguments[1]
    if isinstance(wanted, exp.Null):
        return exp.cast(exp.null(), "DATE")
    if not is_quoted(wanted):
        raise InvalidInputError(
            f"function {name!r}: expected a format in quotes, found {wanted.sql()}", kind="bad_argument"
        )
    written = NAMED_FORMATS.get(wanted.name, wanted.name)
    for short, long in _COMPOSED.items():
        written = written.replace(short, long)
    pattern, letters = _pattern(name, written)
    has_time = any(part in letters for part in _TIMES)
    kind = "TIMESTAMP" if has_time else "DATE"
    if not letters or not _is_readable(letters):
        return exp.cast(exp.null(), kind)
    names = call("list_value", *map(exp.Literal.string, letters))
    common = _common_format(written)

    def by_parts(found: exp.Expr) -> exp.Expr:
        values = {part: call("struct_extract", found.copy(), exp.Literal.string(part)) for part in letters}
        date = _date(name, values, letters, has_time)
        return call("d_moment_of_clock", date, *_time(values)) if has_time else date

    def read(value: exp.Expr) -> exp.Expr:
        parts = call("regexp_extract", call("d_apart", value.copy()), exp.Literal.string(pattern), names)
        found = exp.cast(once([parts], by_parts, in_lambda=True), "TIMESTAMP")
        if common is None:
            return found
        quick = call("d_at_least_1000", call("try_strptime", value.copy(), exp.Literal.string(common)))
        return exp.Coalesce(this=quick, expressions=[found])

    return exp.cast(once([text], read), kind)


def _common_format(written: str) -> str | None:
    """Returns a format as `strptime` has it, if that reads texts of four-digit years in the same way."""
    letters = re.findall("%(.?)", written)
    parts = sorted(_PARTS[letter][0] for letter in letters if letter in _PARTS)
    is_whole = {"year", "month", "day"} <= set(parts) and len(set(parts)) == len(parts)
    if not is_whole or not set(letters) <= set(_STRPTIME):
        return None
    return re.sub("%(.)", lambda found: _STRPTIME[found[1]], written)


def _pattern(name: str, written: str) -> tuple[str, dict[str, str]]:
    """Returns the regular expression of a format, and the letter of each of its groups by the part's name.

    Of a part that occurs twice the second counts.
    """
    items: list[tuple[str, str]] = []
    for letter, plain in re.findall(r"%(.?)|([^%\s])", written):
        if plain:
            items.append((re.escape(plain), ""))
        elif letter in ("", "%"):
            items.append(("%", ""))
        elif letter in _PARTS:
            behind = _BEHIND_DAY if letter == "D" else ""
            items.append((f"({_PARTS[letter][1]}){behind}", letter))
        else:
            raise InvalidInputError(
                f"function {name!r}: format letter %{letter} is not supported; expected one of "
                f"{', '.join(f'%{each}' for each in _PARTS)}",
                kind="bad_argument",
            )
    last = {_PARTS[letter][0]: place for place, (_, letter) in enumerate(items) if letter}
    pattern, letters = "", {}
    for place, (item, letter) in enumerate(items):
        is_last = letter and last[_PARTS[letter][0]] == place
        if is_last:
            letters[_PARTS[letter][0]] = letter
        elif letter:
            item = item.replace("(", "(?:", 1)
        pattern += item if not place else f"{_BLANKS}(?:$|{item}"
    return f"(?s)^{_BLANKS}{pattern}" + ")" * (len(items) - 1), letters


def _is_readable(letters: Mapping[str, str]) -> bool:
    """Returns whether the parts can be a date: AM and PM need hours of a half, and a week its own year."""
    if "half" in letters and "hour_of_half" not in letters:
        return False
    order = list(letters)
    if "half" in letters and order.index("half") < order.index("hour_of_half"):
        return False
    week = letters.get("week", "")
    years = letters.get("year", "") + letters.get("year_of_week", "")
    return not week or "weekday" not in letters or any(year in _YEAR_OF[week] for year in years)


def _date(name: str, values: Mapping[str, exp.Expr], letters: Mapping[str, str], has_time: bool) -> exp.Expr:
    week = letters.get("week", "")
    if week:
        if "weekday" not in letters or not ("year" in letters or "year_of_week" in letters):
            raise InvalidInputError(
                f"function {name!r}: expected a year, a week and a weekday beside %{week}",
                kind="bad_argument",
            )
        number = values["week"]
        if week in "Vv":
            whole = exp.TryCast(this=number, to=exp.DataType.build("INT"))
            number = call("nullif", whole, exp.Literal.number(0))  # as in MySQL
        year = call("d_year_of_text", values["year_of_week" if week in "Vv" else "year"])
        macro = f"d_week_date_{'sunday' if week in 'VU' else 'monday'}"
        return call(macro, year, number, values["weekday"])
    empty = exp.Literal.string("")
    year, month, day = (values.get(part, empty) for part in ("year", "month", "day"))
    date = call("d_day_of_texts", year, month, day, exp.Boolean(this=not has_time))
    if "day_of_year" not in values:
        return date
    number = values["day_of_year"]
    is_missing = exp.EQ(this=number, expression=empty)
    return exp.Case().when(is_missing, date).else_(call("d_day_of_year", year, number))


def _time(values: Mapping[str, exp.Expr]) -> list[exp.Expr]:
    empty = exp.Literal.string("")
    hour = values.get("hour", empty)
    if "hour_of_half" in values:
        hour = call("d_hour_of_half", values["hour_of_half"], values.get("half", empty))
    return [hour, *(values.get(part, empty) for part in ("minute", "second", "fraction"))]
