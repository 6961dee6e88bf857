"""`optimize`, `vacuum` and `history --key` at the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqstore import Store
from seqstore.cli.main import app

SETUP = """CREATE DATABASE db; CREATE TABLE db.t (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1
PROPERTIES('function_column.sequence_col' = 'v'); INSERT INTO db.t VALUES (1, 5), (2, 1);
INSERT INTO db.t VALUES (1, 3); INSERT INTO db.t VALUES (2, 2)"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    run(path, "sql", "-e", SETUP)
    return path


def run(directory: Path, *arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["--data-dir", str(directory), *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_optimize_tells_what_it_did_once(directory: Path) -> None:
    assert run(directory, "optimize", "db.t").startswith(
        "db.t: version 5, 3 segments to 1, 2 rows kept, 2 dead"
    )
    assert run(directory, "optimize") == "db.t: nothing to do\n"
    assert "version 6" in run(directory, "optimize", "db.t", "--zorder-by", "v,k")
    assert "nothing to do" in run(directory, "optimize", "db.t", "--purge")
    assert run(directory, "optimize", "db.t", "--purge", "--full", code=2)


def test_vacuum_plans_and_deletes(directory: Path) -> None:
    run(directory, "optimize", "db.t")
    run(directory, "optimize", "db.t", "--full")
    planned = run(directory, "vacuum", "--retain-seconds", "0", "--dry-run")
    assert "would be readable from version 6, 2 files" in planned
    assert ".arrow" in planned
    assert "db.t: readable from version 6, 2 files" in run(
        directory, "vacuum", "db.t", "--retain-seconds", "0"
    )
    with Store.open(directory) as store:
        assert store.table("db.t").oldest_version == 6


def test_history_of_a_key_says_why(directory: Path) -> None:
    lines = json.loads(run(directory, "history", "db.t", "--key", "k=1", "--format", "json"))
    assert [line["outcome"] for line in lines] == ["live", "late"]
    assert lines[1]["explanation"] == "late: sequence 3 is smaller than 5, which is stored since version 2"
    assert json.loads(run(directory, "history", "db.t", "--key", "1", "--format", "json")) == lines
    assert "expected one for each of k" in run(
        directory, "history", "db.t", "--key", "1", "--key", "2", code=2
    )
