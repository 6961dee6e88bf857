"""Spark's JDBC source and sink as clients, with Connector/J 9."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from bench.kafka.jars import JarsUnreachableError
from seqstore import Store
from seqstore.cli.mysql import MysqlServer
from tests.support.clients.jdbc import DRIVERS, driver_jar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
NEW_ROWS = (
    "SELECT 1L AS k, 'it''s \\\\ ü' AS v, 1.5D AS d, DATE '2024-01-02' AS dd,"
    " TIMESTAMP '2024-01-02 03:04:05' AS ts, CAST(1.5 AS DECIMAL(10, 2)) AS n, true AS b"
    " UNION ALL SELECT 2L, 'b', NULL, NULL, NULL, NULL, NULL"
)


@pytest.fixture
def options(spark: SparkSession, server: MysqlServer) -> dict[str, str]:
    name = "connector_j_9"
    try:
        spark.sql(f"ADD JAR '{driver_jar(name)}'")
    except JarsUnreachableError as error:
        pytest.skip(str(error))
    url = f"{DRIVERS[name][2]}://127.0.0.1:{server.port}/db"
    return {"url": url, "user": "root", "password": "", "driver": DRIVERS[name][1]}


@pytest.fixture
def read(spark: SparkSession, options: dict[str, str]) -> Callable[..., DataFrame]:
    return lambda **more: spark.read.format("jdbc").options(**options, **more).load()


def keys(store: Store, name: str) -> list[int]:
    found: list[int] = sorted(store.table(name).scan().read_all().column("k").to_pylist())
    return found


@pytest.mark.long
def test_spark_reads_over_jdbc_and_pushes_filters(read: Callable[..., DataFrame]) -> None:
    rows = {row["k"]: tuple(row) for row in read(dbtable="t").collect()}
    assert rows == {
        1: (1, "it's \\ ünï", 1.5, date(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5), Decimal("12.30"), True),
        2: (2, *[None] * 6),
    }
    filtered = read(dbtable="t").filter("k = 1 AND v LIKE 'it%' AND dd < DATE '2025-01-01'")
    assert [row.k for row in filtered.select("k").collect()] == [1]
    shares = read(dbtable="t", partitionColumn="k", lowerBound="0", upperBound="3", numPartitions="2")
    assert shares.groupBy("b").count().count() == 2
    assert read(query="SELECT count(*) AS c FROM t").collect()[0].c == 2


@pytest.mark.long
def test_spark_writes_over_jdbc_in_every_mode(
    spark: SparkSession, read: Callable[..., DataFrame], options: dict[str, str], store: Store
) -> None:
    """Its probe for the table expects error 1146, its isolation level was refused, and so were its types."""
    from pyspark.errors import AnalysisException

    new = spark.sql(NEW_ROWS)

    def write(frame: DataFrame, mode: str, table: str, **more: Any) -> None:
        frame.write.format("jdbc").options(**options, dbtable=table, **more).mode(mode).save()

    write(new.selectExpr("k + 100 AS k", "v", "d", "dd", "ts", "n", "b"), "append", "t")
    assert keys(store, "db.t") == [1, 2, 101, 102]
    with pytest.raises(AnalysisException, match="already exists"):
        write(new, "error", "t")
    made = {"createTableOptions": "UNIQUE KEY(k)"}
    write(new, "error", "fresh", **made)
    assert sorted(map(tuple, read(dbtable="fresh").collect())) == sorted(map(tuple, new.collect()))
    write(new, "error", "bare")
    write(new.selectExpr("v", "k + 10 AS k", "d", "dd", "ts", "n", "b"), "append", "bare")
    assert keys(store, "db.bare") == [1, 2, 11, 12]
    write(new.limit(1), "overwrite", "bare")
    assert keys(store, "db.bare") == [1]
    assert store.table("db.bare").schema.is_duplicate
    write(new.limit(1), "overwrite", "fresh", **made)
    assert len(keys(store, "db.fresh")) == 1
    write(new, "overwrite", "fresh", truncate="true")
    write(new.selectExpr("k + 7 AS k"), "ignore", "fresh")
    assert keys(store, "db.fresh") == [1, 2]
