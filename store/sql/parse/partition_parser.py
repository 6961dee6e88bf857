"""PARTITION BY of CREATE TABLE and the partitions of ALTER TABLE; a stepped range becomes its partitions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from seqstore.store.schema.partitioning import LIST, RANGE, UNITS, Bound, Partition, Partitioning
from seqstore.store.sql.parse.sqlglot_adapter import TokenType
from seqstore.store.sql.parse.tokens import TokenStream

TOUCHED: Final = "*"  # instead of names: the partitions of the rows to insert
_STEPS_MAX: Final = 4096
_FORMATS: Final = {"YEAR": "%Y", "QUARTER": "%Y%m", "MONTH": "%Y%m", "WEEK": "%Y%m%d", "DAY": "%Y%m%d",
                   "HOUR": "%Y%m%d%H"}  # fmt: skip


def parse_partition_by(stream: TokenStream) -> Partitioning | None:
    """Parses `[AUTO] PARTITION BY RANGE|LIST (..) ([partition, ..])`; returns None for another clause."""
    is_auto = stream.word() == "AUTO" and stream.word(1) == "PARTITION"
    if not is_auto and stream.word() != "PARTITION":
        return None
    stream.at += is_auto
    stream.need("PARTITION", "BY")
    method = _parse_method(stream, is_auto=is_auto)
    columns, unit = _parse_columns(stream)
    if is_auto and method == RANGE and not unit:
        stream.refuse("AUTO PARTITION BY RANGE needs date_trunc(column, 'unit')", "bad_partition")
    partitions: list[Partition] = []
    if stream.take("("):
        while not stream.take(")"):
            partitions += parse_partition(stream, method)
            if not stream.take(",") and stream.word() != ")":
                stream.fail("',' or ')' behind a partition")
    return Partitioning(method, tuple(columns), tuple(partitions), is_auto, unit)


def _parse_method(stream: TokenStream, *, is_auto: bool) -> str:
    """Parses RANGE or LIST; AUTO PARTITION BY without either is by LIST."""
    method = stream.take_one_of(RANGE, LIST)
    if not method and is_auto and stream.word() == "(":
        return LIST
    return method or stream.fail("RANGE or LIST")


def _parse_columns(stream: TokenStream) -> tuple[list[str], str]:
    """Parses columns, or `date_trunc(column, 'unit')`, which may stand in parentheses of its own."""
    wrapped = stream.word() == "(" and stream.word(1) == "DATE_TRUNC"
    if wrapped:
        stream.need("(")
    if not stream.take("DATE_TRUNC"):
        return stream.names("a partition column"), ""
    stream.need("(")
    column = stream.name("a partition column")
    stream.need(",")
    unit = stream.string("a unit").lower()
    if unit not in UNITS:
        stream.at -= 1
        stream.fail(f"one of {', '.join(UNITS)}")
    stream.need(")")
    if wrapped:
        stream.need(")")
    return [column], unit


def parse_partition(stream: TokenStream, method: str) -> list[Partition]:
    """Parses `PARTITION name VALUES ..`, or `FROM (..) TO (..) INTERVAL n unit`, which stands for several."""
    if stream.word() == "FROM":
        return _parse_steps(stream)
    stream.need("PARTITION")
    stream.take("IF", "NOT", "EXISTS")
    name = stream.name("a partition name")
    stream.need("VALUES")
    if stream.take("LESS", "THAN"):
        return [Partition(name, high=_parse_high(stream))]
    if stream.take("IN"):
        return [Partition(name, values=tuple(stream.enclosed(_parse_listed)))]
    if method == LIST:
        stream.fail("IN")
    if not stream.take("["):
        stream.fail("LESS THAN, IN or '['")
    low = _parse_bound(stream)
    stream.need(",")
    high = _parse_high(stream)
    if not stream.take(")"):
        stream.fail("')' at the end of the range")
    return [Partition(name, low, high)]


def _parse_high(stream: TokenStream) -> Bound | None:
    if stream.take("MAXVALUE"):
        return None
    bound = _parse_bound(stream)
    return None if all(value is None for value in bound) else bound


def _parse_bound(stream: TokenStream) -> Bound:
    """Parses `(value, ..)`; MAXVALUE is None."""
    return tuple(stream.enclosed(_parse_value))


def _parse_value(stream: TokenStream) -> str | None:
    if stream.take_one_of("MAXVALUE", "NULL"):
        return None
    if stream.kind() is TokenType.STRING:
        return stream.string("a value")
    sign = "-" if stream.take("-") else ""
    if stream.kind() is not TokenType.NUMBER:
        stream.fail("a value")
    stream.at += 1
    return sign + stream.tokens[stream.at - 1].text


def _parse_listed(stream: TokenStream) -> Bound:
    """Parses a value of one column, or `(a, b)` of several."""
    return _parse_bound(stream) if stream.word() == "(" else (_parse_value(stream),)


def _parse_steps(stream: TokenStream) -> list[Partition]:
    stream.need("FROM")
    begin = _parse_bound(stream)[0]
    stream.need("TO")
    end = _parse_bound(stream)[0]
    stream.need("INTERVAL")
    count = stream.integer("a number of units")
    unit = stream.take_one_of(*_FORMATS)
    if begin is None or end is None or count < 1:
        stream.refuse("a stepped range needs two values and an interval of at least 1", "bad_partition")
    if not unit:
        return _number_steps(stream, begin, end, count)
    low, last = (_parse_moment(stream, text, unit) for text in (begin, end))
    has_time = len(begin) > len("2000-01-01") or unit == "HOUR"
    found = []
    while low < last:
        high = min(_stepped(low, unit, count, last), last)
        bounds = [
            f"{moment:%Y-%m-%d %H:%M:%S}" if has_time else f"{moment:%Y-%m-%d}" for moment in (low, high)
        ]
        found.append(Partition(f"p_{low:{_FORMATS[unit]}}", (bounds[0],), (bounds[1],)))
        low = high
        _check_steps(stream, len(found))
    return found


def _parse_moment(stream: TokenStream, text: str, unit: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        stream.refuse(f"a stepped range by {unit} needs dates: {error}", "bad_partition")
    if moment.tzinfo is not None:
        zoned = f"a stepped range by {unit} needs dates without a time zone, not {text}"
        stream.refuse(zoned, "bad_partition")
    return moment


def _stepped(moment: datetime, unit: str, count: int, last: datetime) -> datetime:
    """Adds `count` units to a moment; returns `last` when the calendar ends before that."""
    try:
        if unit in ("DAY", "WEEK", "HOUR"):
            hours = {"DAY": 24, "WEEK": 168, "HOUR": 1}[unit]
            return moment + timedelta(hours=hours * count)
        months = moment.month - 1 + count * {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[unit]
        return moment.replace(year=moment.year + months // 12, month=months % 12 + 1, day=min(moment.day, 28))
    except (ValueError, OverflowError):
        return last


def _number_steps(stream: TokenStream, begin: str, end: str, step: int) -> list[Partition]:
    try:
        low, last = int(begin), int(end)
    except ValueError:
        stream.refuse("a stepped range without a unit needs whole numbers", "bad_partition")
    _check_steps(stream, (last - low) // step)
    return [
        Partition(f"p_{start}", (str(start),), (str(min(start + step, last)),))
        for start in range(low, last, step)
    ]


def _check_steps(stream: TokenStream, count: int) -> None:
    if count > _STEPS_MAX:
        stream.refuse(f"the range has more than {_STEPS_MAX} steps; take a larger interval", "bad_partition")


def parse_partition_names(stream: TokenStream) -> tuple[str, ...]:
    """Parses `[PARTITION[S] (name, ..) | name]`; returns no names for another clause."""
    if stream.take("PARTITION", "(", "*", ")"):
        return (TOUCHED,)
    if not stream.take_one_of("PARTITION", "PARTITIONS"):
        return ()
    expected = "a partition name"
    return tuple(stream.names(expected)) if stream.word() == "(" else (stream.name(expected),)
