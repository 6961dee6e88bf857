"""Measures what OPTIMIZE of a large table costs the process that commits it, with the segments merged on that
host and in executors.

python -m bench.spark.optimize --rows 20_000_000 [--master 'local-cluster[2,1,2048]']

Two tables get the same rows. Each is rewritten whole in a process of its own, which has opened nothing of the
table before; Spark's tasks and the JVM are other processes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any, Final

from bench.spark.winner_test import MASTER, WAYS, make_tables, memory_kib, run_apart
from seqstore import Store
from seqstore.store.maintenance import compaction

_HERE: Final = Path(__file__).parents[1]


def optimize(data: Path, way: str, master: str) -> dict[str, Any]:
    """Rewrites one of the tables; what that cost this process."""
    from pyspark.sql import SparkSession

    from seqstore.loaders.spark.optimize import merging_on
    from seqstore.loaders.spark.registration import use_this_python

    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    use_this_python()
    spark.sparkContext.parallelize(range(8), 8).map(abs).count()  # starts workers; they import later
    with Store.open(data, create=False) as store:
        table = store.table(f"db.{way}")
        elsewhere = merging_on(spark, table.name) if way == "executors" else None
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory counts from here
        memory, processor, clock = memory_kib("VmRSS"), time.process_time(), time.monotonic()
        done = compaction.optimize(table, full=True, elsewhere=elsewhere)
        spent = {
            "processor_seconds": round(time.process_time() - processor, 2),
            "clock_seconds": round(time.monotonic() - clock, 2),
            "peak_mib": round((memory_kib("VmHWM") - memory) / 1024),
        }
    spark.stop()
    return {"way": way, "rows": done.rows, "segments": done.segments_after, **spent}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark.optimize", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000, 20_000_000])
    parser.add_argument("--master", default=MASTER)
    parser.add_argument("--work", type=Path, default=_HERE / "work" / "optimize")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(optimize(given.work, given.one, given.master)))
        return
    for rows in given.rows:
        shutil.rmtree(given.work, ignore_errors=True)
        make_tables(given.work, rows)
        for way in WAYS:
            order = ["--one", way, "--master", given.master, "--work", str(given.work)]
            print(json.dumps(run_apart("bench.spark.optimize", order)), flush=True)
    shutil.rmtree(given.work, ignore_errors=True)


if __name__ == "__main__":
    main()
