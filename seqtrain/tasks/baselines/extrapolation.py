"""Forecasts that learn nothing: the last value, that of a period ago, and a straight line."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def last_value(values: Float[np.ndarray, "N K *C"], horizon: int) -> Float[np.ndarray, "N {horizon} *C"]:
    """Repeat the last value of each window that is not missing; NaN if all are missing."""
    newest = filled(values)[:, -1:]
    return np.repeat(newest, horizon, axis=1)


def seasonal_naive(
    values: Float[np.ndarray, "N K *C"], horizon: int, *, period: int
) -> Float[np.ndarray, "N {horizon} *C"]:
    """Repeat the value of one period ago; if it is missing, use two periods ago, and so on within the window.

    Args:
        values: Windows of at least a period, NaN where a value is missing.
        horizon: How many values are forecast.
        period: Rows after which the series is assumed to repeat.

    Raises:
        ValueError: If the window is shorter than the period.
    """
    if not 0 < period <= values.shape[1]:
        raise ValueError(f"period={period}: expected 1 to {values.shape[1]}, the length of the window")
    # Only whole periods, counted from the end: (N, periods, period, *C).
    periods = values.shape[1] // period
    folded = values[:, values.shape[1] - periods * period :].reshape(len(values), periods, period, *values.shape[2:])
    season = filled(folded)[:, -1]
    return season[:, np.arange(horizon) % period]


def drift(values: Float[np.ndarray, "N K *C"], horizon: int) -> Float[np.ndarray, "N {horizon} *C"]:
    """Extend the straight line through the first and the last value of each window that are not missing.

    A window with one value repeats that value; NaN if all are missing.
    """
    newest = filled(values)[:, -1:]
    oldest = filled(values[:, ::-1])[:, -1:]
    present = ~np.isnan(values)
    first = present.argmax(1)
    behind = present[:, ::-1].argmax(1)  # rows that are missing at the end
    distance = np.maximum(values.shape[1] - 1 - behind - first, 1)[:, None]
    # Both ends alone: it is the mean of all steps between them (Hyndman and Athanasopoulos).
    slope = (newest - oldest) / distance
    steps = np.arange(1, horizon + 1).reshape(1, horizon, *[1] * (values.ndim - 2))
    # The last value may stand some rows before the window's end.
    return newest + slope * (steps + behind[:, None])


def filled(values: Float[np.ndarray, "N K *C"]) -> Float[np.ndarray, "N K *C"]:
    """Replace each missing value of the windows by the last value before it; NaN if there is none before."""
    present = ~np.isnan(values)
    if present.all():
        return values
    rows = np.arange(values.shape[1]).reshape(1, -1, *[1] * (values.ndim - 2))
    # At each row the newest row with a value; row 0 where there is none, which then is NaN itself.
    newest = np.maximum.accumulate(np.where(present, rows, 0), axis=1)
    return np.take_along_axis(values, newest, axis=1)
