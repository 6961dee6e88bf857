"""Runs workloads and reports: `python -m bench.run`, `--quick` for a small form of all of them.

A run that was killed goes on where it was when it is started again with the same arguments on the same
commit; `--fresh` begins anew. It ends in the time it is given (`--minutes`): workloads share what is left,
and so do the contenders of each. Exit code 1: an end state was wrong, or our engine failed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench.contests.catalog import CONTESTS
from bench.engine.growth import GROWTH
from bench.engine.site import Site, Sizes
from bench.engine.workload import Workload
from bench.engine.workloads import WORKLOADS
from bench.limits.measure import limits
from bench.peers.catalog import PEERS
from bench.report import page, records
from bench.trials import machine
from bench.trials.journal import Journal
from bench.trials.trial import run_trial

EVERY: Final = {**WORKLOADS, **GROWTH, **CONTESTS}
_USUAL: Final = [name for name, workload in EVERY.items() if workload.is_usual]
_HERE: Final = Path(__file__).parent
_FULL: Final = Sizes(1_000_000)
_QUICK: Final = Sizes(
    rows=50_000,
    small_rows=10_000,
    batch=10_000,
    memory_batch=50_000,
    lookups=1_000,
    writer_loads=8,
    rounds_max=5,
    client_seconds=0.3,
    operations_rows=5_000,
    scale=0.01,
    flights=5_000,
)
# Starting them takes longer than a quick run has.
_NOT_QUICK: Final = ("pyiceberg", "lance", "clickhouse")
_ROW_BYTES: Final = 130  # of an order and its entry in the index, with some room
_LIMITS_ROWS_MAX: Final = 10_000_000
_USED_SHARE: Final = 0.6  # of a workload's time; the rest is for setting up and checking


class Progresses:
    """Two bars on standard error: workloads, and the rounds of the present one; a line for each result."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
        self._all: TaskID = self._bars.add_task("workloads", total=None)
        self._rounds: TaskID = self._bars.add_task("", total=None, visible=False)

    def begin(self, count: int) -> None:
        self._bars.update(self._all, total=count, completed=0)

    def workload(self, title: str) -> None:
        self._bars.reset(self._rounds, description=f"{title}, setting up", visible=True, total=None)
        self._title = title

    def round(self, done: int, rounds: int) -> None:
        self._bars.update(self._rounds, description=self._title, completed=done, total=rounds)

    def done(self) -> None:
        self._bars.update(self._rounds, visible=False)
        self._bars.advance(self._all)

    def say(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Progresses:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def run_workloads(
    site: Site,
    workloads: Sequence[Workload],
    *,
    slow_peers: bool = False,
    progress: Progresses | None = None,
) -> list[dict[str, Any]]:
    """Runs some workloads on a site; those that the system lacks something for are left out."""
    shown = progress or Progresses()
    return [
        result
        for workload in workloads
        if (result := run_workload(site, workload, shown, slow_peers=slow_peers)) is not None
    ]


def run_workload(
    site: Site, workload: Workload, progress: Progresses, *, slow_peers: bool = False
) -> dict[str, Any] | None:
    """Runs one workload; None where the system lacks what it needs."""
    if not workload.is_available():
        progress.say(f"{workload.title}: left out, the system lacks what it needs")
        progress.done()
        return None
    progress.workload(workload.title)
    started = time.perf_counter()
    with workload.prepare(site, slow_peers) as trial:
        setup = time.perf_counter() - started
        outcome = run_trial(trial, progress.round)
    result = records.result_record(workload, trial, outcome, stored=site.sizes.rows, setup_seconds=setup)
    result["took_seconds"] = time.perf_counter() - started
    progress.say(f"{workload.title}: {_short(result)} ({result['took_seconds']:.0f} s)")
    for line in records.wrong_entries([result]):
        progress.say(f"    WRONG: {line}")
    for entry in result["yardsticks"]:
        if entry["stopped"]:
            progress.say(f"    {entry['name']} {entry['stopped']}")
    progress.done()
    return result


def _short(result: dict[str, Any]) -> str:
    if result["unit"] == "bytes":
        return f"{result['yardsticks'][0]['ratio']:.2f}x the batch"
    return records.duration(result["ours"]["median"])


def run_all(
    given: argparse.Namespace, sizes: Sequence[Sizes], journal: Journal, progress: Progresses
) -> list[str]:
    """Runs what the journal does not have yet; returns what failed, or found no time."""
    open_work = [
        (size, EVERY[name])
        for size in sizes
        for name in given.only or _USUAL
        if not journal.has(name, size.rows)
    ]
    if journal.results:
        progress.say(f"{len(journal.results)} results of a run before are kept; --fresh begins anew")
    progress.begin(len(open_work))
    ends = time.monotonic() + given.minutes * 60 - journal.seconds
    problems: list[str] = []
    for size in sizes:
        mine = [workload for each, workload in open_work if each is size]
        if not mine:
            continue
        with Site(given.work, size, given.seed, peers=given.peers) as site:
            progress.say(f"{size.rows:,} rows, seed {site.seed}")
            for workload in mine:
                left = ends - time.monotonic()
                if left <= 0:
                    problems.append(f"{workload.name} at {size.rows:,} rows: left out, no time was left")
                    continue
                site.workload_seconds = left / (len(open_work)) * _USED_SHARE
                try:
                    result = run_workload(site, workload, progress, slow_peers=given.slow)
                except Exception as error:  # the others are worth knowing all the same
                    problems.append(f"{workload.name}: {type(error).__name__}: {error}")
                    progress.say(f"FAILED {problems[-1]}")
                else:
                    if result is not None:
                        journal.add(result)
                open_work.pop(0)
    return problems


@contextlib.contextmanager
def sole_run(work: Path) -> Iterator[None]:
    """Keeps a second run out of the directory, and removes what a killed one left there.

    Raises:
        SystemExit: another run is at work there.
    """
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another run is at work in {work}; wait for it, or name another directory: --work")
        for left in work.glob("run-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.run", description="Measure seqstore beside its yardsticks and peers."
    )
    parser.add_argument("--quick", action="store_true", help="a small form of all of it, in five minutes")
    parser.add_argument("--rows", type=int, nargs="+", help="stored rows, one or several sizes")
    parser.add_argument("--only", choices=list(EVERY), nargs="+", metavar="NAME", help=", ".join(EVERY))
    parser.add_argument("--peers", choices=list(PEERS), nargs="+", metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--slow", action="store_true", help="slow yardsticks of the engine's workloads too")
    parser.add_argument("--growth-segment-rows", type=int, help="rows of a segment, of the growth workloads")
    parser.add_argument("--minutes", type=float, help="what the run may take; default: 40, quick 4.5")
    parser.add_argument("--fresh", action="store_true", help="forget what a killed run had finished")
    parser.add_argument("--seed", type=int, default=20_261_121, help="of all rows")
    parser.add_argument("--work", type=Path, default=_HERE / "work", help="directory on the disk to measure")
    parser.add_argument("--out", type=Path, help="result file; default: a new one in bench/results")
    parser.add_argument("--html", type=Path, default=_HERE / "report" / "index.html", help="the page")
    given = parser.parse_args(words)
    given.minutes = given.minutes or (4.5 if given.quick else 40.0)
    if given.quick and given.peers is None:
        given.peers = [name for name in PEERS if name not in _NOT_QUICK]
    return given


def _sizes(given: argparse.Namespace) -> list[Sizes]:
    plain = _QUICK if given.quick else _FULL
    chosen = given.growth_segment_rows
    large = {"segment_rows": chosen, "segment_bytes_max": chosen * _ROW_BYTES} if chosen else {}
    return [replace(plain, rows=rows, growth_settings=large) for rows in given.rows or [plain.rows]]


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 1 when an end state was wrong or our engine failed."""
    given = _arguments(words)
    sizes = _sizes(given)
    with sole_run(given.work), Progresses() as progress:
        found = machine.commit_info(given.work)
        progress.say(machine.sentence(found))
        order = {
            "sizes": [size.__dict__ for size in sizes],
            "only": given.only,
            "peers": given.peers,
            "slow": given.slow,
            "seed": given.seed,
            "commit": found["commit"],
        }
        journal = Journal(given.work / "journal.jsonl", order, is_fresh=given.fresh)
        smallest = min(size.rows for size in sizes)
        found["limits"] = limits(given.work, min(smallest, _LIMITS_ROWS_MAX), given.seed)
        problems = run_all(given, sizes, journal, progress)
        results = sorted(journal.results, key=lambda result: list(EVERY).index(result["workload"]))
        out = given.out or _HERE / "results" / f"run-{datetime.now():%Y-%m-%d-%H%M%S}.json"
        records.write_json(out, found, results, problems=problems)
        journal.end()
        page.write_page(given.html, found, results, problems)
        wrong = records.wrong_entries(results)
        for line in (*wrong, *problems):
            progress.say(f"PROBLEM {line}")
        progress.say(f"written to {out} and {given.html}")
    print(records.table(results))
    print(f"\n{machine.sentence(found)}")
    return 1 if wrong or problems else 0


if __name__ == "__main__":
    sys.exit(main())
