"""What a repair has found and done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class TableReport:
    """What a repair did for one table.

    Attributes:
        name: `database.table`.
        outcome: `kept`, `rebuilt` or `left out`.
        versions: the first and the last readable version.
        rows: of the last one.
        findings: what was damaged, lost or added, a sentence each.
    """

    name: str
    outcome: str = "kept"
    versions: tuple[int, int] = (0, 0)
    rows: int = 0
    findings: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        if self.outcome == "left out":
            yield f"{self.name}: left out"
        else:
            first, last = self.versions
            yield f"{self.name}: {self.outcome}, versions {first} to {last}, {self.rows} rows"
        yield from (f"  {finding}" for finding in self.findings)


@dataclass
class RepairReport:
    """What a repair has found, and what it did unless it was a dry run.

    Attributes:
        fault: of the catalog; empty for a sound one, which stays as it is.
        is_done: the repaired catalog is in place.
        aside: the damaged data file, None if there was none.
        tables: by name.
        findings: about records that belong to no table, a sentence each.
    """

    fault: str = ""
    is_done: bool = False
    aside: Path | None = None
    tables: list[TableReport] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yields the report for people."""
        if not self.fault:
            yield "the catalog is sound, nothing to repair"
            return
        yield f"damage: {self.fault}"
        for table in self.tables:
            yield from table.lines()
        yield from self.findings
        if self.aside is not None:
            yield f"the damaged catalog was kept as {self.aside}"
        yield "the catalog was repaired" if self.is_done else "dry run: nothing was changed"
