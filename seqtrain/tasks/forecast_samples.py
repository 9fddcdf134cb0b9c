"""Forecasts with the true values, in words and as plots with intervals, in the units of the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqtrain.data.batching.values import WindowBatch
from seqtrain.data.values.fan import Fan, by_steps, num_read
from seqtrain.data.values.scaling import Scaling
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.tasks.base import Sample
from seqtrain.tasks.forecast_heads import ForecastDistribution

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
