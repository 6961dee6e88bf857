"""Segments on S3: executors write them there and read them from there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seqstore import Column, InvalidInputError, Settings, Store, TableSchema, parse_type
from seqstore.loaders.spark import foreach_batch_sink, read_table, register
from tests.support.object_store import WEED, object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not WEED.exists(), reason="needs the object store of the extra test"),
]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with object_store(tmp_path_factory.mktemp("weed")) as uri:
        yield uri


@pytest.mark.long
def test_executors_write_segments_to_s3_and_read_them_from_there(
    spark: SparkSession, bucket: str, tmp_path: Path
) -> None:
    register(spark)
    uri = bucket.format("spark")
    columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("v", parse_type("STRING"))]
    settings = Settings(auto_compaction=0)
    with Store.open(tmp_path / "data", segments=uri, settings=settings) as store:
        store.create_database("db")
        schema = TableSchema.create(columns, ["k"], properties={"storage_format": "parquet"})
        table = store.create_table("db.t", schema)
        rows = spark.range(0, 90_000, 1, 3).selectExpr("id AS k", "concat('row ', id) AS v")
        options = {"path": str(store.path), "table": "db.t"}
        rows.write.format("seqstore").mode("append").options(**options).save()
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", "q")
        try:
            changed = rows.where("k < 30000").selectExpr("k", "upper(v) AS v")
            foreach_batch_sink(store.path, "db.t", driver_bytes_max=0)(changed, 0)
        finally:
            spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)
        assert table.version == 3
        stored = [name for name in store.disk.list(table.loader.directory) if name.endswith(".parquet")]
        assert len(stored) == 4
        shutil.rmtree(store.path / "cache")  # what executors find now is what they fetch
        found = spark.read.format("seqstore").options(**options, rows_per_partition="20000").load()
        assert found.where("v like 'ROW%'").count() == 30_000
        assert found.count() == table.count() == 90_000
        assert table.check() == []
        with pytest.raises(InvalidInputError, match="its segments are on an object store"):
            read_table(spark, store.path, "db.t", route="native")
        assert read_table(spark, store.path, "db.t", ["k"]).columns == ["k"]
