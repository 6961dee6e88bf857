"""Measures what a large upsert through Spark costs the process that commits it, with the winner test on the
driver's host and in executors.

python -m bench.spark.winner_test --rows 40_000_000 --load 10_000_000 [--master 'local-cluster[2,1,2048]']

Two tables get the same rows. Then each is upserted in a process of its own, which has opened nothing of the
table before. Its processor time and the peak of its memory count from the moment that the rows are staged;
Spark's tasks and the JVM are other processes. The same again for the next of several sizes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.trials import machine
from seqstore import Column, Store, TableSchema, parse_type

_HERE: Final = Path(__file__).parents[1]
WAYS: Final = ("host", "executors")
_PIECE: Final = 1_000_000
_VALUES: Final = 4
MASTER: Final = "local-cluster[2,1,2048]"


def make_tables(data: Path, rows: int) -> None:
    """A table for each way, with the keys 0 to `rows` - 1 in an order of no meaning."""
    columns = [Column("k", parse_type("BIGINT"), nullable=False), Column("s", parse_type("BIGINT"))]
    columns += [Column(f"v{number}", parse_type("DOUBLE")) for number in range(_VALUES)]
    properties = {"function_column.sequence_col": "s", "disable_auto_compaction": "true"}
    schema = TableSchema.create(columns, ["k"], properties=properties)
    keys = np.random.default_rng(rows).permutation(rows)
    with Store.open(data) as store:
        store.create_database("db")
        for way in WAYS:
            with store.create_table(f"db.{way}", schema).begin_load() as load:
                for start in range(0, rows, _PIECE):
                    part = keys[start : start + _PIECE]
                    values = {f"v{number}": part * 0.5 for number in range(_VALUES)}
                    load.write(pa.table({"k": part, "s": np.ones(len(part), np.int64), **values}))
                load.commit()


def upsert(data: Path, way: str, rows: int, load: int, master: str) -> dict[str, Any]:
    """Upserts `load` keys, a fifth of them new; what that cost this process once they were staged."""
    from pyspark.sql import SparkSession

    from seqstore.loaders.spark.place import ending
    from seqstore.loaders.spark.staging import stage_frame
    from seqstore.loaders.spark.winner_tests import let_executors_test

    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    columns = [f"CAST(id AS DOUBLE) AS v{number}" for number in range(_VALUES)]
    step = max(rows * 5 // (load * 4), 1)
    frame = spark.range(0, load, 1, 8).selectExpr(f"id * {step} AS k", "CAST(2 AS BIGINT) AS s", *columns)
    with Store.open(data, create=False) as store:
        table = store.table(f"db.{way}")
        staged = stage_frame(frame, data, table.name, {})
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory counts from here
        memory, processor, clock = memory_kib("VmRSS"), time.process_time(), time.monotonic()
        with ending(table, staged.task.load), table.begin_load() as begun:
            for share in staged.shares:
                begun.adopt(share)
            let_executors_test(spark, begun.writers, way)
            done = begun.commit()
        spent = {
            "processor_seconds": round(time.process_time() - processor, 2),
            "clock_seconds": round(time.monotonic() - clock, 2),
            "peak_mib": round((memory_kib("VmHWM") - memory) / 1024),
        }
    spark.stop()
    return {"way": way, "rows": rows, "load": load, "replaced": done.rows_replaced, **spent}


def memory_kib(name: str) -> int:
    """This process's memory, in KiB: resident (VmRSS), or its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def _run(arguments: argparse.Namespace, data: Path, way: str, rows: int) -> dict[str, Any]:
    """Runs one upsert in a process of its own."""
    order = ["--one", way, "--rows", str(rows), "--load", str(arguments.load), "--master", arguments.master]
    return run_apart("bench.spark.winner_test", [*order, "--work", str(data)])


def run_apart(module: str, order: Sequence[str]) -> dict[str, Any]:
    """Runs one measurement of a module in a process of its own; returns the last line that it prints."""
    command = [sys.executable, "-m", module, *order]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=_HERE.parent)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark.winner_test", description=(__doc__ or "").split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000, 20_000_000, 40_000_000])
    parser.add_argument("--load", type=int, default=10_000_000, help="rows of the upsert")
    parser.add_argument("--master", default=MASTER)
    parser.add_argument("--work", type=Path, default=_HERE / "work" / "winner-test")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(upsert(given.work, given.one, given.rows[0], given.load, given.master)))
        return
    results = []
    for rows in given.rows:
        shutil.rmtree(given.work, ignore_errors=True)
        make_tables(given.work, rows)
        results += [_run(given, given.work, way, rows) for way in WAYS]
        print("\n".join(map(json.dumps, results[-len(WAYS) :])), flush=True)
    shutil.rmtree(given.work, ignore_errors=True)
    if given.out is not None:
        about = {"machine": machine.commit_info(_HERE), "results": results}
        given.out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
