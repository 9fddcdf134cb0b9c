"""Inputs and targets of models of series: the features of a time step, and the values to predict."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from seqtrain.data.values.scaling import PERIODS, Scaling
from seqtrain.data.values.series import Series, SeriesSplit
from seqtrain.errors import UserError

SEEN_ROWS = 1 << 16  # rows processed at a time
MONDAY = 4 * 86400  # the first Monday of 1970, in seconds


class Reading:
    """Features and targets of the rows of series, scaled.

    For row i, a model reads what is known just before its values: the values of row i-1, which of them are missing and
    for how many steps, the columns of row i that are known ahead of time, and the time of row i.
    """

    def __init__(self, series: Series, scaling: Scaling, dtype: type[np.floating] = np.float32) -> None:
        self.series = series
        self.scaling = scaling
        self.dtype = dtype
        self.mean, self.std = scaling.scales(series)
        self._masked = np.array(scaling.read_masks)
        self._since = self._steps_since_seen() if self._masked.any() else None

    @property
    def num_features(self) -> int:
        return self.scaling.num_features

    def series_of(self, rows: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
        """Return the index of the series (*shape) of each row."""
        return np.searchsorted(self.series.offsets, rows, side="right") - 1

    def features(self, rows: Int[np.ndarray, "B T"]) -> Float[np.ndarray, "B T F"]:
        """Return the features (B, T, F) of these rows; the values before the first row of a series count as missing."""
        is_first = rows == self.series.offsets[self.series_of(rows)]
        # Row 0 has no row before it; the values that are read instead are masked.
        return self._features(rows, np.maximum(rows - 1, 0), is_first)

    def observed(self, rows: Int[np.ndarray, "B T"]) -> Float[np.ndarray, "B T F"]:
        """Return the features (B, T, F) of these rows with their own values, for tasks that predict no values."""
        return self._features(rows, rows, np.zeros(rows.shape, dtype=bool))

    def _features(
        self, rows: Int[np.ndarray, "B T"], read: Int[np.ndarray, "B T"], is_unseen: Bool[np.ndarray, "B T"]
    ) -> Float[np.ndarray, "B T F"]:
        """Return the features (B, T, F) of `rows` with the values of the rows `read`, masked where `is_unseen`."""
        values = self.scaled(read, self.series_of(rows))
        values[is_unseen] = np.nan
        # After scaling, 0 is the mean of train, which replaces missing values.
        parts = [np.nan_to_num(values, nan=0.0)]
        if self._since is not None:
            seen = ~np.isnan(values[..., self._masked])
            # Logarithms, because one step more matters after two steps, and hardly after two hundred.
            since = np.log1p(self._since[read])
            since[is_unseen] = 0.0
            parts += [seen, since]
        parts.append(self.known(rows))
        return np.concatenate(parts, -1).astype(self.dtype)

    def scaled(self, rows: Int[np.ndarray, "*shape"], series: Int[np.ndarray, "*shape"]) -> np.ndarray:
        """Return the scaled values (*shape, C) of rows of these series; NaN if missing."""
        return (self.series.values[rows] - self.mean[series]) / self.std[series]

    def known(self, rows: Int[np.ndarray, "B T"]) -> Float[np.ndarray, "B T K"]:
        """Return the features (B, T, K) that are known ahead of these rows' values: known columns and the time."""
        count = len(self.series.columns)
        scaling = self.scaling
        parts = [(self.series.known[rows] - np.array(scaling.mean[count:])) / np.array(scaling.std[count:])]
        for feature in scaling.features:
            assert self.series.times is not None
            parts.append(place_in_cycle(self.series.times[rows], PERIODS[feature]))
        return np.concatenate(parts, -1)

    def _steps_since_seen(self) -> Float[np.ndarray, "n M"]:
        """Return, for each row, the steps (n, M) since a value was last seen in its series; 0 if it is present."""
        series = self.series
        steps = np.empty((len(series.values), int(self._masked.sum())), dtype=np.float32)
        for begin, end in zip(series.offsets[:-1], series.offsets[1:], strict=True):
            # Before the first value of a series: the steps since it began, plus one.
            last = np.full(steps.shape[1], begin - 1)
            for first in range(begin, end, SEEN_ROWS):
                rows = np.arange(first, min(first + SEEN_ROWS, end))[:, None]
                is_seen = ~np.isnan(series.values[first : first + len(rows), self._masked])
                newest = np.maximum.accumulate(np.maximum(np.where(is_seen, rows, -1), last))
                steps[first : first + len(rows)] = rows - newest
                last = newest[-1]
        return steps


def place_in_cycle(times: Int[np.ndarray, "*shape"], seconds: float) -> np.ndarray:
    """Return sine and cosine (*shape, 2) of the position in a cycle of `seconds`; weeks begin on Mondays."""
    # As angles, 23:00 and midnight are close to each other.
    angle = 2 * np.pi * ((times - MONDAY) / seconds)
    return np.stack([np.sin(angle), np.cos(angle)], -1)


class Targets:
    """Values to predict from each row of a split: those of the next `horizon` rows.

    A row is an origin if its whole horizon is in the split, so that all origins have the same number of targets.
    """

    def __init__(self, reading: Reading, split: SeriesSplit, horizon: int) -> None:
        self.reading = reading
        self.begin = split.begin
        self.end = split.end
        self.horizon = horizon
        if not split.has_a_value:
            raise UserError("data: all values of a split are missing; choose other rows for it")

    def of(self, rows: Int[np.ndarray, "B T"]) -> Float[np.ndarray, "B T H C"]:
        """Return the scaled values from each row on; NaN if missing, all NaN if a row is not an origin."""
        series = self.reading.series_of(rows)
        is_origin = self.is_origin(rows, series)
        ahead = rows[..., None] + np.arange(self.horizon)
        # Clipped only for the look-up: a row beyond the end belongs to no origin, and is set to NaN below.
        ahead = np.minimum(ahead, len(self.reading.series.values) - 1)
        values = self.reading.scaled(ahead, np.broadcast_to(series[..., None], ahead.shape))
        values[~is_origin] = np.nan
        return values.astype(self.reading.dtype)

    def is_origin(self, rows: Int[np.ndarray, "B T"], series: Int[np.ndarray, "B T"]) -> Bool[np.ndarray, "B T"]:
        """Return a mask (B, T) of the rows from which values are predicted."""
        # Otherwise rows of validation would be targets of train.
        return (rows >= self.begin[series]) & (rows + self.horizon <= self.end[series])
