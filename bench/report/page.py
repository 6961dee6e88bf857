"""Results as one page that needs nothing else: no script, no other file, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.report import figures
from bench.report.records import contenders, duration, rate, times, wrong_entries
from bench.trials import machine as machines

Result = dict[str, Any]

_STYLE: Final = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:.5rem 0 1.5rem;font-size:.9rem}
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #8884}
th:first-child,td:first-child,.note{text-align:left}
tr.ours{font-weight:600}.wrong{color:#c62828;font-weight:600}
@media(prefers-color-scheme:dark){.wrong{color:#ff8a80}}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(24rem,1fr));gap:1rem}
svg{max-width:100%;height:auto}.small{font-size:.85rem;opacity:.8}
"""
_HEAD: Final = (
    "",
    "median",
    "rows/s",
    "ours / it",
    "waited behind",
    "read all",
    "written / byte",
    "end state",
)


def write_page(
    path: Path, machine: dict[str, Any], results: Sequence[Result], problems: Sequence[str] = ()
) -> None:
    """Writes the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(machine, results, problems))


def write_readme_charts(folder: Path, results: Sequence[Result]) -> list[Path]:
    """Writes the charts of the README; returns their files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, chart in figures.for_readme(results).items():
        (folder / name).write_text(chart + "\n")
        files.append(folder / name)
    return files


def page(machine: dict[str, Any], results: Sequence[Result], problems: Sequence[str] = ()) -> str:
    """The page's text."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>seqstore beside its peers</title><style>{_STYLE}</style>",
        "<h1>seqstore beside its peers</h1>",
        f"<p class=small>commit {escape(str(machine['commit']))}; {escape(machines.sentence(machine))}</p>",
        _how_to_read(),
        _problems([*wrong_entries(results), *problems]),
        _overview(results),
    ]
    for group in dict.fromkeys(result["group"] for result in results):
        parts.append(f"<h2>{escape(group)}</h2>")
        mine = [result for result in results if result["group"] == group]
        charts = [*figures.by_stored_rows(mine).values(), *figures.by_clients(mine).values()]
        parts += [_charts([figures.growth(mine), *charts])]
        parts += [_section(result) for result in mine]
    parts += [_peers(results), _limits(machine)]
    return "".join(parts) + "</html>\n"


def _how_to_read() -> str:
    return (
        "<p>All contenders do the same work on the same rows in turns. “ours / it” is the median over the "
        "rounds of our time through theirs: below 1 we are faster, above 1 they are. Every end state is "
        "compared with an oracle. “behind it” is what a store still did after its calls came back.</p>"
    )


def _problems(lines: Sequence[str]) -> str:
    if not lines:
        return "<p>Every end state that was read was right.</p>"
    listed = "".join(f"<li>{escape(line)}" for line in lines)
    return f"<h2>Problems</h2><ul class=wrong>{listed}</ul>"


def _overview(results: Sequence[Result]) -> str:
    """Where we lose, first of all."""
    lost = [
        (entry["ratio"], result, entry)
        for result in results
        for entry in result["yardsticks"]
        if entry["ratio"] is not None and entry["ratio"] > 1 and entry["correct"] is not False
    ]
    if not lost:
        return ""
    lines = "".join(
        f"<tr><td>{escape(result['title'])}, {result['stored_rows'] / 1e6:g} M rows"
        f"<td class=note>{escape(entry['name'])}<td>{times(ratio)}"
        for ratio, result, entry in sorted(lost, key=lambda each: -each[0])
    )
    return f"<h2>Where others are faster</h2><table><tr><th>workload<th>store<th>ours / it{lines}</table>"


def _section(result: Result) -> str:
    head = "".join(f"<th>{name}" for name in _HEAD)
    lines = "".join(_line(result, entry) for entry in contenders(result))
    lines += "".join(
        f"<tr><td>{escape(name)}<td colspan=7 class=note>left out: {escape(why)}"
        for name, why in result["skipped"].items()
    )
    several = any(len(entry["values"]) > 1 for entry in contenders(result))
    charts = [
        figures.medians(result) if result["unit"] == "seconds" else None,
        figures.over_time(result) if several and result["unit"] == "seconds" else None,
        figures.reads(result),
        figures.written_per_byte(result),
    ]
    load = result["other_load_cores"]
    busy = "" if load is None else f" Other programs kept {load:.1f} cores busy."
    return (
        f"<h3>{escape(result['title'])}, {result['stored_rows'] / 1e6:g} M stored rows</h3>"
        f"<p class=small>{escape(result['workload'])}.{busy}</p><table><tr>{head}{lines}</table>"
        f"{_charts(charts)}"
    )


def _line(result: Result, entry: Result) -> str:
    kind = " class=ours" if entry is result["ours"] else ""
    return f"<tr{kind}><td>{escape(entry['name'])}" + "".join(_cells(result, entry))


def _cells(result: Result, entry: Result) -> list[str]:
    value, rows = entry["median"], result["rows"]
    is_time = result["unit"] == "seconds"
    shown = "" if value is None else duration(value) if is_time else f"{value / 1e6:.0f} MB"
    speed = rate(rows / value) if rows and rows > 1 and value and is_time else ""
    given = entry.get("input_bytes") or 0
    cells = [
        shown + (f" <span class=small>({escape(entry['stopped'])})</span>" if entry["stopped"] else ""),
        speed,
        times(entry.get("ratio")),
        duration(median(entry["settled"])) if entry["settled"] and median(entry["settled"]) > 1e-4 else "",
        duration(median(entry["reads"])) if entry["reads"] else "",
        f"{sum(entry['written']) / given:.1f}" if given and sum(entry["written"]) else "",
    ]
    state = {
        None: "",
        True: "right",
        False: f"<span class=wrong>{escape('; '.join(entry['findings']))}</span>",
    }
    return [f"<td>{cell}" for cell in (*cells, state[entry["correct"]])]


def _charts(charts: Iterable[str | None]) -> str:
    drawn = [chart for chart in charts if chart is not None]
    return "<div class=charts>" + "".join(drawn) + "</div>" if drawn else ""


def _limits(machine: dict[str, Any]) -> str:
    """What the machine itself reached at the beginning of the run."""
    if "limits" not in machine:
        return ""
    lines = "".join(f"<tr><td>{escape(name)}<td>{value:.3g}" for name, value in machine["limits"].items())
    return f"<h2>Limits of the machine</h2><table>{lines}</table>"


def _peers(results: Sequence[Result]) -> str:
    """The contenders, with version and settings."""
    seen: dict[str, Result] = {}
    for result in results:
        for entry in contenders(result):
            if "setup" in entry:
                seen.setdefault(entry["name"], entry)
    if not seen:
        return ""
    lines = "".join(
        f"<tr><td>{escape(name)}<td class=note>{escape(str(entry['version']))}<td class=note>"
        f"{escape(entry['setup'])}<td class=note>{'yes' if entry['is_durable'] else 'no'}"
        for name, entry in sorted(seen.items())
    )
    head = "<tr><th>name<th class=note>version<th class=note>settings<th class=note>durable on return"
    return f"<h2>Contenders</h2><table>{head}{lines}</table>"
