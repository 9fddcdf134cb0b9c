"""Data of a fan chart, and its form as JSON: the history of a series, its true future, and the forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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


DIGITS = 5  # of a value; a plot cannot show more
LARGEST = 1e30  # largest value: its square, and differences, are finite


def to_plain(fan: Fan) -> dict[str, Any]:
    """Return a fan over steps in JSON values; a missing value is null."""
    bands = {}
    for share, (low, high) in fan.bands.items():
        bands[f"{share:g}"] = [_rounded(low), _rounded(high)]
    truth = None if fan.truth is None else _rounded(fan.truth)
    lines = {"history": _rounded(fan.history), "median": _rounded(fan.median), "truth": truth}
    return {"title": fan.title, **lines, "bands": bands}


def from_plain(content: Any) -> Fan:
    """Return the fan that `to_plain` wrote. Raises ValueError for anything else."""
    if not isinstance(content, dict) or content.keys() != {"title", "history", "median", "truth", "bands"}:
        raise ValueError("not the entries of a forecast plot")
    if not isinstance(content["title"], str) or not isinstance(content["bands"], dict):
        raise ValueError("no title or no bands")
    history, median = _values(content["history"]), _values(content["median"])
    bands = {}
    for share, ends in content["bands"].items():
        if not isinstance(ends, list) or len(ends) != 2 or not 0 < float(share) < 1:
            raise ValueError("a band has two ends, and a share between 0 and 1")
        bands[float(share)] = (_values(ends[0], len(median)), _values(ends[1], len(median)))
    truth = None if content["truth"] is None else _values(content["truth"], len(median))
    if not len(median):
        raise ValueError("no values")
    return by_steps(history, median, bands=bands, truth=truth, title=content["title"])


def _rounded(values: Float[np.ndarray, " n"]) -> list[float | None]:
    """Return the values with few digits; None for values that a plot cannot show."""
    found: list[float | None] = []
    for value in values.tolist():
        # A diverging model predicts infinite or huge values: leave a gap, since they would hide all others.
        found.append(float(f"{value:.{DIGITS}g}") if abs(value) < LARGEST else None)
    return found


def _values(content: Any, length: int | None = None) -> Float[np.ndarray, " n"]:
    """Return a line of numbers, NaN for null. Raises ValueError or TypeError for anything else, or another length."""
    values = np.array(content, dtype=np.float64)
    if values.ndim != 1 or length not in (None, len(values)):
        raise ValueError("a line is not a list of values, or the lines differ in length")
    return values


def as_list(content: Any) -> tuple[Fan | None, ...]:
    """Return the fan of each sample, None if it has none. Raises ValueError for anything else."""
    if not isinstance(content, list):
        raise ValueError("not a list of forecast plots")
    return tuple(None if each is None else from_plain(each) for each in content)


def to_list(fans: Sequence[Fan | None]) -> list[dict[str, Any] | None]:
    """Return the fans of samples in JSON values; empty if no sample has one."""
    if not any(fans):
        return []
    return [None if fan is None else to_plain(fan) for fan in fans]
