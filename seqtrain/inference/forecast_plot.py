"""Plots of forecasts: history, true values, median, and the bands around it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqtrain.data.values.fan import Fan, num_read
from seqtrain.files.atomic import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_FANS = 12  # in one plot; more would be illegible
PER_ROW = 3  # fans per row
HISTORY, FORECAST, TRUTH = "#555555", "#0072b2", "#d55e00"
LIGHTEST, DARKEST = 0.16, 0.5  # share of the forecast's colour in the widest and the narrowest band
FORMATS = {".png": "png", ".svg": "svg"}


def draw_fans(fans: Sequence[Fan], path: Path) -> list[str]:
    """Draw fans to a PNG or SVG file; several are drawn as small plots in a grid.

    Args:
        fans: The fans to draw, each below its title. Titles are plain text, not mathematics. Only the end of a long
            history is drawn, and only the first MAX_FANS fans.
        path: The file, which ends in .png or .svg.

    Returns:
        Messages on what was left out.

    Raises:
        OSError: If the file cannot be written.
        ValueError: If the file has another ending, or lengths do not agree.
    """
    from matplotlib.figure import Figure

    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path.name}: expected a name that ends in .png or .svg")
    drawn = fans[:MAX_FANS]
    columns = min(len(drawn), PER_ROW)
    rows = math.ceil(len(drawn) / columns)
    size = (8.0, 3.6) if len(drawn) == 1 else (4.2 * columns, 2.6 * rows + 0.3)
    # Without pyplot, which keeps each figure in memory and needs a display.
    figure = Figure(figsize=size, dpi=140, layout="constrained")
    for place, fan in enumerate(drawn, 1):
        axes = figure.add_subplot(rows, columns, place)
        _draw(fan, axes)
    # One legend for all, because all plots use the same colours.
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, loc="outside upper left", ncols=len(labels), frameon=False)
    _save(figure, path)
    return _left_out(fans, drawn)


def draw_small_fan(fan: Fan, path: Path) -> None:
    """Draw one fan to a small PNG file. Fast, because it runs at validations.

    Raises:
        OSError: If the file cannot be written.
        ValueError: If lengths do not agree.
    """
    from matplotlib.figure import Figure

    # Fixed margins: computing a layout takes five times as long as everything else.
    figure = Figure(figsize=(4.2, 2.3), dpi=100)
    figure.subplots_adjust(left=0.13, right=0.985, top=0.9, bottom=0.11)
    axes = figure.add_subplot()
    _draw(fan, axes)
    axes.tick_params(labelsize=7)
    # Above the axes, so that it hides no line.
    above = {"loc": "lower right", "bbox_to_anchor": (1.02, 0.97), "ncols": len(axes.get_legend_handles_labels()[1])}
    axes.legend(fontsize=6, frameon=False, handlelength=1.0, columnspacing=0.7, handletextpad=0.4, **above)
    _save(figure, path)


def _draw(fan: Fan, axes: Axes) -> None:
    from matplotlib.dates import ConciseDateFormatter

    shown = num_read(len(fan.times))
    axes.plot(fan.history_times[-shown:], fan.history[-shown:], color=HISTORY, lw=1, label="history")
    # The widest first, so that narrower bands are drawn over it; opaque, so that the legend shows the same shades.
    shares = sorted(fan.bands, reverse=True)
    for place, share in enumerate(shares):
        low, high = fan.bands[share]
        shade = _shade(place / max(len(shares) - 1, 1))
        axes.fill_between(fan.times, low, high, color=shade, lw=0, label=f"central {share:.0%}")
    axes.plot(fan.times, fan.median, color=FORECAST, lw=1.6, label="forecast")
    if fan.truth is not None:
        axes.plot(fan.times, fan.truth, color=TRUTH, lw=1, ls="--", label="truth")
    if np.issubdtype(fan.times.dtype, np.datetime64):
        axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))
    axes.axvline(fan.times[0], color=HISTORY, lw=0.5, ls=":")
    axes.set_title(fan.title, fontsize=8, loc="left", parse_math=False)


def _shade(depth: float) -> tuple[float, float, float]:
    """Mix the forecast's colour with white. `depth`: 0 is the lightest, 1 the darkest."""
    from matplotlib.colors import to_rgb

    amount = LIGHTEST + depth * (DARKEST - LIGHTEST)
    red, green, blue = to_rgb(FORECAST)
    return 1 - amount * (1 - red), 1 - amount * (1 - green), 1 - amount * (1 - blue)


def _save(figure: Figure, path: Path) -> None:
    with warnings.catch_warnings(), atomic(path) as file:
        warnings.simplefilter("ignore")  # about characters missing from the font
        figure.savefig(file, format=FORMATS[path.suffix.lower()])


def _left_out(fans: Sequence[Fan], drawn: Sequence[Fan]) -> list[str]:
    """Describe what the plot leaves out: a cropped history looks like a series that begins late."""
    words = []
    if len(fans) > len(drawn):
        words.append(f"{len(fans) - len(drawn):,} more columns or series")
    unseen = max(len(fan.history) - num_read(len(fan.times)) for fan in drawn)
    if unseen > 0:
        words.append(f"the first {unseen:,} values of the history")
    return words
