"""Forecasting: the next values of a series from those before them, at once for all steps ahead."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.data.batching.stream import StreamBatch
from seqtrain.data.batching.values import SeriesStream, WindowBatch, Windows
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.values.reading import Reading
from seqtrain.data.values.scaling import Scaling
from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.tasks import least_squares
from seqtrain.tasks.base import (
    Baseline,
    ExampleTask,
    Facts,
    LossTerms,
    Metric,
    Reduced,
    Sample,
    SampleOptions,
    Say,
    SeriesTask,
)
from seqtrain.tasks.baselines import forecasts
from seqtrain.tasks.forecast_heads import ForecastDistribution, Gaussian, Point, Quantiles, StudentT
from seqtrain.tasks.metrics import forecasts as metrics

Distribution = Literal["point", "gaussian", "student_t", "quantiles"]
SHOWN_SHARES = (0.5, 0.8, 0.95)  # of the values are to lie in an interval that is told
SHARE = 0.8  # of the values are to lie in the interval that coverage is told of
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
MAX_SHOWN = 6  # values of a forecast in words
REASON = "what is read is one window of a series"


def distribution_of(name: Distribution) -> ForecastDistribution:
    """What a forecast says of each value."""
    kinds = {"point": Point, "gaussian": Gaussian, "student_t": StudentT}
    if name == "quantiles":
        return Quantiles(LEVELS)
    return kinds[name]()


class Forecast(SeriesTask, ExampleTask):
    """The next `horizon` values of all channels from a hidden state: each step ahead has outputs of its own.

    Where no state is carried, windows of `max_length` rows are read, each by itself. With tbptt.carry series are read
    as a stream, and a forecast is made at each of their rows.
    """

    requires = Capability.UNCONDITIONAL
    needs_whole = REASON
    fields = ("values",)
    metrics = (
        Metric("loss", "min", "loss"),
        Metric("mse", "min", "MSE (scaled)", of_answers=True, tokenizer_free=True),
        Metric("mae", "min", "MAE (scaled)", of_answers=True, tokenizer_free=True),
        Metric("mae_original", "min", "MAE (units of the data)", of_answers=True, tokenizer_free=True),
        Metric("mase", "min", "MASE", of_answers=True, tokenizer_free=True),
        Metric("crps", "min", "CRPS (scaled)", of_answers=True, tokenizer_free=True),
        Metric("coverage80_gap", "min", "away from a coverage of 80 %", of_answers=True, tokenizer_free=True),
    )
    compared_by = "mse"
    trained_by = ("distribution", "relative", "patch")
    known_baselines = MappingProxyType(
        {
            "last_value": Baseline("the last value, again and again", "the last value"),
            "seasonal_naive": Baseline("the values of a season ago", "the season before"),
            "drift": Baseline("the line through the first and the last value read"),
            "ar": Baseline("a linear map of all values read, by least squares", "a linear autoregression"),
            "ar_shorter": Baseline("one of fewer values, chosen on the end of train", "a shorter autoregression"),
        }
    )
    fits_linear = True
    example_text = "--input FILE.csv"
    naive: Float[Tensor, "S C"]  # no weights
    std: Float[Tensor, "S C"]

    def __init__(
        self,
        *,
        horizon: int,
        distribution: Distribution,
        relative: bool,
        patch: int,
        dim: int,
        carry: bool = False,
        max_length: int = 256,
        preprocessor: Preprocessor | None = None,
    ) -> None:
        """Holds what is forecast.

        Args:
            horizon: H, how many values ahead.
            distribution: What is said of each value: a number, a distribution, or quantiles.
            relative: Whether the difference to the last value is forecast.
            patch: Rows that are read as one time step, of windows.
            dim: The model's width.
            carry: Whether series are read as a stream.
            max_length: Rows of a window.
            preprocessor: Says how many channels there are, and how they are scaled.
        """
        super().__init__()
        self.streams = carry
        if carry:
            self.requires = Capability.CAUSAL | Capability.UNCONDITIONAL
        self.horizon = horizon
        self.relative = relative
        self.patch = patch
        self.dim = dim
        self.max_length = max_length
        self.distribution = distribution_of(distribution)
        scaling = None if preprocessor is None else preprocessor.series
        self.num_channels = 1 if scaling is None else scaling.num_channels
        self.num_features = 1 if scaling is None else scaling.num_features
        self.head = nn.Linear(dim, horizon * self.num_channels * self.distribution.num_params)
        self.register_buffer("naive", _table(scaling, naive=True), persistent=False)
        self.register_buffer("std", _table(scaling, naive=False), persistent=False)

    @classmethod
    def reads_stream(cls, carry: bool) -> bool:
        return carry

    def incompatibility(self, model: SequenceModel) -> str | None:
        if self.streams and self.patch > 1:
            return f"task.patch={self.patch}: of a stream each row is a time step; use tbptt=whole, or task.patch=1"
        if model.linear_order is not None:
            is_point = not self.distribution.is_probabilistic
            return least_squares.incompatibility(is_point=is_point, patch=self.patch)
        return None

    def first_weights(self, model: SequenceModel, train: Rows, preprocessor: Preprocessor, say: Say) -> None:
        if model.linear_order is None:
            return
        assert train.series is not None
        # Windows may hold fewer values than the model could read.
        history = model.linear_order if self.streams else min(model.linear_order, self.max_length)
        least_squares.begin_with_least_squares(
            model,
            self.head,
            train.series,
            self.reading(train, preprocessor),
            order=history,
            horizon=self.horizon,
            relative=self.relative,
            say=say,
        )

    # -- loss and metrics ----------------------------------------------------------------------------------------

    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... P"]:
        """The numbers of which the parameters of all values ahead are made."""
        return self.head(hidden)

    def params(
        self, model: SequenceModel, batch: StreamBatch | WindowBatch, state: State | None
    ) -> tuple[Float[Tensor, "B T H C P"], State]:
        """The parameters of the forecasts of a batch, scaled, and the state after it."""
        # Of a window only the last state has read all of it.
        is_window = isinstance(batch, WindowBatch)
        hidden, after = model.last(batch.tokens, state) if is_window else model(batch.tokens, state)
        return self._params(model, hidden, batch.tokens[:, -hidden.shape[1] :]), after

    def _params(
        self, model: SequenceModel, hidden: Float[Tensor, "B T D"], tokens: Float[Tensor, "B T F"]
    ) -> Float[Tensor, "B T H C P"]:
        """The parameters of the forecasts from hidden states, and from what was read last before each."""
        newest = tokens[..., -self.num_features :][..., : self.num_channels]  # (B, T, C); of a patch its last row
        raw = self.logits(model, hidden).unflatten(-1, (self.horizon, self.num_channels, -1))
        params = self.distribution.parameters(raw)
        if self.relative:
            params = self.distribution.rescaled(params, newest.unsqueeze(2), 1.0)
        return params

    def evaluate(
        self, model: SequenceModel, batch: StreamBatch | WindowBatch, state: State | None
    ) -> tuple[LossTerms, State]:
        """`loss` of scaled values; outside training the sums of all that is measured, too."""
        params, after = self.params(model, batch, state)
        true, count = batch.targets, batch.num_targets
        here = ~true.isnan()
        # A missing target has a number in its place, whose loss is not taken: NaN would reach the gradient.
        filled = true.nan_to_num()
        if self.training:
            losses = self.distribution.loss(params, filled)
            return {"loss": (torch.where(here, losses, 0.0).sum(), count)}, after
        losses = self.distribution.loss(params.double(), filled.double())
        terms: LossTerms = {"loss": (torch.where(here, losses, 0.0).sum(), count)}
        assert batch.series is not None
        median, mean = self.distribution.median(params), self.distribution.mean(params)
        # Each error by what is best for it: the mean for squares, the median for absolute ones.
        terms["mse"] = metrics.squared_error(mean, true)
        terms["mae"] = metrics.absolute_error(median, true)
        std, naive = self.std[batch.series].unsqueeze(2), self.naive[batch.series].unsqueeze(2)
        terms["mae_original"] = metrics.absolute_error(median.double() * std, true.double() * std)
        terms["mase"], _ = metrics.scaled_error(median, true, naive.expand_as(true))
        if self.distribution.is_probabilistic:
            terms["crps"] = metrics.summed(self.distribution.crps(params, filled), here)
        # A point has none, and then there is no coverage rather than one of 0.
        interval = self.distribution.interval(params, SHARE)
        if interval is not None:
            terms["covered"] = metrics.coverage(*interval, true)
        return terms, after

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Means of all that was summed; `coverage80_gap` is how far the covered share is from 80 %."""
        found = {}
        for name, (total, count) in totals.items():
            if count:
                found[name] = total / count
        if "covered" in found:
            # A gap, since of coverage itself neither more nor less is better.
            found["coverage80_gap"] = abs(found.pop("covered") - SHARE)
        # Nothing where all that was read since the last record is missing: a loss of 0 would look like a perfect one.
        return found

    def head_flops(self) -> float:
        return 2.0 * self.dim * self.head.out_features

    def blank_targets(self, tokens: Float[Tensor, "B T F"]) -> Float[Tensor, "B T H C"]:
        return tokens.new_zeros(*tokens.shape[:2], self.horizon, self.num_channels)

    # -- data ----------------------------------------------------------------------------------------------------

    def look_at(self, model: SequenceModel, batch: WindowBatch, limit: int) -> tuple[list[int], list[int] | None]:
        raise UserError("attention is drawn over tokens, and series have none")

    def reading(self, rows: Rows, preprocessor: Preprocessor) -> Reading:
        """What is read of the series that a split is of."""
        assert rows.series is not None
        assert preprocessor.series is not None
        dtype = np.float64 if self.head.weight.dtype == torch.float64 else np.float32
        return Reading(rows.series.series, preprocessor.series, dtype)

    def windows(self, rows: Rows, preprocessor: Preprocessor, *, patch: int) -> Windows:
        """The windows of a split, and what is to be predicted after each."""
        assert rows.series is not None
        reading = self.reading(rows, preprocessor)
        return Windows(rows.series, reading, history=self.max_length, horizon=self.horizon, patch=patch)

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> Windows:
        return self.windows(rows, preprocessor, patch=self.patch)

    def series_stream(self, rows: Rows, preprocessor: Preprocessor, *, context: int) -> SeriesStream:
        """The series of a split as a stream; `context`: rows before the split that are read, and not predicted."""
        assert rows.series is not None
        reading = self.reading(rows, preprocessor)
        return SeriesStream(rows.series, reading, horizon=self.horizon, context=context)

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        assert train.series is not None
        assert preprocessor.series is not None
        reading = self.reading(split, preprocessor)
        # Baselines read the same rows as the model, row by row, whatever a patch is.
        windows = self.windows(split, preprocessor, patch=1)
        naive = np.array(preprocessor.series.naive)
        return forecasts.baselines(train.series, windows, reading, naive, preprocessor.series.season, say)

    @torch.no_grad()
    def ahead(
        self, model: SequenceModel, features: Float[np.ndarray, "T F"], k2: int
    ) -> dict[str, Float[np.ndarray, "H C"]]:
        tokens = torch.from_numpy(features).to(self.head.weight.dtype).unsqueeze(0)
        if self.streams:
            state = model.initial(1)
            # All but the last chunk, for the state that they leave.
            for begin in range(0, len(features) - 1, k2):
                end = min(begin + k2, len(features) - 1)
                _, state = model(tokens[:, begin:end], state)
            hidden, _ = model(tokens[:, -1:], state)
        else:
            tokens = tokens[:, -self.max_length :].reshape(1, self.max_length // self.patch, -1)
            hidden, _ = model(tokens, None)
        # In float64 before units come back: a large mean would take the digits of small changes.
        params = self._params(model, hidden[:, -1:], tokens[:, -1:])[0, 0].double()
        found = {"forecast": self.distribution.median(params).numpy()}
        for share in SHOWN_SHARES:
            interval = self.distribution.interval(params, share)
            if interval is not None:
                for name, ends in zip(("lower", "upper"), interval, strict=True):
                    found[f"{name}_{100 * share:.0f}"] = ends.numpy()
        return found

    # -- words ---------------------------------------------------------------------------------------------------

    def show(
        self, model: SequenceModel, batch: WindowBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[str]:
        """The first values of each forecast, in the units of the data, and what came."""
        return [sample.text for sample in self.samples(model, batch, preprocessor, options)]

    def samples(
        self, model: SequenceModel, batch: WindowBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[Sample]:
        params, _ = self.params(model, batch, None)
        found = self.distribution.median(params)[:, 0].double()  # (B, H, C)
        mean, std = _moments(preprocessor.series, batch.series[:, 0])
        samples = []
        for lane in range(len(found)):
            ahead = (found[lane] * std[lane] + mean[lane])[:, 0].tolist()
            true = (batch.targets[lane, 0].double() * std[lane] + mean[lane])[:, 0].tolist()
            text = f"row {int(batch.rows[lane]):,}: {_few(ahead)} (it is {_few(true)})"
            columns = {"text": f"row {int(batch.rows[lane]):,}", "reference": _few(true), "forecast": _few(ahead)}
            samples.append(Sample(text, columns))
        return samples


def _few(values: Sequence[float]) -> str:
    """The first values of a list."""
    more = " ..." if len(values) > MAX_SHOWN else ""
    return " ".join("missing" if value != value else f"{value:.4g}" for value in values[:MAX_SHOWN]) + more


def _table(scaling: Scaling | None, *, naive: bool) -> Float[Tensor, "S C"]:
    """Of each channel of each series its seasonal naive error, or the deviation by which it is scaled."""
    if scaling is None:
        return torch.ones(1, 1)
    table = torch.tensor(scaling.naive, dtype=torch.float64)
    return table if naive else _by_channel(scaling, scaling.std)


def _by_channel(scaling: Scaling, values: Sequence[float]) -> Float[Tensor, "S C"]:
    """A number of each value column, by series and channel."""
    columns = torch.tensor(values[: len(scaling.columns)], dtype=torch.float64)
    if scaling.apart:  # the columns of the first series, then those of the next
        return columns.repeat(len(scaling.naive) // len(columns)).unsqueeze(1)
    return columns.repeat(len(scaling.naive), 1)


def _moments(
    scaling: Scaling | None, series: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "B 1 C"], Float[Tensor, "B 1 C"]]:
    """Mean and deviation of the channels of some series."""
    assert scaling is not None
    mean, std = _by_channel(scaling, scaling.mean), _by_channel(scaling, scaling.std)
    where = series.cpu()
    return mean[where].unsqueeze(1), std[where].unsqueeze(1)
