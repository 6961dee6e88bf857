"""Times with a zone become what the zone's clocks show, wherever they are in a row."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from seqstore import InvalidInputError, Store
from seqstore.loaders.spark import register
from seqstore.loaders.spark.zones import local_times
from seqstore.store.sql import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIDNIGHT = datetime(2024, 1, 1, tzinfo=UTC)
EIGHT = datetime(2024, 1, 1, 8)


def batch_of(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"c": pa.array(values, kind)})


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "+08:00", "GMT+8", "UTC+08:00"])
def test_a_time_is_what_its_zone_shows(zone: str) -> None:
    found = local_times(batch_of([MIDNIGHT, None], pa.timestamp("us", zone)))
    assert found.column(0).equals(pa.array([EIGHT, None], pa.timestamp("us")))


@pytest.mark.parametrize(
    ("kind", "values", "local"),
    [
        (lambda t: pa.list_(t), [[MIDNIGHT, None], None, []], [[EIGHT, None], None, []]),
        (lambda t: pa.struct([("a", t), ("b", pa.int8())]), [{"a": MIDNIGHT, "b": 1}, None],
         [{"a": EIGHT, "b": 1}, None]),
        (lambda t: pa.map_(pa.string(), t), [[("x", MIDNIGHT)], None], [[("x", EIGHT)], None]),
        (lambda t: pa.list_(pa.struct([("a", t)])), [[{"a": MIDNIGHT}, None]], [[{"a": EIGHT}, None]]),
    ],
    ids=["list", "struct", "map", "structs in a list"],
)  # fmt: skip
def test_nested_times_too(kind: Any, values: list[Any], local: list[Any]) -> None:
    found = local_times(batch_of(values, kind(pa.timestamp("us", "Asia/Shanghai"))))
    assert found.column(0).equals(pa.array(local, kind(pa.timestamp("us"))))


def test_a_slice_keeps_its_own_rows() -> None:
    kind = pa.list_(pa.timestamp("us", "Asia/Shanghai"))
    found = local_times(batch_of([None, [MIDNIGHT, None], [MIDNIGHT]], kind).slice(1, 1))
    assert found.column(0).to_pylist() == [[EIGHT, None]]


def test_what_has_no_zone_is_not_touched() -> None:
    batch = batch_of([EIGHT], pa.timestamp("us"))
    assert local_times(batch) is batch


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"'Mars/Olympus' is not known here.*session\.timeZone"):
        local_times(batch_of([MIDNIGHT], pa.timestamp("us", "Mars/Olympus")))


@pytest.mark.spark
def test_a_written_frame_stores_what_the_session_shows(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    with Store.open(tmp_path / "data") as store:
        create = (
            "CREATE TABLE db.t (k INT NOT NULL, at DATETIME NULL, calls ARRAY<DATETIME> NULL) UNIQUE KEY (k)"
        )
        list(Session(store).execute(f"CREATE DATABASE db; {create} DISTRIBUTED BY HASH (k)"))
        spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
        try:
            shown = "timestamp'2024-01-01 08:00:00'"
            frame = spark.sql(f"SELECT 1 AS k, {shown} AS at, array({shown}, NULL) AS calls")
            options = {"path": str(store.path), "table": "db.t"}
            frame.write.format("seqstore").mode("append").options(**options).save()
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        rows = store.table("db.t").scan().read_all().to_pylist()
    assert rows == [{"k": 1, "at": EIGHT, "calls": [EIGHT, None]}]
