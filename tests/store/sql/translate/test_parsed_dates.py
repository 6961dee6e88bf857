"""STR_TO_DATE against a model that goes through format and text with two pointers, as Doris and MySQL do."""

from __future__ import annotations

import calendar
from datetime import date, datetime, timedelta
from itertools import takewhile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqstore import InvalidInputError, Session
from tests.support.statements import last_result
from tests.weight import by_form

MONTHS = list(calendar.month_name)[1:]
DAYS = list(calendar.day_name)
WORDS = {
    "M": MONTHS,
    "b": [name[:3] for name in MONTHS],
    "W": DAYS,
    "a": [name[:3] for name in DAYS],
    "p": ["AM", "PM"],
}
DIGITS = dict.fromkeys("ymcdeDHkhIlisS", 2) | {"Y": 4, "f": 6, "j": 3}
TIMES = "HkhIlisSfp"


class Unreadable(Exception):
    """The text has no such part."""


def model(text: str, wanted: str) -> date | datetime | None:
    """Reads a text by a format without weeks."""
    parts: dict[str, int] = {}
    at = 0
    items = [wanted[i : i + 2] if wanted[i] == "%" else wanted[i] for i in _starts(wanted)]
    try:
        for item in items:
            at += len(text[at:]) - len(text[at:].lstrip())
            if at == len(text):
                break
            if item[0] == "%":
                at = _read(text, at, item[1], parts)
            elif item.strip():
                if text[at] != item:
                    return None
                at += 1
        return _value(parts, any(item[0] == "%" and item[1] in TIMES for item in items))
    except Unreadable:
        return None


def _starts(wanted: str) -> list[int]:
    found, i = [], 0
    while i < len(wanted):
        found.append(i)
        i += 2 if wanted[i] == "%" else 1
    return found


def _read(text: str, at: int, letter: str, parts: dict[str, int]) -> int:
    if letter in WORDS:
        run = text[at : at + 2] if letter == "p" else "".join(takewhile(str.isalpha, text[at:]))
        word = next((word for word in WORDS[letter] if word.lower() == run.lower()), None)
        if word is None or (letter == "p" and "half" not in parts):
            raise Unreadable
        if letter in "Mb":
            parts["month"] = WORDS[letter].index(word) + 1
        if letter == "p":
            parts["afternoon"] = WORDS[letter].index(word)
        return at + len(word)
    end = at
    while end < len(text) and end - at < DIGITS[letter] and text[end].isdigit():
        end += 1
    if end == at:
        raise Unreadable
    number = int(text[at:end])
    match letter:
        case "Y" | "y":
            parts["year"] = number if end - at > 2 else number + (1900 if number >= 70 else 2000)
        case "m" | "c":
            parts["month"] = number
        case "d" | "e" | "D":
            parts["day"] = number
            return min(end + 2, len(text)) if letter == "D" else end
        case "j":
            parts["of_year"] = number
        case "H" | "k":
            parts["hour"] = number
        case "h" | "I" | "l":
            parts["half"] = number
        case "i":
            parts["minute"] = number
        case "s" | "S":
            parts["second"] = number
        case "f":
            parts["fraction"] = int(text[at:end].ljust(6, "0"))
    return end


def _value(parts: dict[str, int], has_time: bool) -> date | datetime | None:
    year, month, day = parts.get("year"), parts.get("month"), parts.get("day")
    if year is None:  # Python has no year 0, which those texts are of
        return None
    if not has_time and day is None:
        month, day = (1 if month is None else month), 1
    try:
        found = (
            date(year, month or 0, day or 0) if "of_year" not in parts else _of_year(year, parts["of_year"])
        )
        if not has_time:
            return found
        hour = parts.get("hour", 0)
        if "half" in parts:
            if not 1 <= parts["half"] <= 12:
                return None
            hour = parts["half"] % 12 + 12 * parts.get("afternoon", 0)
        clock = (hour, parts.get("minute", 0), parts.get("second", 0), parts.get("fraction", 0))
        return datetime(found.year, found.month, found.day, *clock)
    except ValueError:
        return None


def _of_year(year: int, number: int) -> date:
    if not number:
        raise ValueError(number)
    return date(year, 1, 1) + timedelta(number - 1)


moments = st.datetimes(datetime(1000, 1, 1), datetime(9998, 12, 31))
dates = st.permutations(["%Y", "%m", "%d"]) | st.sampled_from(
    [["%Y", "%j"], ["%b", "%e", "%y"], ["%M", "%D", "%Y"], ["%W", "%d", "%c", "%Y"], ["%Y", "%m"], ["%Y"]]
)
times = st.sampled_from(
    [[], [], ["%H"], ["%H", "%i"], ["%H", "%i", "%s"], ["%H", "%i", "%s", "%f"], ["%h", "%i", "%p"],
     ["%l", "%p"], ["%k", "%i", "%S"], ["%I", "%i", "%s", "%p"]]
)  # fmt: skip
separators = st.sampled_from(["-", "/", ".", " ", "", "T", ", ", "  "])


@st.composite
def formats(draw: st.DrawFn) -> str:
    halves = [draw(dates), draw(times)]
    if draw(st.booleans()) and "%j" not in halves[0]:
        halves.reverse()
    items = [item for half in halves for item in half]
    between = draw(separators)
    return between.join(items) if draw(st.booleans()) else "".join(item + draw(separators) for item in items)


def written(moment: datetime, wanted: str) -> str:
    """Writes a moment by a format; numbers without zeros at their left where the minute is even."""
    text = ""
    values = {
        "Y": moment.year, "y": moment.year % 100, "m": moment.month, "c": moment.month, "d": moment.day,
        "e": moment.day, "H": moment.hour, "k": moment.hour, "h": moment.hour % 12 or 12,
        "I": moment.hour % 12 or 12, "l": moment.hour % 12 or 12, "i": moment.minute, "s": moment.second,
        "S": moment.second, "f": moment.microsecond, "j": moment.timetuple().tm_yday,
    }  # fmt: skip
    words = {
        "M": moment.strftime("%B"), "b": moment.strftime("%b"), "W": moment.strftime("%A"),
        "D": f"{moment.day}th", "p": moment.strftime("%p"),
    }  # fmt: skip
    for i in _starts(wanted):
        if wanted[i] != "%":
            text += wanted[i]
        elif wanted[i + 1] in words:
            text += words[wanted[i + 1]]
        else:
            width = 6 if wanted[i + 1] == "f" else 2 if moment.minute % 2 else 1
            text += f"{values[wanted[i + 1]]:0{width}}"
    return text


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str]:
    wanted = draw(formats())
    text = written(draw(moments), wanted)
    match draw(st.integers(0, 5)):
        case 0:
            text = text[: draw(st.integers(0, len(text)))]
        case 1:
            text += draw(st.sampled_from([" (GMT)", "x", "9", " "]))
        case 2 if "%D" not in wanted:
            at = draw(st.integers(0, len(text)))
            text = text[:at] + draw(st.sampled_from([" ", "  ", "0", "99", "-", "x", "Dec"])) + text[at:]
        case 3:
            text = text.swapcase()
    return text, wanted


def quoted(text: str, wanted: str) -> str:
    return f"str_to_date('{text}', '{wanted}')"


@settings(
    max_examples=by_form(40, 400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(cases(), min_size=8, max_size=12))
def test_any_text_by_any_format(session: Session, pairs: list[tuple[str, str]]) -> None:
    calls = [f"if({call} >= '0001-01-01', {call}, NULL)" for call in (quoted(*pair) for pair in pairs)]
    rows = last_result(session, f"SELECT {', '.join(f'{call} AS v{i}' for i, call in enumerate(calls))}").rows
    assert rows is not None
    found = zip(pairs, rows.to_pylist()[0].values(), strict=True)
    wrong = [(pair, value, model(*pair)) for pair, value in found if value != model(*pair)]
    assert not wrong


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        ("2025-01-23 12:34:56", "yyyy-MM-dd HH:mm:ss", datetime(2025, 1, 23, 12, 34, 56)),
        ("20230713", "yyyyMMdd", date(2023, 7, 13)),
        ("2023-01-01 10:00:00 (GMT)", "%Y-%m-%d %H:%i:%s", datetime(2023, 1, 1, 10)),
        ("2020-09-01", "%Y-%m-%d %H:%i:%s", datetime(2020, 9, 1)),
        ("2023", "%Y", date(2023, 1, 1)),
        ("2023-12", "%Y-%m", date(2023, 12, 1)),
        ("2023-12", "%Y-%m %H", None),
        ("2023 12", "%Y %d", None),
        ("2004 42 1 10:30", "%Y %U %w %H:%i", datetime(2004, 10, 18, 10, 30)),
        ("2024-01-02T03:04:05Z", "%Y-%m-%dT%TZ", datetime(2024, 1, 2, 3, 4, 5)),
        ("2024-01-02 03:04:05 pm", "%Y-%m-%d %r", datetime(2024, 1, 2, 15, 4, 5)),
        ("5 2024 2025", "%m %Y %Y", date(2025, 5, 1)),
        ("100%2024", "100%%%Y", date(2024, 1, 1)),
        ("27  10  87Dec32  09  31", "%d  %m  %Y  %H  %i", None),
        ("5 Sept 2024", "%d %b %Y", None),
        ("Oct5,2024", "%b%d,%Y", date(2024, 10, 5)),
        ("5Oct2024", "%d%b%Y", date(2024, 10, 5)),
        ("10:11", "%H:%i", None),
        ("2024-01-02", "", None),
    ],
)
def test_what_a_format_reads(
    session: Session, text: str, wanted: str, expected: date | datetime | None
) -> None:
    for value in (f"'{text}'", "v"):
        call = f"str_to_date({value}, '{wanted}')"
        rows = last_result(session, f"SELECT {call} AS found FROM (SELECT '{text}' AS v) t").rows
        assert rows is not None
        assert rows["found"].to_pylist() == [expected]


def test_an_unknown_letter_is_named(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="'str_to_date': format letter %Q is not supported"):
        last_result(session, "SELECT str_to_date('2024', '%Q')")
    with pytest.raises(InvalidInputError, match="expected a format in quotes"):
        last_result(session, "SELECT str_to_date('2024', concat('%', 'Y'))")
