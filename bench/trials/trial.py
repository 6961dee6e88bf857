"""A trial: one workload set up, its contenders run in turn, and what came out.

All contenders of a trial run once per round, one right after the other, in an order that changes from round
to round. What disturbs the machine for a moment so meets all of them, and the ratio of two contenders within
a round is steadier than either time. Reported is the median of those ratios, not the ratio of the medians.

A yardstick that fails, or that has had its time, takes no further part; both is told. What a contender does
behind its calls, such as compaction, is waited for after each of them and told apart, so that it is not
paid for by the next in turn.
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
_IO: Final = Path("/proc/self/io")
_READS: Final = 3


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
        settle: waits for what goes on behind `act`.
        read: reads the end state, timed three times in turns.
        facts: more for the record, asked for at the end.
    """

    name: str
    act: Callable[[int], Any]
    before: Callable[[int], None] = _nothing
    after: Callable[[int], None] = _nothing
    check: Callable[[], list[str]] | None = None
    rounds: int | None = None
    warms_up: bool = True
    goal: Goal | None = None
    settle: Callable[[], None] | None = None
    read: Callable[[], object] | None = None
    facts: Callable[[], dict[str, Any]] | None = None


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
        skipped: who does not take part, and why.
        seconds_max: a yardstick that has taken so long takes no further part; None means no limit.
    """

    ours: Contender
    yardsticks: list[Contender]
    rounds: int
    warmups: int = 1
    rows: int | None = None
    goals: Sequence[Goal] = ()
    unit: Literal["seconds", "bytes"] = "seconds"
    skipped: dict[str, str] = field(default_factory=dict)
    seconds_max: float | None = None


@dataclass
class VersionMetrics:
    """What one contender did, a value per counted round.

    Attributes:
        values: seconds or bytes.
        cpu: seconds of processor time of this process, all threads; empty when `act` gave its own number.
        first: the very first run, warm-up included.
        findings: what is wrong with its end state; None when there is nothing to check.
        settled: seconds of what went on behind each counted call, where it can be waited for.
        written: bytes that the system was given to write in each counted round, that included.
        reads: seconds of each read of the end state.
        spent: seconds of all its calls.
        stopped: why it took no further part.
        facts: more for the record.
    """

    name: str
    values: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    first: float | None = None
    findings: list[str] | None = None
    settled: list[float] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    spent: float = 0.0
    stopped: str | None = None
    has_failed: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float | None:
        """None when no round counted."""
        return median(self.values) if self.values else None

    def ratio_to(self, other: VersionMetrics) -> float | None:
        """Median over the common rounds of this one's value through the other's."""
        pairs = list(zip(self.values, other.values, strict=False))
        return median(mine / theirs for mine, theirs in pairs) if pairs else None


@dataclass(frozen=True)
class Outcome:
    """A trial's figures, ours first, and how many cores other programs kept busy meanwhile."""

    figures: list[VersionMetrics]
    other_load: float | None


def run_trial(trial: Trial, told: Callable[[int, int], None] = lambda done, rounds: None) -> Outcome:
    """Runs warm-ups and rounds, reads and checks every end state.

    Args:
        told: hears after each round how many of how many are done.
    """
    contenders = [trial.ours, *trial.yardsticks]
    figures = [VersionMetrics(contender.name) for contender in contenders]
    os.sync()  # what setting up left to be written is not to be paid for by the first rounds
    gc.collect()
    load = _LoadMeter()
    every = trial.warmups + trial.rounds
    for number in range(every):
        for i in _turns(len(contenders), number):
            limit = trial.seconds_max if i else None
            _take_turn(contenders[i], figures[i], number, trial.warmups, limit)
        told(number + 1, every)
    for number in range(_READS):
        for i in _turns(len(contenders), number):
            _read(contenders[i], figures[i])
    other_load = load.read()
    for contender, figure in zip(contenders, figures, strict=True):
        _conclude(contender, figure)
    if figures[0].stopped is not None:
        raise RuntimeError(f"{figures[0].name}: {figures[0].stopped}")
    return Outcome(figures, other_load)


def _turns(count: int, number: int) -> list[int]:
    turns = list(range(count))
    return turns[number % count :] + turns[: number % count]


def _take_turn(
    contender: Contender, figures: VersionMetrics, number: int, warmups: int, limit: float | None
) -> None:
    if figures.stopped is not None:
        return
    if limit is not None and figures.spent > limit:
        figures.stopped = f"stopped after {len(figures.values)} rounds, it had its {limit:.0f} s"
        return
    with _Failures(figures):
        _run_once(contender, figures, number, warmups)


def _run_once(contender: Contender, figures: VersionMetrics, number: int, warmups: int) -> None:
    counted = number - warmups
    if counted < 0 and not contender.warms_up:
        return
    if contender.rounds is not None and counted >= contender.rounds:
        return
    contender.before(number)
    written = _written_bytes()
    cpu, started = time.process_time(), time.perf_counter()
    own = contender.act(number)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    settled = _seconds(contender.settle) if contender.settle else None
    written = _written_bytes() - written
    contender.after(number)
    figures.spent += seconds + (settled or 0.0)
    value = float(own) if isinstance(own, int | float) else seconds
    if figures.first is None:
        figures.first = value
    if counted >= 0:
        figures.values.append(value)
        figures.written.append(written)
        if settled is not None:
            figures.settled.append(settled)
        if own is None:
            figures.cpu.append(cpu)


def _read(contender: Contender, figures: VersionMetrics) -> None:
    if contender.read is not None and not figures.has_failed:
        with _Failures(figures):
            figures.reads.append(_seconds(contender.read))


def _conclude(contender: Contender, figures: VersionMetrics) -> None:
    """A state that a failure left half done is not checked: the failure says enough."""
    if figures.has_failed:
        return
    with _Failures(figures):
        figures.findings = contender.check() if contender.check else None
        figures.facts = contender.facts() if contender.facts else {}


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _written_bytes() -> int:
    """Bytes this process gave to the disk so far, background threads included; 0 where nobody counts them."""
    try:
        lines = _IO.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes")), 0)


class _Failures:
    """A contender's own error ends its part, not the run."""

    def __init__(self, figures: VersionMetrics) -> None:
        self._figures = figures

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, Exception):
            return False
        text = str(error).strip().partition("\n")[0][:300]
        self._figures.stopped = f"failed: {type(error).__name__}: {text}"
        self._figures.has_failed = True
        return True


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
