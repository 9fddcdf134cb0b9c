"""Gaps in the times of series: missing rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from seqtrain.data.values.series import Series

BLOCK_ROWS = 1 << 16  # of times that are read at a time
MAX_GROWTH = 2  # times the rows that a table may have once its gaps are filled


def without_gaps(series: Series) -> tuple[Series, list[str]]:
    """Return series with a row for each step of time, and lines to log; added rows have missing values."""
    # The usual case, which goes on from the mapped file and copies nothing into memory.
    if series.times is None or _are_even(series.times, series.offsets):
        return series, []
    steps = [
        np.diff(series.times[begin:end]) for begin, end in zip(series.offsets[:-1], series.offsets[1:], strict=True)
    ]
    every = np.concatenate(steps)
    if not len(every):
        return series, []
    step = int(every.min())
    where = "data: the time between rows"
    whole = int((every // step).sum()) + len(series.names)
    # Months and years have no even length; and a table that would be mostly gaps does not have even steps.
    if (every % step).any() or whole > MAX_GROWTH * len(series.times):
        months = {months_of_a_step(series.times[begin:end]) for begin, end in pairwise(series.offsets)}
        words = f"uneven ({step:,} to {every.max():,}{' s' if series.has_dates else ''})"
        if series.has_dates and len(months) == 1 and None not in months:
            words = "one month" if months == {1} else f"{months.pop()} months"
        return series, [f"{where} is {words}; each row is read as one step"]
    if series.known_columns:
        return series, [f"{where} has gaps, which are not filled, since data.known_columns are not known there"]
    rows = []
    begin = 0
    for part in steps:
        rows.append(begin + np.concatenate([[0], (part // step).cumsum()]))
        begin = int(rows[-1][-1]) + 1
    place = np.concatenate(rows)
    values = np.full((whole, series.values.shape[1]), np.nan)
    values[place] = series.values
    ends = np.array([each[-1] + 1 for each in rows])
    # Each series has its own gaps, so that all that come after it are moved.
    offsets = np.concatenate([[0], ends])
    first = np.repeat([series.times[begin] for begin in series.offsets[:-1]], np.diff(offsets))
    times = first + step * (np.arange(whole) - np.repeat(offsets[:-1], np.diff(offsets)))
    gaps = int((every > step).sum())
    filled = replace(series, values=values, known=np.zeros((whole, 0)), times=times, offsets=offsets)
    return filled, [f"data: {gaps:,} gaps in time; the {whole - len(place):,} rows that are not there count as missing"]


def months_of_a_step(times: Int[np.ndarray, " n"]) -> int | None:
    """Return the months between two rows if all steps have that, and no number of seconds, in common; else None."""
    if len(times) < 3 or len(set(np.diff(times).tolist())) == 1:
        return None
    months = set(np.diff(times.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)).tolist())
    return months.pop() if len(months) == 1 and 0 not in months else None


def _are_even(times: Int[np.ndarray, " n"], offsets: Int[np.ndarray, " S+1"]) -> bool:
    """Return True if all steps of time within series have the same length."""
    known: int | None = None
    for begin, end in pairwise(offsets.tolist()):
        for first in range(begin, end - 1, BLOCK_ROWS):
            steps = np.diff(times[first : min(first + BLOCK_ROWS + 1, end)])
            if known is None:
                known = int(steps[0])
            if (steps != known).any():
                return False
    return True
