"""Doris's functions of dates and times: formats, intervals, zones, clocks.

Texts are read as dates, and as NULL if they hold none. Clocks show one moment of the statement, in the
session's time zone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.sqlglot_adapter import exp
from seqstore.store.sql.translate.calls import (
    Counted,
    EvaluationContext,
    Moment,
    call,
    literal_integer,
)
from seqstore.store.sql.translate.computed_once import once
from seqstore.store.sql.translate.conversions import (
    add_to_date,
    as_date,
    as_moment,
    as_text,
    truncated_date,
)
from seqstore.store.sql.translate.value_types import is_quoted

_LAST_SECOND: Final = 253_402_300_799  # of the year 9999
_OFFSET: Final = re.compile(r"([+-])(\d{1,2}):(\d{2})")
CONSTANT_TIMES: Final = frozenset([
    "now", "current_timestamp", "localtime", "localtimestamp", "sysdate", "curdate", "current_date",
    "utc_timestamp", "curtime", "current_time",
])  # fmt: skip
_EXTRACTED: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "microsecond")
_UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond",
                 "microsecond")  # fmt: skip
_COARSE_UNITS: Final = _UNITS[:-2]  # from a second on
_FINE_UNITS: Final = _UNITS[-3:]
# MySQL's format letters -> strftime's of DuckDB.
_FORMAT_LETTERS: Final = {
    "%": "%%", "H": "%H", "I": "%I", "M": "%B", "S": "%S", "T": "%H:%M:%S", "W": "%A", "Y": "%Y", "a": "%a",
    "b": "%b", "c": "%-m", "d": "%d", "e": "%-d", "f": "%f", "h": "%I", "i": "%M", "j": "%j", "k": "%-H",
    "l": "%-I", "m": "%m", "p": "%p", "r": "%I:%M:%S %p", "s": "%S", "v": "%V", "w": "%w", "x": "%G",
    "y": "%y",
}  # fmt: skip
_WEEK: Final = re.compile("%[VvUu]")
_YEAR_OF_WEEK: Final = {"V": "X", "v": "x", "U": "Y", "u": "Y"}
_WEEK_PARTS: Final = {
    **dict.fromkeys("XxY", r"(\d{4})"),
    **dict.fromkeys("VvUu", r"(\d{1,2})"),
    **dict.fromkeys("Wa", "([A-Za-z]+)"),
    "w": "([0-6])",
}
_NAMED_FORMATS: Final = {
    "yyyyMMdd": "%Y%m%d",
    "yyyy-MM-dd": "%Y-%m-%d",
    "yyyy-MM-dd HH:mm:ss": "%Y-%m-%d %H:%i:%s",
}


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
_BY_MACRO: Final = re.compile(r"(%[DUuVvXx])")


def constant_time(name: str, arguments: Sequence[exp.Expr], moment: Moment) -> exp.Expr:
    """Builds the moment of the statement, one for all rows and all calls."""
    if name in ("curdate", "current_date"):
        return exp.cast(exp.Literal.string(moment.local.date().isoformat()), "DATE")
    if name in ("curtime", "current_time"):
        return exp.cast(exp.Literal.string(f"{moment.local:%H:%M:%S}"), "TIME")
    digits = literal_integer(name, arguments[0]) if arguments else 0
    if not 0 <= digits <= 6:
        raise InvalidInputError(
            f"function {name!r}: expected 0 to 6 fraction digits, found {digits}", kind="bad_argument"
        )
    shown = moment.utc if name == "utc_timestamp" else moment.local
    step = 10 ** (6 - digits)
    cut = shown.replace(microsecond=shown.microsecond // step * step)
    return exp.cast(exp.Literal.string(cut.isoformat(sep=" ")), "TIMESTAMP")


def add_interval(moment: exp.Expr, interval: exp.Interval, *, subtract: bool) -> exp.Expr:
    """Translates `moment + interval`; a DATE stays a DATE unless the unit is below a day."""
    unit = str(interval.args["unit"].name).upper() if interval.args.get("unit") else "DAY"
    if unit.lower() not in _UNITS:
        raise InvalidInputError(
            f"INTERVAL ... {unit} is not supported; expected one of {', '.join(_UNITS).upper()}",
            kind="not_supported",
        )
    if subtract:
        amount = exp.Mul(this=exp.paren(interval.this), expression=exp.Literal.number(-1))
        if isinstance(interval.this, exp.Literal) and interval.this.is_string:
            amount = exp.Mul(this=exp.cast(interval.this, "BIGINT"), expression=exp.Literal.number(-1))
        interval = exp.Interval(this=exp.paren(amount), unit=interval.args.get("unit"))
    if unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"):
        moment = as_moment(moment)
    return add_to_date(moment, interval)


def _strftime_format(name: str, node: exp.Expr) -> exp.Expr:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise InvalidInputError(
            f"function {name!r}: expected a format in quotes, found {node.sql()}", kind="bad_argument"
        )
    letters = iter(_NAMED_FORMATS.get(node.this, node.this))
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


def _date_format(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    wanted = arguments[1]
    moment = as_moment(arguments[0])
    if not isinstance(wanted, exp.Literal) or not _BY_MACRO.search(wanted.name):
        return call("strftime", moment, _strftime_format(name, wanted))

    def joined(value: exp.Expr) -> exp.Expr:
        parts: list[exp.Expr] = []
        for piece in _BY_MACRO.split(wanted.name):
            macro = _LETTER_MACROS.get(piece)
            if macro is not None:
                parts.append(exp.cast(call(macro, value.copy()), "TEXT"))
            elif piece:
                plain = _strftime_format(name, exp.Literal.string(piece))
                parts.append(call("strftime", value.copy(), plain))
        return call("concat", *parts)

    return once([moment], joined)


def _time_format(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
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
        for piece in filter(None, re.split(r"(%[Hk])", wanted.name.replace("%T", "%H:%i:%s"))):
            if piece in ("%H", "%k"):
                digits = exp.Literal.string("%02d" if piece == "%H" else "%d")
                part = call("printf", digits, call("d_time_hours", time.copy()))
            else:
                plain = _strftime_format(name, exp.Literal.string(piece))
                part = call("strftime", call("d_clock", time.copy()), plain)
            found = exp.DPipe(this=found, expression=part)  # NULL if one of them is
        return exp.paren(found)

    return once([as_text(arguments[0])], joined)


def _str_to_date(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    if is_quoted(arguments[1]) and _WEEK.search(arguments[1].name):
        text, pattern = as_text(arguments[0]), arguments[1].name
        return once([text], lambda value: _week_date(name, value, pattern))
    wanted = _strftime_format(name, arguments[1])
    parsed = call("try_strptime", exp.cast(arguments[0], "TEXT"), wanted)
    has_time = any(mark in wanted.name for mark in ("%H", "%-H", "%I", "%-I", "%M", "%S", "%f", "%p"))
    return parsed if has_time else exp.cast(parsed, "DATE")


def _week_date(name: str, text: exp.Expr, wanted: str) -> exp.Expr:
    """Parses a year, the number of a week and a weekday, such as `%X%V %W`."""
    pattern, groups = "", ""
    for letter, plain in re.findall(r"%(.)|([^%]+)", wanted):
        if letter and letter not in _WEEK_PARTS:
            raise InvalidInputError(
                f"function {name!r}: format letter %{letter} is not supported beside a week; expected one of "
                f"{', '.join(f'%{each}' for each in _WEEK_PARTS)}",
                kind="bad_argument",
            )
        pattern += _WEEK_PARTS[letter] if letter else re.escape(plain)
        groups += letter
    parts = {
        letter: call("regexp_extract", text.copy(), exp.Literal.string(f"^{pattern}"), exp.Literal.number(i))
        for i, letter in enumerate(groups, 1)
    }
    week = next((letter for letter in "VvUu" if letter in parts), "")
    year = parts.get(_YEAR_OF_WEEK[week], next((parts[letter] for letter in "XxY" if letter in parts), None))
    day = next((parts[letter] for letter in "Waw" if letter in parts), None)
    if year is None or day is None:
        raise InvalidInputError(
            f"function {name!r}: expected a year, a week and a weekday in {wanted!r}", kind="bad_argument"
        )
    if _YEAR_OF_WEEK[week] not in parts:
        return exp.cast(exp.null(), "DATE")
    if week in "Vv":
        number = exp.TryCast(this=parts[week], to=exp.DataType.build("INT"))
        parts[week] = call("nullif", number, exp.Literal.number(0))  # as in MySQL
    return call(f"d_week_date_{'sunday' if week in 'VU' else 'monday'}", year, parts[week], day)


def _from_unixtime(name: str, arguments: list[exp.Expr], context: EvaluationContext) -> exp.Expr:
    """Translates `from_unixtime` to text in the session's zone; DuckDB's returns a moment with a zone."""
    default = exp.Literal.string("%Y-%m-%d %H:%i:%s")
    wanted = _strftime_format(name, arguments[1] if len(arguments) == 2 else default)
    last = exp.Literal.number(_LAST_SECOND)

    def found(seconds: exp.Expr) -> exp.Expr:
        local = _from_epoch(seconds, 1_000_000, context)
        return call("d_since_1970", seconds.copy(), call("strftime", local, wanted), last)

    return once([arguments[0]], found)


def _from_epoch(count: exp.Expr, microseconds: int, context: EvaluationContext) -> exp.Expr:
    """Builds the time in the session's zone, `count` units of some microseconds after 1970."""
    whole = exp.Mul(this=exp.cast(exp.paren(count), "BIGINT"), expression=exp.Literal.number(microseconds))
    return _shifted(call("make_timestamp", whole), context.moment.zone, to_utc=False)


def _from_units(name: str, arguments: list[exp.Expr], context: EvaluationContext) -> exp.Expr:
    """Translates `from_second` and its like: a time in the session's zone."""
    scale = {"from_second": 1_000_000, "from_millisecond": 1_000, "from_microsecond": 1}[name]
    last = exp.Literal.number((_LAST_SECOND + 1) * (1_000_000 // scale) - 1)

    def found(units: exp.Expr) -> exp.Expr:
        return call("d_since_1970", units.copy(), _from_epoch(units, scale, context), last)

    return once([arguments[0]], found)


def _to_units(name: str, arguments: list[exp.Expr], context: EvaluationContext) -> exp.Expr:
    """Translates `second_timestamp` and its like: units since 1970 of a time in the session's zone."""
    function = {"second": "epoch", "millisecond": "epoch_ms", "microsecond": "epoch_us"}[name.split("_")[0]]
    moment = exp.cast(as_moment(arguments[0]), "TIMESTAMP")
    units = call(function, _shifted(moment, context.moment.zone, to_utc=True))
    return exp.cast(call("floor", units), "BIGINT")


def _convert_tz(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Zones are names or offsets; those that are computed are names."""
    moment, start, end = exp.cast(as_moment(arguments[0]), "TIMESTAMP"), arguments[1], arguments[2]
    if not all(isinstance(zone, exp.Literal) and zone.is_string for zone in (start, end)):
        raise InvalidInputError(
            f"function {name!r}: expected time zones in quotes, found {start.sql()}, {end.sql()}",
            kind="bad_argument",
        )
    utc = _shifted(moment, start.name, to_utc=True)
    return exp.cast(_shifted(exp.cast(utc, "TIMESTAMP"), end.name, to_utc=False), "TIMESTAMP")


def _rounded(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `day_floor(t [, count])`, `date_ceil(t, INTERVAL count unit)`: steps since 0001-01-01."""
    unit, _, way = name.partition("_")
    count: exp.Expr = arguments[1] if len(arguments) == 2 else exp.Literal.number(1)
    if isinstance(count, exp.Interval):
        unit, count = _unit(name, exp.var(count.args["unit"].name)).lower(), count.this
    elif unit == "date":
        raise InvalidInputError(
            f"function {name!r}: expected an INTERVAL, found {count.sql()}", kind="bad_argument"
        )
    step = exp.Interval(this=exp.paren(exp.cast(count, "INT")), unit=exp.var(unit))
    return call(f"d_bucket_{way}", as_moment(arguments[0]), step)


def _unix_timestamp(name: str, arguments: list[exp.Expr], context: EvaluationContext) -> exp.Expr:
    if not arguments:
        return exp.Literal.number(int((context.moment.utc - datetime(1970, 1, 1)).total_seconds()))
    local = as_moment(arguments[0]) if len(arguments) == 1 else _str_to_date(name, arguments, context)
    seconds = call("epoch", _shifted(exp.cast(local, "TIMESTAMP"), context.moment.zone, to_utc=True))
    return call("d_at_least_0", exp.cast(call("floor", seconds), "BIGINT"))


def _shifted(moment: exp.Expr, zone: str, *, to_utc: bool) -> exp.Expr:
    """Shifts a time without zone from UTC to the zone or back."""
    offset = _OFFSET.fullmatch(zone)
    if offset is None:
        first, second = (zone, "UTC") if to_utc else ("UTC", zone)
        inner = call("timezone", exp.Literal.string(first), moment)
        return call("timezone", exp.Literal.string(second), inner)
    minutes = (int(offset[2]) * 60 + int(offset[3])) * (-1 if offset[1] == "-" else 1)
    shift = exp.Interval(
        this=exp.Literal.string(str(-minutes if to_utc else minutes)), unit=exp.var("MINUTE")
    )
    return exp.paren(exp.Add(this=moment, expression=shift))


def _datediff(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    later, earlier = (as_date(argument) for argument in arguments)
    return call("date_diff", exp.Literal.string("day"), earlier, later)


def _timestampdiff(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    start, end = (as_moment(argument) for argument in arguments[1:])
    return call("date_sub", exp.Literal.string(_unit(name, arguments[0])), start, end)


def _unit_diff(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `days_diff` and its like: whole units from the second moment to the first."""
    end, start = (as_moment(argument) for argument in arguments)
    return call("date_sub", exp.Literal.string(name.split("s_")[0]), start, end)


def _timestampadd(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    interval = exp.Interval(this=exp.paren(arguments[1]), unit=exp.var(_unit(name, arguments[0])))
    return add_interval(arguments[2], interval, subtract=False)


def _unit(name: str, node: exp.Expr) -> str:
    unit = node.name.upper()
    if unit.lower() not in _UNITS:
        raise InvalidInputError(
            f"function {name!r}: expected a unit such as DAY, found {node.sql()}", kind="bad_argument"
        )
    return unit


def _date_add(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    interval = arguments[1]
    if not isinstance(interval, exp.Interval):
        interval = exp.Interval(this=exp.paren(interval), unit=exp.var("DAY"))
    return add_interval(arguments[0], interval, subtract=name.endswith(("sub", "subdate")))


def _unit_add(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    unit = "MONTH" if name == "add_months" else name.split("s_")[0].upper()
    interval = exp.Interval(this=exp.paren(arguments[1]), unit=exp.var(unit))
    return add_interval(arguments[0], interval, subtract=name.endswith("_sub"))


def _date_trunc(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `date_trunc`; the unit may be the first or the second argument."""
    first, second = arguments
    if second.name.lower() in _COARSE_UNITS and not _is_unit(first):
        first, second = second, first
    if not _is_unit(first):
        raise InvalidInputError(
            f"function {name!r}: expected a unit such as 'day', found {first.sql()}", kind="bad_argument"
        )
    return truncated_date(exp.Literal.string(first.name.lower()), second)


def _is_unit(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.name.lower() in _COARSE_UNITS


def _weekday(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `dayofweek`, which counts from Sunday = 1, and `weekday`, from Monday = 0."""
    moment = as_moment(arguments[0])
    counted, step = (call("dayofweek", moment), 1) if name != "weekday" else (call("isodow", moment), -1)
    return exp.paren(exp.Add(this=counted, expression=exp.Literal.number(step)))


def _week(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `week` and `yearweek` with MySQL's modes; `yearweek` knows no week 0.

    Odd modes start weeks on Monday. In the modes 1, 3, 4 and 6 the first week has four days of the year, in
    the others the first day of a week. In 0, 1, 4 and 5 the days before the first week are week 0. A week
    belongs to the year of its anchor, the first or the fourth of its days.
    """
    mode = literal_integer(name, arguments[1]) if len(arguments) == 2 else 0
    if mode not in range(8):
        raise InvalidInputError(
            f"function {name!r}: mode {mode} is not supported; expected 0 to 7", kind="bad_argument"
        )
    macro = f"d_week_mode_{mode}" if name == "week" else f"d_yearweek_mode_{mode | 2}"
    return call(macro, as_moment(arguments[0]))


def _microsecond(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    return _microseconds(arguments[0])


def _microseconds(value: exp.Expr) -> exp.Expr:
    """Builds those behind the second; DuckDB's function counts from the minute."""
    whole = call("microsecond", as_moment(value))
    return exp.paren(exp.Mod(this=whole, expression=exp.Literal.number(1_000_000)))


def extracted(node: exp.Expr) -> exp.Expr:
    """Translates `EXTRACT(unit FROM x)`, which has the value of the function with the unit's name."""
    unit = node.name.lower()
    if unit not in _EXTRACTED:
        raise InvalidInputError(
            f"EXTRACT does not know the unit {unit.upper()}; expected {', '.join(_EXTRACTED).upper()}",
            kind="bad_argument",
        )
    if unit == "microsecond":
        return _microseconds(node.expression)
    moment = as_moment(node.expression)
    if unit == "week":
        return call("d_week_mode_0", moment)
    node.set("expression", moment)
    return node


DATE_FUNCTIONS: Final[dict[str, Counted]] = {
    **dict.fromkeys(("adddate", "date_add", "subdate", "date_sub"), (_date_add, (2,))),
    **dict.fromkeys([f"{unit}s_{way}" for unit in _UNITS for way in ("add", "sub")], (_unit_add, (2,))),
    **dict.fromkeys([f"{unit}s_diff" for unit in _UNITS], (_unit_diff, (2,))),
    **dict.fromkeys(
        [f"{unit}_{way}" for unit in ("date", *_COARSE_UNITS) for way in ("floor", "ceil")],
        (_rounded, (1, 2)),
    ),
    **dict.fromkeys(("dayofweek", "weekday", "day_of_week"), (_weekday, (1,))),
    **dict.fromkeys([f"from_{unit}" for unit in _FINE_UNITS], (_from_units, (1,))),
    **dict.fromkeys(
        ("second_timestamp", "millisecond_timestamp", "microsecond_timestamp"), (_to_units, (1,))
    ),
    **dict.fromkeys(("week", "yearweek"), (_week, (1, 2))),
    "add_months": (_unit_add, (2,)),
    "convert_tz": (_convert_tz, (3,)),
    "date": (lambda _name, given, _context: as_date(given[0]), (1,)),
    "date_format": (_date_format, (2,)),
    "time_format": (_time_format, (2,)),
    "date_trunc": (_date_trunc, (2,)),
    "datediff": (_datediff, (2,)),
    "from_unixtime": (_from_unixtime, (1, 2)),
    "last_day": (lambda _name, given, _context: call("last_day", as_date(given[0])), (1,)),
    "microsecond": (_microsecond, (1,)),
    "str_to_date": (_str_to_date, (2,)),
    "timestampadd": (_timestampadd, (3,)),
    "timestampdiff": (_timestampdiff, (3,)),
    "to_date": (lambda _name, given, _context: as_date(given[0]), (1,)),
    "to_days": (lambda _name, given, _context: call("d_to_days", as_date(given[0])), (1,)),
    "unix_timestamp": (_unix_timestamp, (0, 1, 2)),
}
