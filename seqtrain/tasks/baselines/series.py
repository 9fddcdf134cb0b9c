"""Baselines of whole series with a label or a number: the nearest series of train, and ridge on simple features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.values.reading import Reading
from seqtrain.tasks.base import Baseline

DTW_NEEDED = "baseline nearest_dtw is left out: it needs aeon (pip install 'seqtrain[dtw]')"
MAX_DTW = 2e9  # cells of all tables of distances: about a minute
BLOCK = 64  # series whose distances are computed together
PENALTY = 1.0  # of ridge, on features of spread 1
KNOWN = {
    "nearest": Baseline("the nearest series of train, by Euclidean distance", "the nearest series"),
    "nearest_dtw": Baseline("the nearest series of train, by dynamic time warping", "the nearest series by warping"),
    "ridge": Baseline("ridge regression on mean, spread, range, ends and slope", "ridge on simple features"),
}
"""All baselines, by the names that tasks use."""


def scaled_series(rows: Rows, preprocessor: Preprocessor) -> list[Float[np.ndarray, "T C"]]:
    """Return the scaled values of each series of a split; missing ones are interpolated in time."""
    assert rows.series is not None
    assert preprocessor.series is not None
    reading = Reading(rows.series.series, preprocessor.series, np.float64)
    found = []
    for number in np.flatnonzero(rows.series.end > rows.series.begin):
        steps = np.arange(rows.series.begin[number], rows.series.end[number])
        found.append(_filled(reading.scaled(steps, np.full(len(steps), number))))
    return found


def _filled(values: Float[np.ndarray, "T C"]) -> Float[np.ndarray, "T C"]:
    time = np.arange(len(values))
    for channel in values.T:
        seen = ~np.isnan(channel)
        channel[~seen] = np.interp(time[~seen], time[seen], channel[seen]) if seen.any() else 0.0
    return values


def resampled(series: list[Float[np.ndarray, "T C"]], length: int) -> Float[np.ndarray, "n T C"]:
    """Return series of equal length, interpolated in time if their length differs."""
    found = []
    for values in series:
        if len(values) != length:
            places = np.linspace(0, len(values) - 1, length)
            values = np.stack([np.interp(places, np.arange(len(values)), channel) for channel in values.T], 1)
        found.append(values)
    return np.stack(found)


class Neighbours(NamedTuple):
    """For each series of a split, the nearest one of train by each distance that could be computed."""

    euclid: Int[np.ndarray, " m"]
    dtw: Int[np.ndarray, " m"] | None
    reason: str | None  # why `dtw` is None


def nearest_by_euclid(
    train: list[Float[np.ndarray, "T C"]], split: list[Float[np.ndarray, "T C"]]
) -> Int[np.ndarray, " m"]:
    """Find the nearest series of train by Euclidean distance, all resampled to the length of the longest of train."""
    length = max(map(len, train))
    known = resampled(train, length).reshape(len(train), -1)
    asked = resampled(split, length).reshape(len(split), -1)
    found = []
    for begin in range(0, len(asked), BLOCK):
        block = asked[begin : begin + BLOCK]
        # |a - b|^2 without the term that is the same for all of train.
        found.append(((known**2).sum(1) - 2 * block @ known.T).argmin(1))
    return np.concatenate(found)


def nearest(train: list[Float[np.ndarray, "T C"]], split: list[Float[np.ndarray, "T C"]]) -> Neighbours:
    """Find the nearest series of train: by Euclidean distance, and by dynamic time warping without a window."""
    euclid, length = nearest_by_euclid(train, split), max(map(len, train))
    if len(train) * len(split) * length**2 > MAX_DTW:
        return Neighbours(euclid, None, "baseline nearest_dtw is left out: so many long series would take minutes")
    try:
        from aeon.distances import dtw_pairwise_distance  # pyright: ignore[reportMissingImports]
    except ImportError:
        return Neighbours(euclid, None, DTW_NEEDED)
    distances = dtw_pairwise_distance([each.T for each in split], [each.T for each in train])
    return Neighbours(euclid, distances.argmin(1), None)


def features(series: list[Float[np.ndarray, "T C"]]) -> Float[np.ndarray, "n F"]:
    """Return simple features of each channel: mean, deviation, range, ends, slope and mean absolute step."""
    rows = []
    for values in series:
        steps = np.abs(np.diff(values, axis=0)).mean(0) if len(values) > 1 else np.zeros(values.shape[1])
        time = np.linspace(-1, 1, len(values))
        slope = time @ values / max(time @ time, 1e-12)
        parts = [values.mean(0), values.std(0), values.min(0), values.max(0), values[0], values[-1], slope, steps]
        rows.append(np.concatenate(parts))
    return np.array(rows)


def ridge(
    train: Float[np.ndarray, "n F"], wanted: Float[np.ndarray, "n K"], split: Float[np.ndarray, "m F"]
) -> Float[np.ndarray, "m K"]:
    """Predict numbers by ridge regression on features, each scaled by its mean and deviation in train."""
    mean, std = train.mean(0), train.std(0)
    std[std == 0] = 1.0
    known, center = (train - mean) / std, wanted.mean(0)
    weights = np.linalg.solve(known.T @ known + PENALTY * np.eye(known.shape[1]), known.T @ (wanted - center))
    return (split - mean) / std @ weights + center


def predictions(
    train: Rows, split: Rows, preprocessor: Preprocessor
) -> tuple[dict[str, Shaped[np.ndarray, " m"]], str | None]:
    """Return the label or number that each baseline predicts for each series, and why one is left out, or None."""
    labels = train.labels
    assert isinstance(labels, np.ndarray)
    known, asked = scaled_series(train, preprocessor), scaled_series(split, preprocessor)
    neighbours = nearest(known, asked)
    found = {"nearest": labels[neighbours.euclid]}
    if neighbours.dtw is not None:
        found["nearest_dtw"] = labels[neighbours.dtw]
    if preprocessor.labels:
        one_hot = np.eye(len(preprocessor.labels))[labels]
        found["ridge"] = ridge(features(known), one_hot, features(asked)).argmax(1)
    else:
        found["ridge"] = ridge(features(known), labels[:, None], features(asked))[:, 0]
    return found, neighbours.reason
