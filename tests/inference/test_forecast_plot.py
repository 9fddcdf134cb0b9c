"""The picture of a forecast shows what it is given, and says what it leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from seqtrain.data.values.fan import Fan, num_read
from seqtrain.inference.forecast_plot import MAX_FANS, draw_fans, draw_small_fan
from tests.support.pictures import saved_figures

HOURS = np.datetime64("2016-07-01T00") + np.arange(30)
MEDIAN = np.linspace(0.0, 1.0, 6)
FAN = Fan(
    history_times=HOURS[:24],
    history=np.sin(np.arange(24.0)),
    times=HOURS[24:],
    median=MEDIAN,
    bands={0.5: (MEDIAN - 1, MEDIAN + 1), 0.95: (MEDIAN - 3, MEDIAN + 3), 0.8: (MEDIAN - 2, MEDIAN + 2)},
    truth=MEDIAN + 0.3,
)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    return saved_figures(monkeypatch)


def test_a_fan_is_written_in_the_format_of_its_name(tmp_path: Path) -> None:
    for name, begins in (("fan.png", b"\x89PNG"), ("fan.SVG", b"<?xml")):
        assert draw_fans([FAN], tmp_path / name) == []
        assert (tmp_path / name).read_bytes().startswith(begins)
    with pytest.raises(ValueError, match=r"fan\.jpg: expected a name that ends in \.png or \.svg"):
        draw_fans([FAN], tmp_path / "fan.jpg")
    assert not (tmp_path / "fan.jpg").exists()


def test_history_truth_forecast_and_bands_are_where_the_numbers_are(tmp_path: Path, figures: list[Figure]) -> None:
    draw_fans([replace(FAN, title="OT $1 and $2")], tmp_path / "fan.png")
    (axes,) = figures[0].axes
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in axes.lines}
    assert np.array_equal(lines["history"], FAN.history)
    assert np.array_equal(lines["forecast"], MEDIAN)
    assert np.array_equal(lines["truth"], MEDIAN + 0.3)
    # From the widest to the narrowest, so that none hides another.
    widths = {part.get_label(): np.ptp(np.asarray(part.get_paths()[0].vertices)[:, 1]) for part in axes.collections}
    assert list(widths.items()) == [("central 95%", 7.0), ("central 80%", 5.0), ("central 50%", 3.0)]
    assert axes.get_title("left") == "OT $1 and $2"


def test_a_point_forecast_has_no_band(tmp_path: Path, figures: list[Figure]) -> None:
    draw_fans([replace(FAN, bands={}, truth=None)], tmp_path / "fan.png")
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["history", "forecast"]


def test_what_is_left_out_of_a_long_history_is_said(tmp_path: Path, figures: list[Figure]) -> None:
    long = np.arange(num_read(6) + 1234.0)
    fan = replace(FAN, history=long, history_times=long, times=np.arange(6) + long[-1] + 1)
    assert draw_fans([fan], tmp_path / "fan.png") == ["the first 1,234 values of the history"]
    assert np.asarray(figures[0].axes[0].lines[0].get_xdata())[0] == 1234


@pytest.mark.long
@pytest.mark.parametrize("count", [2, MAX_FANS + 3])
def test_all_columns_are_drawn_up_to_a_bound_and_the_rest_is_counted(
    count: int, tmp_path: Path, figures: list[Figure]
) -> None:
    fans = [replace(FAN, title=f"column {number}", median=MEDIAN + number) for number in range(count)]
    words = draw_fans(fans, tmp_path / "fan.png")
    drawn = min(count, MAX_FANS)
    assert words == ([] if count == drawn else [f"{count - drawn} more columns or series"])
    assert [axes.get_title("left") for axes in figures[0].axes] == [f"column {number}" for number in range(drawn)]
    for number, axes in enumerate(figures[0].axes):
        lines = {line.get_label(): np.asarray(line.get_ydata()) for line in axes.lines}
        assert np.array_equal(lines["forecast"], MEDIAN + number)
    assert len(figures[0].legends) == 1


def test_the_small_picture_shows_the_same_lines(tmp_path: Path, figures: list[Figure]) -> None:
    draw_small_fan(FAN, tmp_path / "small.png")
    draw_fans([FAN], tmp_path / "large.png")
    small, large = figures
    assert small.axes[0].get_legend_handles_labels()[1] == large.axes[0].get_legend_handles_labels()[1]
    assert (tmp_path / "small.png").stat().st_size < (tmp_path / "large.png").stat().st_size
