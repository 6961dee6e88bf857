"""What formats on Spark took, in the form of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.report import records
from bench.report.__main__ import main
from bench.spark.results import results_of

ROWS = {"base": 1_000, "batch": 100, "append": 500}
OURS: dict[str, Any] = {
    "format": "seqstore",
    "spark": "4.3.0",
    "wrong_rows": 0,
    "wrong_reads": 0,
    "seconds": {
        "base": [2.0],
        "upsert": [4.0, 2.0, 3.0],
        "upsert as Parquet": [2.0, 1.0, 1.5],
        "read": [3.0],
        "read of Parquet": [1.5],
    },
}
THEIRS: dict[str, Any] = {
    "format": "hudi",
    "spark": "3.5.8",
    "wrong_rows": 7,
    "wrong_reads": 0,
    "seconds": {"base": [4.0], "upsert": [9.0, 9.0, 9.0], "upsert as Parquet": [1.0, 1.0, 1.0]},
}


def test_formats_compare_by_the_files_of_their_own_session() -> None:
    upsert = results_of([OURS, THEIRS], ROWS)[1]
    assert [(entry["name"], entry["ratio"]) for entry in upsert["yardsticks"]] == [
        ("Parquet files", 2.0),
        ("hudi", pytest.approx(2 / 9)),
    ]
    assert (upsert["rows"], upsert["stored_rows"], upsert["ours"]["median"]) == (100, 1_000, 3.0)


def test_a_step_without_files_compares_by_seconds() -> None:
    (base, *_) = results_of([THEIRS, OURS], ROWS)
    assert [(entry["name"], entry["ratio"]) for entry in base["yardsticks"]] == [("hudi", 0.5)]


def test_a_format_that_is_wrong_is_told() -> None:
    assert records.wrong_entries(results_of([OURS, THEIRS], ROWS)) == [
        "spark_base: hudi: 7 rows are wrong",
        "spark_upsert: hudi: 7 rows are wrong",
    ]


def test_without_a_session_of_ours_there_is_nothing_to_compare() -> None:
    assert results_of([THEIRS], ROWS) == []


def test_the_page_has_the_results_of_several_files(tmp_path: Path) -> None:
    machine = {
        "date": "2026-11-24T00:00:00+00:00",
        "commit": "abc",
        "processor": "x",
        "cores": 2,
        "memory_bytes": 2**34,
        "system": "Linux",
        "python": "3.11.7",
        "packages": {},
        "fsync_seconds": 0.001,
        "new_memory_seconds_per_gib": 0.5,
    }
    results = results_of([OURS, THEIRS], ROWS)
    for name, part in (("run", results[:1]), ("spark", results[1:])):
        records.write_json(tmp_path / f"{name}.json", machine, part, problems=[f"of {name}"])
    words = [str(tmp_path / "run.json"), str(tmp_path / "spark.json"), "--html", str(tmp_path / "page.html")]
    assert main(words) == 0
    page = (tmp_path / "page.html").read_text()
    assert all(text in page for text in ("the base becomes a table", "Spark: upsert", "of run", "of spark"))
