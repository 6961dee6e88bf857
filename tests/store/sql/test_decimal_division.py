"""Division of decimals against Python's, digit by digit."""

from __future__ import annotations

import random
from decimal import ROUND_DOWN, Decimal, localcontext

import pyarrow as pa

from store import Store
from store.sql import Session


def _number(choose: random.Random, precision: int, scale: int) -> Decimal:
    digits = choose.randrange(1, 10 ** choose.randint(1, precision))
    return Decimal(choose.choice([digits, -digits])).scaleb(-scale)


def test_a_quotient_is_cut_at_four_digits_more_than_the_dividend_has(store: Store) -> None:
    seed = random.randrange(1 << 32)
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
