"""The 22 queries of TPC-H: through our SQL, over the MySQL protocol too, and by DuckDB on its own tables.

    python -m bench.queries.tpch [scale] [rounds]

Each query runs in turn on all of them; medians and ratios are of the same minutes. All queries run `_BEFORE`
times first, so that copies of columns are made. One session reads none of them, as the first queries of a
version do. `tpchgen-cli` makes the rows.
"""

from __future__ import annotations

import functools
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import duckdb

from seqstore import Store
from seqstore.store.sql import Session

QUERIES: Final = [
    text.strip()
    for text in (Path(__file__).parents[2] / "tests" / "support" / "tpch.sql").read_text().split(";")
    if text.strip()
]
# Columns with their types; the first columns, as many as the number says, are the key.
TABLES: Final = {
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
_BEFORE: Final = 4
# The files hold l_linenumber behind the columns that are not part of the key.
_LINEITEM_FILE: Final = ["l_orderkey", "l_partkey", "l_suppkey", "l_linenumber"]


def main() -> None:
    """Makes the rows, loads them, and prints medians in milliseconds."""
    scale = sys.argv[1] if len(sys.argv) > 1 else "1"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    place = Path(tempfile.mkdtemp(prefix="bench-tpch-", dir="."))
    try:
        make_rows(scale, place / "data")
        with (
            duckdb.connect(place / "own.duckdb") as own,
            Store.open(place / "store") as store,
            Session(store) as session,
        ):
            load(place / "data", own, store, session)
            for query in QUERIES * _BEFORE:
                list(session.execute(query))
            _compare(own, store, session, rounds)
    finally:
        shutil.rmtree(place)


def generator() -> str | None:
    """Finds the program that makes the rows."""
    program = Path(sys.executable).parent / "tpchgen-cli"
    return str(program) if program.exists() else shutil.which("tpchgen-cli")


def make_rows(scale: str, path: Path) -> None:
    """Writes the rows of a scale as text files."""
    program = generator()
    if program is None:
        sys.exit("tpchgen-cli is not installed; pip install tpchgen-cli")
    subprocess.run([program, "-s", scale, "--output-dir", str(path)], check=True, timeout=3600)


def load(path: Path, own: duckdb.DuckDBPyConnection, store: Store, session: Session) -> None:
    """Loads the rows into tables of DuckDB, and from there into ours."""
    list(session.execute("CREATE DATABASE tpch; USE tpch"))
    for name, (keys, columns) in TABLES.items():
        types = _pairs(columns)
        in_file = [*_LINEITEM_FILE, *list(types)[4:]] if name == "lineitem" else list(types)
        named = ", ".join(f"'{column}': '{types[column]}'" for column in in_file)
        own.execute(
            f"CREATE TABLE {name} AS SELECT {', '.join(types)} FROM read_csv('{path}/{name}.tbl', delim='|', "
            f"header=false, quote='', columns={{{named}, 'behind': 'VARCHAR'}})"
        )
        key = ", ".join(list(types)[:keys])
        list(session.execute(f"CREATE TABLE {name} ({columns}) UNIQUE KEY({key})"))
        store.table(f"tpch.{name}").upsert(own.sql(f"SELECT * FROM {name}").to_arrow_table())


def _pairs(columns: str) -> dict[str, str]:
    """Splits the columns of a table into names and types."""
    found = [each.strip() for each in columns.replace("(15,2)", "(15;2)").split(",")]
    return {each.split()[0]: each.split()[1].replace(";", ",") for each in found}


def _compare(own: duckdb.DuckDBPyConnection, store: Store, session: Session, rounds: int) -> None:
    import pymysql

    from seqstore.cli.mysql import MysqlServer

    with (
        MysqlServer(store) as server,
        pymysql.connect(
            host="127.0.0.1", port=server.port, user="root", database="tpch", autocommit=True
        ) as client,
        client.cursor() as cursor,
        Session(store, "tpch") as plain,
    ):
        list(plain.execute("SET enable_column_copies = false"))
        ways: dict[str, Callable[[str], object]] = {
            "without copies": lambda text: list(plain.execute(text)),
            "with copies": lambda text: list(session.execute(text)),
            "over MySQL": lambda text: (cursor.execute(text), cursor.fetchall()),
            "DuckDB": lambda text: own.sql(text).fetchall(),
        }
        _print_medians(ways, rounds)


def _print_medians(ways: Mapping[str, Callable[[str], object]], rounds: int) -> None:
    """Prints medians in milliseconds, and ratios to the last way."""
    print("    " + "".join(f"{name:>16}" for name in ways) + "  beside the last one")
    medians, ratios = [], []
    for number, query in enumerate(QUERIES, 1):
        taken = [
            [_seconds(functools.partial(run, query)) for run in ways.values()] for _ in range(rounds + 1)
        ]
        medians.append([statistics.median(each) * 1000 for each in zip(*taken[1:], strict=True)])
        beside = [[one / each[-1] for one in each[:-1]] for each in taken[1:]]
        ratios.append([statistics.median(each) for each in zip(*beside, strict=True)])
        shown = "".join(f"{each:16.1f}" for each in medians[-1])
        print(f"Q{number:<3}{shown}" + "".join(f"{each:8.2f}" for each in ratios[-1]), flush=True)
    print("all " + "".join(f"{sum(each):16.0f}" for each in zip(*medians, strict=True)))
    for name, found in zip(ways, zip(*ratios, strict=True), strict=False):
        mean = math.exp(statistics.fmean(map(math.log, found)))
        print(f"{name}: geometric mean {mean:.2f}x, worst {max(found):.2f}x")


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
