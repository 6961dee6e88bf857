"""Runs the workloads and reports.

python -m bench.run --rows 10_000_000 [--only NAME ...] [--peers all] [--out FILE]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from bench.engine.site import Site, Sizes
from bench.engine.workloads import WORKLOADS, Workload
from bench.report import records
from bench.trials import machine
from bench.trials.trial import run_trial

_HERE: Final = Path(__file__).parent


def run_workloads(
    site: Site, workloads: Sequence[Workload], *, slow_peers: bool = False
) -> list[dict[str, Any]]:
    """Runs some workloads on a site, telling its progress on standard error."""
    results = []
    for number, workload in enumerate(workloads, 1):
        _say(f"[{number}/{len(workloads)}] {workload.title}: ", end="")
        if not workload.is_available():
            _say("left out, this system does not tell what it needs")
            continue
        started = time.perf_counter()
        with workload.prepare(site, slow_peers) as trial:
            setup = time.perf_counter() - started
            outcome = run_trial(trial)
        result = records.result_record(workload, trial, outcome, stored=site.sizes.rows, setup_seconds=setup)
        results.append(result)
        _say(f"{_short(result)} ({time.perf_counter() - started:.0f} s)")
        for figures in outcome.figures:
            for finding in figures.findings or []:
                _say(f"    WRONG: {figures.name}: {finding}")
    return results


def _short(result: dict[str, Any]) -> str:
    if result["unit"] == "bytes":
        return f"{result['yardsticks'][0]['ratio']:.2f}x the batch"
    return records.duration(result["ours"]["median"])


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description="Measure seqstore beside its yardsticks."
    )
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[10_000_000], help="stored rows, one or several sizes"
    )
    parser.add_argument(
        "--only", choices=list(WORKLOADS), nargs="+", metavar="NAME", help=", ".join(WORKLOADS)
    )
    parser.add_argument(
        "--peers", choices=["default", "all"], default="default", help="all: the slow ones too"
    )
    parser.add_argument("--seed", type=int, default=20_261_121, help="of all rows")
    parser.add_argument("--work", type=Path, default=_HERE / "work", help="directory on the disk to measure")
    parser.add_argument("--out", type=Path, help="result file; default: a new one in bench/results")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 when an end state was wrong."""
    given = _arguments()
    given.work.mkdir(parents=True, exist_ok=True)
    found = machine.commit_info(given.work)
    _say(machine.sentence(found))
    chosen = [WORKLOADS[name] for name in given.only or WORKLOADS]
    results: list[dict[str, Any]] = []
    for rows in given.rows:
        with Site(given.work, Sizes(rows), given.seed) as site:
            _say(f"{rows:,} rows, seed {site.seed}")
            results += run_workloads(site, chosen, slow_peers=given.peers == "all")
    out = given.out or _HERE / "results" / f"run-{datetime.now():%Y-%m-%d-%H%M%S}.json"
    records.write_json(out, found, results)
    print(records.table(results))
    print(f"\n{machine.sentence(found)}")
    _say(f"written to {out}")
    is_right = all(entry["correct"] is not False for r in results for entry in (r["ours"], *r["yardsticks"]))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
