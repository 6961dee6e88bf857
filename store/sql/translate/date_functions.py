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
    as_whole,
    truncated_date,
)
from seqstore.store.sql.translate.date_formats import date_format, formatted, time_format
from seqstore.store.sql.translate.parsed_dates import parsed_date
from seqstore.store.sql.translate.value_types import (
    TEXTS,
    epoch_digits,
    is_iso_date,
    is_quoted,
    is_time,
    note,
    type_of,
)
from seqstore.store.types.cast.times import check_zone

_LAST_SECOND: Final = 253_402_300_799  # of the year 9999
_FRACTIONS: Final = ("DECIMAL", "FLOAT", "DOUBLE")
_OFFSET: Final = re.compile(r"([+-])(\d{1,2}):(\d{2})")
CONSTANT_TIMES: Final = frozenset([
    "now", "current_timestamp", "localtime", "localtimestamp", "sysdate", "curdate", "current_date",
    "utc_timestamp", "utc_date", "utc_time", "curtime", "current_time",
])  # fmt: skip
_EXTRACTED: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "microsecond")
_UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond",
                 "microsecond")  # fmt: skip
_COARSE_UNITS: Final = _UNITS[:-2]  # from a second on
_FINE_UNITS: Final = _UNITS[-3:]


def constant_time(name: str, arguments: Sequence[exp.Expr], moment: Moment) -> exp.Expr:
    """Builds the moment of the statement, one for all rows and all calls."""
    shown = moment.utc if name.startswith("utc_") else moment.local
    if name in ("curdate", "current_date", "utc_date"):
        return exp.cast(exp.Literal.string(shown.date().isoformat()), "DATE")
    digits = literal_integer(name, arguments[0]) if arguments else 0
    if not 0 <= digits <= 6:
        raise InvalidInputError(
            f"function {name!r}: expected 0 to 6 fraction digits, found {digits}", kind="bad_argument"
        )
    step = 10 ** (6 - digits)
    cut = shown.replace(microsecond=shown.microsecond // step * step)
    is_clock = name in ("curtime", "current_time", "utc_time")
    text = cut.time().isoformat() if is_clock else cut.isoformat(sep=" ")
    return exp.cast(exp.Literal.string(text), "TIME" if is_clock else "TIMESTAMP")


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
    elif is_iso_date(moment):
        moment = note(exp.cast(exp.Literal.string(moment.name), "DATE"), "DATE")
    return add_to_date(moment, interval)


def _from_unixtime(name: str, arguments: list[exp.Expr], context: EvaluationContext) -> exp.Expr:
    """Translates `from_unixtime` to text in the session's zone; DuckDB's returns a moment with a zone."""
    has_fraction = type_of(arguments[0]) == "DECIMAL"
    count = arguments[0] if has_fraction else as_whole(arguments[0])
    default = exp.Literal.string("%Y-%m-%d %H:%i:%s" + (".%f" if has_fraction else ""))
    wanted = arguments[1] if len(arguments) == 2 else default
    last = exp.Literal.number(_LAST_SECOND)

    def found(seconds: exp.Expr) -> exp.Expr:
        within = call("greatest", call("least", seconds, last.copy()), exp.Literal.number(0))
        local = _from_epoch(note(within, type_of(seconds)), 1_000_000, context)
        return call("d_since_1970", seconds.copy(), formatted(name, local, wanted, "d_shown"), last)

    return once([count], found)


def _from_epoch(count: exp.Expr, microseconds: int, context: EvaluationContext) -> exp.Expr:
    """Builds the time in the session's zone, `count` units of some microseconds after 1970."""
    scale = exp.Literal.number(microseconds)
    if microseconds > 1 and type_of(count) in _FRACTIONS:
        product = exp.Mul(this=exp.cast(exp.paren(count), "DOUBLE"), expression=scale)
        whole: exp.Expr = exp.cast(product, "BIGINT")
    else:
        whole = exp.Mul(this=exp.cast(exp.paren(count), "BIGINT"), expression=scale)
    return _shifted(call("make_timestamp", whole), context.moment.zone, to_utc=False)


def _from_units(name: str, arguments: list[exp.Expr], context: EvaluationContext) -> exp.Expr:
    """Translates `from_second` and its like: a time in the session's zone."""
    scale = {"from_second": 1_000_000, "from_millisecond": 1_000, "from_microsecond": 1}[name]
    last = exp.Literal.number((_LAST_SECOND + 1) * (1_000_000 // scale) - 1)

    def found(units: exp.Expr) -> exp.Expr:
        return call("d_since_1970", units.copy(), _from_epoch(units, scale, context), last)

    return once([arguments[0]], found)


def _time_to_sec(_name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `time_to_sec`: of the time of day of a moment, or of a text with up to 838 hours."""
    value = arguments[0]
    if type_of(value) is None:
        return call("d_time_part_to_sec", value)
    if is_time(type_of(value)):
        value = call("strftime", as_moment(value), exp.Literal.string("%H:%M:%S"))
    return call("d_time_to_sec", as_text(value))


def _sec_to_time(_name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `sec_to_time`; a number with a fraction has six digits behind the second."""
    has_fraction = type_of(arguments[0]) in _FRACTIONS
    return call("d_sec_to_time_exact" if has_fraction else "d_sec_to_time", arguments[0])


def _timediff(_name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    return call("d_timediff", *(exp.cast(as_moment(argument), "TIMESTAMP") for argument in arguments))


def _timestamp(_name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `timestamp(moment [, time])`."""
    moment = as_moment(arguments[0])
    if len(arguments) == 1:
        return exp.cast(moment, "TIMESTAMP")
    seconds = call("to_seconds", call("d_time_to_sec", as_text(arguments[1])))
    return exp.paren(exp.Add(this=exp.cast(moment, "TIMESTAMP"), expression=seconds))


def part_of_time(unit: str, value: exp.Expr) -> exp.Expr:
    """Builds the hour, minute, second or microsecond of a moment, or of a text such as `14:30:00`."""
    if type_of(value) in TEXTS and not isinstance(value, exp.Null):
        return call("d_part_of_time", exp.Literal.string(unit), value)
    return _microseconds(value) if unit == "microsecond" else call(unit, as_moment(value))


def _to_units(name: str, arguments: list[exp.Expr], context: EvaluationContext) -> exp.Expr:
    """Translates `second_timestamp` and its like: units since 1970 of a time in the session's zone."""
    scale = {"second": 1_000_000, "millisecond": 1_000, "microsecond": 1}[name.split("_")[0]]
    moment = exp.cast(as_moment(arguments[0]), "TIMESTAMP")
    return call(
        "d_units_since_1970", _shifted(moment, context.moment.zone, to_utc=True), exp.Literal.number(scale)
    )


def _convert_tz(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Zones are names or offsets; those that are computed are names."""
    moment, start, end = exp.cast(as_moment(arguments[0]), "TIMESTAMP"), arguments[1], arguments[2]
    if not all(isinstance(zone, exp.Literal) and zone.is_string for zone in (start, end)):
        raise InvalidInputError(
            f"function {name!r}: expected time zones in quotes, found {start.sql()}, {end.sql()}",
            kind="bad_argument",
        )
    utc = _shifted(moment, check_zone(start.name), to_utc=True)
    return exp.cast(_shifted(exp.cast(utc, "TIMESTAMP"), check_zone(end.name), to_utc=False), "TIMESTAMP")


def _rounded(name: str, arguments: list[exp.Expr], _context: EvaluationContext) -> exp.Expr:
    """Translates `day_floor(t [, count] [, origin])`, `date_ceil(t, INTERVAL count unit)`.

    Steps begin at the origin, at 0001-01-01 by default. A DATE stays one in steps of days and more.
    """
    unit, _, way = name.partition("_")
    moment, *others = arguments
    origin = others.pop() if others and _is_moment(others[-1]) else None
    count: exp.Expr = others[0] if others else exp.Literal.number(1)
    if isinstance(count, exp.Interval):
        unit, count = _unit(name, exp.var(count.args["unit"].name)).lower(), count.this
    elif unit == "date" or len(others) > 1:
        expected = "an INTERVAL" if unit == "date" else "a count of steps and an origin"
        raise InvalidInputError(
            f"function {name!r}: expected {expected}, found {count.sql()}", kind="bad_argument"
        )
    if isinstance(count, exp.Neg) or (isinstance(count, exp.Literal) and count.name == "0"):
        raise InvalidInputError(
            f"function {name!r}: expected a step above 0, found {count.sql()}", kind="bad_argument"
        )
    step = exp.Interval(this=exp.paren(exp.cast(count, "INT")), unit=exp.var(unit))
    if origin is None:
        found = call(f"d_bucket_{way}", as_moment(moment), step)
    else:
        start = exp.cast(as_moment(origin), "TIMESTAMP")
        found = call(f"d_bucket_{way}_from", as_moment(moment), step, start)
    is_date = type_of(moment) == "DATE" and unit not in ("hour", "minute", "second")
    return exp.cast(found, "DATE") if is_date else found


def _is_moment(value: exp.Expr) -> bool:
    kind = type_of(value)
    return is_time(kind) or (is_quoted(value) and not value.name.strip().isdigit())


def _unix_timestamp(name: str, arguments: list[exp.Expr], context: EvaluationContext) -> exp.Expr:
    if not arguments:
        return exp.Literal.number(int((context.moment.utc - datetime(1970, 1, 1)).total_seconds()))
    digits = 0 if len(arguments) == 2 else epoch_digits(arguments[0])
    local = as_moment(arguments[0]) if len(arguments) == 1 else parsed_date(name, arguments, context)
    utc = _shifted(exp.cast(local, "TIMESTAMP"), context.moment.zone, to_utc=True)
    if digits:
        # A DOUBLE has the milliseconds of all years exactly, and is twenty times as fast.
        exact = "d_milliseconds" if digits <= 3 else "d_exact_seconds"
        seconds: exp.Expr = exp.cast(call(exact, utc), f"DECIMAL(19, {digits})")
    else:
        seconds = call("d_units_since_1970", utc, exp.Literal.number(1_000_000))
    return call("d_at_least_0", seconds)


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
    return part_of_time(name, arguments[0])


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
        (_rounded, (1, 2, 3)),
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
    "date_format": (date_format, (2,)),
    "time_format": (time_format, (2,)),
    "date_trunc": (_date_trunc, (2,)),
    "datediff": (_datediff, (2,)),
    "from_unixtime": (_from_unixtime, (1, 2)),
    "last_day": (lambda _name, given, _context: call("last_day", as_date(given[0])), (1,)),
    "microsecond": (_microsecond, (1,)),
    "str_to_date": (parsed_date, (2,)),
    "sec_to_time": (_sec_to_time, (1,)),
    "time_to_sec": (_time_to_sec, (1,)),
    "timediff": (_timediff, (2,)),
    "timestamp": (_timestamp, (1, 2)),
    "timestampadd": (_timestampadd, (3,)),
    "timestampdiff": (_timestampdiff, (3,)),
    "to_date": (lambda _name, given, _context: as_date(given[0]), (1,)),
    "to_days": (lambda _name, given, _context: call("d_to_days", as_date(given[0])), (1,)),
    "unix_timestamp": (_unix_timestamp, (0, 1, 2)),
}
