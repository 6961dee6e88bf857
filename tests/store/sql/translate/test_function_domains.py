"""Mathematical functions at the edges of their domains: NULL where they have no value, as in Doris."""

from __future__ import annotations

import math

import pytest

from tests.store.sql.conftest import Run

pytestmark = pytest.mark.sql(
    "CREATE TABLE e (k INT, x DOUBLE) UNIQUE KEY(k);"
    "INSERT INTO e VALUES (1, 0), (2, -1), (3, 1), (4, 2), (5, -2.5), (6, 0.5), (7, 1e308),"
    "(8, -1e308), (9, 400)"
)
ONE = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "cot", "log"),
    *("dceil", "degrees", "dexp", "dfloor", "dlog1", "dlog10", "dround", "even", "exp", "floor", "ln"),
    *("log10", "log2", "negative", "positive", "radians", "round", "round_bankers", "sign", "sin", "sinh"),
    *("sqrt", "tan", "tanh", "truncate"),
)
TWO = ("atan2(a.x, b.x)", "fmod(a.x, b.x)", "log(a.x, b.x)", "mod(a.x, b.x)", "pmod(a.x, b.x)", "a.x % b.x",
       "a.x DIV b.x", "a.x / b.x")  # fmt: skip
# Doris returns Infinity where a result is too large, and for the cotangent of zero.
GROWS = {"cosh", "cot", "degrees", "dexp", "exp", "sinh"}


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number_are_never_nan(rows: Run, name: str) -> None:
    found = [result for (result,) in rows(f"SELECT {name}(x) FROM e") if result is not None]
    assert not any(map(math.isnan, found))
    assert name in GROWS or not any(map(math.isinf, found))


@pytest.mark.parametrize("call", TWO)
def test_functions_of_two_numbers_are_never_nan(rows: Run, call: str) -> None:
    found = [result for (result,) in rows(f"SELECT {call} FROM e a JOIN e b") if result is not None]
    assert found
    assert not any(map(math.isnan, found))
    assert call == "a.x / b.x" or not any(map(math.isinf, found))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        *((f"{call}", None) for call in (
            "log(0)", "log(-1)", "log(0, 5)", "log(1, 5)", "log(2, 0)", "log(-2, 4)", "ln(0)", "log2(0)",
            "log10(-1)", "5e0 % 0", "5e0 % 0.0", "5 % '0'", "mod(5e0, 0)", "fmod(5, 0)", "pmod(5e0, 0)",
            "acos(1.1)", "asin(-2)", "acosh(0)", "atanh(1)", "sqrt(-1)",
        )),
        ("log(2, 8)", 3.0), ("acos(1)", 0.0), ("asin('0')", 0.0), ("acosh(1)", 0.0), ("atanh(0)", 0.0),
        ("fmod(-7.5, 2)", -1.5), ("fmod(1e308, 1e-5) BETWEEN 0 AND 1e-5", True), ("pmod(-7.5e0, 2)", 0.5),
        ("7 % -3", 1), ("-7.5e0 % 2", -1.5),
    ],
)  # fmt: skip
def test_results_at_the_edges(value: Run, expression: str, expected: object) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize(("name", "digits"), [(n, d) for n in ("ceil", "floor") for d in (400, -400)])
def test_digits_beyond_a_double_are_all_or_none(value: Run, name: str, digits: int) -> None:
    assert value(f"{name}(1.5e0, {digits})") == (1.5 if digits > 0 else 0)
