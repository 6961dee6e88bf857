"""Results as a JSON record and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from bench.engine.workloads import Workload
from bench.trials.trial import Goal, Outcome, Trial, VersionMetrics

FORMAT: Final = 1
_HEAD: Final = ("workload", "seqstore", "yardstick", "its figure", "ratio", "goal", "reached", "correct")


def result_record(
    workload: Workload, trial: Trial, outcome: Outcome, *, stored: int, setup_seconds: float
) -> dict[str, Any]:
    """One workload's result, ready for JSON."""
    ours, *others = outcome.figures
    yardsticks = []
    for figures, contender in zip(others, trial.yardsticks, strict=True):
        ratio = ours.ratio_to(figures)
        goal = contender.goal
        entry = {**_figures_record(figures), "ratio": ratio}
        yardsticks.append(entry if goal is None else {**entry, "goal": _goal_record(goal, ratio)})
    return {
        "workload": workload.name,
        "title": workload.title,
        "stored_rows": stored,
        "rows": trial.rows,
        "unit": trial.unit,
        "ours": _figures_record(ours),
        "goals": [_goal_record(goal, _reached_figure(goal, ours, trial)) for goal in trial.goals],
        "yardsticks": yardsticks,
        "other_load_cores": outcome.other_load,
        "setup_seconds": setup_seconds,
    }


def _figures_record(figures: VersionMetrics) -> dict[str, Any]:
    return {
        "name": figures.name,
        "median": figures.median,
        "first": figures.first,
        "values": figures.values,
        "cpu": figures.cpu,
        "correct": None if figures.findings is None else not figures.findings,
        "findings": figures.findings or [],
    }


def _reached_figure(goal: Goal, ours: VersionMetrics, trial: Trial) -> float:
    if goal.measure == "rows_per_second":
        assert trial.rows is not None
        return trial.rows / ours.median
    return ours.median


def _goal_record(goal: Goal, figure: float) -> dict[str, Any]:
    reached = figure >= goal.limit if goal.measure == "rows_per_second" else figure <= goal.limit
    return {
        "text": goal.text,
        "limit": goal.limit,
        "measure": goal.measure,
        "figure": figure,
        "reached": reached,
    }


def write_json(path: Path, machine: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Writes a result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": FORMAT, "machine": machine, "results": results}, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a result file.

    Raises:
        ValueError: it is none.
    """
    content = json.loads(path.read_text())
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path}: expected a result file of format {FORMAT}")
    return content


def table(results: Iterable[dict[str, Any]]) -> str:
    """All results as one Markdown table: a line per workload, then one per yardstick."""
    lines = ["| " + " | ".join(_HEAD) + " |", "|" + " --- |" * len(_HEAD)]
    for result in results:
        ours = result["ours"]
        figure = _figure(ours["median"], result["rows"], result["unit"])
        goals = result["goals"]
        title = f"{result['title']}, {result['stored_rows'] / 1e6:g} M stored"
        right = _yes_no(ours["correct"])
        lines.append(_line(title, figure, "", "", "", _texts(goals), _reached(goals), right))
        for entry in result["yardsticks"]:
            own = _figure(entry["median"], None, result["unit"])
            goals = [entry["goal"]] if "goal" in entry else []
            ratio = f"{entry['ratio']:.2f}x"
            right = _yes_no(entry["correct"])
            lines.append(_line("", "", entry["name"], own, ratio, _texts(goals), _reached(goals), right))
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _figure(value: float, rows: int | None, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 1e6:.0f} MB"
    if rows is None or rows == 1:
        return duration(value)
    return f"{duration(value)} ({rate(rows / value)})"


def duration(seconds: float) -> str:
    """Seconds for people: three digits and a unit."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def rate(per_second: float) -> str:
    """Rows a second for people."""
    return f"{per_second / 1e6:.2f} M/s" if per_second >= 1e6 else f"{per_second / 1e3:.3g} k/s"


def _texts(goals: list[dict[str, Any]]) -> str:
    return ", ".join(goal["text"] for goal in goals)


def _reached(goals: list[dict[str, Any]]) -> str:
    return ", ".join(_yes_no(goal["reached"]) for goal in goals)


def _yes_no(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "**no**"
