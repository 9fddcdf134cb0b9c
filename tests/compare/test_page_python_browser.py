"""The figure that `seqtrain.compare(...).plot()` gives is what the page draws of a metric in a real Chromium."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import seqtrain
from tests.support import pages
from tests.support.chromium import MARKS, browser, tab, written

FIXTURES = (browser, tab)  # pytest finds them by their names here
pytestmark = MARKS

DRAWN = """document.querySelector('#curves-plot').data.map(each => ({
  x: each.x, y: each.y, text: each.text, line: each.line, fill: each.fill, fillcolor: each.fillcolor, mode: each.mode,
  marker: each.marker, hovertemplate: each.hovertemplate, hoverinfo: each.hoverinfo,
}))"""


def equal(one: Any, other: Any) -> bool:
    """Whether both are the same, numbers up to the last digits of a mean."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, float | int) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-12)
    return one == other


@pytest.mark.parametrize("axis", ["steps", "tokens", "seconds", "flops"])
def test_the_figure_in_python_is_that_of_the_page_trace_by_trace(tab: Any, tmp_path: Path, axis: str) -> None:
    pages.sweep(tmp_path / "sweep", records=900)  # more points than are drawn
    for number in range(26):  # more variants than there are styles
        pages.run(tmp_path / f"{number:02d}", dim=64 + 8 * number, records=20, validations=2)
    for metric in ("validation/bits_per_byte", "train/loss"):
        reader = tab().open(written(tmp_path, "report.html"))
        reader.choose("axis", axis)
        reader.choose("metric", metric)
        reader.page.check("#alone")  # a figure has the one metric that it was asked for
        reader.page.evaluate("last")  # what was chosen is drawn
        figure = seqtrain.compare(tmp_path).plot(metric, x=axis).to_plotly_json()["data"]
        drawn = reader.page.evaluate(DRAWN)
        assert len(figure) == len(drawn)
        for ours, theirs in zip(figure, drawn, strict=True):
            differing = [
                name for name, value in theirs.items() if value is not None and not equal(ours.get(name), value)
            ]
            assert differing == []
