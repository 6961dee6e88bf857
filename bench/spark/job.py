"""One table format on Spark, measured in a session of its own beside `df.write.parquet` of the same frames.

`bench.spark` runs this file with the Python whose pyspark the format supports, so it imports nothing of this
project but for our own format. The order, a JSON object, is the only argument; the answer, one too, the last
line printed.

1. The base becomes a table.
2. Batches of updates go in one by one, then an append; each beside Parquet files of the same frame, the two
   taking turns in going first.
3. The end state is written to Parquet, for others to compare.
4. One row in twenty is deleted, and the table read beside Parquet files of the rows that are left; ours
   also with one column named, and as a table of Parquet files that Spark reads itself. All reads of a table
   have to come to the same as those of the files.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

KEY, SEQUENCE = "order_id", "updated_at"
TABLE = "orders"
NATIVE = "orders_parquet"  # the same rows, with storage_format = parquet
_COLUMN = "price"
BUCKETS = "8"
_DOOMED = f"{KEY} % 20 = 0"
_LONG_READ = 60.0  # seconds; a format that takes longer is read once


class Format(Protocol):
    """How a format does the work; set up in its favour."""

    def create(self, base: DataFrame) -> None: ...

    def upsert(self, frame: DataFrame) -> None: ...

    def append(self, frame: DataFrame) -> None: ...

    def delete(self, rows: DataFrame) -> None:
        """Takes away what `_DOOMED` says, given as a frame too."""

    def read(self) -> DataFrame: ...


class Seqstore:
    """This project."""

    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, spark: SparkSession, work: Path) -> None:
        from bench.inputs.orders import table_schema
        from seqstore import Store
        from seqstore.loaders.spark import register

        register(spark)
        self._spark, self._path = spark, work / "seqstore"
        self.store = Store.open(self._path)
        self.store.create_database("db")
        self.store.create_table(f"db.{TABLE}", table_schema())

    def create(self, base: DataFrame) -> None:
        self.upsert(base)

    def upsert(self, frame: DataFrame) -> None:
        self._write(frame)

    append = upsert

    def delete(self, rows: DataFrame, name: str = TABLE) -> None:
        self._write(rows, name, "DELETE")

    def _write(self, frame: DataFrame, name: str = TABLE, merge_type: str = "APPEND") -> None:
        options = {"path": str(self._path), "table": f"db.{name}", "merge_type": merge_type}
        frame.write.format("seqstore").mode("append").options(**options).save()

    def read(self) -> DataFrame:
        reader = self._spark.read.format("seqstore").option("path", str(self._path))
        return reader.option("table", f"db.{TABLE}").load()

    def copy_as_parquet(self, rows: DataFrame) -> None:
        """A second table of the rows, stored as Parquet files."""
        from bench.inputs.orders import table_schema

        self.store.create_table(f"db.{NATIVE}", table_schema(storage_format="parquet"))
        self._write(rows, NATIVE)

    def read_column(self, name: str, route: str) -> DataFrame:
        """One column, by a route of `read_table`."""
        from seqstore.loaders.spark import read_table

        return read_table(self._spark, self._path, f"db.{self._table_of(route)}", [name], route=route)

    def read_natively(self) -> DataFrame:
        """All rows, by Spark's own Parquet reader."""
        from seqstore.loaders.spark import read_table

        return read_table(self._spark, self._path, f"db.{NATIVE}", route="native")

    @staticmethod
    def _table_of(route: str) -> str:
        return NATIVE if route == "native" else TABLE


class Delta:
    """MERGE with deletion vectors; the append is a plain one, which looks for no key."""

    settings: ClassVar = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.properties.defaults.enableDeletionVectors": "true",
    }

    def __init__(self, spark: SparkSession, work: Path) -> None:
        self._spark, self._path = spark, str(work / "delta")

    def create(self, base: DataFrame) -> None:
        base.write.format("delta").save(self._path)

    def upsert(self, frame: DataFrame) -> None:
        newest_of_each_key(frame).createOrReplaceTempView("batch")
        self._spark.sql(_merge(f"delta.`{self._path}`"))

    def append(self, frame: DataFrame) -> None:
        frame.write.format("delta").mode("append").save(self._path)

    def delete(self, rows: DataFrame) -> None:
        self._spark.sql(f"DELETE FROM delta.`{self._path}` WHERE {_DOOMED}")

    def read(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path)


class Hudi:
    """Merge on read with a bucket index: what writes fastest."""

    settings: ClassVar = {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    }
    _options: ClassVar = {
        "hoodie.table.name": TABLE,
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.datasource.write.precombine.field": SEQUENCE,
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": BUCKETS,
        "hoodie.metadata.enable": "false",
        "hoodie.compact.inline": "false",
    }

    def __init__(self, spark: SparkSession, work: Path) -> None:
        self._spark, self._path = spark, str(work / "hudi")

    def _write(self, frame: DataFrame, operation: str, mode: str) -> None:
        options = {**self._options, "hoodie.datasource.write.operation": operation}
        frame.write.format("hudi").options(**options).mode(mode).save(self._path)

    def create(self, base: DataFrame) -> None:
        self._write(base, "bulk_insert", "overwrite")

    def upsert(self, frame: DataFrame) -> None:
        self._write(frame, "upsert", "append")

    append = upsert

    def delete(self, rows: DataFrame) -> None:
        self._write(rows, "delete", "append")

    def read(self) -> DataFrame:
        found = self._spark.read.format("hudi").load(self._path)
        return found.drop(*[name for name in found.columns if name.startswith("_hoodie")])


class Paimon:
    """A primary-key table of some buckets, merged when read."""

    settings: ClassVar = {
        "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
        "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
    }

    def __init__(self, spark: SparkSession, work: Path) -> None:
        self._spark = spark
        spark.conf.set("spark.sql.catalog.paimon.warehouse", str(work / "paimon"))
        spark.sql("CREATE DATABASE IF NOT EXISTS paimon.db")

    def create(self, base: DataFrame) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in base.dtypes)
        self._spark.sql(
            f"CREATE TABLE paimon.db.{TABLE} ({columns}) TBLPROPERTIES ('primary-key' = '{KEY}', "
            f"'bucket' = '{BUCKETS}', 'sequence.field' = '{SEQUENCE}', 'file.format' = 'parquet')"
        )
        self.upsert(base)

    def upsert(self, frame: DataFrame) -> None:
        frame.createOrReplaceTempView("batch")
        self._spark.sql(f"INSERT INTO paimon.db.{TABLE} SELECT * FROM batch")

    append = upsert

    def delete(self, rows: DataFrame) -> None:
        self._spark.sql(f"DELETE FROM paimon.db.{TABLE} WHERE {_DOOMED}")

    def read(self) -> DataFrame:
        return self._spark.table(f"paimon.db.{TABLE}")


class Iceberg:
    """MERGE on read, with the deletion vectors of version 3; the append looks for no key."""

    settings: ClassVar = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    }
    _properties: ClassVar = {
        "format-version": "3",
        "write.merge.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
        "write.parquet.compression-codec": "snappy",  # as Spark's own files
    }

    def __init__(self, spark: SparkSession, work: Path) -> None:
        self._spark = spark  # `session` has named the warehouse

    def create(self, base: DataFrame) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in base.dtypes)
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in self._properties.items())
        self._spark.sql(
            f"CREATE TABLE lake.db.{TABLE} ({columns}) USING iceberg TBLPROPERTIES ({properties})"
        )
        self.append(base)

    def upsert(self, frame: DataFrame) -> None:
        newest_of_each_key(frame).createOrReplaceTempView("batch")
        self._spark.sql(_merge(f"lake.db.{TABLE}"))

    def append(self, frame: DataFrame) -> None:
        frame.writeTo(f"lake.db.{TABLE}").append()

    def delete(self, rows: DataFrame) -> None:
        self._spark.sql(f"DELETE FROM lake.db.{TABLE} WHERE {_DOOMED}")

    def read(self) -> DataFrame:
        return self._spark.table(f"lake.db.{TABLE}")


def newest_of_each_key(frame: DataFrame) -> DataFrame:
    """A key once, for MERGE fails otherwise."""
    newest = Window.partitionBy(KEY).orderBy(F.col(SEQUENCE).desc())
    return frame.withColumn("rank", F.row_number().over(newest)).where("rank = 1").drop("rank")


def _merge(target: str) -> str:
    return (
        f"MERGE INTO {target} AS t USING batch AS s ON s.{KEY} = t.{KEY} "
        f"WHEN MATCHED AND s.{SEQUENCE} >= t.{SEQUENCE} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


FORMATS: dict[str, Any] = {
    "seqstore": Seqstore,
    "delta": Delta,
    "hudi": Hudi,
    "paimon": Paimon,
    "iceberg": Iceberg,
}


class Clock:
    """What took how long, by what and round."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def time(self, what: str, act: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = act()
        self.seconds.setdefault(what, []).append(round(time.perf_counter() - started, 3))
        print(what, self.seconds[what][-1], file=sys.stderr, flush=True)
        return result


def session(order: dict[str, Any]) -> SparkSession:
    """local[2], as every format gets it."""
    builder = SparkSession.builder.master("local[2]").appName(f"bench {order['format']}")
    settings = {
        "spark.driver.memory": "6g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": BUCKETS,
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(Path(order["work"]) / "spark"),
        "spark.jars": ",".join(order["jars"]),
        "spark.jars.packages": ",".join(order["packages"]),
        "spark.jars.excludes": "org.slf4j:slf4j-api",  # Spark has its own
        "spark.sql.warehouse.dir": str(Path(order["work"]) / "warehouse"),
        "spark.sql.catalog.paimon.warehouse": str(Path(order["work"]) / "paimon"),
        "spark.sql.catalog.lake.warehouse": str(Path(order["work"]) / "iceberg"),
        **FORMATS[order["format"]].settings,
    }
    spark = builder.config(map={name: value for name, value in settings.items() if value}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read_all(frame: DataFrame) -> tuple[Any, ...]:
    """Every value of every row is looked at; what they come to, whatever their order."""
    rows = frame.select(F.xxhash64(*sorted(frame.columns)).alias("row"))
    return tuple(rows.agg(F.bit_xor("row"), F.count("row")).collect()[0])


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Steps 1 to 4 of the module."""
    inputs, work = Path(order["inputs"]), Path(order["work"])
    spark = session(order)
    clock = Clock()
    table: Format = FORMATS[order["format"]](spark, work)
    clock.time("base", lambda: table.create(spark.read.parquet(str(inputs / "base"))))
    written = [(f"batch-{number}", "upsert") for number in range(1, order["batches"] + 1)]
    for number, (name, what) in enumerate([*written, ("append", "append")]):
        frame = spark.read.parquet(str(inputs / name))
        act = table.append if what == "append" else table.upsert
        turns: list[tuple[str, Callable[[], Any]]] = [
            (what, lambda act=act, frame=frame: act(frame)),  # type: ignore[misc]
            (
                f"{what} as Parquet",
                lambda frame=frame, name=name: frame.write.parquet(str(work / f"files-{name}")),  # type: ignore[misc]
            ),
        ]
        for label, step in turns if number % 2 else reversed(turns):
            clock.time(label, step)
    table.read().write.parquet(str(work / "end"))
    wrong = _read(table, spark, work, clock, order["reads"])
    answer = {"spark": spark.version, "seconds": clock.seconds, "wrong_reads": wrong}
    spark.stop()
    return answer


def _read(table: Format, spark: SparkSession, work: Path, clock: Clock, reads: int) -> int:
    """Step 4; how many reads were not those of the files."""
    end = spark.read.parquet(str(work / "end"))
    if isinstance(table, Seqstore):
        clock.time("copy as Parquet", lambda: table.copy_as_parquet(end))
        table.delete(end.where(_DOOMED), NATIVE)
    clock.time("delete", lambda: table.delete(end.where(_DOOMED)))
    end.where(f"NOT {_DOOMED}").write.parquet(str(work / "kept"))
    files = spark.read.parquet(str(work / "kept"))
    wrong = 0
    for _ in range(reads):
        expected = clock.time("read of Parquet", lambda: read_all(files))
        found = [clock.time("read", lambda: read_all(table.read()))]
        if isinstance(table, Seqstore):
            found.append(clock.time("read natively", lambda: read_all(table.read_natively())))
        wrong += _read_columns(table, files, clock)
        wrong += sum(each != expected for each in found)
        if clock.seconds["read"][-1] > _LONG_READ:
            break
    return wrong


def _read_columns(table: Format, files: DataFrame, clock: Clock) -> int:
    expected = clock.time("column of Parquet", lambda: read_all(files.select(_COLUMN)))
    if isinstance(table, Seqstore):
        found = [
            clock.time("column", lambda: read_all(table.read_column(_COLUMN, "source"))),
            clock.time("column natively", lambda: read_all(table.read_column(_COLUMN, "native"))),
        ]
    else:
        found = [clock.time("column", lambda: read_all(table.read().select(_COLUMN)))]
    return sum(each != expected for each in found)


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
