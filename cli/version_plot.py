"""A table's versions drawn as bars: how many rows each brought, and what became of them.

1. Versions that changed no data (OPTIMIZE, ALTER) are left out; a table's other versions stay in their order.
2. More versions than lines are joined, neighbours with neighbours, equally many to a line.
3. A bar has a part for each fate of a row; the longest bar fills the width, and a fate that happened to one
   row at least has one character at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionInfo

_FATES: Final = ("won", "lost (late or repeated)", "filtered", "deleted")
_MARKS: Final = "█▒░─"
_ASCII_MARKS: Final = "#~x-"
_WIDTH_MIN: Final = 10


@dataclass(frozen=True)
class _Line:
    """One line of the plot: a version or some neighbours, and the rows of each fate."""

    heading: str
    counts: tuple[int, int, int, int]


def version_plot(versions: Sequence[VersionInfo], *, width: int, height: int, encoding: str = "utf-8") -> str:
    """Returns a plot, the oldest version first, with what its marks mean below.

    Args:
        versions: as `Table.history` returns them.
        width: characters of a line.
        height: lines for versions.
        encoding: of the place where it is shown; without block characters there, ASCII is used.
    """
    changes = [each for each in versions if each.has_data_change and any(_counts(each))]
    if not changes:
        return "no version of this table has loaded or deleted rows"
    size = -(-len(changes) // max(1, height))
    lines = [_line(changes[i : i + size]) for i in range(0, len(changes), size)]
    marks = _marks(encoding)
    headings = max(len(line.heading) for line in lines)
    numbers = max(len(f"{sum(line.counts):,}") for line in lines)
    room = max(_WIDTH_MIN, width - headings - numbers - 4)
    longest = max(sum(line.counts) for line in lines)
    drawn = []
    for line in lines:
        bar = _bar(line.counts, longest, room, marks)
        drawn.append(f"{line.heading:<{headings}}  {sum(line.counts):>{numbers},}  {bar}")
    meaning = ", ".join(f"{mark} {fate}" for mark, fate in zip(marks, _FATES, strict=True))
    return "\n".join([*drawn, f"rows: {meaning}"])


def _counts(version: VersionInfo) -> tuple[int, int, int, int]:
    metrics = version.metrics
    lost = metrics.rows_late + metrics.rows_too_late + metrics.rows_superseded
    return max(0, metrics.rows_loaded - lost), lost, metrics.rows_filtered, metrics.rows_deleted


def _line(versions: Sequence[VersionInfo]) -> _Line:
    first, last = versions[0], versions[-1]
    numbers = f"{first.version}" if first is last else f"{first.version}-{last.version}"
    name = f" {first.label or first.operation}" if first is last else f" {len(versions)} versions"
    won, lost, filtered, deleted = (sum(each) for each in zip(*map(_counts, versions), strict=True))
    heading = f"{first.timestamp:%Y-%m-%d %H:%M:%S}  {numbers}{name[:28]}"
    return _Line(heading, (won, lost, filtered, deleted))


def _bar(counts: Sequence[int], longest: int, room: int, marks: str) -> str:
    parts = [
        mark * max(1, round(count * room / longest))
        for mark, count in zip(marks, counts, strict=True)
        if count
    ]
    return "".join(parts)[:room]


def _marks(encoding: str) -> str:
    try:
        _MARKS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII_MARKS
    return _MARKS
