"""Forecasting: the next values of a series from those before them, all steps ahead at once or one after another."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqtrain.data.batching.stream import StreamBatch
from seqtrain.data.batching.values import SeriesStream, WindowBatch, Windows
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.values.reading import Reading
from seqtrain.data.values.scaling import Scaling
from seqtrain.models.base import Capability, SequenceModel, State, last_hidden, read
from seqtrain.tasks import forecast_heads, least_squares
from seqtrain.tasks.base import (
    Baseline,
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
from seqtrain.tasks.forecast_heads import (
    SHARE,
    SHOWN_SHARES,
    ForecastDistribution,
    Gaussian,
    Point,
    Quantiles,
    StudentT,
    by_channel,
    samples_of,
    sums,
)
from seqtrain.tasks.metrics.forecasts import squared_error

Strategy = Literal["direct", "recursive"]
Distribution = Literal["point", "gaussian", "student_t", "quantiles"]
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
REASON = "one window of a series is read at a time"


def distribution_of(name: Distribution) -> ForecastDistribution:
    """Return the distribution by which a forecast describes each value."""
    kinds = {"point": Point, "gaussian": Gaussian, "student_t": StudentT}
    if name == "quantiles":
        return Quantiles(LEVELS)
    return kinds[name]()


class Forecast(SeriesTask):
    """Predicts the next `horizon` values of all channels of series.

    With the direct strategy all values are predicted from one hidden state: each step ahead has its own outputs. With
    the recursive strategy a single step is learned, given the true values before it (teacher forcing); longer forecasts
    read each forecast back in as input (free running). All metrics are of free-running forecasts, except
    `mse_teacher_forced`, which uses true values that a forecast does not have.

    If no state is carried, windows of `max_length` rows are read independently. With tbptt.carry series are read as a
    stream, with a forecast at each row.
    """

    requires = Capability.UNCONDITIONAL
    needs_whole = REASON
    fields = ("values",)
    metrics = (
        Metric("loss", "min", "loss"),
        Metric("mse", "min", "MSE (scaled)", of_answers=True, tokenizer_free=True),
        Metric("mae", "min", "MAE (scaled)", of_answers=True, tokenizer_free=True),
        Metric("mae_original", "min", "MAE (units of the data)", of_answers=True, tokenizer_free=True),
        Metric("mse_original", "min", "MSE (units of the data, squared)", of_answers=True, tokenizer_free=True),
        Metric("mase", "min", "MASE", of_answers=True, tokenizer_free=True),
        Metric("crps", "min", "CRPS (scaled)", of_answers=True, tokenizer_free=True),
        Metric("coverage80_gap", "min", "away from a coverage of 80 %", of_answers=True, tokenizer_free=True),
        # Measured with the recursive strategy only; no verdict uses them.
        Metric("mse_teacher_forced", "min", "MSE teacher-forced (no forecast)", tokenizer_free=True),
        Metric("teacher_forcing_gap", "min", "MSE above teacher forcing", tokenizer_free=True),
    )
    compared_by = "mse"
    trained_by = ("strategy", "distribution", "relative", "patch")
    known_baselines = MappingProxyType(
        {
            "last_value": Baseline("the last value, again and again", "the last value"),
            "mean": Baseline("always the mean of train, if no value is read", "the mean of train"),
            "seasonal_naive": Baseline("the values of a season ago", "the season before"),
            "drift": Baseline("the line through the first and the last value read"),
            "harmonics": Baseline("the time of year, by three waves", "waves of a year"),
            "ar": Baseline("a linear map of all values read, by least squares", "a linear autoregression"),
            "ar_shorter": Baseline("a linear map of fewer values, chosen at train's end", "a shorter autoregression"),
            **forecasts.SMOOTHERS,
        }
    )
    example_text = "--input FILE.csv"
    naive: Float[Tensor, "S C"]  # not trainable
    std: Float[Tensor, "S C"]

    def __init__(
        self,
        *,
        horizon: int,
        distribution: Distribution,
        relative: bool,
        patch: int,
        dim: int,
        strategy: Strategy = "direct",
        carry: bool = False,
        max_length: int = 256,
        preprocessor: Preprocessor | None = None,
    ) -> None:
        """Build the head and the scaling tables.

        Args:
            horizon: H, number of values ahead.
            distribution: Form of the forecast of each value: a number, a distribution, or quantiles.
            relative: True to forecast the difference to the last value.
            patch: Rows of a window read as one time step.
            dim: The model's width.
            strategy: direct: all values at once; recursive: each value from the forecasts before it.
            carry: True to read series as a stream.
            max_length: Rows of a window.
            preprocessor: Contains the number of channels and their scaling.
        """
        super().__init__()
        self.streams = carry
        self.recursive = strategy == "recursive"
        if self.recursive:
            # From a window, the values before the horizon; the model decides whether it is a prefix or a source.
            self.requires = Capability.CAUSAL | Capability.STATEFUL
        elif carry:
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
        self.num_masked = 0 if scaling is None else scaling.num_masked
        self.num_steps = 1 if self.recursive else horizon  # steps forecast from one hidden state
        self.rows_ahead = horizon if self.recursive else 1
        self.head = nn.Linear(dim, self.num_steps * self.num_channels * self.distribution.num_params)
        self.register_buffer("naive", _table(scaling, naive=True), persistent=False)
        self.register_buffer("std", _table(scaling, naive=False), persistent=False)

    def no_distance(self) -> str | None:
        """Return the reason why a loss has no single distance from its input; None if it has one."""
        if not self.recursive:
            return None
        return "with strategy=recursive a window has a loss at each step ahead, with inputs between them"

    def incompatibility(self, model: SequenceModel) -> str | None:
        if self.streams and self.patch > 1:
            return f"task.patch={self.patch}: each row of a stream is a time step; use tbptt=whole, or task.patch=1"
        if least_squares.linear_order_of(model) is not None:
            is_point = not self.distribution.is_probabilistic
            reason = least_squares.incompatibility(is_point=is_point, patch=self.patch)
            if reason:
                return reason
        if not self.recursive:
            return None
        return forecast_heads.incompatibility(
            model,
            streams=self.streams,
            patch=self.patch,
            is_point=not self.distribution.is_probabilistic,
            history=self.max_length,
            horizon=self.horizon,
        )

    def remedy(self, model: SequenceModel) -> str | None:
        """Return task options that work with a model without the required capabilities, or None."""
        if self.recursive or Capability.CAUSAL | Capability.STATEFUL not in model.capabilities:
            return None
        return "task.strategy=recursive with tbptt=whole" if self.streams else "task.strategy=recursive"

    def first_weights(self, model: SequenceModel, train: Rows, preprocessor: Preprocessor, say: Say) -> None:
        """Set the weights of a linear model and of the head by least squares on train, if the model asks for it.

        `say`: called with a message on what was set.
        """
        order = least_squares.linear_order_of(model)
        if order is None:
            return
        assert train.series is not None
        # Windows may have fewer values than the model can read.
        history = order if self.streams else min(order, self.max_length)
        least_squares.begin_with_least_squares(
            model,
            self.head,
            train.series,
            self.reading(train, preprocessor),
            order=history,
            horizon=self.num_steps,
            relative=self.relative,
            say=say,
        )

    # -- loss and metrics ----------------------------------------------------------------------------------------

    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... P"]:
        """Return the raw outputs of the head, from which the parameters of all values ahead are computed."""
        return self.head(hidden)

    def params(
        self, model: SequenceModel, batch: StreamBatch | WindowBatch, state: State | None
    ) -> tuple[Float[Tensor, "B T H C P"], State]:
        """Return the scaled parameters of a batch's forecasts (free-running if recursive), and the state after it."""
        if self.recursive:
            return self._free_running(model, *_window_and_ahead(batch)), {}
        if isinstance(batch, WindowBatch):
            # Only the last hidden state depends on the whole window.
            return self._params(model, last_hidden(model, batch.tokens), batch.tokens[:, -1:]), {}
        hidden, after = read(model, batch.tokens, state, batch.starts)
        return self._params(model, hidden, batch.tokens), after

    def _params(
        self, model: SequenceModel, hidden: Float[Tensor, "B T D"], tokens: Float[Tensor, "B T F"]
    ) -> Float[Tensor, "B T n C P"]:
        """Compute the parameters of the forecasts from hidden states and from the last row read before each."""
        newest = tokens[..., -self.num_features :][..., : self.num_channels]  # (B, T, C); for a patch, its last row
        raw = self.logits(model, hidden).unflatten(-1, (self.num_steps, self.num_channels, -1))
        params = self.distribution.parameters(raw)
        if self.relative:
            params = self.distribution.moved(params, newest.unsqueeze(2))
        return params

    def teacher_forced(self, model: SequenceModel, batch: WindowBatch) -> Float[Tensor, "B 1 H C P"]:
        """Return the parameters of each step, given the true values before it, which a forecast does not have."""
        return self._teacher_forced(model, *_window_and_ahead(batch))

    def _teacher_forced(
        self, model: SequenceModel, window: Float[Tensor, "B T F"], ahead: Float[Tensor, "B H F"]
    ) -> Float[Tensor, "B 1 H C P"]:
        """Return the parameters of one step from each row of the horizon, given the true values before it."""
        params = self._params(model, forecast_heads.teacher_forced(model, window, ahead), ahead)
        return params.transpose(1, 2)

    def _free_running(
        self, model: SequenceModel, window: Float[Tensor, "B T F"], ahead: Float[Tensor, "B H F"]
    ) -> Float[Tensor, "B 1 H C P"]:
        """Return the parameters of each step, given the forecasts of the values before it."""

        def predict(hidden: Float[Tensor, "B 1 D"], row: Float[Tensor, "B 1 F"]) -> Float[Tensor, "B C"]:
            return self.distribution.median(self._params(model, hidden, row))[:, 0, 0]

        # A point forecast's one parameter is the value itself.
        return forecast_heads.free_running(model, window, ahead, predict, self.num_masked)[:, None, ..., None]

    def evaluate(
        self, model: SequenceModel, batch: StreamBatch | WindowBatch, state: State | None
    ) -> tuple[LossTerms, State]:
        """Return `loss` of scaled values; outside training also the sums of all metrics.

        With the recursive strategy the training loss is teacher-forced. Evaluation measures free-running forecasts, so
        that the best weights are those that forecast best; only `mse_teacher_forced` is teacher-forced.
        """
        if self.training and self.recursive:
            params, after = self._teacher_forced(model, *_window_and_ahead(batch)), {}
        else:
            params, after = self.params(model, batch, state)
        true, count = batch.targets, batch.num_targets
        if self.training:
            # A missing target has a placeholder value, whose loss is masked: a NaN would reach the gradient.
            losses = self.distribution.loss(params, true.nan_to_num())
            return {"loss": (torch.where(true.isnan(), 0.0, losses).sum(), count)}, after
        assert batch.series is not None
        std, naive = self.std[batch.series].unsqueeze(2), self.naive[batch.series].unsqueeze(2)
        terms = sums(self.distribution, params, true, std, naive)
        if self.recursive:
            one_step = self._teacher_forced(model, *_window_and_ahead(batch))
            terms["mse_teacher_forced"] = squared_error(self.distribution.median(one_step), true)
        return terms, after

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return the means of all sums; `coverage80_gap` is the distance of the covered share from 80 %.

        `teacher_forcing_gap` is the error of a free-running forecast minus that of a teacher-forced one. It is above 0
        even for a perfect model, because future noise cannot be known.
        """
        found = {}
        for name, (total, count) in totals.items():
            if count:
                found[name] = total / count
        if "covered" in found:
            # A gap, because neither more nor less coverage is better.
            found["coverage80_gap"] = abs(found.pop("covered") - SHARE)
        if "mse_teacher_forced" in found:
            found["teacher_forcing_gap"] = found["mse"] - found["mse_teacher_forced"]
        # Empty if all values since the last record are missing: a loss of 0 would look like a perfect one.
        return found

    def head_flops(self) -> float:
        return 2.0 * self.dim * self.head.out_features

    def blank_targets(self, tokens: Float[Tensor, "B T F"]) -> Float[Tensor, "B T H C"]:
        """Return targets shaped as those of a stream for `tokens`, to measure the memory that a step keeps."""
        return tokens.new_zeros(*tokens.shape[:2], self.horizon, self.num_channels)

    # -- data ----------------------------------------------------------------------------------------------------

    def reading(self, rows: Rows, preprocessor: Preprocessor) -> Reading:
        """Return the reading of the series that a split belongs to."""
        assert rows.series is not None
        assert preprocessor.series is not None
        rows.series.series.check_asked(self.max_length, self.horizon)
        dtype = np.float64 if self.head.weight.dtype == torch.float64 else np.float32
        return Reading(rows.series.series, preprocessor.series, dtype)

    def windows(self, rows: Rows, preprocessor: Preprocessor, *, patch: int = 1, reads_ahead: bool = False) -> Windows:
        """Return the windows of a split with their targets, and with the features of these rows if `reads_ahead`."""
        assert rows.series is not None
        reading = self.reading(rows, preprocessor)
        return Windows(
            rows.series, reading, history=self.max_length, horizon=self.horizon, patch=patch, reads_ahead=reads_ahead
        )

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> Windows:
        return self.windows(rows, preprocessor, patch=self.patch, reads_ahead=self.recursive)

    def series_stream(self, rows: Rows, preprocessor: Preprocessor, *, context: int) -> SeriesStream:
        """Return the series of a split as a stream; `context` rows before the split are read and not predicted."""
        assert rows.series is not None
        reading = self.reading(rows, preprocessor)
        return SeriesStream(rows.series, reading, horizon=self.horizon, context=context)

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        assert preprocessor.series is not None
        # Baselines read the same rows as the model, row by row, for any patch.
        windows, naive = self.windows(split, preprocessor), np.array(preprocessor.series.naive)
        known = self.forecasters(train, windows, preprocessor, say)
        return {name: forecasts.measured(each, windows, naive) for name, each in known.items()}

    def forecasters(
        self, train: Rows, windows: Windows, preprocessor: Preprocessor, say: Say
    ) -> dict[str, forecasts.Forecaster]:
        """Return the baselines, fitted to train, for windows of a split."""
        assert train.series is not None
        assert preprocessor.series is not None
        return forecasts.baselines(train.series, windows, preprocessor.series.season, say)

    @torch.no_grad()
    def ahead(
        self, model: SequenceModel, features: Float[np.ndarray, "T F"], k2: int
    ) -> dict[str, Float[np.ndarray, "H C"]]:
        tokens = torch.from_numpy(features).to(self.head.weight.dtype).unsqueeze(0)
        if self.recursive:
            origin = len(features) - self.horizon  # the first predicted row
            window = tokens[:, max(origin + 1 - self.max_length, 0) : origin + 1]
            params = self._free_running(model, window, tokens[:, origin:])[0, 0].double()
            return {"forecast": self.distribution.median(params).numpy()}
        if self.streams:
            state = model.initial(1)
            # Read all but the last chunk for their state.
            for begin in range(0, len(features) - 1, k2):
                end = min(begin + k2, len(features) - 1)
                _, state = model(tokens[:, begin:end], state)
            hidden, _ = model(tokens[:, -1:], state)
        else:
            tokens = tokens[:, -self.max_length :].reshape(1, self.max_length // self.patch, -1)
            hidden = last_hidden(model, tokens)
        # In float64 before the scaling is undone: a large mean would remove the digits of small changes.
        params = self._params(model, hidden[:, -1:], tokens[:, -1:])[0, 0].double()
        found = {"forecast": self.distribution.median(params).numpy()}
        for share in SHOWN_SHARES:
            interval = self.distribution.interval(params, share)
            if interval is not None:
                for name, ends in zip(("lower", "upper"), interval, strict=True):
                    found[f"{name}_{100 * share:.0f}"] = ends.numpy()
        return found

    # -- words ---------------------------------------------------------------------------------------------------

    def samples(
        self, model: SequenceModel, batch: WindowBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[Sample]:
        """Return the first values of each forecast and the true values, in the units of the data, as text."""
        params, _ = self.params(model, batch, None)
        assert preprocessor.series is not None
        return samples_of(params, self.distribution, batch, preprocessor.series)


def _window_and_ahead(batch: StreamBatch | WindowBatch) -> tuple[Float[Tensor, "B T F"], Float[Tensor, "B H F"]]:
    """Return the rows of a window, and the predicted rows, which only a recursive forecast reads."""
    assert isinstance(batch, WindowBatch)
    assert batch.ahead is not None
    return batch.tokens, batch.ahead


def _table(scaling: Scaling | None, *, naive: bool) -> Float[Tensor, "S C"]:
    """Return, for each channel of each series, the seasonal naive error or the deviation that scales it."""
    if scaling is None:
        return torch.ones(1, 1)
    table = torch.tensor(scaling.naive, dtype=torch.float64)
    return table if naive else by_channel(scaling, scaling.std)
