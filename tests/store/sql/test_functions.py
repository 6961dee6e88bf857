"""Functions and operators mean what they mean in Doris; the clock stands at 2024-05-06 12:30:45.678901."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from seqstore import InvalidInputError, Session, StoreError
from seqstore.store.sql import parse
from seqstore.store.sql.evaluate.connections import connect
from seqstore.store.sql.parse.dialect import SqlParser
from seqstore.store.sql.parse.sqlglot_adapter import exp, find_all
from seqstore.store.sql.translate.functions import KNOWN_CLASSES, function_names
from seqstore.store.sql.translate.macros.catalog import called_macros, internal_names, macro_names

Run = Callable[[str], Any]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # division and NULL
        ("1 / 0", None),
        ("7 / 2", 3.5),
        ("7 DIV 2", 3),
        ("7 DIV 0", None),
        ("7 % 0", None),
        ("mod(7, 4)", 3),
        ("concat('a', NULL)", None),
        ("concat('a', 1, 'b')", "a1b"),
        ("concat_ws('-', 'a', NULL, 'b')", "a-b"),
        ("0 || 1", True),
        ("1 AND NULL", None),
        ("NULL <=> NULL", True),
        ("1 XOR 1", False),
        ("greatest(1, NULL)", None),
        ("least(3, 2)", 2),
        ("ifnull(NULL, 3)", 3),
        ("nvl(NULL, 'x')", "x"),
        ("nullif(1, 1)", None),
        ("if(1 > 2, 'a', 'b')", "b"),
        ("CASE WHEN NULL THEN 1 ELSE 2 END", 2),
        # casts
        ("cast('abc' AS INT)", None),
        ("cast(1.9 AS INT)", 1),
        ("cast(-1.9 AS BIGINT)", -1),
        ("cast('12.7' AS INT)", 12),
        ("cast(2000 AS TINYINT)", None),
        ("cast('2024-02-30' AS DATE)", None),
        ("cast('2024-02-29 10:00:00' AS DATETIME)", datetime(2024, 2, 29, 10)),
        ("cast(DATE '2024-02-29' AS INT)", 20240229),
        ("cast(1.25 AS DECIMAL(9,1))", Decimal("1.3")),
        ("cast(true AS STRING)", "1"),
        ("cast('abc' AS VARCHAR(2))", "ab"),
        ("cast(99999999999999999999 AS LARGEINT)", Decimal(99999999999999999999)),
        ("cast('7' AS UNSIGNED)", 7),
        # text
        ("length('你好')", 6),
        ("length('a\\0b')", 3),
        ("char_length('你好')", 2),
        ("upper('a')", "A"),
        ("substring('hello', -3)", "llo"),
        ("substring_index('a.b.c', '.', 2)", "a.b"),
        ("substring_index('a.b.c', '.', -1)", "c"),
        ("substring_index('a.b', '', 1)", ""),
        ("trim('xyxa', 'xy')", "xa"),
        ("ltrim('xyxa', 'xy')", "xa"),
        ("rtrim('axyx', 'yx')", "ax"),
        ("trim('ababccaab', 'ab')", "cca"),
        ("trim(BOTH 'ab' FROM 'ababccaab')", "cca"),
        ("trim(LEADING 'a' FROM 'aabaa')", "baa"),
        ("trim(TRAILING '.+' FROM 'a.+.+')", "a"),
        ("trim('  a ')", "a"),
        ("trim('abc', '')", "abc"),
        ("trim('abc', NULL)", None),
        ("trim_in('ababccaab', 'ab')", "cc"),
        ("ascii('中')", 228),
        ("ascii('')", 0),
        ("ord('中')", 14989485),
        ("abs(-2147483648)", 2147483648),
        ("abs(CAST(-128 AS TINYINT))", 128),
        ("-CAST(-2147483648 AS INT)", 2147483648),
        ("months_between('2020-12-26', '2020-10-25')", 2.03225806),
        ("timestamp '2024-01-01 00:00:00.9'", datetime(2024, 1, 1, 0, 0, 0, 900_000)),
        ("timestamp '2024-01-01 00:00:01'", datetime(2024, 1, 1, 0, 0, 1)),
        ("extract(MICROSECOND FROM '2024-01-01 10:10:10.123456')", 123456),
        ("extract(WEEK FROM '2022-01-01')", 0),
        ("split_part('a,b', ',', 2)", "b"),
        ("split_part('a,b', ',', 9)", None),
        ("find_in_set('b', 'a,b,c')", 2),
        ("find_in_set('z', 'a,b,c')", 0),
        ("find_in_set(NULL, 'a')", None),
        ("locate('b', 'abcb', 3)", 4),
        ("instr('abc', 'c')", 3),
        ("lpad('a', 3, 'x')", "xxa"),
        ("'abc' LIKE 'A%'", False),
        ("'abc' REGEXP '^a.c$'", True),
        ("regexp_replace('aba', 'a', 'x')", "xbx"),
        ("hex('a')", "61"),
        ("unhex('zz')", ""),
        ("unhex('4')", ""),
        ("md5('a')", "0cc175b9c0f1b6a831c399e269772661"),
        ("'a' 'b'", "ab"),
        ('"double" ', "double"),
        # dates
        ("now()", datetime(2024, 5, 6, 12, 30, 45)),
        ("now(3)", datetime(2024, 5, 6, 12, 30, 45, 678000)),
        ("current_timestamp", datetime(2024, 5, 6, 12, 30, 45)),
        ("curdate()", date(2024, 5, 6)),
        ("current_date", date(2024, 5, 6)),
        ("unix_timestamp()", 1714998645),
        ("unix_timestamp('1970-01-02 00:00:01.9')", Decimal("86401.9")),
        ("from_unixtime(86400)", "1970-01-02 00:00:00"),
        ("from_unixtime(86400, '%Y/%m')", "1970/01"),
        ("date_format('2024-02-03 04:05:06', '%Y-%c-%e %H:%i:%s %%')", "2024-2-3 04:05:06 %"),
        ("date_format('2024-02-03', 'yyyyMMdd')", "20240203"),
        ("time_format('125:04:05', '%H|%k|%i|%s')", "125|125|04|05"),
        ("time_format('-05:00:00', '%T')", "-05:00:00"),
        ("time_format('2024-02-03 17:05:06', '%h:%i %p')", "05:05 PM"),
        ("time_format('x', '%H')", None),
        ("str_to_date('03.02.2024', '%d.%m.%Y')", date(2024, 2, 3)),
        ("str_to_date('nonsense', '%Y')", None),
        ("date_add('2024-01-31', INTERVAL 1 MONTH)", date(2024, 2, 29)),
        ("date_add(DATE '2024-01-31', 1)", date(2024, 2, 1)),
        ("date_sub(DATE '2024-03-01', INTERVAL 1 DAY)", date(2024, 2, 29)),
        ("DATE '2024-01-31' + INTERVAL 2 HOUR", datetime(2024, 1, 31, 2)),
        ("'2024-01-31' - INTERVAL 1 YEAR", date(2023, 1, 31)),
        ("months_add(DATE '2024-01-31', 1)", date(2024, 2, 29)),
        ("days_sub(DATE '2024-01-01', 1)", date(2023, 12, 31)),
        ("datediff('2024-03-01', '2024-02-01 23:00:00')", 29),
        ("timestampdiff(MONTH, '2024-01-31', '2024-02-28')", 0),
        ("timestampadd(DAY, 1, '2024-02-28')", date(2024, 2, 29)),
        ("date_trunc(DATE '2024-02-28', 'month')", date(2024, 2, 1)),
        ("date_trunc('hour', '2024-02-28 01:02:03')", datetime(2024, 2, 28, 1)),
        ("last_day('2024-02-03')", date(2024, 2, 29)),
        ("year('2024-02-03')", 2024),
        ("year('nonsense')", None),
        ("dayofweek('2024-05-05')", 1),
        ("weekday('2024-05-05')", 6),
        ("dayname('2024-05-05')", "Sunday"),
        ("extract(MONTH FROM '2024-05-05')", 5),
        ("to_days('1970-01-01')", 719528),
        ("microsecond('2024-05-05 00:00:07.25')", 250000),
        # JSON and nested values
        ('get_json_string(\'{"a": {"b": [1, "x"]}}\', \'$.a.b[1]\')', "x"),
        ("get_json_string('{bad', '$.a')", None),
        ("get_json_int('{\"a\": 7}', '$.a')", 7),
        ("json_extract('{\"a\": [1]}', '$.a')", "[1]"),
        ("'{\"a\": 1}' -> '$.a'", "1"),
        ("json_length('[1, 2]')", 2),
        ("json_valid('{')", 0),
        ("array(4, 5)[1]", 4),
        ("element_at([4, 5], 3)", None),
        ("map('a', 1)['a']", 1),
        ("size([1, 2])", 2),
        ("array_contains([1, 2], 2)", True),
        ("array_contains([1, NULL], NULL)", True),
        ("array_contains([1, 2], NULL)", False),
        ("array_sort([3, 1, NULL, 2])", [None, 1, 2, 3]),
        ("arrays_overlap([1, NULL], [NULL, 3])", None),
        ("arrays_overlap([1, NULL], [1])", True),
        ("arrays_overlap([1], [2])", False),
        ("named_struct('a', 1)", {"a": 1}),
        # the session
        ("database()", "db"),
        ("version()", "5.7.99"),
        ("current_user()", "root@%"),
        ("connection_id()", 0),
    ],
)
def test_an_expression_has_the_value_doris_gives_it(value: Run, expression: str, expected: Any) -> None:
    assert value(expression) == expected


def test_clocks_and_unix_times_follow_the_sessions_zone(rows: Run) -> None:
    for zone in ("+08:00", "Asia/Shanghai"):
        rows(f"SET time_zone = '{zone}'; SELECT 1")
        text = (
            "SELECT now(), utc_timestamp(), from_unixtime(0), unix_timestamp('1970-01-01 "
            "08:00:01'), unix_timestamp()"
        )
        evening, noon = datetime(2024, 5, 6, 20, 30, 45), datetime(2024, 5, 6, 12, 30, 45)
        assert rows(text) == [(evening, noon, "1970-01-01 08:00:00", 1, 1714998645)]


@pytest.mark.parametrize(
    "expression",
    [
        "date_format(now(), '%Q')",
        "date_format(now(), concat('%', 'Y'))",
        "now(9)",
        "datediff(now())",
        "date_trunc('eon', now())",
        "timestampdiff(EON, now(), now())",
        "map('a')",
        "group_concat('a', 'b', 'c')",
    ],
)
def test_arguments_a_function_does_not_take_are_refused(value: Run, expression: str) -> None:
    with pytest.raises(InvalidInputError, match="function"):
        value(expression)


def test_every_named_function_is_there_and_every_macro_has_a_name() -> None:
    assert macro_names() <= set(function_names())
    connection = connect()
    connection.create_macros(" ".join(f"d_{name}" for name in macro_names() | internal_names()))
    connection.close()


def test_a_statement_creates_the_macros_that_it_calls_and_those_that_they_call() -> None:
    assert called_macros("SELECT 1 AS d") == {}
    found = list(called_macros("SELECT D_YEARWEEK_MODE_2(x)"))
    assert found == ["d_week_anchor_0", "d_week_number", "d_year_and_week", "d_yearweek_mode_2"]
    assert list(called_macros("SELECT d_yearweek_mode_2(x)", {"d_week_number"})) == [
        name for name in found if name != "d_week_number"
    ]


@pytest.mark.parametrize(
    "expression",
    [
        "date_add(d, INTERVAL 1 DAY)",
        "date_add(at, INTERVAL 1 SECOND)",
        "d + INTERVAL 1 YEAR",
        "date_sub(CAST('0000-01-01' AS DATE), INTERVAL 1 DAY)",
        "CAST('10000-01-01' AS DATE)",
        "CAST('infinity' AS DATE)",
        "CAST('-infinity' AS DATETIME)",
        "CAST('9999-12-31 23:59:59.7' AS DATETIME)",
        "makedate(9999, 366)",
    ],
)
def test_a_time_outside_of_the_years_0_to_9999_is_null(rows: Run, expression: str) -> None:
    """Such a time ended `seqstore sql` in a traceback, and reached clients of MySQL as a broken text."""
    table = "(SELECT CAST('9999-12-31' AS DATE) AS d, CAST('9999-12-31 23:59:59' AS DATETIME) AS at) t"
    assert rows(f"SELECT {expression} FROM {table}") == [(None,)]


def test_extract_of_a_unit_that_it_does_not_know_is_refused(value: Run) -> None:
    with pytest.raises(InvalidInputError, match="EXTRACT does not know the unit YEAR_MONTH; expected YEAR, "):
        value("extract(YEAR_MONTH FROM '2024-01-01')")


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_functions_of_other_dialects_are_not_known(session: Session, count: int) -> None:
    """`generate_series(1, 1000000000000)` ran, with all the memory that DuckDB has for one value."""
    passed = set()
    for name in SqlParser.FUNCTIONS:
        call = f"{name}({', '.join(['1'] * count)})"
        try:
            (tree,) = (statement.tree for statement in parse(f"SELECT {call}"))
        except StoreError:  # a word of the grammar, or another number of arguments
            continue
        for node in find_all(tree, exp.Func):
            if not isinstance(node, exp.Anonymous) and node.key not in KNOWN_CLASSES:
                passed.add(call)
    for call in passed:
        with pytest.raises(InvalidInputError) as refused:
            list(session.execute(f"SELECT {call}"))
        assert refused.value.kind == "unknown_function", call
    assert len(passed) > 20
