"""Division of decimals against Python's, digit by digit."""

from __future__ import annotations

import random
from decimal import ROUND_DOWN, Decimal, localcontext

import pyarrow as pa
import pytest

from seqstore import Store
from seqstore.store.sql import Session
from tests.seeds import new_seed


def _number(choose: random.Random, precision: int, scale: int) -> Decimal:
    digits = choose.randrange(1, 10 ** choose.randint(1, precision))
    return Decimal(choose.choice([digits, -digits])).scaleb(-scale)


def test_a_quotient_is_cut_at_four_digits_more_than_the_dividend_has(store: Store) -> None:
    seed = new_seed()
    print(f"seed {seed}")
    choose = random.Random(seed)
    items, expected = [], []
    for _ in range(150):
        left, right = choose.randint(1, 20), choose.randint(1, 13)
        scales = choose.randint(0, left), choose.randint(0, right)
        a, b = _number(choose, left, scales[0]), _number(choose, right, scales[1])
        items.append(
            f"CAST('{a:f}' AS DECIMAL({left},{scales[0]})) / CAST('{b:f}' AS DECIMAL({right},{scales[1]}))"
        )
        with localcontext(prec=80):
            unit = Decimal(1).scaleb(-scales[0] - 4)
            expected.append(((a / b).quantize(unit, ROUND_DOWN), left + scales[1] + 4, scales[0] + 4))
    with Session(store) as session:
        (result,) = session.execute(f"SELECT {', '.join(items)}")
    assert result.rows is not None
    for item, field, column, (value, precision, scale) in zip(
        items, result.rows.schema, result.rows.columns, expected, strict=True
    ):
        assert field.type == pa.decimal128(min(precision, 38), scale), item
        assert column[0].as_py() == value, item


AVERAGES = [
    ("SELECT avg(a) FROM t", [(Decimal("1.6666"),)]),
    ("SELECT avg(DISTINCT a) FROM t", [(Decimal("1.5000"),)]),
    (
        "SELECT k % 2, avg(a) AS m FROM t GROUP BY 1 HAVING avg(a) > 1 ORDER BY m",
        [(1, Decimal("1.5")), (0, Decimal(2))],
    ),
    ("SELECT avg(a) OVER (ORDER BY k) FROM t ORDER BY k", [(Decimal(v),) for v in ("1", "1.5", "1.6666")]),
    ("SELECT avg(b) FROM t", [(Decimal("-0.333333"),)]),
    ("SELECT avg(a) / 3 FROM t", [(Decimal("0.55553333"),)]),
    ("SELECT round(avg(a), 2) FROM t", [(Decimal("1.67"),)]),
    ("SELECT avg(a) FROM t WHERE k > 9", [(None,)]),
    ("SELECT avg(q.m) FROM (SELECT avg(a) AS m FROM t GROUP BY k) q", [(Decimal("1.6666"),)]),
    ("SELECT avg(a + 0.5), avg(CASE WHEN k = 1 THEN a END) FROM t", [(Decimal("2.1666"), Decimal(1))]),
    ("SELECT avg(big) FROM t", [(Decimal("12345678901234567890123456.7890"),)]),
    ("SELECT avg(avg(a / 3)) OVER () FROM t", [(Decimal("0.555555"),)]),
    ("SELECT avg(k), avg(a * 1e0) FROM t", [(2.0, 5 / 3)]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), AVERAGES)
def test_an_average_of_decimals_is_a_decimal_cut_at_four_digits(
    store: Store, text: str, expected: list[tuple[object, ...]]
) -> None:
    """DECIMAL(38, max(s, 4))."""
    with Session(store) as session:
        list(
            session.execute(
                "CREATE DATABASE d; USE d; CREATE TABLE t (k INT, a DECIMAL(10,2), b DECIMAL(10,6),"
                " big DECIMAL(30,3)) UNIQUE KEY(k);"
                "INSERT INTO t VALUES (1, 1, -1, 12345678901234567890123456.789),"
                " (2, 2, 0, 12345678901234567890123456.789), (3, 2, 0, 12345678901234567890123456.789)"
            )
        )
        (result,) = session.execute(text)
        assert result.rows is not None
        assert [tuple(row.values()) for row in result.rows.to_pylist()] == expected


def test_an_average_keeps_its_heading_and_has_38_digits(store: Store) -> None:
    with Session(store) as session:
        list(
            session.execute("CREATE DATABASE d; USE d; CREATE TABLE t (k INT, a DECIMAL(10,6)) UNIQUE KEY(k)")
        )
        (result,) = session.execute("SELECT avg( a ) FROM t")
        assert result.rows is not None
        assert result.rows.schema == pa.schema([("avg( a )", pa.decimal128(38, 6))])
