"""Heads of forecasts (a number, a distribution or some of its quantiles for each future value), and their samples.

A head is linear and gives `num_params` numbers for each value; the classes here turn them into parameters and compute
statistics from these. They hold no weights. `*N` is any shape, such as (B, T, H). Only the marginal distribution of
each value is known, so samples of several horizons do not form a path.

The functions below the classes read windows, with the true values or with their own forecasts, and describe forecasts
in words and as plots with intervals, in the units of the data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from seqtrain.data.batching.values import WindowBatch
from seqtrain.data.values.fan import Fan, by_steps, num_read
from seqtrain.data.values.scaling import Scaling
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.tasks.base import LossTerms, Sample
from seqtrain.tasks.metrics import forecasts
from seqtrain.tasks.metrics.forecasts import (
    crps_of_gaussian,
    crps_of_quantiles,
    crps_of_student_t,
    pinball_losses,
    quantile_of_student_t,
)

# In units of the spread of train, because targets are scaled. Without it the loss of constant targets is unbounded.
MIN_SCALE = 1e-3
MIN_DF = 2.0  # of Student t: above it the variance is finite
ASYMPTOTIC = 16.0  # from here on a series is more precise than a difference of logarithms of the gamma function
FAR = 1e4  # deviations; the square of a much larger number overflows in float32


class ForecastDistribution(ABC):
    """Computes parameters, loss and statistics of a forecast from the outputs of a head."""

    num_params: int
    is_probabilistic: ClassVar[bool] = True  # True if the forecast has a spread

    @abstractmethod
    def parameters(self, raw: Float[Tensor, "*N P"]) -> Float[Tensor, "*N P"]:
        """Map any outputs of a head to valid parameters."""

    @abstractmethod
    def loss(self, params: Float[Tensor, "*N P"], true: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """Return the loss of each target; `true` has no missing values."""

    @abstractmethod
    def quantile(self, params: Float[Tensor, "*N P"], level: float) -> Float[Tensor, "*N"]:
        """Return the value below which a share `level` is expected.

        Raises:
            ValueError: If the forecast has no quantile at this level.
        """

    @abstractmethod
    def crps(self, params: Float[Tensor, "*N P"], true: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """Return the continuous ranked probability score of each target, in its unit; for points the absolute error."""

    def moved(self, params: Float[Tensor, "*N P"], by: Float[Tensor, "..."]) -> Float[Tensor, "*N P"]:
        """Return the parameters of the same forecast, moved by `by`; the first parameter is the location."""
        return torch.cat([params[..., :1] + by.unsqueeze(-1), params[..., 1:]], -1)

    def median(self, params: Float[Tensor, "*N P"]) -> Float[Tensor, "*N"]:
        """Return the median: the forecast that `predict` writes and that errors are computed for."""
        return self.quantile(params, 0.5)

    def interval(
        self, params: Float[Tensor, "*N P"], share: float
    ) -> tuple[Float[Tensor, "*N"], Float[Tensor, "*N"]] | None:
        """Return the ends of the central interval of this share, or None if the forecast has no such quantiles."""
        # Rounded: (1 - 0.8) / 2 is not exactly 0.1, and quantiles exist only at their levels.
        low, high = round((1 - share) / 2, 9), round((1 + share) / 2, 9)
        try:
            return self.quantile(params, low), self.quantile(params, high)
        except ValueError:
            return None


class Point(ForecastDistribution):
    """One number, trained by squared error: an estimate of the mean only."""

    num_params = 1
    is_probabilistic = False

    def parameters(self, raw: Float[Tensor, "*N 1"]) -> Float[Tensor, "*N 1"]:
        return raw

    def loss(self, params: Float[Tensor, "*N 1"], true: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        return (params[..., 0] - true) ** 2

    def quantile(self, params: Float[Tensor, "*N 1"], level: float) -> Float[Tensor, "*N"]:
        # It also serves as the median, for absolute errors.
        if level != 0.5:
            raise ValueError("a point forecast has no quantiles")
        return params[..., 0]

    def crps(self, params: Float[Tensor, "*N 1"], true: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        return (params[..., 0].double() - true.double()).abs()


class Gaussian(ForecastDistribution):
    """A normal distribution: parameters are its mean and its standard deviation, at least MIN_SCALE."""

    num_params = 2

    def parameters(self, raw: Float[Tensor, "*N 2"]) -> Float[Tensor, "*N 2"]:
        # Softplus and not exp: one large number of an untrained head would overflow.
        return torch.stack([raw[..., 0], MIN_SCALE + F.softplus(raw[..., 1])], -1)

    def loss(self, params: Float[Tensor, "*N 2"], true: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        loc, scale = params.unbind(-1)
        return 0.5 * ((true - loc) / scale) ** 2 + scale.log() + 0.5 * math.log(2 * math.pi)

    def quantile(self, params: Float[Tensor, "*N 2"], level: float) -> Float[Tensor, "*N"]:
        deviations = torch.special.ndtri(torch.tensor(level, dtype=torch.float64)).item()
        return params[..., 0] + params[..., 1] * deviations

    def crps(self, params: Float[Tensor, "*N 2"], true: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        return crps_of_gaussian(params[..., 0], params[..., 1], true)


class StudentT(ForecastDistribution):
    """Student's t: location, scale (at least MIN_SCALE) and degrees of freedom (at least MIN_DF), for heavy tails."""

    num_params = 3

    def parameters(self, raw: Float[Tensor, "*N 3"]) -> Float[Tensor, "*N 3"]:
        scale, df = MIN_SCALE + F.softplus(raw[..., 1]), MIN_DF + F.softplus(raw[..., 2])
        return torch.stack([raw[..., 0], scale, df], -1)

    def loss(self, params: Float[Tensor, "*N 3"], true: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        loc, scale, df = params.unbind(-1)
        deviations = ((true - loc) / (scale * df.sqrt())).abs()
        # log(1 + x^2) up to x = FAR, then its asymptote, because the square of x would overflow.
        near = torch.log1p(deviations.clamp(max=FAR) ** 2)
        tail = near + 2 * torch.log(deviations.clamp(min=FAR) / FAR)
        return 0.5 * (df + 1) * tail + scale.log() + 0.5 * math.log(2 * math.pi) - _gamma_ratio(df / 2)

    def quantile(self, params: Float[Tensor, "*N 3"], level: float) -> Float[Tensor, "*N"]:
        loc, scale, df = params.double().unbind(-1)
        return (loc + scale * quantile_of_student_t(df, level)).to(params.dtype)

    def crps(self, params: Float[Tensor, "*N 3"], true: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        return crps_of_student_t(params[..., 2], params[..., 0], params[..., 1], true)


def _gamma_ratio(x: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    """Compute the log of gamma(x + 1/2) / (gamma(x) sqrt(x)), which goes to 0 as x grows.

    The two log-gammas grow like x log x: in float32 their difference would lose all its digits.
    """
    # Clamped first: the branch that `where` does not select would still make the gradient NaN.
    small, large = x.clamp(max=ASYMPTOTIC), x.clamp(min=ASYMPTOTIC)
    difference = torch.lgamma(small + 0.5) - torch.lgamma(small) - 0.5 * small.log()
    inverse = 1 / large
    series = inverse * (-1 / 8 + inverse**2 * (1 / 192 - inverse**2 / 640))
    return torch.where(x < ASYMPTOTIC, difference, series)


class Quantiles(ForecastDistribution):
    """Quantiles of given levels, trained by the quantile loss.

    The outputs of the head are sorted, so that quantiles never cross. Sorting never increases the loss (Chernozhukov et
    al. 2010) and, unlike sums of positive steps, keeps quantiles of a linear model linear. The loss is computed from
    the sorted quantiles.
    """

    def __init__(self, levels: Sequence[float]) -> None:
        """Set `levels`: from small to large, between 0 and 1, with 0.5 among them."""
        self.levels = tuple(levels)
        self.num_params = len(levels)

    def parameters(self, raw: Float[Tensor, "*N Q"]) -> Float[Tensor, "*N Q"]:
        return raw.sort(-1).values

    def loss(self, params: Float[Tensor, "*N Q"], true: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """Return the mean of the quantile losses over the levels."""
        return pinball_losses(params, true, self.levels).mean(-1)

    def quantile(self, params: Float[Tensor, "*N Q"], level: float) -> Float[Tensor, "*N"]:
        # Other levels were not trained, so any number for them would be arbitrary.
        if level not in self.levels:
            raise ValueError(f"level={level}: the forecast has only quantiles of levels {self.levels}")
        return params[..., self.levels.index(level)]

    def crps(self, params: Float[Tensor, "*N Q"], true: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """Return the CRPS approximated at the levels: see `crps_of_quantiles`."""
        return crps_of_quantiles(params, true, self.levels)

    def moved(self, params: Float[Tensor, "*N Q"], by: Float[Tensor, "..."]) -> Float[Tensor, "*N Q"]:
        return params + by.unsqueeze(-1).to(params)


SHARE = 0.8  # share of values expected in the interval whose coverage is reported


def sums(
    distribution: ForecastDistribution,
    params: Float[Tensor, "B T H C P"],
    true: Float[Tensor, "B T H C"],
    std: Float[Tensor, "B T 1 C"],
    naive: Float[Tensor, "B T 1 C"],
) -> LossTerms:
    """Sum all metrics of forecasts over the targets that are not missing.

    Args:
        distribution: The distribution that is predicted for each value.
        params: Its parameters, scaled.
        true: The true values, scaled; NaN where one is missing.
        std: Standard deviation by which the channels of each forecast were scaled.
        naive: Their seasonal naive error in train, scaled.

    Returns:
        A sum and the count of its targets for each metric; `crps` and `covered` only for probabilistic forecasts.
    """
    here = ~true.isnan()
    # A missing target is replaced by a number, which is not summed.
    filled = true.nan_to_num()
    median = distribution.median(params)
    terms: LossTerms = {"loss": forecasts.summed(distribution.loss(params.double(), filled.double()), here)}
    terms["mse"] = forecasts.squared_error(median, true)
    terms["mae"] = forecasts.absolute_error(median, true)
    terms["mae_original"] = forecasts.absolute_error(median.double() * std, true.double() * std)
    terms["mse_original"] = forecasts.squared_error(median.double() * std, true.double() * std)
    terms["mase"] = forecasts.scaled_error(median, true, naive.expand_as(true))
    if distribution.is_probabilistic:
        terms["crps"] = forecasts.summed(distribution.crps(params, filled), here)
    # A point forecast has no interval; its coverage is left out, not 0.
    interval = distribution.interval(params, SHARE)
    if interval is not None:
        terms["covered"] = forecasts.coverage(*interval, true)
    return terms


SHOWN_SHARES = (0.5, 0.8, 0.95)  # shares of values expected in the intervals of a plot
MAX_SHOWN = 6  # values of a forecast in words


def samples_of(
    params: Float[Tensor, "B 1 H C P"], distribution: ForecastDistribution, batch: WindowBatch, scaling: Scaling
) -> list[Sample]:
    """Return a sample for each window of a batch: the forecast of its first channel with the true values."""
    found = distribution.median(params)[:, 0].double().cpu()  # (B, H, C)
    mean, std = _moments(scaling, batch.series[:, 0])
    samples = []
    for lane in range(len(found)):
        ahead = (found[lane] * std[lane] + mean[lane])[:, 0].tolist()
        true = (batch.targets[lane, 0].double().cpu() * std[lane] + mean[lane])[:, 0].tolist()
        row = _named(batch, scaling, lane)
        # Rounding in float32 turns a value of 0 into a tiny number, which would look like a forecast.
        least = 1e-6 * float(std[lane, 0, 0])
        shown, reference = _few(ahead, least), _few(true, least)
        columns = {"text": row, "reference": reference, "forecast": shown}
        fan = _fan(params[lane, 0, :, :1].double(), distribution, batch, scaling, lane)
        samples.append(Sample(f"{row}: {shown} (true: {reference})", columns, fan))
    return samples


def _fan(
    params: Float[Tensor, "H 1 P"], distribution: ForecastDistribution, batch: WindowBatch, scaling: Scaling, lane: int
) -> Fan:
    """Return the forecast of the first channel of a window as a fan."""
    series = batch.series[lane]
    mean, std = _moments(scaling, series)

    def in_units(values: Float[Tensor, "n 1"]) -> Float[np.ndarray, " n"]:
        return (values[:, 0].double().cpu() * std[0, 0, 0] + mean[0, 0, 0]).numpy()

    bands = {}
    for share in SHOWN_SHARES:
        interval = distribution.interval(params, share)
        if interval is not None:
            bands[share] = (in_units(interval[0]), in_units(interval[1]))
    read = batch.tokens[lane].reshape(-1, scaling.num_features)[-num_read(len(params)) :]
    # For a value marked as missing the model read 0, which a plot would show as the mean.
    if scaling.masked[0] or (scaling.apart and any(scaling.masked)):
        read = torch.where(read[:, scaling.num_channels, None] > 0, read, torch.nan)
    return by_steps(
        in_units(read[:, :1]),
        in_units(distribution.median(params)),
        bands=bands,
        truth=in_units(batch.targets[lane, 0, :, :1]),
        title=_named(batch, scaling, lane),
    )


def _named(batch: WindowBatch, scaling: Scaling, lane: int) -> str:
    """Name a forecast by its first column and by the row of its series at which it begins."""
    channel = int(batch.series[lane]) % len(scaling.columns) if scaling.apart else 0
    return f"{scaling.columns[channel]}, row {int(batch.places[lane]):,}"


def by_channel(scaling: Scaling, values: Sequence[float]) -> Float[Tensor, "S C"]:
    """Arrange one number for each value column by series and channel."""
    columns = torch.tensor(values[: len(scaling.columns)], dtype=torch.float64)
    if scaling.apart:  # the columns of the first series, then those of the next
        return columns.repeat(len(scaling.naive) // len(columns)).unsqueeze(1)
    return columns.repeat(len(scaling.naive), 1)


def _moments(scaling: Scaling, series: Int[Tensor, " B"]) -> tuple[Float[Tensor, "B 1 C"], Float[Tensor, "B 1 C"]]:
    """Return mean and standard deviation of the channels of some series."""
    mean, std = by_channel(scaling, scaling.mean), by_channel(scaling, scaling.std)
    where = series.cpu()
    return mean[where].unsqueeze(1), std[where].unsqueeze(1)


def _few(values: Sequence[float], least: float) -> str:
    """Format the first values of a list; those smaller than `least` in absolute value become 0."""
    shown = []
    for value in values[:MAX_SHOWN]:
        if value != value:
            shown.append("missing")
        else:
            shown.append(f"{value if abs(value) >= least else 0:.4g}")
    return " ".join(shown) + (" ..." if len(values) > MAX_SHOWN else "")


def begin(model: SequenceModel, window: Float[Tensor, "B T F"]) -> State:
    """Return the state from which the horizon is read: after all rows of a window but the newest.

    The newest row has the last known value, and the first step is forecast from it. So a model that continues from a
    prefix and the decoder of an encoder-decoder read the same rows, each once.
    """
    return model.begin(window[:, :-1])


def teacher_forced(
    model: SequenceModel, window: Float[Tensor, "B T F"], ahead: Float[Tensor, "B H F"]
) -> Float[Tensor, "B H D"]:
    """Return hidden states of the horizon, each row read with the true value before it (Williams and Zipser 1989)."""
    return model(ahead, begin(model, window))[0]


def free_running(
    model: SequenceModel,
    window: Float[Tensor, "B T F"],
    ahead: Float[Tensor, "B H F"],
    predict: Callable[[Float[Tensor, "B 1 D"], Float[Tensor, "B 1 F"]], Float[Tensor, "B C"]],
    num_masked: int,
) -> Float[Tensor, "B H C"]:
    """Forecast the values of the horizon, each from the forecasts before it.

    Args:
        model: The model, which reads one row at a time and keeps its state.
        window: The rows up to the first one that is predicted.
        ahead: Features of the rows that are predicted. After the first row only those known ahead are used.
        predict: Function that returns the next value from a hidden state and the row that was read last.
        num_masked: Number of channels with a feature for missing values.
    """
    state = begin(model, window)
    row = ahead[:, :1]
    found: list[Float[Tensor, "B C"]] = []
    for step in range(ahead.shape[1]):
        if found:
            row = fed_back(found[-1], ahead[:, step : step + 1], num_masked)
        hidden, state = model(row, state)
        found.append(predict(hidden, row))
    return torch.stack(found, 1)


def fed_back(values: Float[Tensor, "B C"], row: Float[Tensor, "B 1 F"], num_masked: int) -> Float[Tensor, "B 1 F"]:
    """Return the features of a row for these values before it, in the layout of `Reading.features`."""
    # New tensors, so that no true value of the row is passed on.
    seen = row.new_ones(len(row), 1, num_masked)
    since = row.new_zeros(len(row), 1, num_masked)  # log(1 + 0 steps)
    known = row[..., values.shape[-1] + 2 * num_masked :]
    return torch.cat([values.unsqueeze(1).to(row.dtype), seen, since, known], -1)


def incompatibility(
    model: SequenceModel, *, streams: bool, patch: int, is_point: bool, history: int, horizon: int
) -> str | None:
    """Return the reason why a model cannot read its own forecasts with these options, or None if it can.

    Args:
        model: The forecasting model.
        streams: True if a forecast is made at each row of a stream.
        patch: Number of rows that are read as one time step.
        is_point: True if a forecast is one number for each value.
        history: Number of rows of a window.
        horizon: Number of rows that are predicted.
    """
    strategy = "task.strategy=recursive"
    if streams:
        return f"tbptt.carry=true: {strategy} forecasts from windows, not at each row of a stream; use tbptt=whole"
    if patch > 1:
        return f"task.patch={patch}: {strategy} reads its own forecasts row by row; use task.patch=1"
    if not is_point:
        return (
            f"task.distribution: {strategy} reads its own forecast of each step as if it were certain, so intervals "
            "would be too narrow; use task.distribution=point, or task.strategy=direct"
        )
    # Prefix and horizon share one table of positions; in an encoder-decoder each has its own.
    longest = history + horizon - 1
    if Capability.UNCONDITIONAL not in model.capabilities:
        longest = max(history - 1, horizon)
    if model.max_length is not None and longest > model.max_length:
        return (
            f"{strategy}: reads {longest} rows, window and horizon, more than model.max_length={model.max_length}; "
            "increase it"
        )
    return None
