"""Prints two result files side by side.

    python -m bench.compare BEFORE.json AFTER.json

`times` is after through before: below 1 is faster. Times of two runs differ by what else the machine did;
where a yardstick was measured in both, the change of the ratio to it is the better witness.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from bench.report import records
from bench.trials import machine

_HEAD: Final = ("workload", "before", "after", "times", "yardstick", "ratio before", "ratio after")


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
                pair = [f"{ratios[entry['name']]:.2f}x", f"{entry['ratio']:.2f}x"]
                lines.append("| " + " | ".join(["", "", "", "", entry["name"], *pair]) + " |")
    return "\n".join(lines)


def _identity(result: dict[str, Any]) -> tuple[str, int]:
    return result["workload"], result["stored_rows"]


def _figure(value: float, result: dict[str, Any]) -> str:
    return f"{value / 1e6:.0f} MB" if result["unit"] == "bytes" else records.duration(value)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description="Two result files side by side."
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    given = parser.parse_args()
    before, after = records.read_json(given.before), records.read_json(given.after)
    print(f"before: {machine.sentence(before['machine'])}")
    print(f"after:  {machine.sentence(after['machine'])}\n")
    print(side_by_side(before, after))
    return 0


if __name__ == "__main__":
    sys.exit(main())
