"""Which charts a run's results give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from bench.report.charts import Axis, bar_chart, line_chart
from bench.report.records import contenders

Result = dict[str, Any]


def by_stored_rows(results: Iterable[Result]) -> dict[str, str]:
    """Charts of time by stored rows, by workload; for those that ran at several sizes."""
    charts = {}
    for name, group in _grouped(results).items():
        if len({result["stored_rows"] for result in group}) < 2 or group[0]["unit"] != "seconds":
            continue
        lines: dict[str, list[tuple[float, float]]] = {}
        for result in group:
            for entry in contenders(result):
                if entry["median"] is not None:
                    lines.setdefault(entry["name"], []).append((result["stored_rows"], entry["median"]))
        charts[name] = line_chart(
            group[0]["title"], Axis("stored rows", is_log=True), Axis("seconds", is_log=True), lines
        )
    return charts


def growth(results: Iterable[Result]) -> str | None:
    """Time by stored rows, a line for each workload that ran on tables of several sizes in turns."""
    lines = {
        result["title"]: [
            (entry["base_rows"], entry["median"] * 1e3)
            for entry in contenders(result)
            if entry["median"] is not None
        ]
        for result in results
        if "base_rows" in result["ours"]
    }
    if not lines:
        return None
    return line_chart(
        "Time by stored rows", Axis("stored rows", is_log=True), Axis("milliseconds", is_log=True), lines
    )


def over_time(result: Result) -> str:
    """The latency of each round, in the order of the rounds."""
    lines = {
        entry["name"]: [(number, value * 1e3) for number, value in enumerate(entry["values"], 1)]
        for entry in contenders(result)
    }
    return line_chart(f"{result['title']}: each round", Axis("round"), Axis("ms", is_log=True), lines)


def by_clients(results: Iterable[Result]) -> dict[str, str]:
    """Charts of throughput by clients, by workload without their number."""
    families: dict[str, list[Result]] = {}
    for result in results:
        if result["clients"] is not None:
            families.setdefault(result["workload"].rpartition("_")[0], []).append(result)
    charts = {}
    for family, group in families.items():
        lines: dict[str, list[tuple[float, float]]] = {}
        for result in sorted(group, key=lambda each: int(each["clients"])):
            for entry in contenders(result):
                if entry["median"]:
                    lines.setdefault(entry["name"], []).append((result["clients"], 1 / entry["median"]))
        title = group[0]["title"].rpartition(",")[0]
        up = Axis("operations a second", is_log=True)
        charts[family] = line_chart(title, Axis("clients", is_log=True), up, lines)
    return charts


def written_per_byte(result: Result) -> str | None:
    """Bytes written for each byte given; None where the system did not count them."""
    bars = {
        entry["name"]: sum(entry["written"]) / entry["input_bytes"]
        for entry in contenders(result)
        if entry.get("input_bytes") and sum(entry["written"])
    }
    title = f"{result['title']}: bytes written a byte loaded"
    return bar_chart(title, Axis("times"), bars) if bars else None


def medians(result: Result) -> str:
    """The contenders' medians as bars on a log axis."""
    bars = {entry["name"]: entry["median"] * 1e3 for entry in contenders(result) if entry["median"]}
    return bar_chart(f"{result['title']}: median", Axis("ms, each step ten times", is_log=True), bars)


def reads(result: Result) -> str | None:
    """What reading all of the end state takes; None where it was not measured."""
    bars = {entry["name"]: median(entry["reads"]) * 1e3 for entry in contenders(result) if entry["reads"]}
    title = f"{result['title']}: reading the end state"
    return bar_chart(title, Axis("ms, each step ten times", is_log=True), bars) if bars else None


def for_readme(results: Iterable[Result]) -> Mapping[str, str]:
    """The two charts of the README, by file name; those that the results have figures for."""
    found = list(results)
    sizes = by_stored_rows(found)
    clients = by_clients(found)
    chosen = {
        "bench-growth.svg": growth(found) or sizes.get("cdc_100k") or next(iter(sizes.values()), None),
        "bench-clients.svg": clients.get("ycsb_a") or next(iter(clients.values()), None),
    }
    return {name: chart for name, chart in chosen.items() if chart is not None}


def _grouped(results: Iterable[Result]) -> dict[str, list[Result]]:
    grouped: dict[str, list[Result]] = {}
    for result in results:
        grouped.setdefault(result["workload"], []).append(result)
    return grouped
