"""connectorx and Polars as clients: frames from queries, by the Rust driver of MySQL."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal

import polars as pl
import pytest

from seqstore.cli.mysql import MysqlServer

pytest.importorskip("connectorx", reason="connectorx is not installed: make setup")
ROW = {"k": 1, "v": "it's \\ ünï", "d": 1.5, "dd": date(2024, 1, 2), "ts": datetime(2024, 1, 2, 3, 4, 5),
       "n": Decimal("12.30"), "b": 1}  # fmt: skip


@pytest.fixture
def uri(server: MysqlServer) -> str:
    return f"mysql://root:@127.0.0.1:{server.port}/db"


def test_polars_reads_a_query(uri: str) -> None:
    """The driver asks for `@@socket`, and connectorx for the columns of the prepared query."""
    frame = pl.read_database_uri("SELECT * FROM t ORDER BY k", uri)
    assert frame.to_dicts() == [ROW, {**dict.fromkeys(ROW), "k": 2}]
    counted = pl.read_database_uri("SELECT count(*) AS c, sum(k) AS s, avg(d) AS a FROM t", uri)
    assert counted.to_dicts() == [{"c": 2, "s": 3, "a": 1.5}]


SHARES = """
import connectorx, sys
found = connectorx.read_sql(sys.argv[1], "SELECT k, v FROM t", return_type="arrow", partition_on="k",
                            partition_num=2, protocol=sys.argv[2])
print(sorted(found.column("k").to_pylist()))
"""


@pytest.mark.parametrize("protocol", ["binary", "text"])
def test_connectorx_reads_shares_of_a_query(uri: str, protocol: str) -> None:
    """In a process of its own: connectorx holds Python's lock while it asks for the bounds of the shares."""
    command = [sys.executable, "-c", SHARES, uri, protocol]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[1, 2]", 0), done.stderr


def test_a_largeint_is_text(uri: str) -> None:
    """As a decimal of 39 digits it ended the process: the driver's decimals have 28."""
    query = "SELECT CAST(170141183460469231731687303715884105727 AS LARGEINT) AS li"
    assert pl.read_database_uri(query, uri).to_dicts() == [{"li": str(2**127 - 1)}]
