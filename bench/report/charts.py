"""Charts as SVG text, each whole in itself: light and dark, labelled, told apart by colour and by shape.

A chart follows the reader's colour scheme by a style of its own, so it looks right in a page and in a README.
The colours are those of Okabe and Ito, which people with any colour vision can tell apart; lines have markers
of different shapes besides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

Points = Sequence[tuple[float, float]]

_COLOURS: Final = (
    ("#0072b2", "#56b4e9"),  # light, dark; the first is ours
    ("#d55e00", "#ff8c42"),
    ("#009e73", "#2fd6a8"),
    ("#cc79a7", "#e7a3c8"),
    ("#8a6d00", "#f0e442"),
    ("#5f5f5f", "#b8b8b8"),
    ("#56b4e9", "#9ad4f5"),
    ("#e69f00", "#ffc14d"),
    ("#6a3d9a", "#b79be0"),
    ("#1b7837", "#7fbf7b"),
)
_MARKERS: Final = ("circle", "square", "triangle", "diamond", "cross")
_WIDTH: Final = 720
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 150, 44, 52
_PLOT: Final = 280
_BAR: Final = 22
_LABEL_GAP: Final = 14
_LETTER: Final = 6.6  # the width of one, on average
_STYLE: Final = """
text{font:12px system-ui,sans-serif;fill:#222}.title{font-size:15px;font-weight:600}.axis{fill:#555}
.grid{stroke:#d7d7d7;stroke-width:1}.paper{fill:#fff}
"""
_DARK_STYLE: Final = "text{fill:#eee}.axis{fill:#aaa}.grid{stroke:#3a3f46}.paper{fill:#14171b}"


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: what is on it, with its unit.
        is_log: powers of ten are equally far apart.
    """

    label: str
    is_log: bool = False


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float
    is_log: bool

    def place(self, value: float) -> float:
        low, high, at = (self._flat(each) for each in (self.low, self.high, value))
        return self.start + (at - low) / ((high - low) or 1.0) * (self.end - self.start)

    def _flat(self, value: float) -> float:
        return math.log10(value) if self.is_log else value

    def ticks(self) -> list[float]:
        if not self.is_log:
            step = _round_step((self.high - self.low) / 5)
            first = math.ceil(self.low / step)
            return [step * (first + i) for i in range(7) if step * (first + i) <= self.high * 1.0001]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        powers = [10.0**power for power in range(first, last + 1)]
        ticks = self._within(powers)
        return (
            ticks if len(ticks) > 3 else self._within([tick * part for tick in powers for part in (1, 2, 5)])
        )

    def _within(self, ticks: Sequence[float]) -> list[float]:
        return [tick for tick in ticks if self.low * 0.999 <= tick <= self.high * 1.001]


def line_chart(title: str, across: Axis, up: Axis, series: Mapping[str, Points]) -> str:
    """Lines with a marker at each point and their name at their end.

    Args:
        series: points by name, at least one point each; the first one is drawn strongest. On a log axis
            points that are not above zero are left out.
    """
    kept = {name: _drawable(points, across, up) for name, points in series.items()}
    kept = {name: points for name, points in kept.items() if points}
    if not kept:
        return _empty(title)
    every = [point for points in kept.values() for point in points]
    right = _WIDTH - max(_RIGHT, 30 + _LETTER * max(map(len, kept)))
    x = _scale([point[0] for point in every], _LEFT, right, across)
    y = _scale([point[1] for point in every], _TOP + _PLOT, _TOP, up)
    parts = [_frame(x, y, across, up)]
    for number, points in enumerate(kept.values()):
        places = [(x.place(a), y.place(b)) for a, b in points]
        listed = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        width = 3 if number == 0 else 1.6
        parts.append(f'<polyline class="s{number}" points="{listed}" fill="none" stroke-width="{width}"/>')
        parts += [_marker(number, a, b) for a, b in places]
    ends = {name: y.place(points[-1][1]) for name, points in kept.items()}
    for number, (name, at) in enumerate(_apart(ends).items()):
        parts.append(_marker(number, right + 14, at))
        parts.append(f'<text x="{right + 24}" y="{at + 4:.1f}">{escape(name)}</text>')
    return _whole(title, _TOP + _PLOT + _BOTTOM, len(kept), parts)


def bar_chart(title: str, across: Axis, bars: Mapping[str, float]) -> str:
    """Lying bars with their figure behind them; the first one is ours."""
    bars = {name: value for name, value in bars.items() if value > 0}
    if not bars:
        return _empty(title)
    left, right = 130, _WIDTH - 70
    low = min(bars.values()) / 2 if across.is_log else 0.0
    scale = _Scale(low, max(bars.values()), left, right, across.is_log)
    parts = []
    for number, (name, value) in enumerate(bars.items()):
        top = _TOP + number * (_BAR + 8)
        width = max(scale.place(value) - left, 1.0)
        parts.append(f'<text x="{left - 8}" y="{top + 16}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="f{number}" x="{left}" y="{top}" width="{width:.1f}" height="{_BAR}"/>')
        parts.append(f'<text x="{left + width + 6:.1f}" y="{top + 16}">{number_text(value)}</text>')
    bottom = _TOP + len(bars) * (_BAR + 8) + 18
    parts.append(f'<text class="axis" x="{left}" y="{bottom}">{escape(across.label)}</text>')
    return _whole(title, bottom + 14, len(bars), parts)


def number_text(value: float) -> str:
    """A number for an axis: 3 digits, thousands and millions by a letter."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def _drawable(points: Points, across: Axis, up: Axis) -> list[tuple[float, float]]:
    return sorted((a, b) for a, b in points if (a > 0 or not across.is_log) and (b > 0 or not up.is_log))


def _scale(values: Sequence[float], start: float, end: float, axis: Axis) -> _Scale:
    low, high = min(values), max(values)
    if not axis.is_log:
        return _Scale(min(low, 0.0), high or 1.0, start, end, False)
    if low == high:
        low, high = low / 2, high * 2
    return _Scale(low / 1.15, high * 1.15, start, end, True)


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(part * power for part in (1, 2, 5, 10) if part * power >= step * 0.999) if step > 0 else 1.0


def _frame(x: _Scale, y: _Scale, across: Axis, up: Axis) -> str:
    bottom, right = _TOP + _PLOT, round(x.end)
    parts = []
    for tick in y.ticks():
        at = y.place(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        label = number_text(tick)
        parts.append(f'<text class="axis" x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    for tick in x.ticks():
        at = x.place(tick)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}"/>')
        label = number_text(tick)
        parts.append(f'<text class="axis" x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    middle = (_LEFT + right) / 2
    name = escape(across.label)
    parts.append(f'<text class="axis" x="{middle}" y="{bottom + 40}" text-anchor="middle">{name}</text>')
    half = _TOP + _PLOT / 2
    turn = f'transform="rotate(-90 18 {half})" text-anchor="middle"'
    parts.append(f'<text class="axis" x="18" y="{half}" {turn}>{escape(up.label)}</text>')
    return "".join(parts)


def _marker(number: int, x: float, y: float) -> str:
    shape = _MARKERS[number % len(_MARKERS)]
    if shape == "circle":
        return f'<circle class="f{number}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    corners = {
        "square": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        "triangle": ((0, -5), (5, 4), (-5, 4)),
        "diamond": ((0, -6), (5, 0), (0, 6), (-5, 0)),
        "cross": ((-5, -5), (0, -2), (5, -5), (2, 0), (5, 5), (0, 2), (-5, 5), (-2, 0)),
    }[shape]
    listed = " ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners)
    return f'<polygon class="f{number}" points="{listed}"/>'


def _apart(places: Mapping[str, float]) -> dict[str, float]:
    """Heights of labels, in the order given, so that none covers another."""
    order = sorted(places, key=lambda name: places[name])
    moved = {name: places[name] for name in order}
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + _LABEL_GAP)
    over = moved[order[-1]] - (_TOP + _PLOT + 8) if order else 0.0
    if over > 0:
        moved[order[-1]] -= over
        for below, above in pairwise(reversed(order)):
            moved[above] = min(moved[above], moved[below] - _LABEL_GAP)
    return {name: moved[name] for name in places}


def _empty(title: str) -> str:
    return _whole(title, _TOP + 40, 0, [f'<text x="{_LEFT}" y="{_TOP + 20}">no figures</text>'])


def _whole(title: str, height: float, count: int, parts: Sequence[str]) -> str:
    light, dark = (_series_style(count, shade) for shade in (0, 1))
    style = f"{_STYLE}{light}@media(prefers-color-scheme:dark){{{_DARK_STYLE}{dark}}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title><style>{style}</style>'
        f'<rect class="paper" width="{_WIDTH}" height="{height:.0f}"/>'
        f'<text class="title" x="14" y="26">{escape(title)}</text>{"".join(parts)}</svg>'
    )


def _series_style(count: int, shade: int) -> str:
    colours = [_COLOURS[number % len(_COLOURS)][shade] for number in range(count)]
    return "".join(f".s{i}{{stroke:{c}}}.f{i}{{fill:{c}}}" for i, c in enumerate(colours))
