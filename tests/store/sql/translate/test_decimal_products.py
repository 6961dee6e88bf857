"""Products of decimals have room for the digits of both factors, as in Doris; DuckDB's have 18."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from seqstore import Session
from tests.support.statements import last_result

pytestmark = pytest.mark.sql(
    "CREATE TABLE t (k INT, p DECIMAL(18, 6), d DECIMAL(10, 2), x DECIMAL(8, 0), i INT, b BOOLEAN) "
    "UNIQUE KEY(k); INSERT INTO t VALUES (1, 1000.5, 99999999.99, 99999999, 7, true)"
)


def value(session: Session, text: str) -> Any:
    table = last_result(session, text).rows
    assert table is not None
    return table.column(0).to_pylist()[0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("p * p", "1001000.250000000000"),
        ("d * d", "9999999998000000.0001"),
        ("x * x * x", "999999970000000299999999"),
        ("d * i", "699999999.93"),
        ("i * d", "699999999.93"),
        ("p * 2", "2001.000000"),
        ("2 * p", "2001.000000"),
        ("d * b", "99999999.99"),
        ("d * d / 3", "3333333332666666.66670000"),
        ("-(p * p)", "-1001000.250000000000"),
        ("CAST(p * p AS DECIMAL(10, 1)) * d", "100100029989989.997"),
        ("CAST(CAST(p * p AS DECIMAL(10, 1)) * d AS DECIMAL(18, 1)) * p", "100150080004984995"),
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        "SELECT {} FROM t",
        "SELECT sum({}) FROM t",
        "SELECT sum({}) OVER (ORDER BY k) FROM t",
        "SELECT max(v) FROM (SELECT {} v FROM t) u",
        "SELECT sum(v) FROM (SELECT {} v FROM t UNION ALL SELECT 0) u",
        "WITH u AS (SELECT {} v FROM t) SELECT sum(v) FROM u",
        "SELECT (SELECT sum({}) FROM t)",
    ],
)
def test_a_product_has_all_its_digits(session: Session, form: str, expression: str, expected: str) -> None:
    assert value(session, form.format(expression)) == Decimal(expected)


def test_a_condition_and_an_update_multiply_as_well(session: Session) -> None:
    assert value(session, "SELECT count(*) FROM t WHERE p * p > 1001000 HAVING sum(d * d) > 1") == 1
    last_result(session, "UPDATE t SET p = p * p")
    assert value(session, "SELECT p FROM t") == Decimal("1001000.250000")


def test_the_type_has_the_digits_of_both_factors(session: Session) -> None:
    last_result(session, "CREATE TABLE made AS SELECT k, d * d AS v, p * i AS w FROM t")
    table = last_result(session, "DESC made").rows
    assert table is not None
    kinds = dict(zip(table["Field"].to_pylist(), table["Type"].to_pylist(), strict=True))
    assert (kinds["v"], kinds["w"]) == ("DECIMAL(20,4)", "DECIMAL(28,6)")


def test_a_statement_that_repeats_is_right_again(session: Session) -> None:
    """The text with room for all digits is kept."""
    for _ in range(3):
        assert value(session, "SELECT sum(d * d) FROM t") == Decimal("9999999998000000.0001")
