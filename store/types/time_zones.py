"""Times in UTC and on the clock of a zone, by the rules of Python's `zoneinfo`.

`zoneinfo` takes the zones of the operating system, and what that does not have from the package tzdata. Arrow
converts by the system's alone (an image may have none, and Debian keeps `EST` and `CET` in a package of their
own) and knows no daylight saving after 2037.

A conversion goes by the moments at which the offset of the zone changes:
1. the days are divided into blocks, and those in which a value lies are asked for,
2. within a block the offsets at the beginning of each day are compared; where two differ, the moment of the
   change is found by bisection, to the second; what was found is kept,
3. each time takes the offset of the last change before it.
A clock shows some times twice and others never: the first of two counts, and the moment of the change.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)")
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY: Final = 86_400  # seconds
_BLOCK_DAYS: Final = 256
# Python's years end at 1 and 9999, and a zone may move a time by a day
_FIRST_SECOND: Final = int(datetime(1, 1, 3, tzinfo=UTC).timestamp())
_LAST_SECOND: Final = int(datetime(9999, 12, 29, tzinfo=UTC).timestamp())

_Numbers = npt.NDArray[np.int64]


def local_time(moments: pa.Array, zone: str) -> pa.Array:
    """Converts timestamps with a zone to local time of `zone`, an IANA name or an offset such as `+08:00`.

    Raises:
        ZoneInfoNotFoundError: no zone has this name.
    """
    unit = moments.type.unit
    offset = _OFFSET.fullmatch(zone)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        shift = int(f"{sign}1") * (int(hours) * 60 + int(minutes)) * 60 * _PER_SECOND[unit]
        return pc.add_checked(moments.cast(pa.timestamp(unit)), pa.scalar(shift, pa.duration(unit)))
    utc, per_second = _numbers(moments), _PER_SECOND[unit]
    seconds = utc // per_second
    return _timestamps(utc + _Offsets(zone, seconds).at(seconds) * per_second, moments)


def moments_of(local: pa.Array, zone: str) -> pa.Array:
    """Converts timestamps without a zone, local time of the zone with this IANA name, to timestamps in UTC.

    Raises:
        ZoneInfoNotFoundError: no zone has this name.
    """
    unit = local.type.unit
    seconds, fraction = np.divmod(_numbers(local), _PER_SECOND[unit])
    moments, are_shown = _Offsets(zone, seconds).moments(seconds)
    found = moments * _PER_SECOND[unit] + np.where(are_shown, fraction, 0)
    return _timestamps(found, local).cast(pa.timestamp(unit, "UTC"))


class _Offsets:
    """The offsets of a zone around some times.

    Args:
        zone: its name.
        times: in UTC or local, in seconds since the epoch.
    """

    def __init__(self, zone: str, times: _Numbers) -> None:
        own = np.unique(times // (_BLOCK_DAYS * _DAY))
        blocks = np.unique(np.concatenate([own - 1, own, own + 1]))
        found = [change for block in blocks.tolist() for change in _changes(zone, block)]
        self._starts = np.array([start for start, _offset in found], np.int64)
        self._offsets = np.array([offset for _start, offset in found], np.int64)

    def at(self, moments: _Numbers) -> _Numbers:
        """Returns the offset at each moment in UTC, to be added for local time."""
        return self._offsets[self._places(moments)]

    def moments(self, local: _Numbers) -> tuple[_Numbers, npt.NDArray[np.bool_]]:
        """Returns the moment in UTC of each local time, and whether the clock of the zone shows that time."""
        places = self._places(local - _DAY)
        before, after = self._offsets[places], self.at(local + _DAY)
        early, late = local - before, local - after
        change = self._starts[self._next_changes()[places]]
        is_early = (before == after) | (early < change)
        are_shown = is_early | (late >= change)
        return np.where(is_early, early, np.maximum(late, change)), are_shown

    def _places(self, moments: _Numbers) -> npt.NDArray[np.intp]:
        return np.searchsorted(self._starts, moments, "right") - 1

    def _next_changes(self) -> npt.NDArray[np.intp]:
        """Returns for each start the index of the first later one with another offset, or of the last one."""
        last = len(self._starts) - 1
        changed = np.append(self._offsets[1:] != self._offsets[:-1], True)
        marked = np.where(changed, np.arange(1, last + 2), last)
        return np.minimum(np.minimum.accumulate(marked[::-1])[::-1], last)


def _numbers(times: pa.Array) -> _Numbers:
    return np.asarray(times.cast(pa.timestamp(times.type.unit)).cast(pa.int64()).fill_null(0))


def _timestamps(numbers: _Numbers, like: pa.Array) -> pa.Array:
    """Returns local timestamps of the unit and with the NULLs of `like`."""
    mask = np.asarray(like.is_null()) if like.null_count else None
    return pa.array(numbers, pa.int64(), mask=mask).cast(pa.timestamp(like.type.unit))


@lru_cache(maxsize=1 << 15)
def _changes(name: str, block: int) -> tuple[tuple[int, int], ...]:
    """Returns (first second in UTC, seconds to add for local time) at a block's start and its changes."""
    try:
        zone = ZoneInfo(name)
    except (ValueError, OSError) as error:
        raise ZoneInfoNotFoundError(f"no time zone has the name {name!r}") from error
    first = block * _BLOCK_DAYS * _DAY
    found = [(first, _offset_at(zone, first))]
    for day in range(first + _DAY, first + _BLOCK_DAYS * _DAY + 1, _DAY):
        offset = _offset_at(zone, day)
        if offset != found[-1][1]:
            found.append((_first_second(zone, day - _DAY, day), offset))
    return tuple(found)


def _offset_at(zone: ZoneInfo, second: int) -> int:
    offset = datetime.fromtimestamp(min(max(second, _FIRST_SECOND), _LAST_SECOND), zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _first_second(zone: ZoneInfo, low: int, high: int) -> int:
    """Returns the first second after `low` that has the offset of `high`."""
    old = _offset_at(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_at(zone, middle) == old:
            low = middle
        else:
            high = middle
    return high
