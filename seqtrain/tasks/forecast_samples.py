"""Forecasts beside what came, for people: in words, and as pictures with their intervals, in the units of the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqtrain.data.batching.values import WindowBatch
from seqtrain.data.values.fan import Fan, by_steps, num_read
from seqtrain.data.values.scaling import Scaling
from seqtrain.tasks.base import Sample
from seqtrain.tasks.forecast_heads import ForecastDistribution

SHOWN_SHARES = (0.5, 0.8, 0.95)  # of the values are to lie in an interval that is told
MAX_SHOWN = 6  # values of a forecast in words


def samples_of(
    params: Float[Tensor, "B 1 H C P"], distribution: ForecastDistribution, batch: WindowBatch, scaling: Scaling
) -> list[Sample]:
    """Return a sample for each window of a batch: the forecast of its first channel beside the true values."""
    found = distribution.median(params)[:, 0].double().cpu()  # (B, H, C)
    mean, std = _moments(scaling, batch.series[:, 0])
    samples = []
    for lane in range(len(found)):
        ahead = (found[lane] * std[lane] + mean[lane])[:, 0].tolist()
        true = (batch.targets[lane, 0].double().cpu() * std[lane] + mean[lane])[:, 0].tolist()
        row = _named(batch, scaling, lane)
        # What float32 adds to a value that is 0 would read like a number of its own.
        least = 1e-6 * float(std[lane, 0, 0])
        shown, reference = _few(ahead, least), _few(true, least)
        columns = {"text": row, "reference": reference, "forecast": shown}
        fan = _fan(params[lane, 0, :, :1].double(), distribution, batch, scaling, lane)
        samples.append(Sample(f"{row}: {shown} (it is {reference})", columns, fan))
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
    # Where the model was told that a value is missing it read 0, which a picture would show as the mean.
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
