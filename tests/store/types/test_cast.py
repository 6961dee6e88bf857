"""`types.cast`: every source type to every column type, and which rows lost their value."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqstore.store.errors import InvalidInputError
from seqstore.store.types.cast import Cast, check_zone, try_cast
from seqstore.store.types.column_types import INTEGER_RANGES, parse_type
from tests.weight import by_form


def convert(values: Any, to: str, arrow: pa.DataType | None = None, zone: str = "UTC") -> Cast:
    """Casts and checks what holds for every cast: type, length, and that `failed` says what it promises."""
    source = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, arrow)
    result = try_cast(source, parse_type(to), zone=zone)
    assert result.values.type == parse_type(to).arrow
    assert len(result.values) == len(source)
    result.values.validate(full=True)
    if not parse_type(to).is_nested:
        lost = [
            v and not r
            for v, r in zip(source.is_valid().to_pylist(), result.values.is_valid().to_pylist(), strict=True)
        ]
        assert (result.failed.to_pylist() if result.failed is not None else [False] * len(source)) == lost
    return result


def flags(found: pa.Array | None) -> list[bool]:
    """One flag a value; there are some."""
    assert found is not None
    values: list[bool] = found.to_pylist()
    return values


def cast_one(value: Any, to: str, arrow: pa.DataType | None = None, zone: str = "UTC") -> Any:
    return convert([value], to, arrow, zone).values[0].as_py()


TIES = ("0.5", "1.5", "2.5", "3.5", "0.125", "0.375", "1.25", "1.75", "1000.5", "262144.0625")


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("precision", [12, 30, 45, 76])
def test_a_tie_is_rounded_away_from_zero_from_every_source(tie: str, sign: str, precision: int) -> None:
    """Y4: half up, never half to even; doubles hold these values exactly, and were rounded to even."""
    value = Decimal(sign + tie)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    for scale in range(-exponent):
        expected = value.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
        sources = {
            "text": pa.array([str(value)]),
            "blanks": pa.array([f" {value}\n"]),
            "exponent": pa.array([f"{value.scaleb(3):f}e-3"]),
            "zeros": pa.array([f"{value}{'0' * 60}"]),
            "double": pa.array([float(value)]),
            "float": pa.array([float(value)], pa.float32()),
            "decimal": pa.array([value], pa.decimal128(38, 10)),
            "wide decimal": pa.array([value], pa.decimal256(76, 20)),
        }
        found = {
            name: convert(source, f"DECIMAL({precision},{scale})").values[0].as_py()
            for name, source in sources.items()
        }
        assert found == dict.fromkeys(sources, expected), f"scale {scale}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2147483647", 2147483647),
        (" \t\r\n+7 ", 7),
        ("-2147483648", -2147483648),
        ("123.456", 123),
        ("-1.9", -1),
        ("5.", 5),
        (".5", 0),
        ("0" * 60 + "12", 12),
        ("2147483648", None),
        ("9" * 500, None),
        ("1.23e5", None),
        ("0x1F", None),
        ("1_000", None),
        ("abc", None),
        ("", None),
        ("-", None),
        ("1 2", None),
    ],
)
def test_text_becomes_an_integer_as_a_lenient_cast_reads_it(text: str, expected: int | None) -> None:
    """Y1, Y12: blanks do not count, a fraction is cut off, no exponent, no hex, overflow fails."""
    assert cast_one(text, "INT") == expected


def test_2000_and_abc_fail_as_tinyint() -> None:
    """Y1's own examples, from text and from numbers."""
    assert flags(convert(["1", "abc", "2000", None], "TINYINT").failed) == [False, True, True, False]
    assert flags(convert([1, 2000, None], "TINYINT").failed) == [False, True, False]


@pytest.mark.parametrize("name", list(INTEGER_RANGES))
def test_both_ends_of_every_integer_range_hold_and_one_more_fails(name: str) -> None:
    low, high = INTEGER_RANGES[name]
    result = convert([str(low), str(high), str(low - 1), str(high + 1)], name)
    assert [None if v is None else int(v) for v in result.values.to_pylist()] == [low, high, None, None]
    assert result.out_of_range is None


def test_largeint_takes_decimals_unsigned_and_floats_within_128_bits() -> None:
    assert cast_one(2**64 - 1, "LARGEINT", pa.uint64()) == 2**64 - 1
    assert cast_one(2.0**126, "LARGEINT") == 2**126
    assert cast_one(2.0**127, "LARGEINT") is None
    assert cast_one(Decimal(2**127), "LARGEINT", pa.decimal256(40, 0)) is None
    assert cast_one(Decimal(2**127 - 1), "LARGEINT", pa.decimal256(39, 0)) == 2**127 - 1
    assert cast_one("1e3", "LARGEINT") is None


def test_floats_are_cut_off_to_integers_and_nan_fails() -> None:
    values = [1.5, -2.7, math.nan, math.inf, 3e9, 2147483647.9, None]
    assert convert(values, "INT").values.to_pylist() == [1, -2, None, None, None, 2147483647, None]
    assert convert([2.0**63, -(2.0**63)], "BIGINT").values.to_pylist() == [None, -(2**63)]


@given(st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=30), st.sampled_from(list(INTEGER_RANGES)))
@settings(max_examples=by_form(60, 150), deadline=None)
def test_integers_as_text_agree_with_python(values: list[int], name: str) -> None:
    low, high = INTEGER_RANGES[name]
    result = convert([str(v) for v in values], name).values.to_pylist()
    assert [None if v is None else int(v) for v in result] == [
        v if low <= v <= high else None for v in values
    ]


@given(
    st.lists(
        st.decimals(
            allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=None
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 20),
    st.integers(0, 8),
)
@settings(max_examples=by_form(60, 200), deadline=None)
def test_decimals_as_text_are_rounded_half_up_and_checked_for_range(
    values: list[Decimal], whole: int, scale: int
) -> None:
    """Y4: rounding comes first, then the range; too many digits before the point is `out_of_range`."""
    result = convert([str(v) for v in values], f"DECIMAL({whole + scale},{scale})")
    rounded = [v.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP) for v in values]
    expected = [v if abs(v) < Decimal(10) ** whole else None for v in rounded]
    assert result.values.to_pylist() == expected
    beyond = flags(result.out_of_range) if result.out_of_range is not None else [False] * len(values)
    assert beyond == [v is None for v in expected]


@given(
    st.lists(st.one_of(st.none(), st.decimals(-(10**30), 10**30, places=6)), max_size=20),
    st.sampled_from([6, 2, 0, 8]),
)
@settings(max_examples=by_form(60, 400), deadline=None)
def test_a_decimal_becomes_the_nearest_float(values: list[Decimal | None], places: int) -> None:
    """Arrow multiplies by a power of ten: 19.99 became 19.990000000000002, and no condition found it."""
    kept = [value and value.scaleb(6 - places) for value in values]
    for kind in (pa.decimal128(38, places), pa.decimal256(60, places)):
        source = pa.array([None, *kept], kind)[1:]
        assert convert(source, "DOUBLE").values.to_pylist() == [v if v is None else float(v) for v in kept]
        floats = [v if v is None else float(np.float32(str(v))) for v in kept]
        assert convert(source, "FLOAT").values.to_pylist() == floats


@pytest.mark.parametrize("text", ["1.005", "19.99", "4.35", "0.1", "0.57", "1.255", "-2.675", "0", "1e-6"])
def test_a_decimal_is_the_float_of_its_text(text: str) -> None:
    for kind in ("DOUBLE", "FLOAT"):
        made = convert(pa.array([Decimal(text)], pa.decimal128(38, 6)), kind).values
        assert made == convert([text], kind).values


def test_ten_into_decimal_1_0_is_out_of_range_and_abc_is_not() -> None:
    """Y4 apart from Y1."""
    for source in (["10", "9", "abc"], [10.0, 9.0, math.nan]):
        result = convert(source, "DECIMAL(1,0)")
        assert flags(result.failed) == [True, False, True]
        assert flags(result.out_of_range) == [True, False, False]
    assert flags(convert([10, 9], "DECIMAL(1,0)").out_of_range) == [True, False]
    assert flags(convert([Decimal("9.5"), Decimal("9.4")], "DECIMAL(1,0)").out_of_range) == [True, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("123.1234567", "123.123457"),
        ("12345.", "12345"),
        (".123456", "0.123456"),
        (" \t+1.234e5 ", "123400"),
        ("1.234e-1", "0.1234"),
        ("-0.0000005", "-0.000001"),
        ("123.456a", None),
        ("1234567890123.123456", None),
        ("1e999999999", None),
        ("1e-999999999", "0"),
        ("0e16", "0"),
        ("-0e999999999", "0"),
        (".", None),
        ("1.00000049999999999999999999999999999999999999999999999999999999999999999999999999", "1"),
    ],
)
def test_text_becomes_a_decimal(text: str, expected: str | None) -> None:
    assert cast_one(text, "DECIMAL(18,6)") == (None if expected is None else Decimal(expected))


def test_decimals_of_the_largest_precision_keep_every_digit() -> None:
    assert cast_one("9" * 76, "DECIMAL(76,0)") == Decimal("9" * 76)
    assert flags(convert(["1" * 77], "DECIMAL(76,0)").out_of_range) == [True]
    assert cast_one("-" + "9" * 75 + ".4", "DECIMAL(75,0)") == Decimal("-" + "9" * 75)
    assert cast_one("9" * 75 + ".6", "DECIMAL(75,0)") is None


def test_text_becomes_a_double() -> None:
    values = convert(["1.5", " +2 ", "1e400", "-Infinity", "x", ""], "DOUBLE").values.to_pylist()
    assert values == [1.5, 2.0, math.inf, -math.inf, None, None]
    assert math.isnan(cast_one("NaN", "DOUBLE"))


def test_booleans_are_words_in_any_case_and_numbers() -> None:
    words = ["1", " TRUE ", "YeS", "on", "t", "0", "f", "no", "OFF", "2", "1.1", "+0", ""]
    assert convert(words, "BOOLEAN").values.to_pylist() == [True] * 5 + [False] * 4 + [None] * 4
    assert convert([0, 2, None], "BOOLEAN").values.to_pylist() == [False, True, None]
    assert convert([Decimal("0.0"), Decimal("0.1")], "BOOLEAN").values.to_pylist() == [False, True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01", "2024-05-01"),
        ("20240501", "2024-05-01"),
        ("2024/5/1", "2024-05-01"),
        ("24-5-1", "2024-05-01"),
        ("691231", "2069-12-31"),
        ("70-01-01", "1970-01-01"),
        ("2024-05-01 23:59:59.999999", "2024-05-01"),
        ("20240501101112", "2024-05-01"),
        (" 2024-02-29 ", "2024-02-29"),
        ("2023-02-29", None),
        ("2020-02-30", None),
        ("0000-00-00", None),
        ("10000-01-01", None),
        ("2024-13-01", None),
        ("2024-0501", None),
        ("", None),
        ("today", None),
    ],
)
def test_text_becomes_a_date(text: str, expected: str | None) -> None:
    assert cast_one(text, "DATE") == (None if expected is None else date.fromisoformat(expected))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-07-16T19:20:30.123+08:00", "2023-07-16 19:20:30.123"),
        ("2023-07-16T19+08:00", "2023-07-16 19:00:00"),
        ("2023-07-16T1920+08:00", "2023-07-16 19:20:00"),
        ("70-1-1T00:00:00-0000", "1970-01-01 08:00:00"),
        ("19991231T235959.5UTC", "2000-01-01 07:59:59.5"),
        ("2024-05-01T00:00Asia/Shanghai", "2024-05-01 00:00:00"),
        ("20231005T081530Europe/London", "2023-10-05 15:15:30"),
        ("85-12-25T000000gMt", "1985-12-25 08:00:00"),
        ("2024-05-01 0:1:2.", "2024-05-01 00:01:02"),
        ("20240501 01", "2024-05-01 01:00:00"),
        ("20120102030405.123   +08", "2012-01-02 03:04:05.123"),
        ("2020-12-12 13:12:12-03:00", "2020-12-13 00:12:12"),
        ("2024-12-31 23:59:59.9999999", "2025-01-01 00:00:00"),
        ("2025-06-15T00:00:00.99999849", "2025-06-15 00:00:00.999998"),
        ("120102030405", None),
        ("2023-07-16T19.123+08:00", None),
        ("2024-05-01 01:030:02", None),
        ("2024-05-01T00:00XYZ", None),
        ("2024-05-01T24:00", None),
        ("2024-05-01T12:60", None),
        ("2012-06-30T23:59:60", None),
        ("9999-12-31 23:59:59.9999999", None),
    ],
)
def test_text_becomes_a_datetime_in_the_load_zone(text: str, expected: str | None) -> None:
    """Y13: a zone in the text moves the value to the load's zone; without one it is taken as it is."""
    wanted = None if expected is None else datetime.fromisoformat(expected)
    assert cast_one(text, "DATETIME(6)", zone="Asia/Shanghai") == wanted


def test_a_column_of_text_with_zones_is_converted_at_once_and_mixed_text_row_by_row() -> None:
    zoned = ["2024-01-01T10:00:00Z", "2024-01-01T10:00:00+02:00"]
    assert [v.hour for v in convert(zoned, "DATETIME", zone="+08:00").values.to_pylist()] == [18, 16]
    mixed = [*zoned, "2024-01-01 10:00:00"]
    assert [v.hour for v in convert(mixed, "DATETIME", zone="+08:00").values.to_pylist()] == [18, 16, 10]


@pytest.mark.parametrize("digits", range(7))
def test_a_datetime_is_rounded_half_up_to_its_digits_from_every_source(digits: int) -> None:
    text = "1960-01-01 00:00:00.555555"
    step = 10 ** (6 - digits)
    micros = (555555 + step // 2) // step * step
    expected = datetime(1960, 1, 1, 0, 0, micros // 10**6, micros % 10**6)
    moment = pa.array([datetime.fromisoformat(text)])
    for source in ([text], [text.replace("-", "/")], moment, moment.cast(pa.timestamp("ns"))):
        assert convert(source, f"DATETIME({digits})").values[0].as_py() == expected


def test_arrow_moments_of_other_units_and_zones() -> None:
    assert cast_one(0, "DATETIME(3)", pa.timestamp("ms", "UTC"), zone="Asia/Shanghai") == datetime(
        1970, 1, 1, 8
    )
    assert cast_one(-1, "DATE", pa.timestamp("ms")) == date(1969, 12, 31)
    assert (
        convert(pa.array([10**15], pa.int64()).cast(pa.timestamp("s")), "DATETIME").values[0].as_py() is None
    )
    assert convert(pa.array([2**62], pa.timestamp("us")), "DATETIME(6)").values[0].as_py() is None
    assert cast_one(0, "DATE", pa.date64()) == date(1970, 1, 1)
    assert convert([20240501, 20240501101112, 5], "DATETIME").values.to_pylist() == [
        datetime(2024, 5, 1),
        datetime(2024, 5, 1, 10, 11, 12),
        None,
    ]
    assert cast_one(datetime(2024, 5, 1, 10, 11, 12), "BIGINT") == 20240501101112
    assert cast_one(date(2024, 5, 1), "INT") == 20240501


@given(
    st.lists(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)), min_size=1, max_size=20), st.booleans()
)
@settings(max_examples=by_form(40, 100), deadline=None)
def test_the_careful_way_reads_moments_as_the_quick_way_does(moments: list[datetime], shuffled: bool) -> None:
    text = [f"{m:%Y-%m-%d %H:%M:%S}.{m.microsecond:06d}".rjust(26, "0") for m in moments]
    extra = ["bad"] if shuffled else []
    assert convert([*text, *extra], "DATETIME(6)").values.to_pylist()[: len(text)] == moments


def test_zone_names_are_checked() -> None:
    """LH11."""
    assert [check_zone(z) for z in ("asia/shanghai", "CST", "+8:00", "-0330", "UTC")] == [
        "Asia/Shanghai",
        "+08:00",
        "+08:00",
        "-03:30",
        "+00:00",
    ]
    with pytest.raises(InvalidInputError, match="Mars/Base"):
        check_zone("Mars/Base")


def test_text_columns_take_any_value_as_its_text() -> None:
    """J11: nested values become their JSON text."""
    assert convert([True, None, False], "STRING").values.to_pylist() == ["1", None, "0"]
    assert convert([1.0, 1.5], "VARCHAR(3)").values.to_pylist() == ["1", "1.5"]
    assert convert([Decimal("1.50")], "STRING").values.to_pylist() == ["1.50"]
    assert convert([[1, None], None], "STRING").values.to_pylist() == ["[1,null]", None]
    assert convert([{"a": 1}], "STRING").values.to_pylist() == ['{"a":1}']
    assert convert(["x" * 100], "CHAR(1)").values.to_pylist() == ["x" * 100]


def test_times_that_nothing_can_write_fail_their_rows_alone() -> None:
    """What Arrow writes for them is no text of theirs, and DuckDB's JSON gives up on a whole array."""
    times = pa.array([0, 10**18, None], pa.timestamp("s"))
    text = try_cast(times, parse_type("STRING"))
    assert text.values.to_pylist() == ["1970-01-01 00:00:00", None, None]
    assert text.failed is not None
    assert flags(text.failed) == [False, True, False]
    nested = pa.StructArray.from_arrays([times], ["at"])
    for to in ("JSON", "STRING"):
        cast = try_cast(nested, parse_type(to))
        assert cast.values.to_pylist()[1] is None
        assert '"1970-01-01 00:00:00"' in cast.values.to_pylist()[0]
        assert cast.failed is not None
        assert cast.failed.to_pylist() == [False, True, False]
    assert convert([{"a": 1}], "JSON").values.to_pylist() == ['{"a":1}'], (
        "what ended the evaluator has not stayed"
    )


def test_texts_within_values_fail_their_rows_alone() -> None:
    """V10."""
    texts = pa.StringArray.from_buffers(2, *pa.array([b"x", b"\xff"]).buffers()[1:])
    cast = try_cast(pa.StructArray.from_arrays([texts], ["t"]), parse_type("JSON"))
    assert cast.values.to_pylist() == ['{"t":"x"}', None]
    assert cast.failed is not None
    assert cast.failed.to_pylist() == [False, True]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
@pytest.mark.parametrize("to", ["DATE", "DATETIME(3)"])
def test_days_beyond_the_calendar_fail_their_rows_alone(kind: pa.DataType, to: str) -> None:
    days = [19_723, 2**30, None]
    source = pa.array([d if d is None or kind == pa.date32() else d * 86_400_000 for d in days])
    cast = try_cast(source.cast(pa.int32() if kind == pa.date32() else pa.int64()).cast(kind), parse_type(to))
    assert [None if v is None else str(v)[:10] for v in cast.values.to_pylist()] == ["2024-01-01", None, None]
    assert cast.failed is not None
    assert cast.failed.to_pylist() == [False, True, False]


def test_a_type_without_a_text_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="month_day_nano_interval cannot become STRING"):
        try_cast(pa.array([(1, 2, 3)], pa.month_day_nano_interval()), parse_type("STRING"))


def test_bytes_are_read_as_utf8_and_other_bytes_fail() -> None:
    """V10."""
    assert convert([b"\xc3\xa9", b"\xff", None], "STRING").values.to_pylist() == ["é", None, None]
    assert convert([b"1", b"\xff"], "INT").values.to_pylist() == [1, None]
    assert convert([b"ab"], "STRING", pa.binary(2)).values.to_pylist() == ["ab"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a: a.dictionary_encode(),
        lambda a: a.cast(pa.large_string()),
        lambda a: a.cast(pa.string_view()),
        lambda a: a.cast(pa.large_binary()),
        lambda a: pa.compute.run_end_encode(a),
        lambda a: pa.chunked_array([a.slice(0, 1), a.slice(1)]),
        lambda a: pa.concat_arrays([pa.array(["x"]), a]).slice(1),
    ],
    ids=["dictionary", "large", "view", "large_binary", "run_end", "chunked", "sliced"],
)
def test_every_layout_of_text_is_read(wrap: Any) -> None:
    source = wrap(pa.array(["1", "7", "7", " 8"]))
    assert try_cast(source, parse_type("INT")).values.to_pylist() == [1, 7, 7, 8]
    assert try_cast(source, parse_type("STRING")).values.to_pylist() == ["1", "7", "7", " 8"]


def test_json_text_is_validated_and_kept() -> None:
    values = ['{"b": 1,"a":2}', "x", "", None, "[1,", '"s"', "null"]
    assert convert(values, "JSON").values.to_pylist() == [
        '{"b": 1,"a":2}',
        None,
        None,
        None,
        None,
        '"s"',
        "null",
    ]
    assert convert([{"a": 1}, None], "JSON").values.to_pylist() == ['{"a":1}', None]


def test_arrays_come_from_json_text_and_bad_elements_fail_the_row_but_keep_the_rest() -> None:
    result = convert(
        ['[1,2,"3"]', '["a",1]', "x", None, '{"a":1}', "[]", "[1.5,null]", "['5', 6]"], "ARRAY<INT>"
    )
    assert result.values.to_pylist() == [[1, 2, 3], [None, 1], None, None, None, [], [1, None], [5, 6]]
    assert flags(result.failed) == [False, True, True, False, True, False, False, False]


def test_maps_and_structs_come_from_json_text() -> None:
    result = convert(['{"1":1,"b":"x"}', '{"2":"3"}', "[1]", None], "MAP<INT,INT>")
    assert result.values.to_pylist() == [None, [(2, 3)], None, None]
    assert flags(result.failed) == [True, False, True, False]
    text = ['{"a b":1,"g":["x",{"y":[1]}]}', '{"a b":"q"}', "[1]"]
    result = convert(text, "STRUCT<`a b`:INT,g:ARRAY<STRING>>")
    assert result.values.to_pylist() == [{"a b": 1, "g": ["x", '{"y":[1]}']}, {"a b": None, "g": None}, None]
    assert flags(result.failed) == [False, True, True]


def test_nested_arrow_values_are_cast_part_by_part() -> None:
    lists = pa.array([[9], [1, 2], None, [300], [4]]).slice(1)
    result = convert(lists, "ARRAY<TINYINT>")
    assert result.values.to_pylist() == [[1, 2], None, [None], [4]]
    assert flags(result.failed) == [False, False, True, False]
    assert convert(lists.cast(pa.large_list(pa.int64())), "ARRAY<STRING>").values.to_pylist()[0] == ["1", "2"]
    maps = pa.array([[("1", 1)], None, [("x", 2)], []], pa.map_(pa.string(), pa.int64()))
    assert convert(maps, "MAP<INT,TINYINT>").values.to_pylist() == [[(1, 1)], None, None, []]
    structs = [{"F": "1", "g": 2.0, "more": 1}, None]
    assert convert(structs, "STRUCT<f:INT,g:STRING,h:INT>").values.to_pylist() == [
        {"f": 1, "g": "2", "h": None},
        None,
    ]
    assert flags(convert([["10"]], "ARRAY<DECIMAL(1,0)>").out_of_range) == [True]


def test_a_part_that_fails_behind_one_that_does_not_is_found() -> None:
    result = convert([{"f": "1", "g": "2"}, {"f": "3", "g": "x"}], "STRUCT<f:INT,g:INT>")
    assert result.values.to_pylist() == [{"f": 1, "g": 2}, {"f": 3, "g": None}]
    assert flags(result.failed) == [False, True]


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_deeply_nested_json_is_refused_or_kept_without_a_crash(depth: int) -> None:
    bombs = ["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "[" * depth]
    assert convert(bombs, "JSON").values.to_pylist() == [*bombs[:2], None]
    convert(bombs, "ARRAY<ARRAY<INT>>")
    convert(bombs, "STRUCT<a:STRUCT<a:INT>>")


def test_a_type_that_can_never_fit_is_one_clear_error() -> None:
    with pytest.raises(InvalidInputError, match=r"list<item: int64> cannot become INT"):
        try_cast(pa.array([[1]]), parse_type("INT"))
    with pytest.raises(InvalidInputError, match=r"cannot become ARRAY<INT>"):
        try_cast(pa.array([1]), parse_type("ARRAY<INT>"))
    with pytest.raises(InvalidInputError, match=r"cannot become ARRAY<INT>"):
        try_cast(pa.array([{"a": 1}]), parse_type("ARRAY<INT>"))
    with pytest.raises(InvalidInputError, match=r"cannot become STRUCT"):
        try_cast(pa.array([1]), parse_type("STRUCT<a:INT>"))


def test_the_right_type_already_is_returned_without_a_copy() -> None:
    source = pa.array(range(1000))
    assert try_cast(source, parse_type("BIGINT")).values is source


@pytest.mark.parametrize(
    "to", ["TINYINT", "LARGEINT", "DOUBLE", "DECIMAL(9,2)", "DATE", "DATETIME", "JSON", "BOOLEAN"]
)
@pytest.mark.parametrize("rows", [8192, 8193, 20000])
def test_bad_rows_in_a_long_column_are_found_at_their_place(to: str, rows: int) -> None:
    """Slices are put together in order, whichever of them went the careful way."""
    good = {"DATE": "2024-01-01", "DATETIME": "2024-01-01 10:00:00"}.get(to, "1")
    bad = {0, 5000, rows - 1}
    result = convert(["?" if i in bad else good for i in range(rows)], to)
    assert {i for i, flag in enumerate(flags(result.failed)) if flag} == bad


@pytest.mark.parametrize(
    "to",
    [
        "INT",
        "LARGEINT",
        "DOUBLE",
        "DECIMAL(9,2)",
        "DATE",
        "DATETIME",
        "JSON",
        "STRING",
        "BOOLEAN",
        "ARRAY<INT>",
    ],
)
def test_empty_and_all_null_columns_have_no_failures(to: str) -> None:
    for source in (
        pa.array([], pa.string()),
        pa.nulls(3),
        pa.nulls(3, pa.string()),
        pa.chunked_array([], pa.string()),
    ):
        result = convert(source, to)
        assert result.failed is None
        assert result.values.null_count == len(source)


@given(
    st.lists(st.none() | st.decimals(min_value=-1000, max_value=1000, places=12), min_size=1),
    st.sampled_from([pa.decimal128(38, 12), pa.decimal256(76, 12), pa.decimal256(39, 20)]),
)
def test_a_decimal_becomes_text_with_all_digits_of_its_scale(
    values: list[Decimal | None], kind: pa.DataType
) -> None:
    """Zero and decimals below a millionth had an exponent: 0E-12."""
    source = pa.array([*values, Decimal("1E-12"), Decimal("-1E-12"), Decimal(0), None], kind)
    wanted = [None if value is None else f"{value:f}" for value in source.to_pylist()]
    assert convert(source, "STRING").values.to_pylist() == wanted
    assert convert(source.slice(1), "STRING").values.to_pylist() == wanted[1:]


@pytest.mark.parametrize("to", ["INT", "BIGINT", "LARGEINT", "DOUBLE", "DATE", "DATETIME", "STRING"])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**31 - 1, -(2**31), -800_000, 2_932_897], pa.date32()),
        ([10**17 - 10**17 % 86_400_000, -(10**15) + 10**15 % 86_400_000], pa.date64()),
        ([2**62, -(2**62)], pa.timestamp("s")),
        ([2**62], pa.timestamp("ms")),
        ([2**62, -(2**62)], pa.timestamp("us")),
    ],
)
def test_times_beyond_the_calendar_have_no_value(values: list[int], kind: pa.DataType, to: str) -> None:
    """Their digits were others': date32 2147483647 became the number 205990622."""
    width = pa.int32() if kind == pa.date32() else pa.int64()
    found = convert(pa.array(values, width).view(kind), to)
    assert found.values.to_pylist() == [None] * len(values)
