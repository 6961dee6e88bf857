"""Casts to DATE and DATETIME from text, numbers and Arrow's own dates.

Text follows Doris outside ANSI strict mode: `2024-05-01`, `2024/5/1`, `20240501`, each with an optional time
after a blank or `T` (`19:20:30.123`, `19:20`, `192030`), or fourteen digits in a row; then an optional zone
(`+08:00`, `-0300`, `Z`, `UTC`, `Europe/London`).
Years of two digits turn at 1970. A value with a zone is converted to the load's zone (Y13); text without one
is local time.
Digits beyond the precision of DATETIME(p) are rounded half up and carry.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final
from zoneinfo import available_timezones

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast.outcome import BLANKS, Cast, Mask, by_slices, masked, outcome
from seqstore.store.types.column_types import ColumnType
from seqstore.store.types.time_zones import local_time, moments_of

_MICROS: Final = pa.timestamp("us")
_DAY: Final = 86_400_000_000
# 0000-01-01 and 10000-01-01 in microseconds of the epoch: the range of DATE and DATETIME
FIRST_MICROSECOND: Final = int(np.datetime64("0000-01-01", "us").astype(np.int64))
END_MICROSECOND: Final = int(np.datetime64("10000-01-01", "us").astype(np.int64))

_DATE_PARTS: Final = (
    r"(?:(?P<y1>\d{4}|\d{2})[^0-9A-Za-z\s](?P<m1>\d{1,2})[^0-9A-Za-z\s](?P<d1>\d{1,2})"
    r"|(?P<y2>\d{4}|\d{2})(?P<m2>\d{2})(?P<d2>\d{2}))"
)
_TIME_PARTS: Final = (
    r"(?:(?P<h1>\d{1,2})(?::(?P<i1>\d{1,2})(?::(?P<s1>\d{1,2})(?:\.(?P<f1>\d*))?)?)?"
    r"|(?P<h2>\d{2})(?P<i2>\d{2})(?:(?P<s2>\d{2})(?:\.(?P<f2>\d*))?)?)"
)
_ZONE_PART: Final = r"\s*(?P<zone{}>[+-]\d[\d:]*|[A-Za-z][^\s]*)?"
_FOURTEEN_DIGITS: Final = (
    r"(?P<y3>\d{4})(?P<m3>\d{2})(?P<d3>\d{2})(?P<h3>\d{2})(?P<i3>\d{2})(?P<s3>\d{2})(?:\.(?P<f3>\d*))?"
    + _ZONE_PART.format(2)
)
MOMENT_TEXT: Final = (
    rf"^(?:{_DATE_PARTS}(?:(?: +|T){_TIME_PARTS}{_ZONE_PART.format(1)})?|{_FOURTEEN_DIGITS})$"
)
_FIXED_ZONES: Final = {"Z": 0, "UTC": 0, "GMT": 0, "ZULU": 0, "CST": 8 * 60}

Numbers = npt.NDArray[np.int64]


def to_date(source: pa.Array, _to: ColumnType, zone: str) -> Cast | None:
    """Casts to DATE and drops the time of day. None when no value of the source type is a date."""
    if pa.types.is_date32(source.type):
        return _checked_days(source)
    if pa.types.is_string(source.type):
        return by_slices(
            source,
            [lambda text: text.cast(pa.date32()), lambda text: _days(_reshaped(text))],
            lambda text: _as_days(_moments_of_text(text, 6, zone)),
        )
    moments = to_datetime(source, ColumnType("DATETIME", (6,)), zone)
    return None if moments is None else _as_days(moments)


def to_datetime(source: pa.Array, to: ColumnType, zone: str) -> Cast | None:
    """Casts to DATETIME(p), local time of `zone`. None when no value of the source type is a moment."""
    kind, digits = source.type, to.params[0]
    if pa.types.is_string(kind):
        return by_slices(
            source,
            [
                lambda text: _rounded(text.cast(_MICROS), digits),
                lambda text: _rounded(local_time(text.cast(pa.timestamp("us", "UTC")), zone), digits),
                lambda text: _rounded(_reshaped(text), digits),
            ],
            lambda text: _moments_of_text(text, digits, zone),
        )
    if pa.types.is_integer(kind):
        # numbers such as 20240501, 20240501192030 and 240501
        moments = by_slices(source.cast(pa.string()), [], lambda text: _moments_of_text(text, digits, zone))
        return outcome(source, moments.values)
    if pa.types.is_date(kind):
        is_short = pa.types.is_date32(kind)  # either way wide enough for every day
        local = source.cast(pa.timestamp("s")) if is_short else source.view(pa.timestamp("ms"))
        return _round_checked(source, local, digits)
    if pa.types.is_timestamp(kind):
        local = source if kind.tz is None else local_time(source, zone)
        return _round_checked(source, local, digits)
    return None


def in_calendar(source: pa.Array) -> pa.Array:
    """Returns dates and times, NULL for those outside of the years 0 to 9999: Arrow confuses their parts."""
    if pa.types.is_date32(source.type):
        counts, unit = source.view(pa.int32()), _DAY
    else:
        moments = source.view(pa.timestamp("ms")) if pa.types.is_date(source.type) else source
        if moments.type.unit == "ns":  # all of them are within
            return source
        counts, unit = moments.view(pa.int64()), {"s": 10**6, "ms": 10**3, "us": 1}[moments.type.unit]
    values = np.asarray(pc.fill_null(counts, 0), dtype=np.int64)
    fits = (values >= FIRST_MICROSECOND // unit) & (values < END_MICROSECOND // unit)
    return source if fits.all() else masked(source, fits)


def check_zone(name: str) -> str:
    """Returns the zone name as Arrow knows it: an IANA name, `CST` or an offset such as `+08:00`.

    Raises:
        InvalidInputError: no such zone.
    """
    stripped = name.strip()
    offset = _offset_minutes(stripped)
    if offset is not None:
        return f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
    known = _zone_names().get(stripped.lower())
    if known is None:
        raise InvalidInputError(
            f"time zone {name!r} is not known; use a name such as Asia/Shanghai or an offset such as +08:00",
            kind="bad_time_zone",
        )
    return known


# ---------------------------------------------------------------------------------------------- the fast cast


def _reshaped(text: pa.Array) -> pa.Array:
    """Rewrites 2024/05/01 and columns of 20240501 or 20240501192030 for Arrow's parser."""
    trimmed = pc.ascii_trim(text, characters=BLANKS)
    shortest, longest = pc.min_max(pc.binary_length(trimmed)).as_py().values()
    if shortest == longest == 8:
        dashed = pc.replace_substring_regex(trimmed, r"^(\d{4})(\d\d)(\d\d)$", r"\1-\2-\3")
    elif shortest == longest == 14:
        pattern, moment = r"^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)$", r"\1-\2-\3 \4:\5:\6"
        dashed = pc.replace_substring_regex(trimmed, pattern, moment)
    else:
        dashed = pc.replace_substring(trimmed, "/", "-")
    return dashed.cast(_MICROS)


def _rounded(moments: pa.Array, digits: int) -> pa.Array:
    """Rounds microseconds half up to `digits`; refuses results beyond the year 9999."""
    if digits == 6:
        return moments
    step = 10 ** (6 - digits)
    values = _integers(moments)
    if not np.any(values % step):
        return moments
    values = (values + step // 2) // step * step
    if len(values) and values.max() >= END_MICROSECOND:
        raise pa.ArrowInvalid("after year 9999")
    return _moments(values, np.asarray(pc.is_null(moments)))


def _days(moments: pa.Array) -> pa.Array:
    return moments.cast(pa.date32(), safe=False)


def _integers(moments: pa.Array) -> Numbers:
    """Returns the 64-bit values of an array, 0 where NULL."""
    return np.asarray(pc.fill_null(moments.cast(pa.int64()), 0), dtype=np.int64)


def _moments(values: Numbers, null: Mask) -> pa.Array:
    return pa.array(values, pa.int64(), mask=null).cast(_MICROS)


# ----------------------------------------------------------------------------------- Arrow moments and digits


def _checked_days(days: pa.Array) -> Cast:
    values = np.asarray(pc.fill_null(days.cast(pa.int32()), 0), dtype=np.int64)
    fits = (values >= FIRST_MICROSECOND // _DAY) & (values < END_MICROSECOND // _DAY)
    return Cast(days) if fits.all() else outcome(days, masked(days, fits))


def _as_days(moments: Cast) -> Cast:
    return replace(moments, values=_days(moments.values))


def _round_checked(source: pa.Array, local: pa.Array, digits: int) -> Cast:
    """Rounds Arrow timestamps of any unit half up to `digits`; years outside of 0 to 9999 fail."""
    if digits == 6 and local.type == _MICROS and _all_fit(local):
        return Cast(local)
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[local.type.unit]
    values = _integers(local)
    if per_second > 10**digits:
        step = per_second // 10**digits
        # the half is added after the division, so that the largest nanosecond cannot overflow
        values = values // step + (values % step >= (step + 1) // 2)
        per_second = 10**digits
    factor = 10**6 // per_second
    fits = (values >= FIRST_MICROSECOND // factor) & (values < END_MICROSECOND // factor)
    scaled = np.where(fits, values, 0) * factor
    return outcome(source, _moments(scaled, ~fits | np.asarray(pc.is_null(local))))


def _all_fit(moments: pa.Array) -> bool:
    """Returns whether all microseconds are of the years 0 to 9999."""
    least, largest = pc.min_max(moments.view(pa.int64())).as_py().values()
    return least is None or (least >= FIRST_MICROSECOND and largest < END_MICROSECOND)


# ------------------------------------------------------------------------------------------ the row-wise cast


def _moments_of_text(text: pa.Array, digits: int, zone: str) -> Cast:
    """Parses text with one regular expression and assembles the numbers in NumPy."""
    trimmed = pc.ascii_trim(text, characters=BLANKS)
    parts = pc.extract_regex(trimmed, MOMENT_TEXT)
    values, valid = _assemble({name: _joined(parts, name, "123") for name in "ymdhisf"}, digits)
    valid &= np.asarray(pc.is_valid(parts))
    values, valid = _move_zones(values, valid, _joined(parts, "zone", "12"), zone)
    valid &= (values >= FIRST_MICROSECOND) & (values < END_MICROSECOND)
    return outcome(text, _moments(np.where(valid, values, 0), ~valid))


def _joined(parts: pa.Array, name: str, numbers: str) -> pa.Array:
    """Returns the one group of those of a name that matched, else an empty text."""
    filled = [pc.fill_null(pc.struct_field(parts, name + number), "") for number in numbers]
    return pc.binary_join_element_wise(*filled, "")


def _number(text: pa.Array) -> Numbers:
    return np.asarray(pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64()))


def _assemble(found: dict[str, pa.Array], digits: int) -> tuple[Numbers, Mask]:
    year, month, day = (_number(found[name]) for name in "ymd")
    hour, minute, second = (_number(found[name]) for name in "his")
    short = np.asarray(pc.equal(pc.binary_length(found["y"]), 2))
    year = np.where(short, np.where(year < 70, 2000 + year, 1900 + year), year)
    months = ((year - 1970) * 12 + np.clip(month, 1, 12) - 1).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    length = (months + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64) - first
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)
    valid &= (hour <= 23) & (minute <= 59) & (second <= 59)
    # seven digits suffice: the first dropped digit decides whether to round up
    seven = _number(pc.utf8_slice_codeunits(pc.ascii_rpad(found["f"], 7, padding="0"), 0, 7))
    step = 10 ** (7 - digits)
    micros = (seven + step // 2) // step * step // 10
    clock = (hour * 3600 + minute * 60 + second) * 1_000_000
    return (first + day - 1) * _DAY + clock + micros, valid


def _move_zones(values: Numbers, valid: Mask, zones: pa.Array, target: str) -> tuple[Numbers, Mask]:
    """Converts rows with a zone to local time of the target zone, in one pass per zone of the slice."""
    coded = zones.dictionary_encode()
    names = coded.dictionary.to_pylist()
    if names in ([], [""]):
        return values, valid
    codes = np.asarray(coded.indices)
    for code, name in enumerate(names):
        if name == "":
            continue
        rows = np.flatnonzero((codes == code) & valid)
        offset = _offset_minutes(name)
        source = _zone_names().get(name.lower()) if offset is None else offset
        if source is None:
            valid[rows] = False
        elif len(rows):
            values[rows] = _relocated(values[rows], source, target)
    return values, valid


def _relocated(values: Numbers, source: int | str, target: str) -> Numbers:
    if isinstance(source, int):
        instants = pa.array(values - source * 60_000_000, pa.int64()).cast(pa.timestamp("us", "UTC"))
    else:
        instants = moments_of(pa.array(values, pa.int64()).cast(_MICROS), source)
    return np.asarray(local_time(instants, target).cast(pa.int64()))


def _offset_minutes(name: str) -> int | None:
    if name.upper() in _FIXED_ZONES:
        return _FIXED_ZONES[name.upper()]
    match = re.fullmatch(r"(?:GMT|UTC)?([+-])(\d{1,2}?):?([0-5]\d)?", name, re.IGNORECASE)
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return (-minutes if match[1] == "-" else minutes) if minutes < 24 * 60 else None


@lru_cache(maxsize=1)
def _zone_names() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}
