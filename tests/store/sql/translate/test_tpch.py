"""The 22 queries of TPC-H at scale 0.01: the rows are those of DuckDB on the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from bench.queries import tpch
from seqstore import Store
from seqstore.store.sql import Session

Ask = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ask, Ask]]:
    """Returns DuckDB's rows and the session's rows of a query."""
    made = tmp_path_factory.mktemp("tpch")
    if tpch.generator() is None:
        pytest.skip("tpchgen-cli is not installed; pip install tpchgen-cli")
    tpch.make_rows("0.01", made / "data")
    with (
        duckdb.connect() as expected,
        Store.open(made / "store") as store,
        Session(store) as session,
    ):
        tpch.load(made / "data", expected, store, session)

        def ask(sql: str) -> list[tuple[Any, ...]]:
            rows = list(session.execute(sql))[-1].rows
            assert rows is not None
            return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))

        yield lambda sql: expected.execute(sql).fetchall(), ask


def is_equal(one: Any, other: Any) -> bool:
    """Compares two values; quotients of decimals are decimals of four more digits here, DOUBLE in DuckDB."""
    if isinstance(one, (float, Decimal)) and isinstance(other, (float, Decimal)):
        return one == other or float(one) == pytest.approx(float(other), abs=1e-4)
    return bool(one == other)


@pytest.mark.parametrize("number", range(1, 23))
def test_query_has_the_rows_of_duckdb(number: int, answers: tuple[Ask, Ask]) -> None:
    expected, ask = answers
    sql = tpch.QUERIES[number - 1]
    wanted, found = expected(sql), ask(sql)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert all(map(is_equal, one, other)), f"{one} != {other}"
    assert wanted


@pytest.mark.parametrize(
    "sql",
    [
        "select n_nationkey from nation where n_nationkey in (select c_nationkey from customer where "
        "c_acctbal > (select 10 * avg(o_totalprice) / 200 from orders where o_custkey = c_custkey)) "
        "order by 1",
        "select n_name from nation where exists (select 1 from customer where c_nationkey = n_nationkey and "
        "exists (select 1 from orders where o_custkey = c_custkey and o_orderdate > '1998-07-01' and "
        "length(o_comment) > n_nationkey)) order by 1",
        "select r_name from region where exists (select 1 from nation where n_regionkey = r_regionkey and "
        "exists (select 1 from supplier where s_nationkey = n_nationkey and s_acctbal < r_regionkey * 1000)) "
        "order by 1",
        "select n_name, (select count(*) from supplier where s_nationkey = n_nationkey and s_acctbal > "
        "(select avg(c_acctbal) from customer where c_nationkey = s_nationkey and c_custkey <> n_nationkey)) "
        "from nation order by 1",
    ],
)
def test_correlated_subqueries_two_levels_deep(sql: str, answers: tuple[Ask, Ask]) -> None:
    """A macro with a body for each type cannot be bound on a column two levels above."""
    expected, ask = answers
    assert ask(sql) == [tuple(row) for row in expected(sql)]
    assert ask(sql)
