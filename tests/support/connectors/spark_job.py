"""Runs Doris's Spark connector, unmodified, with a Spark that it supports; prints what it read as JSON.

python spark_job.py JARS HTTP_PORT MYSQL_PORT FLIGHT_PORT
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

JARS, HTTP, MYSQL, FLIGHT = sys.argv[1:]
NODE = {"doris.fenodes": f"127.0.0.1:{HTTP}", "user": "root", "password": ""}
ARROW = {"doris.read.mode": "arrow", "doris.read.arrow-flight-sql.port": FLIGHT}
OPENS = "-Duser.timezone=UTC --add-opens=java.base/java.nio=ALL-UNNAMED"

builder = (
    SparkSession.builder.master("local[2]").config("spark.jars", JARS).config("spark.ui.enabled", "false")
)
builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.driver.extraJavaOptions", OPENS)
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def read(table: str, **options: str) -> DataFrame:
    reader = spark.read.format("doris").option("doris.table.identifier", table)
    return reader.options(**NODE, **options).load()


def rows(frame: DataFrame) -> Any:
    return [list(row) for row in frame.orderBy(frame.columns[0]).collect()]


def write(table: str, values: list[Any], columns: str, mode: str = "append", **options: str) -> None:
    writer = spark.createDataFrame(values, columns).write.format("doris").mode(mode)
    writer.option("doris.table.identifier", table).options(**NODE, **options).save()


def catalog() -> Any:
    settings = {"fenodes": f"127.0.0.1:{HTTP}", "query.port": MYSQL, "user": "root", "password": ""}
    spark.conf.set("spark.sql.catalog.dc", "org.apache.doris.spark.catalog.DorisTableCatalog")
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.dc.doris.{name}", value)
    databases = [row[0] for row in spark.sql("SHOW DATABASES IN dc").collect()]
    tables = [row[1] for row in spark.sql("SHOW TABLES IN dc.db").collect()]
    spark.sql("INSERT INTO dc.db.w SELECT 700L AS k, 'x' AS v, 1 AS w").collect()
    return [sorted(databases), sorted(tables), rows(spark.sql("SELECT * FROM dc.db.w WHERE k = 700"))]


VALUES = [(number, f"v{number}") for number in range(100, 105)]
PAIR = "k long, v string"
SINK = "doris.sink.properties."
found: dict[str, Any] = {}
for name, more in (("thrift", {}), ("arrow", ARROW)):
    found[name] = rows(read("db.every", **more))
    found[f"{name} where"] = rows(read("db.t", **more).where("k in (5, 100) or v is null").select("k", "v"))
    found[f"{name} count"] = read("db.t", **more).count()
write("db.w", VALUES[:1], PAIR)
write("db.w", VALUES[1:2], PAIR, **{f"{SINK}format": "json", f"{SINK}read_json_by_line": "true"})
write("db.w", VALUES[2:3], PAIR, **{"doris.sink.enable-2pc": "true"})
write("db.w", VALUES[3:4], PAIR, **{"doris.sink.enable-2pc": "true", "doris.sink.auto-redirect": "false"})
write("db.w", VALUES[4:], PAIR, **{f"{SINK}group_commit": "sync_mode"})
write("db.w", [(100, 7)], "k long, w int", **{f"{SINK}partial_columns": "true", "doris.write.fields": "k,w"})
found["written"] = rows(read("db.w"))
write("db.w", VALUES[:2], PAIR, "overwrite", **{"doris.query.port": MYSQL})
found["overwritten"] = rows(read("db.w", **{"doris.fe.auto.fetch": "true"}))
found["catalog"] = catalog()
print(json.dumps(found, default=str))
spark.stop()
