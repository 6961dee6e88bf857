"""Every workload, run tiny: the end states of our engine and of the peers are right, whatever it took."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import compare
from bench.engine import yardsticks
from bench.engine.growth import GROWTH
from bench.engine.site import Site, Sizes
from bench.engine.workloads import WORKLOADS
from bench.report import figures, records
from bench.report.records import contenders
from bench.run import run_workloads
from bench.trials import machine

TINY = Sizes(
    rows=1_000,
    small_rows=500,
    batch=400,
    small_batch=50,
    memory_batch=500,
    lookups=100,
    writer_loads=4,
    rounds_max=3,
    client_seconds=0.05,
    growth=(200, 500),
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, TINY, seed=11) as site:
        yield site


def run(site: Site, name: str, *, slow_peers: bool = False) -> dict[str, Any]:
    if not WORKLOADS[name].is_available():
        pytest.skip("this system does not tell what the workload measures")
    [result] = run_workloads(site, [WORKLOADS[name]], slow_peers=slow_peers)
    return result


@pytest.mark.family(5)
@pytest.mark.parametrize("name", WORKLOADS)
def test_end_states_equal_the_oracle(site: Site, name: str) -> None:
    result = run(site, name)
    assert result["ours"]["correct"] is True, result["ours"]["findings"]
    for yardstick in result["yardsticks"]:
        assert yardstick["correct"] is not False, (yardstick["name"], yardstick["findings"])
        assert yardstick["values"], yardstick["name"]
        assert yardstick["stopped"] is None, yardstick["name"]


@pytest.mark.parametrize(
    ("workload", "peer"),
    [("upsert_100k", "DuckDB ON CONFLICT, primary key"), ("partial_100k", "DuckDB UPDATE, primary key")],
)
def test_slow_peers_reach_the_same_state(site: Site, workload: str, peer: str) -> None:
    result = run(site, workload, slow_peers=True)
    correct = {entry["name"]: entry["correct"] for entry in result["yardsticks"]}
    assert correct[peer] is True
    if yardsticks.has_delta():
        assert correct["delta-rs MERGE (not synced)"] is True


def test_growth_is_measured_against_a_smaller_table(site: Site) -> None:
    names = [entry["name"] for entry in run(site, "upsert_100k")["yardsticks"]]
    assert "seqstore at 0.0005 M stored" in names


@pytest.mark.family(3)
@pytest.mark.parametrize("name", GROWTH)
def test_growth_workloads_reach_the_state_of_the_oracle_at_every_size(site: Site, name: str) -> None:
    [result] = run_workloads(site, [GROWTH[name]])
    every = contenders(result)
    assert [entry["base_rows"] for entry in every] == [1_000, 200, 500]
    assert [entry["findings"] for entry in every] == [[], [], []]
    assert all(entry["values"] for entry in every)


def test_growth_workloads_share_their_tables(site: Site) -> None:
    results = run_workloads(site, list(GROWTH.values()))
    assert all(entry["correct"] for result in results for entry in contenders(result))
    assert 'aria-label="Time by stored rows"' in (figures.growth(results) or "")


def test_workloads_that_share_a_state_do_not_disturb_each_other(site: Site) -> None:
    shared = [WORKLOADS[name] for name in ("lookup_1", "first_rows", "count", "lookup_10k", "scan")]
    for result in run_workloads(site, shared):
        assert [entry["stopped"] for entry in result["yardsticks"]] == [None] * len(result["yardsticks"])


def test_a_site_leaves_nothing_behind(tmp_path: Path) -> None:
    with Site(tmp_path, TINY, seed=11) as site:
        run(site, "lookup_1")
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_results_survive_json_and_come_out_as_a_table(site: Site, tmp_path: Path) -> None:
    commit_info = machine.commit_info(tmp_path)
    results = [run(site, "upsert_1k"), run(site, "scan")]
    path = tmp_path / "results" / "run.json"
    records.write_json(path, commit_info, results)
    read = records.read_json(path)
    assert read["results"] == results
    assert "2 cores" in machine.sentence({**commit_info, "cores": 2})
    lines = records.table(read["results"]).splitlines()
    assert len(lines) == 2 + sum(1 + len(result["yardsticks"]) for result in results)
    assert all(line.count("|") == lines[0].count("|") for line in lines)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="expected a result file of format"):
        records.read_json(path)


def test_comparison_shows_both_figures_and_both_ratios(site: Site) -> None:
    before = {"results": [run(site, "count")]}
    after = json.loads(json.dumps(before))
    after["results"][0]["ours"]["median"] *= 2
    after["results"][0]["yardsticks"][0]["ratio"] *= 2
    lines = compare.side_by_side(before, after).splitlines()
    assert "| 2.00x |" in lines[2]
    assert lines[3].startswith("|  |  |  |  | DuckDB, primary key |")
