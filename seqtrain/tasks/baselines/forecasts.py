"""Baselines of a forecast: last value, last season, line, yearly waves, a linear autoregression, ETS and Theta.

Exponential smoothing (ETS, Hyndman et al. 2002) and the Theta method (Assimakopoulos & Nikolopoulos 2000) are those of
statsforecast, an optional dependency, and are fitted to each window and channel. AICc selects the error and the trend
of ETS. A season is always additive, because AICc would leave it out for a short window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from seqtrain.data.batching.values import Windows
from seqtrain.data.values.reading import Reading, place_in_cycle
from seqtrain.data.values.scaling import PERIODS, calendar
from seqtrain.data.values.series import SeriesSplit
from seqtrain.errors import UserError
from seqtrain.tasks.base import Baseline
from seqtrain.tasks.baselines.autoregression import Autoregression, Block, choose_order

SMOOTHERS = {
    "ets": Baseline("exponential smoothing, its form chosen for each window", "exponential smoothing"),
    "theta": Baseline("the Theta method, fitted to each window", "the Theta method"),
}
MAX_FITS = {"ets": 3_000, "theta": 60_000}  # one for each window and channel: about a minute


def smoothing_models(windows: Windows, season: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the models of statsforecast by name; none if it is not installed.

    Args:
        windows: The windows of the measured split.
        season: Steps of a season. Windows shorter than two seasons are fitted without a season.
        say: Receives a message on each model that is left out.
    """
    try:
        from statsforecast.models import AutoETS, Theta  # pyright: ignore[reportMissingImports]
    except ImportError:
        say("baselines ets and theta are left out: they need statsforecast (pip install 'seqtrain[ets]')")
        return {}
    length = season if windows.history >= 2 * season else 1
    count = len(windows.lengths) * windows.reading.series.values.shape[1]
    found = {
        "ets": AutoETS(season_length=length, model="ZZA" if length > 1 else "ZZN"),
        "theta": Theta(season_length=length, decomposition_type="additive"),  # scaled values are about 0
    }
    for name, most in MAX_FITS.items():
        if count > most:
            say(f"{name} is left out: fitting {count:,} windows and channels takes minutes")
            del found[name]
    return found


def smoothed(model: Any, values: Float[np.ndarray, "N K C"], horizon: int) -> Float[np.ndarray, "N {horizon} C"]:
    """Fit a model to each channel of each window, and forecast; a window that it cannot fit repeats its last value."""
    known = np.nan_to_num(values)  # 0 is the mean of train, used where no value came before
    found = np.repeat(known[:, -1:], horizon, 1)
    for number, channel in np.ndindex(len(known), known.shape[2]):
        window = known[number, :, channel]
        if np.ptp(window) == 0:  # a constant window has nothing to fit
            continue
        try:
            found[number, :, channel] = model.forecast(y=window, h=horizon)["mean"]
        except Exception:  # any error of the library, such as for a window that is too short
            continue
    return found


HELD_OUT = 0.2  # share of train, at its end, that selects the order of the autoregression
MAX_OPERATIONS = 2e12  # of all fits of autoregressions: about a minute
MAX_VALUES = 1 << 20  # numbers of windows in memory at once: 8 MiB in float64
BLOCK_ROWS = 1 << 16  # rows of a series that are read at a time

WAVES = 3  # of a year, each with a sine and a cosine
FITTED_ROWS = 1 << 16  # most rows of a series that waves are fitted to, spread over train

# Forecasts from the values that a model reads and the rows that are predicted.
Forecaster = Callable[[Float[np.ndarray, "N K C"], Int[np.ndarray, "N H"]], Float[np.ndarray, "N H C"]]


class Errors:
    """Sums of the errors of a forecaster over all origins of a split, measured as for the model."""

    def __init__(self, naive: Float[np.ndarray, "S C"], std: Float[np.ndarray, "S C"]) -> None:
        """Start sums of 0.

        Args:
            naive: Seasonal naive error of train of each channel.
            std: Standard deviation by which each channel was scaled.
        """
        self.naive = naive
        self.std = std
        self.squared = self.absolute = self.original = self.squared_original = self.over_naive = 0.0
        self.count = self.count_naive = 0

    def add(
        self, found: Float[np.ndarray, "N H C"], true: Float[np.ndarray, "N H C"], series: Int[np.ndarray, " N"]
    ) -> None:
        """Add the forecasts (N, H, C) of origins of these series (N,); missing targets are not counted."""
        errors = np.abs(found - true)
        self.squared += float(np.nansum(errors**2))
        self.absolute += float(np.nansum(errors))
        in_units = errors * self.std[series][:, None]
        self.original += float(np.nansum(in_units))
        self.squared_original += float(np.nansum(in_units**2))
        self.count += int((~np.isnan(true)).sum())
        naive = np.broadcast_to(self.naive[series][:, None], errors.shape)
        # A series that repeats itself has no naive error to divide by, as for the model.
        counts = (naive > 0) & ~np.isnan(true)
        self.over_naive += float((errors[counts] / naive[counts]).sum())
        self.count_naive += int(counts.sum())

    @property
    def metrics(self) -> dict[str, float]:
        """The same metrics as those of a model."""
        count = max(self.count, 1)
        found = {"mse": self.squared / count, "mae": self.absolute / count, "mae_original": self.original / count}
        found["mse_original"] = self.squared_original / count
        if self.count_naive:
            found["mase"] = self.over_naive / self.count_naive
        return found


def add_errors(forecaster: Forecaster, windows: Windows, index: Int[np.ndarray, " B"], sums: Sequence[Errors]) -> None:
    """Forecast the windows in `index`, and add the errors to each of these sums."""
    reading, history, horizon = windows.reading, windows.history, windows.targets.horizon
    width = reading.series.values.shape[1]
    step = max(MAX_VALUES // ((history + horizon) * width), 1)
    for begin in range(0, len(index), step):
        rows = windows.rows(index[begin : begin + step])
        series = reading.series_of(rows)
        read = rows[:, None] + np.arange(-history, 0)
        values = reading.scaled(read, np.broadcast_to(series[:, None], read.shape))
        # A window without any value is forecast by the mean of train, which is 0.
        found = np.nan_to_num(forecaster(values, rows[:, None] + np.arange(horizon)), nan=0.0)
        true = windows.targets.of(rows[:, None])[:, 0].astype(np.float64)
        for errors in sums:
            errors.add(found, true, series)


def measured(forecaster: Forecaster, windows: Windows, naive: Float[np.ndarray, "S C"]) -> dict[str, float]:
    """Compute the metrics of a forecaster on all windows of a split."""
    errors = Errors(naive, windows.reading.std)
    add_errors(forecaster, windows, np.arange(len(windows.lengths)), [errors])
    return errors.metrics


def baselines(train: SeriesSplit, windows: Windows, season: int, say: Callable[[str], None]) -> dict[str, Forecaster]:
    """Return simple baselines for the windows that the model is measured on.

    Args:
        train: The split that the autoregression is fitted to.
        windows: The windows of the measured split.
        season: Steps of a season.
        say: Receives messages on the order of the autoregression and on baselines that are left out.
    """
    reading = windows.reading
    if reading.series.asked_after is not None:
        # No value is read, so the other baselines would be the mean too, under names that promise more.
        return {"mean": always_mean}
    forecasters: dict[str, Forecaster] = {"last_value": lambda values, ahead: last_value(values, ahead.shape[1])}
    if 1 < season <= windows.history:
        forecasters["seasonal_naive"] = lambda values, ahead: seasonal_naive(values, ahead.shape[1], period=season)
    forecasters["drift"] = lambda values, ahead: drift(values, ahead.shape[1])
    if "yearday" in calendar(train):
        forecasters["harmonics"] = yearly_harmonics(train, reading)
    models, fill = fitted_autoregressions(train, reading, windows.history, windows.targets.horizon, season, say)
    for name, model in models.items():

        def linear(
            values: Float[np.ndarray, "N K C"], ahead: Int[np.ndarray, "N H"], model: Autoregression = model
        ) -> Float[np.ndarray, "N H C"]:
            return model.predict(fill(values)[:, -model.order :])

        forecasters[name] = linear
    for name, fit in smoothing_models(windows, season, say).items():
        forecasters[name] = lambda values, ahead, fit=fit: smoothed(fit, filled(values), ahead.shape[1])
    return forecasters


def yearly_harmonics(train: SeriesSplit, reading: Reading) -> Forecaster:
    """Fit a mean and WAVES waves of the year to each channel of each series, by least squares."""
    times = train.series.times
    assert times is not None

    def waves(rows: Int[np.ndarray, "*n"]) -> Float[np.ndarray, "*n P"]:
        places = [place_in_cycle(times[rows], PERIODS["yearday"] / (1 + wave)) for wave in range(WAVES)]
        return np.concatenate([np.ones((*rows.shape, 1)), *places], -1)

    weights = np.zeros((len(train.begin), 1 + 2 * WAVES, train.series.values.shape[1]))
    for number, (begin, end) in enumerate(zip(train.begin, train.end, strict=True)):
        rows = np.arange(begin, end, (end - begin) // FITTED_ROWS + 1)
        values, read = reading.scaled(rows, np.full(len(rows), number)), waves(rows)
        for channel, column in enumerate(values.T):
            seen = ~np.isnan(column)
            weights[number, :, channel] = np.linalg.lstsq(read[seen], column[seen], rcond=None)[0]
    return lambda values, ahead: waves(ahead) @ weights[reading.series_of(ahead[:, 0])]


def always_mean(values: Float[np.ndarray, "N K C"], ahead: Int[np.ndarray, "N H"]) -> Float[np.ndarray, "N H C"]:
    """Forecast the mean of train, which is 0 because values are scaled."""
    return np.zeros((*ahead.shape, values.shape[2]))


Fill = Callable[[Float[np.ndarray, "N M C"]], Float[np.ndarray, "N M C"]]


def fitted_autoregressions(
    train: SeriesSplit, reading: Reading, history: int, horizon: int, season: int, say: Callable[[str], None]
) -> tuple[dict[str, Autoregression], Fill]:
    """Fit linear autoregressions, each for all channels: one of all values that a model reads, and one of fewer.

    `ar_shorter` is returned if an order below `history` forecasts the end of train better. The second result is the
    function that fills in the missing values of a window.
    """
    orders = _orders(history, season, train.num_rows, horizon)
    if not orders:
        say("ar is left out: train is too large for it")
        return {}, filled
    for is_filled in (False, True):
        try:
            found = _fitted(train, reading, history, horizon, orders, is_filled=is_filled)
        except UserError as fault:
            left_out = fault.lines[0]
            continue
        if is_filled:
            say(f"ar: train has no {history + horizon} values in a row; missing ones are replaced by the mean")
        if "ar_shorter" in found:
            order = found["ar_shorter"].order
            say(f"ar_shorter: order {order}, which forecasts the end of train best")
        return found, np.nan_to_num if is_filled else filled
    say(f"ar is left out: {left_out}")
    return {}, filled


def _fitted(
    train: SeriesSplit, reading: Reading, history: int, horizon: int, orders: list[int], *, is_filled: bool
) -> dict[str, Autoregression]:
    edge = train.end - ((train.end - train.begin) * HELD_OUT).astype(np.int64)
    fitted = ScaledBlocks(reading, train.begin, edge, is_filled)
    held_out = ScaledBlocks(reading, np.maximum(edge - history, train.begin), train.end, is_filled)
    order = choose_order(fitted, held_out, orders, horizon, context=max(orders))
    whole = ScaledBlocks(reading, train.begin, train.end, is_filled)
    found = {"ar": Autoregression.fit(whole, max(orders), horizon)}
    if order < max(orders):
        found["ar_shorter"] = Autoregression.fit(whole, order, horizon)
    return found


def _orders(history: int, season: int, num_rows: int, horizon: int) -> list[int]:
    """Return the candidate orders: at most as many values as the model reads, and about a minute of work in total."""
    wanted = sorted({min(season, history), max(history // 4, 1), max(history // 2, 1), history})
    kept, operations = [], 0.0
    for order in wanted:
        operations += 2.0 * num_rows * (order + horizon) ** 2
        if operations <= MAX_OPERATIONS:
            kept.append(order)
    return kept


@dataclass(frozen=True)
class ScaledBlocks:
    """Scaled rows of series, in blocks, so that no table is in memory as a whole. They can be read repeatedly."""

    reading: Reading
    begin: Int[np.ndarray, " S"]
    end: Int[np.ndarray, " S"]
    is_filled: bool = False  # missing values are replaced by the mean of train, which is 0

    def __iter__(self) -> Iterator[Block]:
        for number, (begin, end) in enumerate(zip(self.begin, self.end, strict=True)):
            for first in range(begin, end, BLOCK_ROWS):
                rows = np.arange(first, min(first + BLOCK_ROWS, end))
                values = self.reading.scaled(rows, np.full(len(rows), number))
                yield number, np.nan_to_num(values) if self.is_filled else values


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
        horizon: Number of values that are forecast.
        period: Number of rows after which the series is assumed to repeat.
    """
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
    # From both ends only: the slope is the mean of all steps between them (Hyndman and Athanasopoulos).
    slope = (newest - oldest) / distance
    steps = np.arange(1, horizon + 1).reshape(1, horizon, *[1] * (values.ndim - 2))
    # The last value may be some rows before the window's end.
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
