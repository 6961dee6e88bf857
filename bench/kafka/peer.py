"""The yardstick of bench.kafka: Spark's own `readStream.format("kafka")` into plain Parquet, as a process.

It runs in any Python that has pyspark, so that Spark may be of a version whose connector can be had, and
needs nothing else of this project. A line of JSON asks for a run; a line that begins with `REPLY` answers it.
The session lives as long as the process, as the one beside it does.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPLY: Final = "reply "
_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def session(settings: dict[str, str], connector: str) -> SparkSession:
    """A local session with the connector of Spark's own version, or of the given one."""
    import pyspark
    from pyspark.sql import SparkSession

    package = f"{_CONNECTOR}:{connector or pyspark.__version__}"
    builder: Any = SparkSession.builder
    started = builder.config(map={**settings, "spark.jars.packages": package}).getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


def run(spark: SparkSession, job: dict[str, Any]) -> float:
    """Seconds to read a topic from its beginning to its end and to write it.

    Args:
        job: `brokers`, `topic`, `target`; `columns` to parse CSV into, empty for the bytes as they come;
            `is_stream`, else it is one batch.
    """
    started = time.perf_counter()
    reader = spark.readStream if job["is_stream"] else spark.read
    options = {
        "kafka.bootstrap.servers": job["brokers"],
        "subscribe": job["topic"],
        "startingOffsets": "earliest",
    }
    rows = reader.format("kafka").options(**options).load()
    if job["columns"]:
        rows = rows.selectExpr(f"from_csv(cast(value AS STRING), '{job['columns']}') AS row").select("row.*")
    else:
        rows = rows.select("value")
    path = f"{job['target']}/rows"
    if job["is_stream"]:
        stream = rows.writeStream.format("parquet").option(
            "checkpointLocation", f"{job['target']}/checkpoint"
        )
        stream.option("path", path).trigger(availableNow=True).start().awaitTermination()
    else:
        rows.write.parquet(path)
    return time.perf_counter() - started


def main() -> None:
    asked = (json.loads(line) for line in sys.stdin)
    spark = session(**next(asked))
    print(f"{REPLY}{json.dumps(spark.version)}", flush=True)
    for job in asked:
        print(f"{REPLY}{json.dumps(run(spark, job))}", flush=True)


if __name__ == "__main__":
    main()
