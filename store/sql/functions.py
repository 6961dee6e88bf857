"""Doris functions in DuckDB: which exist, their names, and the macros that give them their Doris meaning.

A call that sqlglot has no tree of its own for must be named in one of the tables below; any other name is
refused, so that no function of DuckDB (files, settings, catalog) can be reached by accident. Dates given as
text are read as dates, text that is none gives NULL, and clocks show one moment of the statement in the
session's time zone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlglot import exp

from store.errors import InvalidInputError
from store.sql.macros import macro_names

_OFFSET: Final = re.compile(r"([+-])(\d{1,2}):(\d{2})")
SERVER_VERSION: Final = "5.7.99"

# Doris name -> DuckDB name, where both mean the same.
_RENAMED: Final = {
    "approx_count_distinct": "approx_count_distinct",
    "array_agg": "list",
    "array_contains": "list_contains",
    "array_distinct": "list_distinct",
    "array_position": "list_position",
    "array_size": "len",
    "array_sort": "list_sort",
    "bit_length": "bit_length",
    "bitxor": "xor",
    "bool_and": "bool_and",
    "bool_or": "bool_or",
    "cardinality": "len",
    "char_length": "length",
    "character_length": "length",
    "concat_ws": "concat_ws",
    "cot": "cot",
    "dceil": "ceil",
    "degrees": "degrees",
    "dfloor": "floor",
    "dpow": "pow",
    "dround": "round",
    "ends_with": "ends_with",
    "fmod": "fmod",
    "fpow": "pow",
    "group_bit_and": "bit_and",
    "group_bit_or": "bit_or",
    "group_bit_xor": "bit_xor",
    "hex": "hex",
    "instr": "instr",
    "lcase": "lower",
    "left": "left",
    "map_keys": "map_keys",
    "map_size": "cardinality",
    "map_values": "map_values",
    "md5": "md5",
    "mod": "mod",
    "ndv": "approx_count_distinct",
    "percentile": "quantile_cont",
    "percentile_approx": "approx_quantile",
    "pi": "pi",
    "radians": "radians",
    "regexp_extract": "regexp_extract",
    "right": "right",
    "sha1": "sha1",
    "sha2": "sha256",
    "size": "len",
    "starts_with": "starts_with",
    "stddev": "stddev_pop",
    "strleft": "left",
    "strright": "right",
    "struct_element": "struct_extract",
    "to_base64": "to_base64",
    "truncate": "trunc",
    "ucase": "upper",
    "uuid": "uuid",
    "variance": "var_pop",
}
_MACROS: Final = macro_names()
_DATE_PARTS: Final = {
    "day": "day",
    "day_of_year": "dayofyear",
    "dayname": "dayname",
    "dayofmonth": "day",
    "dayofyear": "dayofyear",
    "hour": "hour",
    "minute": "minute",
    "month": "month",
    "monthname": "monthname",
    "quarter": "quarter",
    "second": "second",
    "week_of_year": "week",
    "weekofyear": "week",
    "year": "year",
}
_CONSTANT_TIMES: Final = frozenset(
    [
        "now",
        "current_timestamp",
        "localtime",
        "localtimestamp",
        "sysdate",
        "curdate",
        "current_date",
        "utc_timestamp",
    ]
)
# MySQL's format letters -> strftime's of DuckDB.
_FORMAT_LETTERS: Final = {
    "%": "%%", "H": "%H", "I": "%I", "M": "%B", "S": "%S", "T": "%H:%M:%S", "W": "%A", "Y": "%Y", "a": "%a",
    "b": "%b", "c": "%-m", "d": "%d", "e": "%-d", "f": "%f", "h": "%I", "i": "%M", "j": "%j", "k": "%-H",
    "l": "%-I", "m": "%m", "p": "%p", "r": "%I:%M:%S %p", "s": "%S", "v": "%V", "w": "%w", "x": "%G",
    "y": "%y",
}  # fmt: skip
_NAMED_FORMATS: Final = {
    "yyyyMMdd": "%Y%m%d",
    "yyyy-MM-dd": "%Y-%m-%d",
    "yyyy-MM-dd HH:mm:ss": "%Y-%m-%d %H:%i:%s",
}


@dataclass(frozen=True)
class Moment:
    """What clocks show during one statement.

    Attributes:
        local: the time in the session's zone, without a zone.
        utc: the same moment in UTC, without a zone.
        zone: name or offset of the session's zone.
    """

    local: datetime
    utc: datetime
    zone: str


@dataclass(frozen=True)
class Surroundings:
    """What functions about the session answer."""

    moment: Moment
    database: str | None = None
    user: str = "root"
    connection_id: int = 0


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A call by its DuckDB name."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def translate_call(node: exp.Anonymous, around: Surroundings) -> exp.Expr:
    """The DuckDB form of a call that sqlglot knows only by name.

    Raises:
        InvalidInputError: no such function, or arguments it does not take.
    """
    name = str(node.this).lower()
    arguments = list(node.expressions)
    if name in _CONSTANT_TIMES:
        return constant_time(name, arguments, around.moment)
    if name in _SPECIAL:
        return _SPECIAL[name](name, arguments, around)
    if name in _DATE_PARTS:
        _check_count(name, arguments, 1)
        return call(_DATE_PARTS[name], call("d_ts", *arguments))
    if name in _RENAMED:
        return call(_RENAMED[name], *arguments)
    if name in _MACROS:
        return call(f"d_{name}", *arguments)
    raise unknown_function(name)


def unknown_function(name: str) -> InvalidInputError:
    near = difflib.get_close_matches(name.lower(), function_names(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return InvalidInputError(
        f"function {name.lower()!r} is not known{hint}", kind="unknown_function", function=name
    )


def function_names() -> list[str]:
    """Names that only this module knows; sqlglot's own (sum, lower, ..) come on top."""
    return sorted({*_RENAMED, *_MACROS, *_DATE_PARTS, *_SPECIAL, *_CONSTANT_TIMES})


def constant_time(name: str, arguments: Sequence[exp.Expr], moment: Moment) -> exp.Expr:
    """The moment of the statement: one for all rows and all calls."""
    if name in ("curdate", "current_date"):
        return exp.cast(exp.Literal.string(moment.local.date().isoformat()), "DATE")
    digits = _literal_integer(name, arguments[0]) if arguments else 0
    if not 0 <= digits <= 6:
        raise InvalidInputError(
            f"function {name!r}: expected 0 to 6 fraction digits, found {digits}", kind="bad_argument"
        )
    shown = moment.utc if name == "utc_timestamp" else moment.local
    step = 10 ** (6 - digits)
    cut = shown.replace(microsecond=shown.microsecond // step * step)
    return exp.cast(exp.Literal.string(cut.isoformat(sep=" ")), "TIMESTAMP")


def add_interval(moment: exp.Expr, interval: exp.Interval, *, subtract: bool) -> exp.Expr:
    """`moment + interval`; a DATE stays a DATE unless the unit is below a day."""
    unit = str(interval.args["unit"].name).upper() if interval.args.get("unit") else "DAY"
    if subtract:
        amount = exp.Mul(this=exp.paren(interval.this), expression=exp.Literal.number(-1))
        if isinstance(interval.this, exp.Literal) and interval.this.is_string:
            amount = exp.Mul(this=exp.cast(interval.this, "BIGINT"), expression=exp.Literal.number(-1))
        interval = exp.Interval(this=exp.paren(amount), unit=interval.args.get("unit"))
    if unit in ("HOUR", "MINUTE", "SECOND", "MICROSECOND"):
        moment = call("d_ts", moment)
    return call("d_add_date", moment, interval)


def _check_count(name: str, arguments: Sequence[exp.Expr], *counts: int) -> None:
    if len(arguments) not in counts:
        expected = " or ".join(map(str, counts))
        raise InvalidInputError(
            f"function {name!r}: expected {expected} arguments, found {len(arguments)}", kind="bad_argument"
        )


def _literal_integer(name: str, node: exp.Expr) -> int:
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        return int(node.this)
    raise InvalidInputError(
        f"function {name!r}: expected a whole number, found {node.sql()}", kind="bad_argument"
    )


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


def _date_format(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    _check_count(name, arguments, 2)
    return call("strftime", call("d_ts", arguments[0]), _strftime_format(name, arguments[1]))


def _str_to_date(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    _check_count(name, arguments, 2)
    wanted = _strftime_format(name, arguments[1])
    parsed = call("try_strptime", exp.cast(arguments[0], "TEXT"), wanted)
    has_time = any(mark in wanted.name for mark in ("%H", "%-H", "%I", "%-I", "%M", "%S", "%f", "%p"))
    return parsed if has_time else exp.cast(parsed, "DATE")


def _from_unixtime(name: str, arguments: list[exp.Expr], around: Surroundings) -> exp.Expr:
    """Text, in the session's zone (unlike DuckDB's, which is a moment with a zone)."""
    _check_count(name, arguments, 1, 2)
    default = exp.Literal.string("%Y-%m-%d %H:%i:%s")
    wanted = _strftime_format(name, arguments[1] if len(arguments) == 2 else default)
    moment = call(
        "make_timestamp",
        exp.Mul(this=exp.cast(exp.paren(arguments[0]), "BIGINT"), expression=exp.Literal.number(1_000_000)),
    )
    return call("strftime", _shifted(moment, around.moment.zone, to_utc=False), wanted)


def _unix_timestamp(name: str, arguments: list[exp.Expr], around: Surroundings) -> exp.Expr:
    _check_count(name, arguments, 0, 1, 2)
    if not arguments:
        return exp.Literal.number(int((around.moment.utc - datetime(1970, 1, 1)).total_seconds()))
    local = call("d_ts", arguments[0]) if len(arguments) == 1 else _str_to_date(name, arguments, around)
    seconds = call("epoch", _shifted(exp.cast(local, "TIMESTAMP"), around.moment.zone, to_utc=True))
    return exp.cast(call("floor", seconds), "BIGINT")


def _shifted(moment: exp.Expr, zone: str, *, to_utc: bool) -> exp.Expr:
    """A time without zone, from UTC to the zone or back."""
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


def _datediff(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    _check_count(name, arguments, 2)
    later, earlier = (call("d_date", argument) for argument in arguments)
    return call("date_diff", exp.Literal.string("day"), earlier, later)


def _timestampdiff(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """Whole units between two moments."""
    _check_count(name, arguments, 3)
    start, end = (call("d_ts", argument) for argument in arguments[1:])
    return call("date_sub", exp.Literal.string(_unit(name, arguments[0])), start, end)


def _unit_diff(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """`days_diff` and its like: whole units from the second moment to the first."""
    _check_count(name, arguments, 2)
    end, start = (call("d_ts", argument) for argument in arguments)
    return call("date_sub", exp.Literal.string(name.split("s_")[0]), start, end)


def _field(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """Where a value stands among others, 0 when nowhere."""
    if len(arguments) < 2:
        _check_count(name, arguments, 2)
    found = exp.Case()
    for place, other in enumerate(arguments[1:], 1):
        found = found.when(exp.EQ(this=arguments[0].copy(), expression=other), exp.Literal.number(place))
    return found.else_(exp.Literal.number(0))


def _timestampadd(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    _check_count(name, arguments, 3)
    interval = exp.Interval(this=exp.paren(arguments[1]), unit=exp.var(_unit(name, arguments[0])))
    return add_interval(arguments[2], interval, subtract=False)


def _unit(name: str, node: exp.Expr) -> str:
    unit = node.name.upper()
    if unit not in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND"):
        raise InvalidInputError(
            f"function {name!r}: expected a unit such as DAY, found {node.sql()}", kind="bad_argument"
        )
    return unit


def _date_add(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    _check_count(name, arguments, 2)
    interval = arguments[1]
    if not isinstance(interval, exp.Interval):
        interval = exp.Interval(this=exp.paren(interval), unit=exp.var("DAY"))
    return add_interval(arguments[0], interval, subtract=name.endswith(("sub", "subdate")))


def _unit_add(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """`days_add`, `months_sub` and their like."""
    _check_count(name, arguments, 2)
    unit = "MONTH" if name == "add_months" else name.split("s_")[0].upper()
    interval = exp.Interval(this=exp.paren(arguments[1]), unit=exp.var(unit))
    return add_interval(arguments[0], interval, subtract=name.endswith("_sub"))


def _date_trunc(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """The unit may stand first or second."""
    _check_count(name, arguments, 2)
    units = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
    first, second = arguments
    if second.name.lower() in units and not (isinstance(first, exp.Literal) and first.name.lower() in units):
        first, second = second, first
    if not isinstance(first, exp.Literal) or first.name.lower() not in units:
        raise InvalidInputError(
            f"function {name!r}: expected a unit such as 'day', found {first.sql()}", kind="bad_argument"
        )
    return call("d_date_trunc", exp.Literal.string(first.name.lower()), second)


def _group_concat(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """`group_concat([DISTINCT] text [, separator] [ORDER BY ..])`; the separator is `', '` unless given."""
    order = arguments[-1] if arguments and isinstance(arguments[-1], exp.Order) else None
    inner = [*arguments[:-1], order.this] if order is not None else list(arguments)
    distinct = inner[0] if inner and isinstance(inner[0], exp.Distinct) else None
    parts = [*distinct.expressions, *inner[1:]] if distinct is not None else inner
    _check_count(name, parts, 1, 2)
    text: exp.Expr = call("d_text", parts[0])
    separator = parts[1] if len(parts) == 2 else exp.Literal.string(", ")
    if distinct is not None:
        text = exp.Distinct(expressions=[text])
    if order is not None:
        for ordered in order.expressions:
            if ordered.this == parts[0]:  # DISTINCT wants the very same expression in ORDER BY
                ordered.set("this", call("d_text", ordered.this.copy()))
        return exp.GroupConcat(this=exp.Order(this=text, expressions=order.expressions), separator=separator)
    return exp.GroupConcat(this=text, separator=separator)


def _session(name: str, _arguments: list[exp.Expr], around: Surroundings) -> exp.Expr:
    if name in ("database", "schema"):
        return exp.Literal.string(around.database) if around.database else exp.null()
    if name == "connection_id":
        return exp.Literal.number(around.connection_id)
    return exp.Literal.string(SERVER_VERSION if name == "version" else f"{around.user}@%")


def _map(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """`map(k1, v1, ..)`; DuckDB takes a list of keys and one of values."""
    if len(arguments) % 2:
        raise InvalidInputError(f"function {name!r}: expected pairs of key and value", kind="bad_argument")
    return call("map", exp.array(*arguments[::2]), exp.array(*arguments[1::2]))


def _named_struct(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """`named_struct('name', value, ..)`."""
    if len(arguments) % 2 or not all(isinstance(key, exp.Literal) for key in arguments[::2]):
        raise InvalidInputError(
            f"function {name!r}: expected pairs of name in quotes and value", kind="bad_argument"
        )
    pairs = zip(arguments[::2], arguments[1::2], strict=True)
    return exp.Struct(
        expressions=[exp.PropertyEQ(this=exp.to_identifier(k.name), expression=v) for k, v in pairs]
    )


def _weekday(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """`dayofweek` counts from Sunday = 1, `weekday` from Monday = 0."""
    _check_count(name, arguments, 1)
    moment = call("d_ts", *arguments)
    counted, step = (call("dayofweek", moment), 1) if name != "weekday" else (call("isodow", moment), -1)
    return exp.paren(exp.Add(this=counted, expression=exp.Literal.number(step)))


def _log(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """`log(base, x)`, or the natural one."""
    _check_count(name, arguments, 1, 2)
    return call("ln", *arguments) if len(arguments) == 1 else call("log", *arguments)


def _to_date(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    _check_count(name, arguments, 1)
    return call("d_date", *arguments)


def _last_day(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    _check_count(name, arguments, 1)
    return call("last_day" if name == "last_day" else "d_to_days", call("d_date", *arguments))


def _week(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    """Mode 0, as MySQL counts: weeks start on Sunday, days before the first Sunday are week 0."""
    _check_count(name, arguments, 1)
    return exp.cast(call("strftime", call("d_ts", *arguments), exp.Literal.string("%U")), "INT")


def _microsecond(name: str, arguments: list[exp.Expr], _around: Surroundings) -> exp.Expr:
    _check_count(name, arguments, 1)
    whole = call("microsecond", call("d_ts", *arguments))
    return exp.paren(exp.Mod(this=whole, expression=exp.Literal.number(1_000_000)))


_Special = Callable[[str, list[exp.Expr], Surroundings], exp.Expr]
_SPECIAL: Final[dict[str, _Special]] = {
    **dict.fromkeys(("adddate", "date_add", "subdate", "date_sub"), _date_add),
    **dict.fromkeys(
        [
            f"{unit}s_{way}"
            for unit in ("year", "month", "week", "day", "hour", "minute", "second")
            for way in ("add", "sub")
        ],
        _unit_add,
    ),
    **dict.fromkeys(
        ("connection_id", "current_user", "database", "schema", "session_user", "user", "version"), _session
    ),
    **dict.fromkeys(("dayofweek", "weekday", "day_of_week"), _weekday),
    **dict.fromkeys(
        [f"{unit}s_diff" for unit in ("year", "month", "week", "day", "hour", "minute", "second")], _unit_diff
    ),
    "add_months": _unit_add,
    "field": _field,
    "date_format": _date_format,
    "date_trunc": _date_trunc,
    "datediff": _datediff,
    "from_unixtime": _from_unixtime,
    "group_concat": _group_concat,
    "last_day": _last_day,
    "log": _log,
    "map": _map,
    "microsecond": _microsecond,
    "named_struct": _named_struct,
    "str_to_date": _str_to_date,
    "timestampadd": _timestampadd,
    "timestampdiff": _timestampdiff,
    "to_date": _to_date,
    "to_days": _last_day,
    "unix_timestamp": _unix_timestamp,
    "week": _week,
}
