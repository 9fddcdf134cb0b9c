"""Laws of recursive forecasts: the first step is teacher-forced, the others know forecasts alone, and no state lies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqtrain.data.batching.values import WindowBatch
from seqtrain.data.preprocess import Preprocessor
from seqtrain.data.values.reading import Reading
from seqtrain.models.ar import AR
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.models.layers.front_ends import ValueProjection
from seqtrain.tasks import forecast_samples
from seqtrain.tasks.base import Facts
from seqtrain.tasks.forecast import Forecast
from tests.support.model_cases import Case, assert_near
from tests.support.series import Held, numbers, prepared

HORIZON, HISTORY = 5, 8
FACTS = Facts(bytes_per_token=1.0, words_per_token=None)
CAUSAL = ["rnn", "gru", "lstm", "min_gru", "cnn", "gpt", "ar", "dlinear"]
MODELS = pytest.mark.parametrize("name", [*CAUSAL, "encoder_decoder", "rnn_encoder_decoder"])


def pair(name: str, preprocessor: Preprocessor, **options: Any) -> tuple[SequenceModel, Forecast]:
    model = Case(name, (("dropout", 0.0),)).make().double().eval()
    torch.manual_seed(1)
    given = {"distribution": "point", "relative": True, "patch": 1, "strategy": "recursive", **options}
    task = Forecast(horizon=HORIZON, dim=model.dim, max_length=HISTORY, preprocessor=preprocessor, **given)
    model.embed = ValueProjection(num_features=task.num_features, dim=model.dim).double()
    if hasattr(model, "target_embed"):
        model.target_embed = ValueProjection(num_features=task.num_features, dim=model.dim).double()
    return model, task.double().eval()


def batch_of(task: Forecast, source: Held, count: int = 9, split: Any = "train") -> WindowBatch:
    preprocessor, rows = prepared(source)
    examples = task.examples(rows[split], preprocessor, max_length=HISTORY, seed=0)
    index = np.arange(count)
    return examples.collate(index, 0, examples.totals(index, 0))


@torch.no_grad()
def free(task: Forecast, model: SequenceModel, batch: WindowBatch) -> Tensor:
    """The forecasts (B, H, C) of a batch that run free."""
    return task.params(model, batch, None)[0][:, 0, ..., 0]


@torch.no_grad()
def forced(task: Forecast, model: SequenceModel, batch: WindowBatch) -> Tensor:
    """The teacher-forced answers (B, H, C) to a batch."""
    assert batch.ahead is not None
    return task._teacher_forced(model, batch.tokens, batch.ahead)[:, 0, ..., 0]


@MODELS
def test_the_first_step_is_teacher_forced_and_the_others_are_not(name: str) -> None:
    source = Held(numbers())
    model, task = pair(name, prepared(source)[0])
    batch = batch_of(task, source)
    one, other = free(task, model, batch), forced(task, model, batch)
    assert_near(one[:, 0], other[:, 0], 1e-12)
    assert (one[:, 1:] - other[:, 1:]).abs().amax((0, 2)).min() > 1e-4


@torch.no_grad()
def by_reading_again(task: Forecast, model: SequenceModel, batch: WindowBatch) -> Tensor:
    """The free-running forecast by its definition: the whole window that has grown is read anew for each step."""
    assert batch.ahead is not None
    rows = [batch.ahead[:, :1]]
    found: list[Tensor] = []
    for step in range(HORIZON):
        if found:
            rows.append(forecast_samples.fed_back(found[-1], batch.ahead[:, step : step + 1], task.num_masked))
        horizon = torch.cat(rows, 1)
        if Capability.UNCONDITIONAL in model.capabilities:
            hidden = model(torch.cat([batch.tokens[:, :-1], horizon], 1))[0]
        else:
            hidden = model(horizon, model.begin(batch.tokens[:, :-1]))[0]
        found.append(task._params(model, hidden[:, -1:], horizon[:, -1:])[:, 0, 0, :, 0])
    return torch.stack(found, 1)


@MODELS
def test_running_free_with_a_state_is_reading_the_window_that_has_grown_again_at_each_step(name: str) -> None:
    source = Held(numbers())
    model, task = pair(name, prepared(source)[0])
    batch = batch_of(task, source)
    assert_near(free(task, model, batch), by_reading_again(task, model, batch), 1e-9)


@MODELS
def test_no_value_of_the_horizon_reaches_a_forecast_and_what_is_known_ahead_does(name: str) -> None:
    values = numbers()
    # Of the last value before the horizon on all others, missing ones too, are other numbers.
    source, changed = Held(values), values.copy()
    model, task = pair(name, prepared(source)[0])
    batch = batch_of(task, source, count=1)
    first = int(batch.rows[0])
    changed[first:] = np.where(np.isnan(changed[first:]), 3.0, np.nan)
    scaling = prepared(source)[0].series
    assert scaling is not None
    other = Reading(Held(changed).series, scaling, np.float64)
    ahead = torch.from_numpy(other.features(np.arange(first, first + HORIZON)[None]))
    assert batch.ahead is not None
    assert not torch.equal(ahead, batch.ahead)
    assert torch.equal(ahead[:, 0], batch.ahead[:, 0])
    expected = free(task, model, batch)
    assert torch.equal(free(task, model, replace(batch, ahead=ahead)), expected)
    # The last columns are known ahead: each row's changes its own step and the later ones alone.
    for step in range(HORIZON):
        moved = batch.ahead.clone()
        moved[:, step, -1] += 1.0
        difference = (free(task, model, replace(batch, ahead=moved)) - expected).abs().amax((0, 2))
        assert torch.equal(difference > 0, torch.arange(HORIZON) >= step)


@pytest.mark.parametrize("missing", ["mask", "mean"])
@pytest.mark.parametrize("channels", ["together", "apart"])
def test_a_forecast_is_read_as_the_same_value_in_a_table_would_be(missing: str, channels: str) -> None:
    values = numbers()
    options: dict[str, Any] = {"missing": missing, "channels": channels}
    source = Held(values, **options)
    preprocessor = prepared(source)[0]
    model, task = pair("gru", preprocessor)
    batch = batch_of(task, source, count=1)
    found = free(task, model, batch)
    scaling, first = preprocessor.series, int(batch.rows[0])
    assert scaling is not None
    assert (scaling.num_masked > 0) == (missing == "mask")
    table = values.copy()
    # Where columns are series of their own, the first rows are those of the first column.
    count = task.num_channels
    table[first : first + HORIZON, :count] = found[0].numpy() * scaling.std[:count] + scaling.mean[:count]
    expected = Reading(Held(table, **options).series, scaling, np.float64).features(
        np.arange(first + 1, first + HORIZON)[None]
    )
    assert batch.ahead is not None
    for step in range(1, HORIZON):
        row = forecast_samples.fed_back(found[:, step - 1], batch.ahead[:, step : step + 1], task.num_masked)
        np.testing.assert_allclose(row[0, 0].numpy(), expected[0, step - 1], rtol=1e-9, atol=1e-12)


class OneColumn(Held):
    """A series with nothing beside its values."""

    def read(self) -> Any:
        return replace(super().read(), known=np.zeros((len(self.values), 0)), known_columns=())


def exact_pair(source: Held, coefficients: tuple[float, float]) -> tuple[SequenceModel, Forecast]:
    """A linear autoregression of two values, and a head, that are given these coefficients; newest last."""
    model = AR(embed=nn.Identity(), dim=1, window=2, dropout=0.0).double().eval()
    task = Forecast(
        horizon=HORIZON,
        distribution="point",
        relative=False,
        patch=1,
        dim=1,
        strategy="recursive",
        max_length=HISTORY,
        preprocessor=prepared(source)[0],
    )
    nn.init.ones_(task.head.weight)
    nn.init.zeros_(task.head.bias)
    model.filters.data[:, 0] = torch.tensor(coefficients)
    return model, task.double().eval()


def sums(task: Forecast, model: SequenceModel, batch: WindowBatch) -> dict[str, float]:
    with torch.no_grad():
        terms, _ = task.evaluate(model, batch, None)
    return {name: float(total) / count for name, (total, count) in terms.items()}


def test_a_model_that_is_exactly_right_has_no_gap_and_one_that_is_not_has() -> None:
    # A wave fulfils y_t = 2 cos(w) y_{t-1} - y_{t-2} exactly; whole periods in train leave no mean to be taken off.
    angle = 2 * np.pi / 9
    source = OneColumn(np.sin(angle * np.arange(90))[:, None], lengths=(90,), time_features=[], rows=(54, 18, 18))
    right, wrong = (-1.0, 2 * np.cos(angle)), (-1.0, 1.9 * np.cos(angle))
    for coefficients, is_exact in ((right, True), (wrong, False)):
        model, task = exact_pair(source, coefficients)
        found = sums(task, model, batch_of(task, source, split="validation"))
        assert (found["mse"] < 1e-20) == is_exact
        assert (found["mse"] - found["mse_teacher_forced"] < 1e-20) == is_exact


def test_all_that_is_told_of_a_forecast_is_of_the_free_running_one() -> None:
    source = Held(numbers(missing=0.3))
    model, task = pair("lstm", prepared(source)[0])
    batch = batch_of(task, source, split="validation")
    here = ~batch.targets[:, 0].isnan()
    runs_free, told = (found(task, model, batch) - batch.targets[:, 0] for found in (free, forced))
    found = sums(task, model, batch)
    assert found["loss"] == pytest.approx(float((runs_free[here] ** 2).mean()), rel=1e-12)
    assert found["mse"] == found["loss"]
    assert found["mae"] == pytest.approx(float(runs_free[here].abs().mean()), rel=1e-12)
    assert found["mse_teacher_forced"] == pytest.approx(float((told[here] ** 2).mean()), rel=1e-12)
    assert found["mse"] != pytest.approx(found["mse_teacher_forced"], rel=1e-3)
    assert task.comparison() == "mse"
    measured = task.measure({name: (value, 1.0) for name, value in found.items()}, FACTS)
    assert measured["teacher_forcing_gap"] == pytest.approx(found["mse"] - found["mse_teacher_forced"], rel=1e-12)
    # In training true values are read, and nothing of the horizon is forecast from a forecast.
    task.train()
    trained, count = task.evaluate(model, batch, None)[0]["loss"]
    assert float(trained.detach()) / count == pytest.approx(found["mse_teacher_forced"], rel=1e-12)


def test_a_missing_target_of_a_recursive_forecast_has_no_gradient_and_is_not_counted() -> None:
    source = Held(numbers(missing=0.4))
    model, task = pair("gru", prepared(source)[0])
    task.train()
    batch = batch_of(task, source)
    outputs: list[Tensor] = []
    handle = task.head.register_forward_hook(lambda module, given, found: outputs.append(found))
    total, count = task.evaluate(model, batch, None)[0]["loss"]
    handle.remove()
    absent = batch.targets[:, 0].isnan()
    assert count == int((~absent).sum()) < absent.numel()
    (gradient,) = torch.autograd.grad(total, outputs)
    assert gradient.shape == absent.shape
    assert (gradient[absent] == 0).all()
    assert (gradient[~absent] != 0).float().mean() > 0.9


def test_direct_forecasts_read_no_row_of_the_horizon() -> None:
    source = Held(numbers())
    model, task = pair("gru", prepared(source)[0], strategy="direct")
    batch = batch_of(task, source)
    assert batch.ahead is None
    assert "mse_teacher_forced" not in sums(task, model, batch)
