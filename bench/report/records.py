"""Results as a JSON record and as a Markdown table."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from bench.engine.workload import Workload
from bench.trials.trial import Goal, Outcome, Trial, VersionMetrics

FORMAT: Final = 2
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
        has_goal = goal is not None and ratio is not None
        yardsticks.append({**entry, "goal": _goal_record(goal, ratio)} if has_goal else entry)
    return {
        "workload": workload.name,
        "title": workload.title,
        "group": workload.group,
        "clients": workload.clients,
        "stored_rows": stored,
        "rows": trial.rows,
        "unit": trial.unit,
        "ours": _figures_record(ours),
        "goals": [_goal_record(goal, _reached_figure(goal, ours, trial)) for goal in trial.goals],
        "yardsticks": yardsticks,
        "skipped": trial.skipped,
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
        "settled": figures.settled,
        "written": figures.written,
        "reads": figures.reads,
        "stopped": figures.stopped,
        "correct": None if figures.findings is None else not figures.findings,
        "findings": figures.findings or [],
        **figures.facts,
    }


def _reached_figure(goal: Goal, ours: VersionMetrics, trial: Trial) -> float:
    assert ours.median is not None
    if goal.measure == "rows_per_second":
        assert trial.rows is not None
        return trial.rows / ours.median
    return ours.median


def _goal_record(goal: Goal | None, figure: float | None) -> dict[str, Any]:
    assert goal is not None
    assert figure is not None
    reached = figure >= goal.limit if goal.measure == "rows_per_second" else figure <= goal.limit
    return {
        "text": goal.text,
        "limit": goal.limit,
        "measure": goal.measure,
        "figure": figure,
        "reached": reached,
    }


def contenders(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of all contenders, ours first."""
    return [result["ours"], *result["yardsticks"]]


def wrong_entries(results: Iterable[dict[str, Any]]) -> list[str]:
    """Who reached a wrong end state where, and in what way."""
    return [
        f"{result['workload']}: {entry['name']}: {finding}"
        for result in results
        for entry in contenders(result)
        if entry["correct"] is False
        for finding in entry["findings"]
    ]


def write_json(path: Path, machine: dict[str, Any], results: list[dict[str, Any]], **more: Any) -> None:
    """Writes a result file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    content = {"format": FORMAT, "machine": machine, **more, "results": results}
    new.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(new, path)


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
        right = yes_no(ours["correct"])
        lines.append(_line(title, figure, "", "", "", _texts(goals), _reached(goals), right))
        for entry in result["yardsticks"]:
            own = _figure(entry["median"], None, result["unit"])
            if entry["stopped"]:
                own = f"{own} ({entry['stopped']})"
            goals = [entry["goal"]] if "goal" in entry else []
            right = yes_no(entry["correct"])
            cells = (entry["name"], own, times(entry["ratio"]), _texts(goals), _reached(goals), right)
            lines.append(_line("", "", *cells))
        lines += [
            _line("", "", name, f"left out: {why}", *[""] * 4) for name, why in result["skipped"].items()
        ]
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _figure(value: float | None, rows: int | None, unit: str) -> str:
    if value is None:
        return ""
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


def times(ratio: float | None) -> str:
    """A ratio for people."""
    return "" if ratio is None else f"{ratio:.2f}x"


def _texts(goals: list[dict[str, Any]]) -> str:
    return ", ".join(goal["text"] for goal in goals)


def _reached(goals: list[dict[str, Any]]) -> str:
    return ", ".join(yes_no(goal["reached"]) for goal in goals)


def yes_no(value: bool | None) -> str:
    """A cell of a table; empty for None."""
    return "" if value is None else "yes" if value else "**no**"
