"""A trial: one workload set up, its contenders run in turn, and what came out.

All contenders of a trial run once per round, one right after the other, in an order that changes from round
to round. What disturbs the machine for a moment so meets all of them, and the ratio of two contenders within
a round is steadier than either time. Reported is the median of those ratios, not the ratio of the medians.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

Measure = Literal["value", "rows_per_second", "ratio"]
_CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Goal:
    """What our engine is to reach.

    Attributes:
        text: for people.
        limit: in seconds or bytes (`value`, at most), rows a second (at least) or as a ratio (at most).
        measure: what the limit is for.
    """

    text: str
    limit: float
    measure: Measure


def _nothing(_: int) -> None:
    return None


@dataclass
class Contender:
    """Our engine, or a yardstick.

    Attributes:
        name: as shown.
        act: what is timed, given the round's number; a number it returns counts in place of the time it took.
        before, after: untimed steps around each round.
        check: findings on the end state, empty means right; None when there is no state to check.
        rounds: takes part in the first so many counted rounds; None means all.
        warms_up: takes part in the warm-up.
        goal: of our engine's ratio to this yardstick.
    """

    name: str
    act: Callable[[int], Any]
    before: Callable[[int], None] = _nothing
    after: Callable[[int], None] = _nothing
    check: Callable[[], list[str]] | None = None
    rounds: int | None = None
    warms_up: bool = True
    goal: Goal | None = None


@dataclass
class Trial:
    """A workload ready to run.

    Attributes:
        ours: our engine.
        yardsticks: what it is compared with.
        rounds, warmups: how often; rounds are numbered from 0, warm-ups first.
        rows: rows one round handles, None when that means nothing.
        goals: of our engine alone.
        unit: of the values.
    """

    ours: Contender
    yardsticks: list[Contender]
    rounds: int
    warmups: int = 1
    rows: int | None = None
    goals: Sequence[Goal] = ()
    unit: Literal["seconds", "bytes"] = "seconds"


@dataclass
class VersionMetrics:
    """What one contender did, a value per counted round.

    Attributes:
        values: seconds or bytes.
        cpu: seconds of processor time of this process, all threads; empty when `act` gave its own number.
        first: the very first run, warm-up included.
        findings: what is wrong with its end state; None when there is nothing to check.
    """

    name: str
    values: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    first: float | None = None
    findings: list[str] | None = None

    @property
    def median(self) -> float:
        return median(self.values)

    def ratio_to(self, other: VersionMetrics) -> float:
        """Median over the common rounds of this one's value through the other's."""
        pairs = zip(self.values, other.values, strict=False)
        return median(mine / theirs for mine, theirs in pairs)


@dataclass(frozen=True)
class Outcome:
    """A trial's figures, ours first, and how many cores other programs kept busy meanwhile."""

    figures: list[VersionMetrics]
    other_load: float | None


def run_trial(trial: Trial) -> Outcome:
    """Runs warm-ups and rounds, then checks every end state."""
    contenders = [trial.ours, *trial.yardsticks]
    figures = [VersionMetrics(contender.name) for contender in contenders]
    os.sync()  # what setting up left to be written is not to be paid for by the first rounds
    gc.collect()
    load = _LoadMeter()
    for number in range(trial.warmups + trial.rounds):
        for i in _turns(len(contenders), number):
            _run_once(contenders[i], figures[i], number, trial.warmups)
    other_load = load.read()
    for contender, figure in zip(contenders, figures, strict=True):
        figure.findings = contender.check() if contender.check else None
    return Outcome(figures, other_load)


def _turns(count: int, number: int) -> list[int]:
    turns = list(range(count))
    return turns[number % count :] + turns[: number % count]


def _run_once(contender: Contender, figures: VersionMetrics, number: int, warmups: int) -> None:
    counted = number - warmups
    if counted < 0 and not contender.warms_up:
        return
    if contender.rounds is not None and counted >= contender.rounds:
        return
    contender.before(number)
    cpu, started = time.process_time(), time.perf_counter()
    own = contender.act(number)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    contender.after(number)
    value = float(own) if isinstance(own, int | float) else seconds
    if figures.first is None:
        figures.first = value
    if counted >= 0:
        figures.values.append(value)
        if own is None:
            figures.cpu.append(cpu)


class _LoadMeter:
    """Cores that other programs of the machine kept busy since it was made."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._busy = _busy_seconds()
        self._own = _own_seconds()

    def read(self) -> float | None:
        """None where the machine does not tell."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        elapsed = time.perf_counter() - self._started
        return max(0.0, (busy - self._busy - (_own_seconds() - self._own)) / max(elapsed, 0.01))


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds() -> float | None:
    path = Path("/proc/stat")
    if not path.exists():
        return None
    user, nice, system, _, _, irq, softirq, *_ = map(int, path.read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / _CLOCK_TICKS
