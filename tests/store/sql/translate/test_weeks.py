"""WEEK and YEARWEEK in MySQL's eight modes, and the weeks of DATE_FORMAT and STR_TO_DATE."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

import pytest

from seqstore import Session
from tests.support.statements import last_result


def year_start(year: int, mode: int) -> date:
    """The first day of week 1 of a year, by the table of WEEK's modes in MySQL's manual."""
    first = date(year, 1, 1)
    starts_on_monday, four_days = mode % 2 == 1, mode in (1, 3, 4, 6)
    passed = first.weekday() if starts_on_monday else (first.weekday() + 1) % 7
    of_this_year = 7 - passed  # days of the week of 1 January
    week = first - timedelta(passed)
    is_first = of_this_year >= 4 if four_days else passed == 0
    return week if is_first else week + timedelta(7)


def week(day: date, mode: int) -> tuple[int, int]:
    """Year and week of a day."""
    if mode in (0, 1, 4, 5):  # of the day's own year, from 0 on
        return day.year, (day - year_start(day.year, mode)).days // 7 + 1
    year = max(y for y in (day.year - 1, day.year, day.year + 1) if year_start(y, mode) <= day)
    return year, (day - year_start(year, mode)).days // 7 + 1


def days_around_new_year() -> Iterator[date]:
    for year in range(1970, 2031):
        yield from (date(year - 1, 12, 22) + timedelta(number) for number in range(20))


@pytest.mark.sql("CREATE TABLE days (d DATE) UNIQUE KEY(d)")
def test_weeks_around_new_year(session: Session) -> None:
    """The modes 4 to 7 were refused."""
    days = list(days_around_new_year())
    last_result(session, "INSERT INTO days VALUES " + ", ".join(f"('{day}')" for day in days))
    columns = [f"week(d, {mode}) AS w{mode}, yearweek(d, {mode}) AS y{mode}" for mode in range(8)]
    columns += ["date_format(d, '%U %u %V %v %X %x') AS f", "week(d) AS w", "yearweek(d) AS y"]
    columns += ["weekofyear(d) AS iso"]
    columns += [
        f"str_to_date(date_format(d, '{text}'), '{text}') AS s{i}"
        for i, text in enumerate(("%X%V %W", "%x-%v %a", "%Y.%u %W", "%Y %U %w"))
    ]
    rows = last_result(session, f"SELECT d, {', '.join(columns)} FROM days ORDER BY d").rows
    assert rows is not None
    found = rows.to_pylist()
    assert len(found) == len(days)
    for row in found:
        day = row["d"]
        expected: dict[str, object] = {}
        for mode in range(8):
            year, number = week(day, mode | 2)
            expected |= {f"w{mode}": week(day, mode)[1], f"y{mode}": year * 100 + number}
        expected |= {"w": expected["w0"], "y": expected["y0"], "iso": expected["w3"]}
        u, m, v, i = (f"{week(day, mode)[1]:02}" for mode in range(4))
        expected["f"] = f"{u} {m} {v} {i} {week(day, 2)[0]} {week(day, 3)[0]}"
        expected |= {f"s{number}": day for number in range(4)}
        assert {name: row[name] for name in expected} == expected, day


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # the examples of MySQL's manual
        ("week('2008-02-20')", 7),
        ("week('2008-02-20', 0)", 7),
        ("week('2008-02-20', 1)", 8),
        ("week('2008-12-31', 1)", 53),
        ("yearweek('2000-01-01')", 199952),
        ("week('2000-01-01', 0)", 0),
        ("week('2000-01-01', 2)", 52),
        ("mid(yearweek('2000-01-01'), 5, 2)", "52"),
        ("yearweek('1987-01-01')", 198652),
        ("date_format('1999-01-01', '%X %V')", "1998 52"),
        ("str_to_date('200442 Monday', '%X%V %W')", date(2004, 10, 18)),
        ("week(NULL, 6)", None),
        ("yearweek('nonsense', 5)", None),
        # %V goes with %X, %v with %x, %U and %u with %Y; the former two have no week 0
        ("str_to_date('200442 Monday', '%Y%V %W')", None),
        ("str_to_date('200442 Monday', '%x%V %W')", None),
        ("str_to_date('200442 Monday', '%X%u %W')", None),
        ("str_to_date('200400 Monday', '%X%V %W')", None),
        ("str_to_date('200400 Monday', '%Y%u %W')", date(2003, 12, 22)),
        ("str_to_date('200454 Monday', '%X%V %W')", None),
    ],
)
def test_weeks_of_the_manual(session: Session, expression: str, expected: object) -> None:
    rows = last_result(session, f"SELECT {expression} AS x").rows
    assert rows is not None
    assert rows.to_pylist() == [{"x": expected}]
