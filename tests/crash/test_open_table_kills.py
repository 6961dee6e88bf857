"""A process that is killed while it shows a version of an open table, or before: the next one catches up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from seqstore import Store
from tests.support.faults.dying_child import run_until_dead
from tests.support.lake.delta_reader import commits, open_delta
from tests.support.rows import rows_of, schema_of

pytestmark = pytest.mark.crash
_PROGRAM = """
import sys
import pyarrow as pa
from seqstore import Store
store = Store.open(sys.argv[1])
print("ready", flush=True)
store.table("db.t").upsert(pa.table({"k": [1, 2], "v": ["second", "second"]}))
print("loaded", flush=True)
import time
time.sleep(100)
"""


def made(path: Path, every: int, formats: str = "delta") -> Path:
    properties = {"delta.universalFormat.enabledFormats": formats, "open_every_seconds": str(every)}
    with Store.open(path) as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING", **properties))
        table.upsert(pa.table({"k": [1], "v": ["first"]}))
    return path / table.loader.directory


@pytest.mark.parametrize("point", ["open.written_out", "open.before_commit", "open.after_commit"])
def test_the_log_is_readable_after_a_kill_and_the_next_process_catches_up(tmp_path: Path, point: str) -> None:
    root = made(tmp_path / "data", every=0)
    assert run_until_dead(_PROGRAM, tmp_path / "data", 0, failpoint=point) == []
    found = sorted(tuple(row.values()) for row in open_delta(root).read().to_pylist())
    second = [(1, "second"), (2, "second")]
    assert found == (second if point == "open.after_commit" else [(1, "first")])
    with Store.open(tmp_path / "data") as store:
        store.opener.wait()
        assert open_delta(root).shown == store.table("db.t").version
        assert sorted(tuple(row.values()) for row in open_delta(root).read().to_pylist()) == second
        assert rows_of(store.table("db.t")) == second
        assert store.table("db.t").check() == []
    assert list(root.glob("_delta_log/.*")) == []


def test_a_version_whose_process_was_killed_before_its_time_is_shown_by_the_next(tmp_path: Path) -> None:
    root = made(tmp_path / "data", every=3600)
    shown = commits(root)
    assert run_until_dead(_PROGRAM, tmp_path / "data", 0, kill_after=1) == ["loaded"]
    assert commits(root) == shown
    with Store.open(tmp_path / "data"):
        pass
    assert sorted(open_delta(root).read().column("k").to_pylist()) == [1, 2]


@pytest.mark.parametrize("formats", ["delta", "iceberg"])
def test_a_process_that_ends_without_closing_shows_its_last_version(tmp_path: Path, formats: str) -> None:
    """The interpreter starts no thread any more by then, and several files are to be synced."""
    root = made(tmp_path / "data", every=3600, formats=formats)
    program = _PROGRAM.replace("time.sleep(100)", "")
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")], capture_output=True, text=True, check=True
    )
    assert ended.stderr == ""
    if formats == "delta":
        found = open_delta(root).read().to_pylist()
    else:
        pytest.importorskip("pyiceberg")
        from tests.support.lake.iceberg_reader import static_table

        found = static_table(root).scan().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(1, "second"), (2, "second")]


@pytest.mark.parametrize("point", ["open.written_out", "open.before_commit", "open.after_commit"])
def test_iceberg_metadata_are_readable_after_a_kill(tmp_path: Path, point: str) -> None:
    pytest.importorskip("pyiceberg")
    from tests.support.lake.iceberg_reader import static_table

    root = made(tmp_path / "data", every=0, formats="iceberg")

    def found() -> list[tuple[int, str]]:
        rows = static_table(root).scan().to_arrow().to_pylist()
        return sorted((row["k"], row["v"]) for row in rows)

    assert run_until_dead(_PROGRAM, tmp_path / "data", 0, failpoint=point) == []
    second = [(1, "second"), (2, "second")]
    assert found() == (second if point == "open.after_commit" else [(1, "first")])
    with Store.open(tmp_path / "data") as store:
        store.opener.wait()
        assert found() == second
        assert store.table("db.t").check() == []
    assert list(root.glob("metadata/.*")) == []
