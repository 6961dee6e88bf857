"""Contests, run tiny: who is wrong, fails, is slow or is not installed is told as such."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench import run
from bench.contests.catalog import CONTESTS
from bench.contests.scripted import contest
from bench.engine.site import Site, Sizes
from bench.engine.workload import Workload
from bench.inputs import cdc
from bench.peers.base import KeyedPeer
from bench.peers.ours import Seqstore
from bench.peers.rows import SqliteRows
from bench.report import page, records
from bench.trials import machine
from bench.trials.journal import Journal
from bench.trials.trial import Trial
from tests.support.documents import ROOT
from tests.weight import ALL, form

SEED = 27
TINY = Sizes(
    rows=1_000,
    batch=200,
    rounds_max=2,
    client_seconds=0.2,
    operations_rows=200,
    scale=0.01,
    flights=100,
)


class Forgetful(SqliteRows):
    """Takes late rows for newer ones."""

    name = "forgetful"

    def upsert(self, rows: pa.Table) -> None:
        self.delete(rows)
        super().upsert(rows)


class Broken(SqliteRows):
    """Breaks at its first step."""

    name = "broken"

    def upsert(self, rows: pa.Table) -> None:
        raise RuntimeError("planted")


class Missing(SqliteRows):
    """Is not installed."""

    name = "missing"
    module = package = "no_such_package"


def result_with(site: Site, *peers: type[KeyedPeer]) -> dict[str, Any]:
    """The record of a script run by ours and some peers."""

    @contextmanager
    def prepare(site: Site, slow: bool) -> Iterator[Trial]:
        script = cdc.whole_keys(1_000, 200, 2, SEED)
        every: list[type[KeyedPeer]] = [Seqstore, *peers]
        yield from contest(site, script, {peer.name: peer for peer in every})

    found = run.run_workload(site, Workload("planted", "planted", prepare), run.Progresses())
    assert found is not None
    return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path / "work", TINY, seed=SEED) as site:
        yield site


# The short form leaves out what differs from others by numbers alone, and what all peers run together anyway.
_ALIKE = ("ycsb_a_1", "ycsb_b_1", "ycsb_b_8", "ycsb_e_1", "ycsb_f_1", "ycsb_f_8")
WITH_EVERY_PEER = ("ycsb_a_8", "small_loads_8")
FEW = [name for name in CONTESTS if not name.endswith("_64") and name not in (*_ALIKE, *WITH_EVERY_PEER)]


@pytest.mark.family(2)
@pytest.mark.parametrize("name", list(CONTESTS) if form() == ALL else FEW)
def test_all_that_take_part_end_right(site: Site, name: str) -> None:
    site.peers = ("sqlite", "duckdb-pk")
    [result] = run.run_workloads(site, [CONTESTS[name]]) or pytest.skip("the system lacks what it needs")
    assert_all_end_right(result)


@pytest.mark.long
@pytest.mark.parametrize("name", WITH_EVERY_PEER)
def test_every_peer_that_is_installed_serves_several_clients(site: Site, name: str) -> None:
    [result] = run.run_workloads(site, [CONTESTS[name]])
    assert_all_end_right(result)
    assert {"sqlite", "duckdb-pk"} & set(result["skipped"]) == set()
    assert all(why.startswith("not installed") for why in result["skipped"].values()), result["skipped"]


def assert_all_end_right(result: dict[str, Any]) -> None:
    """Nobody is wrong, and nobody stops before its end."""
    assert records.wrong_entries([result]) == [], f"seed {SEED}"
    assert all(entry["values"] and not entry["stopped"] for entry in records.contenders(result)), result
    assert result["ours"]["correct"] is not None


def test_a_peer_that_is_wrong_is_told_as_wrong(site: Site) -> None:
    result = result_with(site, Forgetful)
    assert result["ours"]["correct"] is True
    assert result["yardsticks"][0]["correct"] is False
    assert "forgetful" in records.wrong_entries([result])[0]
    assert "rows missing or with other values" in page.page(
        machine.commit_info(site.new_path("w").parent), [result]
    )


def test_a_peer_that_fails_ends_its_own_part_only(site: Site) -> None:
    result = result_with(site, Broken)
    assert result["ours"]["correct"] is True
    assert result["yardsticks"][0]["stopped"] == "failed: RuntimeError: planted"
    assert result["yardsticks"][0]["ratio"] is None


def test_a_peer_that_is_not_installed_is_named(site: Site) -> None:
    assert result_with(site, Missing)["skipped"] == {"missing": "not installed: pip install no_such_package"}


def test_a_peer_that_has_had_its_time_stops(site: Site) -> None:
    site.workload_seconds = 1e-9
    result = result_with(site, SqliteRows)
    assert result["yardsticks"][0]["stopped"].startswith("stopped after 1 rounds")
    assert result["yardsticks"][0]["correct"] is True
    assert len(result["ours"]["values"]) == 2


def test_a_torn_line_of_the_journal_counts_as_not_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path, {"seed": 1})
    first.add({"workload": "a", "stored_rows": 1})
    with path.open("a") as file:
        file.write('{"workload": "b", "sto')
    again = Journal(path, {"seed": 1})
    assert again.has("a", 1)
    assert not again.has("b", 1)
    again.add({"workload": "c", "stored_rows": 1})
    assert [r["workload"] for r in Journal(path, {"seed": 1}).results] == ["a", "c"]


@pytest.mark.parametrize("fresh", [False, True])
def test_another_order_begins_anew(tmp_path: Path, fresh: bool) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, {"seed": 1}).add({"workload": "a", "stored_rows": 1})
    assert Journal(path, {"seed": 1 if fresh else 2}, is_fresh=fresh).results == []


@pytest.mark.long
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    words = ["--quick", "--rows", "2000", "--peers", "sqlite", "--only", "cdc_1k", "cdc_100k", "lake_fact"]
    paths = [
        "--work",
        str(tmp_path / "w"),
        "--out",
        str(tmp_path / "r.json"),
        "--html",
        str(tmp_path / "r.html"),
    ]
    command = [sys.executable, "-m", "bench.run", *words, *paths]
    own = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / ".package"), str(ROOT)))}
    process = subprocess.Popen(command, cwd=ROOT, env=own, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    told = next(line for line in process.stderr if line.startswith("changes, 1k rows"))
    while not _journal_lines(tmp_path):  # the line stands there before the result is in the journal
        assert process.poll() is None, told
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = _journal_lines(tmp_path)
    again = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert f"{len(done)} results of a run before are kept" in again.stderr
    read = records.read_json(tmp_path / "r.json")
    assert [r["workload"] for r in read["results"]] == ["cdc_1k", "cdc_100k", "lake_fact"]
    assert read["results"][0] == done[0]
    assert not _journal_lines(tmp_path)
    assert not list((tmp_path / "w").glob("run-*"))


def _journal_lines(path: Path) -> list[dict[str, Any]]:
    try:
        lines = (path / "w" / "journal.jsonl").read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[1:] if line.endswith("\n")]
