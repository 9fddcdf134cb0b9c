"""Laws of recursive forecasts: the first step is teacher-forced, the others know forecasts alone, and no state lies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seqtrain.data.batching.values import WindowBatch
from seqtrain.data.preprocess import Preprocessor
from seqtrain.data.values.reading import Reading
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.models.layers.front_ends import ValueProjection
from seqtrain.tasks import forecast_heads
from seqtrain.tasks.base import Facts
from seqtrain.tasks.forecast import Forecast
from tests.support.model_cases import Case, assert_near
from tests.support.series import Held, numbers, prepared

HORIZON, HISTORY = 5, 8
FACTS = Facts(bytes_per_token=1.0, words_per_token=None)
MODELS = ("gru", "gpt", "ar", "dlinear", "encoder_decoder", "rnn_encoder_decoder")


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


@torch.no_grad()
def by_reading_again(task: Forecast, model: SequenceModel, batch: WindowBatch) -> Tensor:
    """The free-running forecast by its definition: the whole window that has grown is read anew for each step."""
    assert batch.ahead is not None
    rows = [batch.ahead[:, :1]]
    found: list[Tensor] = []
    for step in range(HORIZON):
        if found:
            rows.append(forecast_heads.fed_back(found[-1], batch.ahead[:, step : step + 1], task.num_masked))
        horizon = torch.cat(rows, 1)
        if Capability.UNCONDITIONAL in model.capabilities:
            hidden = model(torch.cat([batch.tokens[:, :-1], horizon], 1))[0]
        else:
            hidden = model(horizon, model.begin(batch.tokens[:, :-1]))[0]
        found.append(task._params(model, hidden[:, -1:], horizon[:, -1:])[:, 0, 0, :, 0])
    return torch.stack(found, 1)


def test_running_free_with_a_state_is_reading_the_window_that_has_grown_again_at_each_step() -> None:
    source = Held(numbers())
    for name in MODELS:
        model, task = pair(name, prepared(source)[0])
        batch = batch_of(task, source)
        found = free(task, model, batch)
        assert_near(found, by_reading_again(task, model, batch), 1e-9)
        assert (found - forced(task, model, batch))[:, 1:].abs().amax((0, 2)).min() > 1e-4, name


def test_no_value_of_the_horizon_reaches_a_forecast_and_what_is_known_ahead_does() -> None:
    values = numbers()
    # Of the last value before the horizon on all others, missing ones too, are other numbers.
    source, changed = Held(values), values.copy()
    for name in MODELS:
        model, task = pair(name, prepared(source)[0])
        batch = batch_of(task, source, count=1)
        first = int(batch.rows[0])
        changed[first:] = np.where(np.isnan(values[first:]), 3.0, np.nan)
        scaling = prepared(source)[0].series
        assert scaling is not None
        other = Reading(Held(changed).series, scaling, np.float64)
        ahead = torch.from_numpy(other.features(np.arange(first, first + HORIZON)[None]))
        assert batch.ahead is not None
        assert not torch.equal(ahead, batch.ahead)
        assert torch.equal(ahead[:, 0], batch.ahead[:, 0])
        expected = free(task, model, batch)
        assert torch.equal(free(task, model, replace(batch, ahead=ahead)), expected), name
        # The last columns are known ahead: each row's changes its own step and the later ones alone.
        for step in range(HORIZON):
            moved = batch.ahead.clone()
            moved[:, step, -1] += 1.0
            difference = (free(task, model, replace(batch, ahead=moved)) - expected).abs().amax((0, 2))
            assert torch.equal(difference > 0, torch.arange(HORIZON) >= step), name


@pytest.mark.parametrize(("missing", "channels"), [("mask", "together"), ("mask", "apart"), ("mean", "together")])
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
        row = forecast_heads.fed_back(found[:, step - 1], batch.ahead[:, step : step + 1], task.num_masked)
        np.testing.assert_allclose(row[0, 0].numpy(), expected[0, step - 1], rtol=1e-9, atol=1e-12)


def sums(task: Forecast, model: SequenceModel, batch: WindowBatch) -> dict[str, float]:
    with torch.no_grad():
        terms, _ = task.evaluate(model, batch, None)
    return {name: float(total) / count for name, (total, count) in terms.items()}


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


def test_direct_forecasts_read_no_row_of_the_horizon() -> None:
    source = Held(numbers())
    model, task = pair("gru", prepared(source)[0], strategy="direct")
    batch = batch_of(task, source)
    assert batch.ahead is None
    assert "mse_teacher_forced" not in sums(task, model, batch)
