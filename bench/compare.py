"""Compares two commits, or two result files.

    python -m bench.compare A B                       two commits; `make bench-compare A=.. B=..`
    python -m bench.compare BEFORE.json AFTER.json    two result files side by side

Of two commits the engine's sources are checked out beside this tree, and the benchmark of this tree runs
both, in turns of a process each. The verdict of a workload rests on the ratios of the turns (see
`bench.trials.verdict`). Exit code 3: a workload lost a tenth.

Of two files, `times` is after through before: below 1 is faster. Times of two runs differ by what else the
machine did; where a yardstick was measured in both, the change of the ratio to it is the better witness.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.report import records
from bench.trials import machine
from bench.trials.verdict import Verdict, verdict

_ROOT: Final = Path(__file__).parents[1]
_HEAD: Final = ("workload", "before", "after", "times", "yardstick", "ratio before", "ratio after")
_LOST_CODE: Final = 3
DEFAULT: Final = ("cdc_1k", "cdc_100k", "cdc_partial_1", "cdc_text_keys", "lake_fact", "scan", "lookup_10k")


def side_by_side(before: dict[str, Any], after: dict[str, Any]) -> str:
    """A Markdown table of the workloads that both files have."""
    earlier = {_identity(result): result for result in before["results"]}
    lines = ["| " + " | ".join(_HEAD) + " |", "|" + " --- |" * len(_HEAD)]
    for result in after["results"]:
        old = earlier.get(_identity(result))
        if old is None:
            continue
        title = f"{result['title']}, {result['stored_rows'] / 1e6:g} M stored"
        old_median, new_median = old["ours"]["median"], result["ours"]["median"]
        figures = [_figure(old_median, old), _figure(new_median, result), f"{new_median / old_median:.2f}x"]
        lines.append("| " + " | ".join([title, *figures, "", "", ""]) + " |")
        ratios = {entry["name"]: entry["ratio"] for entry in old["yardsticks"]}
        for entry in result["yardsticks"]:
            if entry["name"] in ratios:
                pair = [records.times(ratios[entry["name"]]), records.times(entry["ratio"])]
                lines.append("| " + " | ".join(["", "", "", "", entry["name"], *pair]) + " |")
    return "\n".join(lines)


def _identity(result: dict[str, Any]) -> tuple[str, int]:
    return result["workload"], result["stored_rows"]


def _figure(value: float, result: dict[str, Any]) -> str:
    return f"{value / 1e6:.0f} MB" if result["unit"] == "bytes" else records.duration(value)


def compare_commits(
    before: str, after: str, names: Sequence[str], *, turns: int, rows: int
) -> dict[str, Verdict]:
    """Runs two commits in turns; the verdict of each workload.

    Raises:
        subprocess.CalledProcessError: a commit is unknown, or a turn failed; its output says why.
    """
    ratios: dict[str, list[float]] = {name: [] for name in names}
    with sources(before) as old, sources(after) as new:
        for number in range(turns):
            pair = {}
            for tree in (old, new) if number % 2 == 0 else (new, old):
                pair[tree] = take_turn(tree, names, rows=rows)
            print(f"turn {number + 1} of {turns}", file=sys.stderr, flush=True)
            for name in names:
                ratios[name].append(pair[new][name] / pair[old][name])
    return {name: verdict(found) for name, found in ratios.items()}


@contextlib.contextmanager
def sources(commit: str) -> Iterator[Path]:
    """The sources of a commit in a directory of their own."""
    place = Path(tempfile.mkdtemp(prefix="bench-compare-"))
    tree = place / "tree"
    git = ["git", "-C", str(_ROOT), "worktree"]
    try:
        subprocess.run([*git, "add", "--detach", "--quiet", str(tree), commit], check=True)
        yield tree
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=False, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)


def take_turn(tree: Path, names: Sequence[str], *, rows: int) -> dict[str, float]:
    """The medians of a turn of the engine of a tree, by the benchmark of this one."""
    work = _ROOT / "bench" / "work" / "compare"
    command = [sys.executable, "-m", "bench.trials.turn", str(work), "--rows", str(rows), "--only", *names]
    paths = os.pathsep.join((str(tree / ".package"), str(_ROOT)))
    # The working directory comes first of all: in the tree, that tree's own benchmark would run.
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": paths},
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    if not Path(answer["sources"]).is_relative_to(tree):
        raise RuntimeError(f"expected the engine of {tree}, found that of {answer['sources']}")
    medians: dict[str, float] = answer["medians"]
    return medians


def verdict_table(before: str, after: str, verdicts: dict[str, Verdict]) -> str:
    """The verdicts as Markdown."""
    lines = [
        f"`{after}` beside `{before}`, in turns; below 1x is faster.",
        "",
        "| workload | after / before | 95 % interval | verdict |",
        "| --- | --- | --- | --- |",
    ]
    for name, found in verdicts.items():
        word = f"**{found.word}**" if found.word == "lost" else found.word
        lines.append(f"| `{name}` | {found.ratio:.2f}x | {found.low:.2f} to {found.high:.2f} | {word} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 3 when a workload lost a tenth."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description="Two commits in turns, or two result files side by side."
    )
    parser.add_argument("before", help="a commit or a result file")
    parser.add_argument("after", help="the same")
    parser.add_argument("--only", nargs="+", default=list(DEFAULT), metavar="NAME", help="workloads")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rows", type=int, default=100_000, help="stored rows")
    given = parser.parse_args(words)
    if given.before.endswith(".json") and given.after.endswith(".json"):
        before, after = records.read_json(Path(given.before)), records.read_json(Path(given.after))
        print(f"before: {machine.sentence(before['machine'])}")
        print(f"after:  {machine.sentence(after['machine'])}\n")
        print(side_by_side(before, after))
        return 0
    verdicts = compare_commits(given.before, given.after, given.only, turns=given.turns, rows=given.rows)
    print(verdict_table(given.before, given.after, verdicts))
    return _LOST_CODE if any(found.word == "lost" for found in verdicts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
