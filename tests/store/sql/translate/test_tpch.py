"""The 22 queries of TPC-H at scale 0.01: the rows are those of DuckDB on the same data."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from seqstore import Store
from seqstore.store.sql import Session

QUERIES = [
    text.strip()
    for text in (Path(__file__).parents[3] / "support" / "tpch.sql").read_text().split(";")
    if text.strip()
]
# Columns with their types; the first columns, as many as the number says, are the key.
TABLES = {
    "region": (1, "r_regionkey INT, r_name VARCHAR(25), r_comment VARCHAR(152)"),
    "nation": (1, "n_nationkey INT, n_name VARCHAR(25), n_regionkey INT, n_comment VARCHAR(152)"),
    "supplier": (
        1,
        "s_suppkey INT, s_name VARCHAR(25), s_address VARCHAR(40), s_nationkey INT, s_phone VARCHAR(15), "
        "s_acctbal DECIMAL(15,2), s_comment VARCHAR(101)",
    ),
    "customer": (
        1,
        "c_custkey INT, c_name VARCHAR(25), c_address VARCHAR(40), c_nationkey INT, c_phone VARCHAR(15), "
        "c_acctbal DECIMAL(15,2), c_mktsegment VARCHAR(10), c_comment VARCHAR(117)",
    ),
    "part": (
        1,
        "p_partkey INT, p_name VARCHAR(55), p_mfgr VARCHAR(25), p_brand VARCHAR(10), p_type VARCHAR(25), "
        "p_size INT, p_container VARCHAR(10), p_retailprice DECIMAL(15,2), p_comment VARCHAR(23)",
    ),
    "partsupp": (
        2,
        "ps_partkey INT, ps_suppkey INT, ps_availqty INT, ps_supplycost DECIMAL(15,2), "
        "ps_comment VARCHAR(199)",
    ),
    "orders": (
        1,
        "o_orderkey BIGINT, o_custkey INT, o_orderstatus VARCHAR(1), o_totalprice DECIMAL(15,2), "
        "o_orderdate DATE, o_orderpriority VARCHAR(15), o_clerk VARCHAR(15), o_shippriority INT, "
        "o_comment VARCHAR(79)",
    ),
    "lineitem": (
        2,
        "l_orderkey BIGINT, l_linenumber INT, l_partkey INT, l_suppkey INT, l_quantity DECIMAL(15,2), "
        "l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), l_tax DECIMAL(15,2), "
        "l_returnflag VARCHAR(1), l_linestatus VARCHAR(1), l_shipdate DATE, l_commitdate DATE, "
        "l_receiptdate DATE, l_shipinstruct VARCHAR(25), l_shipmode VARCHAR(10), l_comment VARCHAR(44)",
    ),
}
# The files hold l_linenumber behind the columns that are not part of the key.
LINEITEM_FILE = ["l_orderkey", "l_partkey", "l_suppkey", "l_linenumber"]
Ask = Callable[[str], list[tuple[Any, ...]]]


def pairs(columns: str) -> dict[str, str]:
    """Splits the columns of a table into names and types."""
    found = [each.strip() for each in columns.replace("(15,2)", "(15;2)").split(",")]
    return {each.split()[0]: each.split()[1].replace(";", ",") for each in found}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ask, Ask]]:
    """Returns DuckDB's rows and the session's rows of a query."""
    made = tmp_path_factory.mktemp("tpch")
    program = Path(sys.executable).parent / "tpchgen-cli"
    found = str(program) if program.exists() else shutil.which("tpchgen-cli")
    if found is None:
        pytest.skip("tpchgen-cli is not installed; pip install tpchgen-cli")
    subprocess.run([found, "-s", "0.01", "--output-dir", str(made / "data")], check=True, timeout=600)
    with (
        duckdb.connect() as expected,
        Store.open(made / "store") as store,
        Session(store, "tpch") as session,
    ):
        list(session.execute("CREATE DATABASE tpch; USE tpch"))
        for name, (keys, columns) in TABLES.items():
            types = pairs(columns)
            in_file = [*LINEITEM_FILE, *list(types)[4:]] if name == "lineitem" else list(types)
            named = ", ".join(f"'{column}': '{types[column]}'" for column in [*in_file])
            path = made / "data" / f"{name}.tbl"
            expected.execute(
                f"CREATE TABLE {name} AS SELECT {', '.join(types)} FROM read_csv('{path}', delim='|', "
                f"header=false, quote='', columns={{{named}, 'behind': 'VARCHAR'}})"
            )
            key = ", ".join(list(types)[:keys])
            list(session.execute(f"CREATE TABLE {name} ({columns}) UNIQUE KEY({key})"))
            store.table(f"tpch.{name}").upsert(expected.sql(f"SELECT * FROM {name}").to_arrow_table())

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
    sql = QUERIES[number - 1]
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
