"""The totals of all runs of `make histories`, by commit and form, in one file that they share.

A form is a mix of clients, or `interleaved`: one process then runs the transactions of a history in an order
that its seed draws. Started as a program it prints their sums; clients and one process are counted apart.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.support.children import ROOT
from tests.support.replays.client_histories import Mix, Outcome

PATH: Final = Path(os.environ.get("SEQSTORE_HISTORIES", ROOT / ".histories.json"))
INTERLEAVED: Final = "interleaved"
CLIENTS: Final = "all clients"
_SUMS: Final = ("histories", "transactions", "unknown", "kills", "stops")
Totals = dict[str, dict[str, dict[str, Any]]]


def read(path: Path = PATH) -> Totals:
    """Returns the totals by commit and mix."""
    found = json.loads(path.read_text()) if path.exists() else {}
    return {
        commit: mixes for commit, mixes in found.items() if all(isinstance(x, dict) for x in mixes.values())
    }


@contextmanager
def _changing(path: Path) -> Iterator[Totals]:
    """Lets one process after another change the totals; the file is whole at any moment."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        totals = read(path)
        yield totals
        written = path.with_suffix(".new")
        written.write_text(json.dumps(totals, indent=2) + "\n")
        written.rename(path)


def add(commit: str, mix: str, outcome: Outcome, path: Path = PATH) -> None:
    """Adds what came of a batch."""
    today = datetime.now(UTC).date().isoformat()
    with _changing(path) as totals:
        total = totals.setdefault(commit, {}).setdefault(mix, {"first day": today})
        for name in _SUMS:
            total[name] = total.get(name, 0) + getattr(outcome, name)
        total["with faults"] = total.get("with faults", 0) + len(outcome.faults)
        for name in ("seconds", "processor_seconds"):
            total[name] = round(total.get(name, 0) + getattr(outcome, name), 1)
        total["last day"] = today


def next_mix(totals: Totals, mixes: Mapping[str, Mix]) -> str:
    """Returns the mix that has got the least processor time for its weight, over all commits."""
    spent: dict[str, float] = defaultdict(float)
    for by_mix in totals.values():
        for name, total in by_mix.items():
            spent[name] += total["processor_seconds"]
    return min(mixes, key=lambda name: spent[name] / mixes[name].weight)


def lines(totals: Totals) -> Iterator[str]:
    """Yields the sums by form, and those of all clients."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    days = []
    for by_mix in totals.values():
        for mix, total in by_mix.items():
            days += [total["first day"], total["last day"]]
            for name in (*_SUMS, "with faults", "processor_seconds"):
                sums[mix][name] += total[name]
                if mix != INTERLEAVED:
                    sums[CLIENTS][name] += total[name]
    for mix, found in sorted(sums.items(), key=lambda each: (each[0] in (INTERLEAVED, CLIENTS), each[0])):
        rate = found["histories"] / found["processor_seconds"]
        told = ", ".join(f"{found[name]:,.0f} {name}" for name in (*_SUMS, "with faults"))
        yield f"{mix}: {told}; {rate:.1f} histories a second of processor time"
    if days:
        commits = ", ".join(commit[:10] for commit in totals)
        yield f"from {min(days)} to {max(days)}, commits {commits}"


if __name__ == "__main__":
    print("\n".join(lines(read())))
