"""Accumulators of the driver, raised by what format("seqstore") publishes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seqstore import Store, Table
from seqstore.loaders.broker.job import FINISHED
from seqstore.loaders.broker.run import BrokerLoad
from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.spark import LoadCounters, register
from seqstore.loaders.spark.registration import _counters
from tests.support.rows import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("db.t", schema_of("k BIGINT NOT NULL"))


@pytest.fixture
def counters(spark: SparkSession) -> Iterator[LoadCounters]:
    """Known to the session while the test runs."""
    made = LoadCounters(spark)
    register(spark, made)
    yield made
    _counters.clear()
    register(spark)


@pytest.fixture
def options(tmp_path: Path, table: Table) -> dict[str, str]:
    return {"path": str(tmp_path / "data"), "table": table.name}


@pytest.mark.long
@pytest.mark.telling
def test_a_written_frame_raises_them_once(
    spark: SparkSession, counters: LoadCounters, options: dict[str, str]
) -> None:
    frame = spark.range(10, numPartitions=3).selectExpr("id % 7 AS k")
    frame.coalesce(1).write.format("seqstore").mode("append").options(**options).save()
    found = counters.values()
    assert (found["versions"], found["rows_total"], found["rows_superseded"]) == (1, 10, 3)


@pytest.mark.long
def test_a_written_stream_raises_them(
    spark: SparkSession, counters: LoadCounters, options: dict[str, str], tmp_path: Path
) -> None:
    spark.range(5).selectExpr("id AS k").write.parquet(str(tmp_path / "files"))
    writer = spark.readStream.schema("k bigint").parquet(str(tmp_path / "files")).writeStream
    writer = writer.format("seqstore").options(**options, checkpointLocation=str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert counters.values()["rows_loaded"] == 5


def test_they_are_kept_when_others_register_the_source(
    spark: SparkSession, counters: LoadCounters, options: dict[str, str]
) -> None:
    register(spark)
    spark.range(4).selectExpr("id AS k").write.format("seqstore").mode("append").options(**options).save()
    assert counters.values()["rows_loaded"] == 4


def test_a_broker_load_of_the_application_raises_them(
    counters: LoadCounters, table: Table, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("1\n2\n")
    (tmp_path / "b.csv").write_text("2\n3\n")
    files = DataDescription("t", (str(tmp_path / "*.csv"),))
    with Store.open(tmp_path / "data") as store:
        for label, engine in (("a", "spark"), ("b", "local")):
            spec = LoadSpec("db", label, (files,), {"engine": engine})
            _, job = BrokerLoad(store, spec, [str(tmp_path)]).run()
            assert (job.state, job.loaded) == (FINISHED, 4), job.error
    found = counters.values()
    assert (found["versions"], found["rows_total"], found["rows_superseded"]) == (1, 4, 1)
