"""Measures the Spark path beside Parquet files, Delta, Hudi and Paimon, each with the Spark it supports.

python -m bench.spark --rows 10_000_000 [--peer delta=/venv/bin/python ...] [--out FILE]

Every format gets the same files: a base, batches that update it (late, repeated and new keys, see
bench.inputs.orders), an append of new keys. A format runs in a process of its own (bench/spark/job.py) with
the Python given for it; a format without one is left out. Its jars come from Maven Central by
`spark.jars.packages`, or from --jars. All end states are compared with the oracle, which DuckDB computes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.inputs.orders import KEY, SCHEMA, SEQUENCE, base_rows, key_count, rows_of_keys, update_batch
from bench.report import records
from bench.spark.job import FORMATS
from bench.spark.results import results_of
from bench.trials import machine

_HERE: Final = Path(__file__).parents[1]
_FILE_ROWS: Final = 500_000
# What is shown, and beside what.
_ROWS: Final = (
    ("base", ""),
    ("upsert", "upsert as Parquet"),
    ("append", "append as Parquet"),
    ("delete", ""),
    ("read", "read of Parquet"),
    ("read natively", "read of Parquet"),
    ("column", "column of Parquet"),
    ("column natively", "column of Parquet"),
)
# The newest there were for a Spark of their own when this was written.
PACKAGES: Final = {
    "seqstore": (),
    "delta": ("io.delta:delta-spark_2.13:4.4.0",),  # Spark 4.2
    "hudi": ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",),  # Spark 3.5
    "paimon": ("org.apache.paimon:paimon-spark-3.5:0.9.0",),  # Spark 3.5
    "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),  # Spark 4.1
}


def make_inputs(inputs: Path, rows: int, batch: int, append: int, batches: int, seed: int) -> None:
    """The files of all formats. No key comes twice with one sequence in a batch: formats differ in whom of
    those they keep."""
    _write(inputs / "base", base_rows(rows, seed), 2 * _FILE_ROWS)
    for number in range(1, batches + 1):
        _write(inputs / f"batch-{number}", _without_ties(update_batch(rows, batch, number, seed)), _FILE_ROWS)
    first = key_count(rows)
    keys = np.random.default_rng(seed).permutation(np.arange(first, first + append, dtype=np.int64))
    _write(inputs / "append", rows_of_keys(keys, batches + 1, seed), 2 * _FILE_ROWS)


def _without_ties(rows: pa.Table) -> pa.Table:
    numbered = rows.append_column("place", pa.array(np.arange(len(rows))))
    kept = numbered.group_by([KEY, SEQUENCE]).aggregate([("place", "min")])["place_min"]
    return rows.take(kept.combine_chunks().sort())


def _write(folder: Path, rows: pa.Table, file_rows: int) -> None:
    folder.mkdir(parents=True)
    for start in range(0, len(rows), file_rows):
        pq.write_table(rows.slice(start, file_rows), folder / f"{start:010d}.parquet", compression="zstd")


def differing_rows(inputs: Path, end: Path, batches: int) -> int:
    """Rows that only the end state or only the oracle has: of every key the largest sequence, of equal ones
    the last to come."""
    names = ["base", *(f"batch-{number}" for number in range(1, batches + 1)), "append"]
    columns = ", ".join(SCHEMA.names)
    sources = " UNION ALL ".join(
        f"SELECT {columns}, {number} AS arrival FROM '{inputs}/{name}/*.parquet'"
        for number, name in enumerate(names)
    )
    with duckdb.connect(str(inputs / "oracle.duckdb")) as connection:
        connection.execute("SET memory_limit = '6GB'")
        connection.execute(
            f"""CREATE TABLE IF NOT EXISTS expected AS SELECT hash({columns}) AS row FROM ({sources})
            QUALIFY row_number() OVER (PARTITION BY {KEY} ORDER BY {SEQUENCE} DESC, arrival DESC) = 1"""
        )
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE ours AS SELECT hash({columns}) AS row FROM '{end}/*.parquet'"
        )
        (found,) = connection.execute(
            """SELECT (SELECT count(*) FROM (FROM ours EXCEPT ALL FROM expected))
            + (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM ours))"""
        ).fetchall()
    return int(found[0])


def run_format(name: str, python: str, inputs: Path, work: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Runs one format to its end; what it took, and how many rows are wrong."""
    folder = work / name
    order = {
        "format": name,
        "inputs": str(inputs),
        "work": str(folder),
        "packages": [] if given.jars else PACKAGES[name],
        "jars": [str(path) for path in sorted(given.jars.glob(f"*{name}*.jar"))] if given.jars else [],
        "batches": given.batches,
        "reads": given.reads,
    }
    folder.mkdir(parents=True)
    environment = {**os.environ, "PYSPARK_PYTHON": python, "PYTHONPATH": str(_HERE.parent)}
    environment.pop("SPARK_HOME", None)
    try:
        done = subprocess.run(
            [python, str(_HERE / "spark" / "job.py"), json.dumps(order)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=environment,
            cwd=folder,
            timeout=given.minutes * 60,
        )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        answer["wrong_rows"] = differing_rows(inputs, folder / "end", given.batches)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"format": name, "load_average": os.getloadavg()[0], **answer}


def table(results: list[dict[str, Any]]) -> str:
    """Medians in seconds, and beside Parquet the median of the ratios."""
    lines = [
        "| format | Spark | what | seconds | beside Parquet | wrong rows, reads |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        taken = result["seconds"]
        for what, plain in _ROWS:
            if what not in taken:
                continue
            ratio = median(a / b for a, b in zip(taken[what], taken[plain], strict=True)) if plain else None
            beside = "" if ratio is None else f"{ratio:.2f}"
            lines.append(
                f"| {result['format']} | {result['spark']} | {what} | {median(taken[what]):.1f} | {beside} | "
                f"{result['wrong_rows']}, {result['wrong_reads']} |"
            )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark", description="Measure the Spark path beside its peers."
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the base")
    parser.add_argument("--batch", type=int, default=1_000_000, help="rows of an upsert")
    parser.add_argument("--append", type=int, default=5_000_000, help="rows of the append")
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--reads", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=20, help="the most a format may take")
    parser.add_argument("--seed", type=int, default=20_261_121)
    parser.add_argument("--only", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--peer", action="append", default=[], metavar="FORMAT=PYTHON", help="who runs it")
    parser.add_argument("--jars", type=Path, help="directory of jars, for who cannot reach Maven Central")
    parser.add_argument("--work", type=Path, default=_HERE / "work" / "spark")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> int:
    """Exit code 1 when an end state was wrong."""
    given = _arguments()
    pythons = {"seqstore": sys.executable, **dict(each.split("=", 1) for each in given.peer)}
    shutil.rmtree(given.work, ignore_errors=True)
    inputs = given.work / "inputs"
    make_inputs(inputs, given.rows, given.batch, given.append, given.batches, given.seed)
    results: list[dict[str, Any]] = []
    failed: list[str] = []
    for name in given.only:
        if name not in pythons:
            print(f"{name}: left out, no Python was given for it", file=sys.stderr)
            continue
        try:
            results.append(run_format(name, pythons[name], inputs, given.work, given))
        except subprocess.CalledProcessError as error:  # the others are worth knowing all the same
            print(f"{name}: ended with {error.returncode}", file=sys.stderr)
            failed.append(name)
        except subprocess.TimeoutExpired:
            print(f"{name}: stopped after {given.minutes:g} minutes", file=sys.stderr)
            failed.append(name)
        else:
            print(table(results[-1:]), file=sys.stderr, flush=True)
    out = given.out or _HERE / "results" / f"spark-{datetime.now():%Y-%m-%d-%H%M%S}.json"
    rows = {"base": given.rows, "batch": given.batch, "append": given.append}
    found = machine.commit_info(given.work)
    problems = [f"{name}: did not come to its end" for name in failed]
    records.write_json(out, found, results_of(results, rows), problems=problems, sessions=results)
    print(table(results))
    print(f"written to {out}; python -m bench.report RUN.json {out} shows it beside the other workloads")
    shutil.rmtree(given.work, ignore_errors=True)
    return 1 if failed or any(result["wrong_rows"] + result["wrong_reads"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
