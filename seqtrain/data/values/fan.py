"""Numbers of a fan chart: the history of a series, its true future, and the forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Shaped

MIN_READ, MAX_READ = 24, 300  # values before a forecast that a small picture shows
READ_PER_STEP = 3  # of them for each step ahead, between those bounds


@dataclass(frozen=True)
class Fan:
    """One channel's history and forecast; NaN where a value is missing."""

    history_times: Shaped[np.ndarray, " n"]  # numbers or datetime64
    history: Float[np.ndarray, " n"]
    times: Shaped[np.ndarray, " H"]
    median: Float[np.ndarray, " H"]
    # The ends of the central interval of each share, such as 0.8; empty for a point forecast.
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
    """Return a fan over steps, counted from the last value that was read, which is step 0.

    Args:
        history: Values that were read, (n,).
        median: Forecast, (H,).
        bands: Ends of the central interval, (H,) each, for each share such as 0.8.
        truth: True future values, (H,), or None.
        title: Title of the chart.
    """
    return Fan(np.arange(1 - len(history), 1), history, np.arange(1, len(median) + 1), median, bands, truth, title)


def num_read(horizon: int) -> int:
    """Return the most values before a forecast that a figure shows."""
    # So much that the forecast is seen against its past, and still takes a good part of the picture.
    return min(max(READ_PER_STEP * horizon, MIN_READ), MAX_READ)
