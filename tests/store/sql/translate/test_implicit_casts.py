"""Values of different types that meet: every pair of types in every comparison, and in functions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from seqstore import InvalidInputError
from seqstore.store.sql import Session
from seqstore.store.sql.translate.functions import function_names
from seqstore.store.sql.translate.value_types import has_known_result
from tests.support.casts import COLUMNS, comparisons

Run = Callable[[str], Any]
_AT_ONCE = 40  # expressions of one query


@pytest.fixture
def table(session: Session) -> None:
    """The table `t` with a column of each type."""
    columns = ", ".join(f"{name} {kind} NULL" for name, (kind, _values) in COLUMNS.items())
    list(session.execute(f"CREATE TABLE t (k INT, {columns}) UNIQUE KEY(k)"))
    rows = (
        ", ".join("NULL" if value is None else literal(value) for value in row)
        for row in zip(*(values for _kind, values in COLUMNS.values()), strict=True)
    )
    values = ", ".join(f"({number}, {row})" for number, row in enumerate(rows))
    list(session.execute(f"INSERT INTO t VALUES {values}"))


def literal(value: Any) -> str:
    if isinstance(value, (str, date)):
        return f"'{value}'"
    return str(value).lower()


def answers(rows: Run, expressions: list[str], source: str = "t") -> dict[str, list[Any]]:
    """Evaluates expressions over the rows of the table, several in one query."""
    found: dict[str, list[Any]] = {}
    for start in range(0, len(expressions), _AT_ONCE):
        part = expressions[start : start + _AT_ONCE]
        table = rows(f"SELECT k, {', '.join(part)} FROM {source} ORDER BY k")
        for place, expression in enumerate(part, 1):
            found[expression] = [row[place] for row in table]
    return found


@pytest.mark.usefixtures("table")
def test_every_pair_of_types_is_compared_as_in_doris(rows: Run) -> None:
    expected = dict(comparisons())
    found = answers(rows, list(expected))
    wrong = {text: (found[text], wanted) for text, wanted in expected.items() if found[text] != wanted}
    assert not wrong, f"{len(wrong)} of {len(expected)}: {dict(list(wrong.items())[:10])}"


@pytest.mark.long
@pytest.mark.usefixtures("table")
def test_columns_of_subqueries_are_compared_alike(rows: Run) -> None:
    """Through a derived table, a union, a correlated subquery and an aggregate."""
    expected = {text: wanted for text, wanted in comparisons() if " >= " in text}
    source = f"(SELECT * FROM t WHERE k < 2 UNION ALL SELECT k, {', '.join(COLUMNS)} FROM t WHERE k = 2) u"
    found = answers(rows, list(expected), source)
    assert found == expected
    by_subquery = {
        f"{text.split()[0]} >= (SELECT max(b.{text.split()[2]}) FROM t b WHERE b.k = t.k)": wanted
        for text, wanted in expected.items()
        if text.split()[2] not in ("bo", "js")
    }
    assert answers(rows, list(by_subquery)) == by_subquery


@pytest.mark.long
@pytest.mark.usefixtures("table")
def test_in_of_a_subquery_compares_as_equality(rows: Run) -> None:
    for text, wanted in comparisons():
        left, _, right = text.partition(" = ")
        if right:
            found = rows(f"SELECT k FROM t WHERE {left} IN (SELECT b.{right} FROM t b WHERE b.k = t.k)")
            assert sorted(found) == [(k,) for k, answer in enumerate(wanted) if answer], text


@pytest.mark.family(16)
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "function",
    [
        *(
            "abs({})",
            "ceil({})",
            "floor({})",
            "round({})",
            "round({}, 1)",
            "sign({})",
            "sqrt({})",
            "pow({}, 2)",
        ),
        *("mod({}, 5)", "exp({} * 0)", "ln({})", "-{}", "{} + 1", "{} * 2", "{} / 3", "{} DIV 2", "{} & 1"),
        *("{} >> 1", "truncate({}, 1)", "sum({}) OVER ()", "avg({}) OVER ()", "upper({})", "lower({})"),
        *("length({})", "substr({}, 1, 3)", "left({}, 2)", "lpad({}, 3, '0')", "concat({}, {})", "trim({})"),
        *(
            "replace({}, '1', '2')",
            "reverse({})",
            "instr({}, '1')",
            "hex({})",
            "md5({})",
            "{} LIKE '2024-01%'",
        ),
        *(
            "{} REGEXP '1'",
            "{} AND true",
            "NOT {}",
            "{} IS TRUE",
            "if({}, 1, 2)",
            "from_unixtime({}) > '1970'",
        ),
        *("cast({} AS STRING)", "cast({} AS INT)", "cast({} AS DOUBLE)", "cast({} AS BOOLEAN)"),
        *("field({}, '1', 2)", "elt(1, {}, 'x')", "find_in_set({}, '1,2')", "concat_ws('-', {}, 1)"),
    ],
)
def test_a_function_takes_values_of_every_type(rows: Run, function: str) -> None:
    expressions = [function.replace("{}", name) for name in COLUMNS]
    assert len(answers(rows, expressions)) == len(COLUMNS)


@pytest.mark.family(3)
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "function",
    [
        *("year({})", "month({})", "hour({})", "dayofweek({})", "week({})", "to_days({})", "date({})"),
        *("last_day({})", "unix_timestamp({})", "date_format({}, '%Y')", "datediff({}, '2024-01-01')"),
        *("date_add({}, INTERVAL 1 DAY)", "date_trunc({}, 'month')", "timestampdiff(DAY, {}, now())"),
        *("days_add({}, 1)", "cast({} AS DATE)", "cast({} AS DATETIME)", "extract(YEAR FROM {})"),
    ],
)
def test_a_date_function_takes_values_of_every_type_but_boolean(rows: Run, function: str) -> None:
    expressions = [function.replace("{}", name) for name in COLUMNS if name != "bo"]
    assert len(answers(rows, expressions)) == len(COLUMNS) - 1
    with pytest.raises(InvalidInputError, match="does not take arguments of this"):
        rows(f"SELECT {function.replace('{}', 'bo')} FROM t")


@pytest.mark.family(2)
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "function",
    [
        *("coalesce({}, {})", "if(k = 1, {}, {})", "nullif({}, {})", "greatest({}, {})", "least({}, {})"),
        *("concat({}, {})", "CASE WHEN k = 1 THEN {} ELSE {} END", "{} LIKE {}", "mod({}, {})", "{} - {}"),
        *("now() > {} OR {} > 1", "{} IN ({}, '7')", "lower({}) < {}", "from_unixtime(7) < {} OR {} = 7"),
    ],
)
def test_a_function_takes_two_values_of_any_types(rows: Run, function: str) -> None:
    first, _, rest = function.partition("{}")
    expressions = [f"{first}{one}{rest.replace('{}', other)}" for one in COLUMNS for other in COLUMNS]
    assert len(answers(rows, expressions)) == len(COLUMNS) ** 2


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("da >= from_unixtime(1704164645)", [False, True, None]),
        ("ti > lower('1')", [False, True, None]),
        ("dm LIKE '2024-01%'", [True, True, None]),
        ("ch > date '2023-12-31'", [True, None, None]),
        ("now() > ch", [True, None, None]),
        ("abs(vc)", [20240102.0, 7.5, None]),
        ("round(vc, 0)", [20240102.0, 8.0, None]),
        ("floor(vc)", [20240102.0, 7.0, None]),
        ("pow(vc, 2)", [20240102.0**2, 56.25, None]),
        ("sqrt(js)", [1.0, 7.5**0.5, None]),
        ("mod(js, 2)", [1.0, 1.5, None]),
        ("coalesce(ti, vc)", ["1", "5", None]),
        ("da <> upper(ch)", [False, None, None]),
        ("from_unixtime(js)", ["1970-01-01 00:00:01", "1970-01-01 00:00:07", None]),
        ("da + 1", [20240103, 20240104, None]),
        ("dt BETWEEN ch AND '2024-01-02 00:00:00'", [True, False, None]),
        ("(ti, ch) <=> ('1', date '2024-01-02')", [True, False, False]),
        ("i = 'x'", [None, None, None]),
        ("bi = '20240103100000'", [True, False, None]),
        ("li = '1267650600228229401496703205376'", [True, False, None]),
        ("de = '7.500'", [False, True, None]),
        ("bo = 'true'", [True, False, None]),
        ("da IN ('2024-01-02', 'never')", [True, None, None]),
        ("st IN (5, 'abc')", [None, None, None]),
        ("array_map(x -> x + ti, array(1, 2))", [[2, 3], [6, 7], [None, None]]),
    ],
)
def test_text_beside_dates_and_numbers(rows: Run, expression: str, expected: list[Any]) -> None:
    assert answers(rows, [expression]) == {expression: expected}


@pytest.mark.usefixtures("table")
def test_a_query_that_reads_itself_has_types(rows: Run) -> None:
    text = (
        "WITH RECURSIVE up AS (SELECT vc AS v, 1 AS n FROM t WHERE k = 0 UNION ALL SELECT * FROM "
        "(SELECT v, n + 1 FROM up WHERE n < 3) q) SELECT v > 5, n > '1' FROM up ORDER BY n"
    )
    assert rows(text) == [(True, False), (True, True), (True, True)]


def test_the_result_of_every_function_has_a_known_type() -> None:
    """Others are arrays, maps, structs, rows of LATERAL VIEW, TIME values, and answers of JSON functions."""
    nested = "array_ collect_ explode_ map struct_element named_struct str_to_map sequence percentile_array"
    nested += " split_by_string"
    plain = (
        "curtime current_time utc_time json_contains json_exists_path json_extract_isnull json_keys signbit"
    )
    unknown = [name for name in function_names() if not has_known_result(name)]
    assert [n for n in unknown if not n.startswith(tuple(nested.split())) and n not in plain.split()] == []
