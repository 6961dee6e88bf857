"""What a run has finished, on disk: a run that was killed goes on behind it.

A file of lines of JSON. The first says what was asked for and of which commit; a run that asks for anything
else begins anew. Each further line is the result of one workload at one size. A line that was cut off by the
end of the process counts as not written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Journal:
    """Opens the journal of a run, or begins it.

    Args:
        path: of the file.
        order: what was asked for, as plain JSON.
        is_fresh: begin anew whatever there is.

    Attributes:
        results: those that are already there.
    """

    def __init__(self, path: Path, order: dict[str, Any], *, is_fresh: bool = False) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        found = [] if is_fresh else _whole_lines(path)
        same = bool(found) and found[0].get("order") == json.loads(json.dumps(order))
        self.results: list[dict[str, Any]] = found[1:] if same else []
        lines = [{"order": order}, *self.results]
        new = path.with_name(path.name + ".new")
        new.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.replace(new, path)  # without a line that was cut off, for the next one would continue it

    def add(self, result: dict[str, Any]) -> None:
        """Writes a result; it is on disk when this returns."""
        with self._path.open("a") as file:
            file.write(json.dumps(result) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.results.append(result)

    def has(self, workload: str, stored_rows: int) -> bool:
        """Is a workload done at a size?"""
        return any((r["workload"], r["stored_rows"]) == (workload, stored_rows) for r in self.results)

    @property
    def seconds(self) -> float:
        """What the finished workloads took."""
        return float(sum(result.get("took_seconds", 0.0) for result in self.results))

    def end(self) -> None:
        """The run is complete: the next one begins anew."""
        self._path.unlink(missing_ok=True)


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    lines = []
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines
