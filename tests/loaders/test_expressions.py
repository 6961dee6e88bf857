"""`loaders.expressions`: what an expression of a header gives, and what is refused."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from seqstore.loaders.expressions import Evaluator, Field, bind, parse
from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.translate.calls import EvaluationContext, Moment
from seqstore.store.types.column_types import ColumnType, parse_type
from tests.support.casts import COLUMNS, comparisons

AROUND = EvaluationContext(Moment(datetime(2024, 1, 1, 8), datetime(2024, 1, 1), "Asia/Shanghai"), "db")
ROWS = pa.table(
    {
        "a": ["5", "x", "7.5", None],
        "b": ["abc", "d,e", "F", ""],
        "ts": ["2024-01-02 03:04:05", "bad", "20240102", None],
        "big": ["9007199254740993", "1", "2", "x"],
        "k": [1, 2, 3, None],
        "wide": pa.array([Decimal(2**127 - 2), Decimal(1), None, Decimal(-5)], pa.decimal256(39, 0)),
    }
)
TYPES = {"k": "INT", "wide": "LARGEINT"}


def field(name: str) -> Field:
    known = {column.lower(): column for column in ROWS.schema.names}
    if name.lower() not in known:
        raise InvalidInputError(f"unknown column {name!r}")
    column = known[name.lower()]
    kind: ColumnType | None = parse_type(TYPES[column]) if column in TYPES else None
    return Field(column, kind, parse_type("BIGINT") if column == "big" else None)


def evaluate(text: str) -> list[Any]:
    evaluator = Evaluator(AROUND, [bind(parse(text, "where"), field, "where")])
    try:
        return list(evaluator(ROWS)[0].to_pylist())
    finally:
        evaluator.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + 1", [6.0, None, 8.5, None]),
        ("-a", [-5.0, None, -7.5, None]),
        ("A = 5", [True, None, False, None]),
        ("a in (5, 7)", [True, None, False, None]),
        ("a between 1 and 6", [True, None, False, None]),
        ("not a = 5", [False, None, True, None]),
        ("a <=> null", [False, False, False, True]),
        ("abs(a)", [5.0, None, 7.5, None]),
        ("a / 0", [None] * 4),
        ("length(repeat(b, 2000000000))", [None, None, None, 0]),  # gigabytes were built
        ("size(array_range(k * 1000000000))", [None] * 4),
        ("repeat(b, k)", ["abc", "d,ed,e", "FFF", None]),
        ("k > '1'", [False, True, True, None]),
        ("cast(a as int)", [5, None, 7, None]),
        ("cast(concat('2024-05-01 02:00:00', 'Z', '') as datetime)", [datetime(2024, 5, 1, 10)] * 4),
        ("cast(a as decimal(9,1))", [Decimal("5.0"), None, Decimal("7.5"), None]),
    ],
)
def test_text_that_looks_like_a_number_is_computed_with(text: str, expected: list[Any]) -> None:
    assert evaluate(text) == expected


def test_text_of_an_integer_column_is_computed_with_exactly() -> None:
    assert evaluate("big + 1") == [Decimal("9007199254740994"), Decimal(2), Decimal(3), None]


def test_largeint_keeps_its_128_bits() -> None:
    assert evaluate("wide + 1") == [Decimal(2**127 - 1), Decimal(2), None, Decimal(-4)]


def test_a_row_that_overflows_is_null_and_its_neighbours_are_not() -> None:
    assert evaluate("k + 9223372036854775805") == [9223372036854775806, 9223372036854775807, None, None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ifnull(a, 0)", ["5", "x", "7.5", "0"]),
        ("if(a > 6, a, 0)", ["0", "0", "7.5", "0"]),
        ("case a when 5 then 'five' else b end", ["five", "d,e", "F", ""]),
        ("coalesce(a, b)", ["5", "x", "7.5", ""]),
        ("nullif(a, 5)", [None, "x", "7.5", None]),
        ("concat(b, k)", ["abc1", "d,e2", "F3", None]),
        ("concat(b, null)", [None] * 4),
        ("split_part(b, ',', 1)", ["abc", "d", "F", ""]),
        ("find_in_set('d', b)", [0, 1, 0, 0]),
        ("get_json_string('{\"x\":\"y\"}', '$.x')", ["y"] * 4),
        ("b like '%e'", [False, True, False, False]),
    ],
)
def test_text_functions(text: str, expected: list[Any]) -> None:
    assert [str(v) if isinstance(v, float) else v for v in evaluate(text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year(ts)", [2024, None, 2024, None]),
        ("date_format(ts, '%Y%m')", ["202401", None, "202401", None]),
        ("unix_timestamp(ts)", [1704135845, None, 1704124800, None]),
        ("from_unixtime(a)", ["1970-01-01 08:00:05", None, "1970-01-01 08:00:07", None]),
        ("str_to_date(ts, '%Y%m%d') is null", [True, True, False, True]),
        (
            "date_add(ts, interval 1 day)",
            [datetime(2024, 1, 3, 3, 4, 5), None, datetime(2024, 1, 3), None],
        ),
        ("now()", [datetime(2024, 1, 1, 8)] * 4),
    ],
)
def test_times_are_those_of_the_load(text: str, expected: list[Any]) -> None:
    """A3, LH11."""
    assert evaluate(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "(select 1)",
        "exists (select 1)",
        "sum(a)",
        "row_number() over (order by a)",
        "nosuch(a)",
        "read_csv('x')",
        "getenv('HOME')",
        "zz",
        "t.a",
        "*",
        "@@version",
        "@x",
        "a +",
        "",
        "a; b",
        "a;",
        "'open",
        "create table x (a int)",
        "insert into t values (1)",
    ],
)
def test_what_is_no_expression_over_one_row_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        evaluate(text)
    assert caught.value.message


def test_a_type_error_names_the_headers() -> None:
    with pytest.raises(InvalidInputError, match="expressions of columns, where and delete"):
        evaluate("array_contains(k, 1)")


@pytest.mark.long
def test_every_pair_of_types_is_compared_as_in_a_query() -> None:
    """A field of a Parquet file has a type; a field of a CSV file is text."""
    rows = pa.table(
        {name: pa.array(values, parse_type(kind).arrow) for name, (kind, values) in COLUMNS.items()}
    )
    expected = dict(comparisons())
    trees = [
        bind(parse(text, "where"), lambda name: Field(name, parse_type(COLUMNS[name][0])), "where")
        for text in expected
    ]
    wrong = {}
    for start in range(0, len(trees), 200):
        texts = list(expected)[start : start + 200]
        evaluator = Evaluator(AROUND, trees[start : start + 200])
        try:
            for text, answers in zip(texts, evaluator(rows), strict=True):
                if answers.to_pylist() != expected[text]:
                    wrong[text] = (answers.to_pylist(), expected[text])
        finally:
            evaluator.close()
    assert not wrong


def test_a_datetime_stored_as_text_keeps_its_scale() -> None:
    texts = ["date_add(ts, interval 1 day)", "now()", "now(3)", "cast(ts as datetime(2))"]
    trees = [bind(parse(text, "columns"), field, "columns") for text in texts]
    evaluator = Evaluator(AROUND, trees, [parse_type("VARCHAR(30)")] * len(texts))
    try:
        found = [column.to_pylist()[0] for column in evaluator(ROWS)]
    finally:
        evaluator.close()
    assert found == [
        "2024-01-03 03:04:05",
        "2024-01-01 08:00:00",
        "2024-01-01 08:00:00.000",
        "2024-01-02 03:04:05.00",
    ]
