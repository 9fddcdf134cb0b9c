"""Scaling of series: the columns that models read, their means and standard deviations, and time features."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float

from seqtrain.data.values.series import Clock, Series, SeriesSplit
from seqtrain.errors import UserError, first_few, kind_of
from seqtrain.files.atomic import write_text
from seqtrain.files.checked import load_json

Missing = Literal["mask", "mean"]
TimeFeature = Literal["hour", "weekday", "yearday"]
PERIODS: dict[str, float] = {"hour": 86400.0, "weekday": 604800.0, "yearday": 31556952.0}
"""Length, in seconds, of the cycle of each time feature."""

MAX_BYTES = 1 << 26  # of series.json
BLOCK_ROWS = 1 << 16  # rows read at a time
MEDIAN_ROWS = 1 << 16  # rows from which the usual time between two rows is computed
LEAST_CORRELATION = 0.3  # minimum height of a peak: the autocorrelation itself, and above its minimum at shorter lags
MAX_CHANNELS = 64  # channels examined to find the season
SHOWN_COLUMNS = 6


@dataclass(frozen=True)
class Scaling:
    """Scaling, fitted on train only; it is saved in the run, and predictions are converted back with it."""

    columns: tuple[str, ...]  # columns of values
    known_columns: tuple[str, ...]
    mean: tuple[float, ...]  # of each value column, then of each known column
    std: tuple[float, ...]  # above 0
    masked: tuple[bool, ...]  # for each value column: True if the model reads a mask of its missing values
    apart: bool  # True if each column of a series is a separate series
    features: tuple[TimeFeature, ...]
    season: int  # steps
    step_seconds: int | None  # median seconds between rows, or steps if times are whole numbers; None: no times
    naive: tuple[tuple[float, ...], ...]  # scaled seasonal naive error of train, for each channel of each series
    clock: Clock | None = None  # clock of the table; also None in runs that were saved before this field existed

    @property
    def hash(self) -> str:
        """Hash of all fields at full precision."""
        return hashlib.blake2b(self._text().encode(), digest_size=16).hexdigest()

    @property
    def num_channels(self) -> int:
        """Number of predicted values per time step."""
        return 1 if self.apart else len(self.columns)

    @property
    def read_masks(self) -> tuple[bool, ...]:
        """For each channel, True if the model also reads a mask of its missing values."""
        # A model that reads one column at a time has the same inputs for all of them.
        return (any(self.masked),) if self.apart else self.masked

    @property
    def num_masked(self) -> int:
        """Number of channels with a mask of missing values."""
        return sum(self.read_masks)

    @property
    def num_features(self) -> int:
        """Number of inputs of the model per time step."""
        ahead = len(self.known_columns) + 2 * len(self.features)
        return self.num_channels + 2 * self.num_masked + ahead

    def scales(self, series: Series) -> tuple[Float[np.ndarray, "S C"], Float[np.ndarray, "S C"]]:
        """Return mean and standard deviation (S, C) of each channel of each series."""
        return np.array(self.mean)[series.channels], np.array(self.std)[series.channels]

    @property
    def words(self) -> str:
        """One-line description of the role of each column."""
        clock = self.clock
        parts = [f"time: {clock.column or 'generated'} ({clock.form or 'integers'})"] if clock else ["no time column"]
        for name, columns in (
            ("values", self.columns),
            ("known ahead of time", self.known_columns),
            ("time features", self.features),
        ):
            parts += [f"{name}: {first_few(columns, SHOWN_COLUMNS)}"] if columns else []
        season = f"season: {self.season:,} steps" if self.season > 1 else "no season"
        return f"data: {'; '.join([*parts, season])}"

    def _text(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    def save(self, path: Path) -> None:
        """Write the JSON file that `load` reads."""
        write_text(path, self._text())

    @classmethod
    def load(cls, path: Path) -> Scaling:
        """Read a file that `save` wrote; raise UserError for any other file."""
        try:
            content = load_json(path, MAX_BYTES)
            if not isinstance(content, dict) or {"clock", *content} != cls.__annotations__.keys():
                raise ValueError("unexpected or missing entries")
            return cls(**_checked(content))
        except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise kind_of(error)(f"{path}: not a scaling of series ({error})") from None


def _checked(content: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of series.json with their types; raise ValueError if one is not valid."""
    found: dict[str, Any] = {}
    for name in ("columns", "known_columns"):
        if not all(isinstance(column, str) for column in content[name]):
            raise ValueError(f"{name} must be texts")
        found[name] = tuple(content[name])
    size = len(found["columns"]) + len(found["known_columns"])
    for name in ("mean", "std"):
        found[name] = tuple(float(value) for value in content[name])
        if len(found[name]) != size or not np.isfinite(found[name]).all():
            raise ValueError(f"{name} must be {size} finite numbers")
    if min(found["std"]) <= 0 or not found["columns"]:
        raise ValueError("std must be above 0")
    found["masked"] = tuple(bool(value) for value in content["masked"])
    found["apart"] = bool(content["apart"])
    found["features"] = tuple(content["features"])
    if len(found["masked"]) != len(found["columns"]) or not set(found["features"]) <= PERIODS.keys():
        raise ValueError("masked or features do not match the columns")
    found["season"] = int(content["season"])
    seconds = content["step_seconds"]
    found["step_seconds"] = None if seconds is None else int(seconds)
    found["naive"] = tuple(tuple(float(value) for value in row) for row in content["naive"])
    clock = content.get("clock")
    found["clock"] = None if clock is None else Clock(**clock)
    if found["season"] < 1 or any(len(row) != len(found["naive"][0]) for row in found["naive"]):
        raise ValueError("season or naive errors are not valid")
    return found


def fit(
    train: SeriesSplit,
    *,
    missing: Missing,
    features: Sequence[TimeFeature] | Literal["auto"] | None,
    season: int | None,
    forecast: bool = True,
) -> Scaling:
    """Return the scaling of the rows of train; later rows are never read.

    Args:
        train: Rows of train.
        missing: `mask`: the model reads which values are missing, and since when; `mean`: the mean replaces them.
        features: Time features; `auto`: those whose cycle occurs at least twice in train.
        season: Steps per season; None: from the autocorrelation of train.
        forecast: False if no value is predicted; then there is no season, and a column may be constant.

    Raises:
        UserError: A column has no values or is constant; or time features are requested but there are no dates.
    """
    series = train.series
    if features and features != "auto" and not series.has_dates:
        raise UserError("data.time_features: the rows have no dates; set data.time_column, or leave the features out")
    mean, std, is_missing = _moments(train)
    for number, column in enumerate(series.columns):
        _check_column(column, mean[number], std[number] if forecast else 1.0)
    # A known column that is constant in train is scaled to 0: it contains no information.
    std[std == 0] = 1.0
    # Time is known ahead, so its features do not leak values.
    if features == "auto":
        features = calendar(train)
    found_season = season or (find_season(train) if forecast else 1)
    # Computed only for forecasts: a labelled data set may have thousands of series.
    naive = _naive_errors(train, std, found_season) if forecast else ((1.0,) * series.values.shape[1],)
    return Scaling(
        columns=series.columns,
        known_columns=series.known_columns,
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
        masked=tuple((is_missing & (missing == "mask")).tolist()),
        apart=series.column_of is not None or len(series.columns) == 1,
        features=tuple(features or ()),
        season=found_season,
        step_seconds=step_of(series),
        naive=naive,
        clock=series.clock,
    )


def _check_column(column: str, mean: float, std: float) -> None:
    if np.isnan(mean):
        raise UserError(f"data: column {column} has no value in train; leave it out of data.columns")
    if std == 0:
        raise UserError(
            f"data: column {column} is always {mean:g} in train, to 12 digits; there is nothing to predict: "
            "leave it out of data.columns"
        )


def _moments(train: SeriesSplit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each value and known column, and a mask of value columns with gaps."""
    num_values = len(train.series.columns)
    size = num_values + len(train.series.known_columns)
    count, total, squares = np.zeros(size), np.zeros(size), np.zeros(size)
    is_missing = np.zeros(num_values, dtype=bool)
    for columns, block in _blocks(train):
        seen = ~np.isnan(block)
        np.add.at(count, columns, seen.sum(0))
        np.add.at(total, columns, np.where(seen, block, 0.0).sum(0))
        is_missing |= np.isin(np.arange(num_values), columns[~seen.all(0)])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count
        # In a second pass: differences between large numbers would be lost in a sum of squares.
        for columns, block in _blocks(train):
            np.add.at(squares, columns, np.nansum((block - mean[columns]) ** 2, 0))
        std = np.sqrt(squares / count)
    # The mean of equal numbers may differ from them in the last digit.
    std[std <= 1e-12 * np.abs(mean)] = 0.0
    return mean, std, is_missing


def _blocks(train: SeriesSplit) -> Iterator[tuple[np.ndarray, Float[np.ndarray, "b C+K"]]]:
    """Yield blocks of train's rows, each with the indices of its columns."""
    series, num_values = train.series, len(train.series.columns)
    known = num_values + np.arange(len(series.known_columns))
    for number, (begin, end) in enumerate(zip(train.begin, train.end, strict=True)):
        columns = np.concatenate([series.channels[number], known])
        # Series may be memory-mapped files that are larger than memory.
        for first in range(begin, end, BLOCK_ROWS):
            rows = slice(first, min(first + BLOCK_ROWS, end))
            yield columns, np.concatenate([series.values[rows], series.known[rows]], 1)


def step_of(series: Series) -> int | None:
    """Return the usual time between two rows, in seconds or steps; None if they have no times."""
    begin, end = series.offsets[:2]
    if series.times is None or end - begin < 2:
        return None
    # The median, which gaps and repeated hours hardly change; the first rows of a long table are enough.
    return int(np.median(np.diff(series.times[begin : min(end, begin + MEDIAN_ROWS)])))


def calendar(train: SeriesSplit) -> tuple[TimeFeature, ...]:
    """Return the time features whose cycle has at least four rows and occurs at least twice in each series of train."""
    times, step = train.series.times, step_of(train.series)
    if times is None or step is None or not train.series.has_dates:
        return ()
    span = min(times[end - 1] - times[begin] for begin, end in zip(train.begin, train.end, strict=True))
    found = (name for name, seconds in PERIODS.items() if 4 * step <= seconds and 2 * seconds <= span)
    return cast("tuple[TimeFeature, ...]", tuple(found))


def find_season(train: SeriesSplit) -> int:
    """Return the period of train in steps: the first high peak of its autocorrelation; 1 if there is none."""
    most = int((train.end - train.begin).min()) // 3 + 1
    if most < 3:
        return 1
    found = []
    for begin, end in list(zip(train.begin, train.end, strict=True))[:MAX_CHANNELS]:
        for column in np.asarray(train.series.values[begin:end][-MEDIAN_ROWS:]).T[: MAX_CHANNELS - len(found)]:
            time, seen = np.arange(len(column)), ~np.isnan(column)
            # Remove the linear trend, which correlates with itself at every lag; missing values are on its line.
            line = np.polyfit(time[seen], column[seen], 1) if seen.sum() > 2 else np.zeros(2)
            power = np.abs(np.fft.rfft(np.where(seen, column - np.polyval(line, time), 0.0), 2 * len(time))) ** 2
            products = np.fft.irfft(power)[: most + 1]
            if products[0] > 0:
                found.append(products / products[0] * len(time) / (len(time) - np.arange(most + 1)))
    if not found:
        return 1
    mean = np.mean(found, 0)
    here = mean[2:most]
    height = np.minimum(here, here - np.minimum.accumulate(mean)[2:most])
    peaks = 2 + np.flatnonzero((here > mean[1 : most - 1]) & (here >= mean[3:]) & (height >= LEAST_CORRELATION))
    if not len(peaks):
        return 1
    # Multiples of the season are peaks, too: take the first high one, then its maximum, since noise makes small peaks.
    first = int(peaks[mean[peaks] >= 0.8 * mean[peaks].max()][0])
    return first + int(np.argmax(mean[first : first + first // 5 + 1]))


def _naive_errors(train: SeriesSplit, std: Float[np.ndarray, " columns"], season: int) -> tuple[tuple[float, ...], ...]:
    """Return the scaled mean absolute difference from the previous season in train; 0 if train is too short."""
    series, errors = train.series, []
    for number, (begin, end) in enumerate(zip(train.begin, train.end, strict=True)):
        scale = std[series.channels[number]]
        total, count = np.zeros(len(scale)), np.zeros(len(scale), dtype=np.int64)
        # From train only: MASE must not be divided by an error on test (Hyndman and Koehler 2006).
        for first in range(begin + season, end, BLOCK_ROWS):
            last = min(first + BLOCK_ROWS, end)
            difference = np.abs(series.values[first:last] - series.values[first - season : last - season]) / scale
            count += (~np.isnan(difference)).sum(0)
            total += np.nansum(difference, 0)
        errors.append(tuple(float(value) for value in total / np.maximum(count, 1)))
    return tuple(errors)
