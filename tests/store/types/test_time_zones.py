"""Times in UTC and on the clock of a zone: Python's rules, value by value, and Arrow's up to 2037."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqstore.store.types.time_zones import local_time, moments_of

# offsets with seconds, days that are left out, changes of half an hour, Ramadan, two changes within two weeks
ZONES = {
    "Africa/Casablanca", "Africa/Freetown", "Africa/Monrovia", "Africa/Tunis", "America/New_York",
    "America/Recife", "America/St_Johns", "Asia/Gaza", "Asia/Tehran", "Australia/Lord_Howe", "Europe/Dublin",
    "Europe/Riga", "Europe/Warsaw", "Pacific/Apia", "Pacific/Kwajalein", "UTC",
}  # fmt: skip
MICROS = pa.timestamp("us")
IN_UTC = pa.timestamp("us", "UTC")
TIMES = st.lists(st.datetimes(datetime(1850, 1, 1), datetime(2150, 1, 1)), min_size=1, max_size=10)


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("+08:00", datetime(2024, 3, 1, 7, 30)),
        ("-03:30", datetime(2024, 2, 29, 20, 0)),
        ("UTC", datetime(2024, 2, 29, 23, 30)),
        ("Asia/Shanghai", datetime(2024, 3, 1, 7, 30)),
        ("EST", datetime(2024, 2, 29, 18, 30)),
    ],
)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_moment_has_a_local_time_by_name_and_by_offset(zone: str, expected: datetime, unit: str) -> None:
    moments = pa.array([datetime(2024, 2, 29, 23, 30, tzinfo=UTC), None], pa.timestamp(unit, "UTC"))
    local = local_time(moments, zone)
    assert local.type == pa.timestamp(unit)
    assert local.to_pylist() == [expected, None]
    if ":" not in zone:
        assert moments_of(local, zone).equals(moments)


@pytest.mark.parametrize(
    ("local", "moment"),
    [
        (datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 27, 0, 30, tzinfo=UTC)),  # shown twice: the first
        (datetime(2024, 3, 31, 2, 30), datetime(2024, 3, 31, 1, 0, tzinfo=UTC)),  # never shown: the change
        (datetime(2050, 7, 1), datetime(2050, 6, 30, 22, 0, tzinfo=UTC)),  # summer after 2037
    ],
)
def test_a_time_that_the_clock_shows_twice_or_never_and_one_far_ahead(
    local: datetime, moment: datetime
) -> None:
    assert moments_of(pa.array([local], MICROS), "Europe/Berlin").to_pylist() == [moment]


def test_the_first_and_the_last_year_have_an_offset() -> None:
    ends = np.array(["0000-01-01", "9999-12-31T23:59:59"], "datetime64[us]")
    local = pa.array(ends, MICROS)
    assert local_time(moments_of(local, "America/Panama"), "America/Panama").equals(local)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("values", [[], [None, None], [-(2**63) + 1 + 10**14, 2**63 - 1 - 10**14]])
def test_no_values_and_the_ends_of_what_a_unit_holds(unit: str, values: list[int | None]) -> None:
    local = pa.array(values, pa.int64()).cast(pa.timestamp(unit))
    moments = moments_of(local, "America/Panama")
    assert moments.type == pa.timestamp(unit, "UTC")
    assert moments.null_count == local.null_count
    assert local_time(moments, "America/Panama").equals(local)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", ""])
def test_a_name_that_is_no_zone_is_refused(zone: str) -> None:
    moments = pa.array([datetime(2024, 7, 1)], MICROS)
    with pytest.raises(ZoneInfoNotFoundError):
        moments_of(moments, zone)
    with pytest.raises(ZoneInfoNotFoundError):
        local_time(moments.cast(IN_UTC), zone)


@given(st.sampled_from(sorted(ZONES)), TIMES)
def test_every_moment_has_the_local_time_of_python(zone: str, moments: list[datetime]) -> None:
    in_utc = [each.replace(tzinfo=UTC) for each in moments]
    expected = [each.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for each in in_utc]
    assert local_time(pa.array(in_utc, IN_UTC), zone).to_pylist() == expected


@given(st.sampled_from(sorted(ZONES)), TIMES)
def test_a_time_that_a_clock_shows_is_the_first_moment_that_shows_it(
    zone: str, times: list[datetime]
) -> None:
    shown = local_time(pa.array([each.replace(tzinfo=UTC) for each in times], IN_UTC), zone)
    moments = [each.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC) for each in shown.to_pylist()]
    assert moments_of(shown, zone).to_pylist() == moments


@pytest.mark.parametrize("zone", sorted(ZONES & available_timezones()))
def test_a_zone_agrees_with_arrow_before_2037(zone: str) -> None:
    random = np.random.default_rng(7)
    quarters = random.integers(-40_000 * 96, 24_000 * 96, 5_000)  # of an hour, from 1860 to 2035
    times = pa.array(quarters * 900_000_000, MICROS)
    try:
        expected = pc.local_timestamp(times.cast(pa.timestamp("us", zone)))
    except pa.ArrowInvalid:
        pytest.skip("this system has no such zone")
    assert local_time(times.cast(IN_UTC), zone).equals(expected)
    expected = pc.assume_timezone(times, zone, ambiguous="earliest", nonexistent="latest")
    assert moments_of(times, zone).equals(expected.cast(IN_UTC))
