"""Charts are whole SVG documents whose marks stand where their values say."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from bench.report.charts import Axis, bar_chart, line_chart, number_text

SVG = "{http://www.w3.org/2000/svg}"


def marks(chart: str, name: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(chart).iter(SVG + name))


def test_log_axes_space_powers_of_ten_evenly() -> None:
    points = [(1e6, 0.01), (1e7, 0.1), (1e8, 1.0)]
    chart = line_chart("t", Axis("rows", is_log=True), Axis("s", is_log=True), {"ours": points})
    [line] = marks(chart, "polyline")
    places = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)


def test_lines_differ_in_colour_and_in_shape() -> None:
    series = {f"s{i}": [(1.0, i + 1.0), (2.0, i + 2.0)] for i in range(4)}
    chart = line_chart("t", Axis("x"), Axis("y"), series)
    light = re.findall(r"\.s\d\{stroke:(#\w+)\}", chart.partition("@media")[0])
    assert len(set(light)) == 4
    assert len(marks(chart, "circle")) == 3
    assert len({len(m.attrib["points"].split()) for m in marks(chart, "polygon")}) >= 2


def test_labels_never_cover_each_other() -> None:
    series = {f"s{i}": [(1.0, 1.0), (2.0, 1.0)] for i in range(10)}
    chart = line_chart("t", Axis("x"), Axis("y"), series)
    heights = sorted(float(t.attrib["y"]) for t in marks(chart, "text") if (t.text or "") in series)
    assert len(heights) == 10
    assert min(b - a for a, b in pairwise(heights)) >= 13.9


def test_a_chart_is_light_and_dark_and_has_a_name() -> None:
    chart = bar_chart("bytes & more", Axis("times"), {"ours": 2.0, "a<b": 4.0})
    assert "prefers-color-scheme:dark" in chart
    assert ElementTree.fromstring(chart).attrib["aria-label"] == "bytes & more"
    widths = [float(bar.attrib["width"]) for bar in marks(chart, "rect")[1:]]
    assert widths[1] == pytest.approx(2 * widths[0])


def test_a_chart_without_figures_says_so() -> None:
    for chart in (
        bar_chart("t", Axis("x"), {}),
        line_chart("t", Axis("x"), Axis("y", is_log=True), {"a": [(1, 0)]}),
    ):
        assert "no figures" in "".join(ElementTree.fromstring(chart).itertext())


@pytest.mark.parametrize(("value", "text"), [(1e6, "1M"), (2_500, "2.5k"), (0.001, "0.001"), (5e9, "5G")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert number_text(value) == text
