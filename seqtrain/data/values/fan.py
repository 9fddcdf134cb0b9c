"""Data of a fan chart: the history of a series, its true future, and the forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Shaped

MIN_READ, MAX_READ = 24, 300  # limits of the number of history values in a small plot
READ_PER_STEP = 3  # history values per forecast step, within these limits


@dataclass(frozen=True)
class Fan:
    """One channel's history and forecast; NaN where a value is missing."""

    history_times: Shaped[np.ndarray, " n"]  # numbers or datetime64
    history: Float[np.ndarray, " n"]
    times: Shaped[np.ndarray, " H"]
    median: Float[np.ndarray, " H"]
    # Lower and upper end of each central interval, by its probability, such as 0.8; empty for a point forecast.
    bands: Mapping[float, tuple[Float[np.ndarray, " H"], Float[np.ndarray, " H"]]] = field(default_factory=dict)
    truth: Float[np.ndarray, " H"] | None = None
    title: str = ""


def by_steps(
    history: Float[np.ndarray, " n"],
    median: Float[np.ndarray, " H"],
    *,
    bands: Mapping[float, tuple[Float[np.ndarray, " H"], Float[np.ndarray, " H"]]],
    truth: Float[np.ndarray, " H"] | None,
    title: str,
) -> Fan:
    """Return a fan whose times are steps; the last value of the history is step 0.

    Args:
        history: Values before the forecast, (n,).
        median: Forecast, (H,).
        bands: Lower and upper ends, (H,) each, of each central interval, by its probability, such as 0.8.
        truth: True future values, (H,), or None.
        title: Title of the chart.
    """
    return Fan(np.arange(1 - len(history), 1), history, np.arange(1, len(median) + 1), median, bands, truth, title)


def num_read(horizon: int) -> int:
    """Return the maximum number of history values in a plot."""
    # Enough to see the forecast in its context, while it still fills a good part of the plot.
    return min(max(READ_PER_STEP * horizon, MIN_READ), MAX_READ)
