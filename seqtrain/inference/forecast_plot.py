"""A forecast as a picture: what was, what came, the median and the bands around it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped

from seqtrain.files.atomic import atomic

MAX_HISTORY = 1000  # values: more would leave no room for the forecast
HISTORY, FORECAST, TRUTH = "#555555", "#0072b2", "#d55e00"
FORMATS = {".png": "png", ".svg": "svg"}


@dataclass(frozen=True)
class Fan:
    """One channel's history and forecast; NaN where a value is missing."""

    history_times: Shaped[np.ndarray, " n"]  # numbers or datetime64
    history: Float[np.ndarray, " n"]
    times: Shaped[np.ndarray, " H"]
    median: Float[np.ndarray, " H"]
    # Of each share, such as 0.8, the ends of its central interval; none of a point forecast.
    bands: Mapping[float, tuple[Float[np.ndarray, " H"], Float[np.ndarray, " H"]]] = field(default_factory=dict)
    truth: Float[np.ndarray, " H"] | None = None


def draw_fan(fan: Fan, path: Path, *, title: str = "", unit: str = "") -> str:
    """Draws the fan to a PNG or SVG file, by the file's ending.

    Args:
        fan: What is drawn; of a long history the end.
        path: The file.
        title: Stands above; it is taken as it is, not as mathematics.
        unit: Of the values.

    Returns:
        In words what was left out, or nothing.

    Raises:
        OSError: where the file cannot be written.
        ValueError: where the ending is another one, or lengths do not agree.
    """
    from matplotlib.figure import Figure

    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path.name}: expected a name that ends in .png or .svg")
    _check(fan)
    # Not by pyplot, which keeps each figure in memory and asks for a display.
    figure = Figure(figsize=(8, 3.6), dpi=140, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(fan.history_times[-MAX_HISTORY:], fan.history[-MAX_HISTORY:], color=HISTORY, lw=1, label="history")
    # The widest first, so that the narrower ones lie on it and shades add up.
    for share in sorted(fan.bands, reverse=True):
        low, high = fan.bands[share]
        axes.fill_between(fan.times, low, high, color=FORECAST, alpha=0.18, lw=0, label=f"central {share:.0%}")
    axes.plot(fan.times, fan.median, color=FORECAST, lw=1.6, label="median" if fan.bands else "forecast")
    if fan.truth is not None:
        axes.plot(fan.times, fan.truth, color=TRUTH, lw=1, ls="--", label="truth")
    axes.axvline(fan.times[0], color=HISTORY, lw=0.5, ls=":")
    axes.set_title(title, fontsize=9, parse_math=False)
    axes.set_ylabel(unit, parse_math=False)
    axes.legend(fontsize=7, loc="upper left", frameon=False)
    with warnings.catch_warnings(), atomic(path) as file:
        warnings.simplefilter("ignore")  # of letters that the font does not have
        figure.savefig(file, format=FORMATS[path.suffix.lower()])
    # Said, as a picture that begins late looks like a series that does.
    left_out = len(fan.history) - MAX_HISTORY
    return f"the first {left_out:,} values of the history" if left_out > 0 else ""


def _check(fan: Fan) -> None:
    """Raises ValueError unless all that stands at the same times is as long as they are."""
    horizon = len(fan.times)
    lengths = {"median": len(fan.median)}
    if fan.truth is not None:
        lengths["truth"] = len(fan.truth)
    for share, (low, high) in fan.bands.items():
        lengths[f"low end of {share:.0%}"] = len(low)
        lengths[f"high end of {share:.0%}"] = len(high)
    for name, length in lengths.items():
        if length != horizon or not horizon:
            raise ValueError(f"{name}: {length} values for {horizon} times")
    if len(fan.history) != len(fan.history_times):
        raise ValueError(f"history: {len(fan.history)} values for {len(fan.history_times)} times")
