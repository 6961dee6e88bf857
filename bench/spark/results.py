"""What the formats took, as results of the report: ours, Parquet files of our session, and the other formats.

Formats need Sparks of different versions, so their seconds do not compare. Where a session wrote or read
Parquet files of the same rows in turns with the format, the ratio of two formats is the ratio of what each
took beside its own files. A base and a deletion have no such files: their ratio is that of the seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, Final

_GROUP: Final = "Formats on Spark"
_OURS: Final = "seqstore"
# Steps of a session: title, the step with Parquet files beside it, and what other formats call the step.
_STEPS: Final = {
    "base": ("Spark: the base becomes a table", "", "base"),
    "upsert": ("Spark: upsert", "upsert as Parquet", "upsert"),
    "append": ("Spark: append", "append as Parquet", "append"),
    "delete": ("Spark: delete one row in twenty", "", "delete"),
    "read": ("Spark: read all columns", "read of Parquet", "read"),
    "read natively": ("Spark: read all columns by its own reader", "read of Parquet", "read"),
    "column": ("Spark: read one column", "column of Parquet", "column"),
    "column natively": ("Spark: read one column by its own reader", "column of Parquet", "column"),
}
_SETUPS: Final = {
    _OURS: "unique-key table with a sequence column",
    "delta": "MERGE and DELETE with deletion vectors",
    "hudi": "merge on read, bucket index",
    "paimon": "primary-key table of 8 buckets",
    "iceberg": "version 3, MERGE and DELETE on read with deletion vectors",
}
Session = dict[str, Any]


def results_of(sessions: Sequence[Session], rows: dict[str, int]) -> list[dict[str, Any]]:
    """Results for bench.report, empty without a session of ours.

    Args:
        sessions: one for each format, as bench.spark has them.
        rows: of the base, of a batch and of the append, by these names; the first is what is stored.
    """
    ours = next((session for session in sessions if session["format"] == _OURS), None)
    if ours is None:
        return []
    others = [session for session in sessions if session is not ours]
    sizes = {"base": rows["base"], "upsert": rows["batch"], "append": rows["append"]}
    return [
        _result(step, ours, others, rows["base"], sizes.get(step))
        for step in _STEPS
        if step in ours["seconds"]
    ]


def _result(
    step: str, ours: Session, others: Sequence[Session], stored: int, rows: int | None
) -> dict[str, Any]:
    title, plain, theirs = _STEPS[step]
    yardsticks = []
    if plain:
        files = _entry("Parquet files", ours["seconds"][plain], ours, "written or read by Spark alone")
        yardsticks.append({**files, "correct": None, "ratio": _beside(ours, step, plain)})
    yardsticks += [
        {
            **_entry(other["format"], other["seconds"][theirs], other, _SETUPS[other["format"]]),
            "ratio": _beside(ours, step, plain) / _beside(other, theirs, plain),
        }
        for other in others
        if theirs in other["seconds"]
    ]
    return {
        "workload": f"spark_{step.replace(' ', '_')}",
        "title": title,
        "group": _GROUP,
        "clients": None,
        "stored_rows": stored,
        "rows": rows,
        "unit": "seconds",
        "ours": _entry(_OURS, ours["seconds"][step], ours, _SETUPS[_OURS]),
        "goals": [],
        "yardsticks": yardsticks,
        "skipped": {},
        "other_load_cores": None,
        "setup_seconds": 0.0,
    }


def _beside(session: Session, step: str, plain: str) -> float:
    """What a step took: a median of ratios to its Parquet files, or of seconds where it has none."""
    taken: list[float] = session["seconds"][step]
    if not plain:
        return median(taken)
    files: list[float] = session["seconds"][plain]
    return median(a / b for a, b in zip(taken, files, strict=True))


def _entry(name: str, seconds: Sequence[float], session: Session, setup: str) -> dict[str, Any]:
    wrong = {"rows": session["wrong_rows"], "reads": session["wrong_reads"]}
    findings = [f"{count} {what} are wrong" for what, count in wrong.items() if count]
    return {
        "name": name,
        "median": median(seconds),
        "first": seconds[0],
        "values": list(seconds),
        "cpu": [],
        "settled": [],
        "written": [],
        "reads": [],
        "stopped": "",
        "correct": not findings,
        "findings": findings,
        "version": f"Spark {session['spark']}",
        "setup": setup,
        "is_durable": name == _OURS,
    }
