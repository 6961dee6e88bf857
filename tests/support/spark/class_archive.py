"""An archive of Spark's classes, which takes two fifths of the processor time off each start in tests.

`python -m tests.support.spark.class_archive` makes it once for each pyspark and Java, in the user's cache,
and `make test` does. A JVM does without the archive where its jars, their times, their folder or its Java are
others, or where a folder with files stands on the class path, such as that of SPARK_CONF_DIR. Only Java 17
gets one: Spark names a jar twice, and later versions compare such a class path with one that has it once.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.kafka.jars import cache_directory, java
from tests.support.spark.spark_cluster import LOCAL, QUICK_JVM

# A JVM that does without the archive says so on the output that Spark's launcher reads.
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_VARIABLE: Final = "JDK_JAVA_OPTIONS"


def class_archive() -> Path | None:
    """Returns the place of the archive, made or not; None where Spark or Java 17 is missing."""
    found = importlib.util.find_spec("pyspark")
    runs = shutil.which(java())
    if found is None or found.origin is None or runs is None or not _is_17(runs):
        return None
    jars = Path(found.origin).parent / "jars"
    files = [(entry.name, entry.stat()) for entry in os.scandir(jars)]
    told = sorted((name, status.st_size, status.st_mtime_ns) for name, status in files)
    place = _digest(str(jars))
    return cache_directory() / f"spark-classes-{place}-{_digest(f'{os.path.realpath(runs)}{told}')}.jsa"


def _is_17(runs: str) -> bool:
    release = Path(os.path.realpath(runs)).parents[1] / "release"
    return release.is_file() and 'JAVA_VERSION="17.' in release.read_text()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def jvm_options() -> str:
    """Returns the options of the JVMs of tests, with the archive where it has been made."""
    archive = class_archive()
    if archive is None or not archive.exists():
        return QUICK_JVM
    return f'{QUICK_JVM} "-XX:SharedArchiveFile={archive}" {_QUIET}'


def make(archive: Path) -> None:
    """Makes the archive, and removes those of the same jars for another pyspark or Java."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_name("spark-classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return
        for other in archive.parent.glob(f"{archive.name.rpartition('-')[0]}-*.jsa"):
            other.unlink()
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix="spark-classes-") as directory:
            made = Path(directory) / "made.jsa"
            _run_spark(Path(directory), f"{QUICK_JVM} -XX:ArchiveClassesAtExit={made} {_QUIET}")
            made.rename(archive)


def _run_spark(directory: Path, options: str) -> None:
    """Does a little of each kind of work, and waits for the end of the JVM, which writes the archive then."""
    from pyspark import SparkContext

    from seqstore.cli.demo.spark_run import spark_session

    os.environ[_VARIABLE] = QUICK_JVM
    with spark_session(directory, LOCAL, {"spark.driver.extraJavaOptions": options}) as spark:
        files = str(directory / "files")
        frame = spark.range(20).selectExpr("id % 7 AS k", "string(id) AS v", "current_timestamp() AS t")
        frame.write.parquet(files)
        frame.write.csv(f"{files}.csv")
        read = spark.read.parquet(files)
        read.join(frame, "k").groupBy("k").count().orderBy("k").collect()
        stream = spark.readStream.schema(read.schema).parquet(files).writeStream
        stream = stream.foreachBatch(lambda batch, _: batch.toArrow()).trigger(availableNow=True)
        stream.option("checkpointLocation", f"{files}.checkpoint").start().awaitTermination()
        gateway = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    wanted = class_archive()
    if wanted is not None and not wanted.exists():
        sys.stdout.write("an archive of Spark's classes, once for each pyspark and Java\n")
        make(wanted)
