"""Which points of the fault grid runs have met, by commit, in a file that one run after another goes on with.

A point is a file operation of a kind of work, by number, with a fault. Each is run once for a commit. Started
as a program it prints how many were run and how many are left.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.children import ROOT

PATH: Final = Path(os.environ.get("SEQSTORE_FAULTS", ROOT / ".faults.json"))


@dataclass
class Progress:
    """The points of one commit.

    Attributes:
        left: numbers that no run has met, by work and fault.
        done: how many were run, by work and fault.
        failed: work, fault, number, and what was wrong.
    """

    left: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    done: dict[str, dict[str, int]] = field(default_factory=dict)
    failed: list[list[Any]] = field(default_factory=list)

    def add(self, work: str, points: dict[str, list[int]]) -> None:
        """Adds a kind of work with its points, by fault; no-op for one that is there."""
        self.left.setdefault(work, {fault: sorted(numbers) for fault, numbers in points.items()})
        self.done.setdefault(work, dict.fromkeys(points, 0))

    def draw(self, chosen: random.Random) -> tuple[str, str, int] | None:
        """Draws a point that is left, every kind of work and every fault equally often; None without one."""
        pairs = [
            (work, fault)
            for work, faults in self.left.items()
            for fault, numbers in faults.items()
            if numbers
        ]
        if not pairs:
            return None
        work, fault = chosen.choice(pairs)
        return work, fault, chosen.choice(self.left[work][fault])

    def note(self, work: str, fault: str, number: int, found: list[str]) -> None:
        """Notes what came of a point."""
        self.left[work][fault].remove(number)
        self.done[work][fault] += 1
        if found:
            self.failed.append([work, fault, number, found])

    @property
    def left_count(self) -> int:
        return sum(len(numbers) for faults in self.left.values() for numbers in faults.values())

    @property
    def done_count(self) -> int:
        return sum(sum(faults.values()) for faults in self.done.values())

    def lines(self) -> Iterator[str]:
        """Yields figures by kind of work."""
        for work, faults in self.done.items():
            told = ", ".join(
                f"{fault} {count} of {count + len(self.left[work][fault])}" for fault, count in faults.items()
            )
            yield f"{work}: {told}"
        yield f"{self.done_count} points run, {self.left_count} left, {len(self.failed)} with faults"


@contextmanager
def progress_of(commit: str, path: Path = PATH) -> Iterator[tuple[Progress, Any]]:
    """Yields the progress of a commit, and the function that stores it; one process at a time has it.

    Raises:
        BlockingIOError: another run is at work.
    """
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stored = json.loads(path.read_text()) if path.exists() else {}
        progress = Progress(**stored.get(commit, {}))

        def store() -> None:
            stored[commit] = progress.__dict__
            written = path.with_suffix(".new")
            written.write_text(json.dumps(stored) + "\n")
            written.rename(path)

        try:
            yield progress, store
        finally:
            store()


def main() -> None:
    """Prints the figures of all commits."""
    stored = json.loads(PATH.read_text()) if PATH.exists() else {}
    for commit, found in stored.items():
        print("\n".join([commit, *Progress(**found).lines()]))


if __name__ == "__main__":
    main()
