"""Laws of forecasts: missing values teach nothing, chunks equal the whole, and layouts change no number."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqtrain.data.batching.example_plan import ExamplePlan
from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import EvalLoader
from seqtrain.data.preprocess import Preprocessor
from seqtrain.models.ar import AR
from seqtrain.models.base import SequenceModel, reset
from seqtrain.models.layers.front_ends import ValueProjection
from seqtrain.tasks.base import Facts
from seqtrain.tasks.baselines.forecasts import Errors
from seqtrain.tasks.forecast import Forecast
from seqtrain.training.compatibility import incompatibility
from seqtrain.training.learner import Learner
from tests.support.examples import SAMPLES
from tests.support.model_cases import Case, assert_near, next_token
from tests.support.series import LENGTHS, Held, numbers, prepared
from tests.training.test_learner import everything, make_trainer

HORIZON, HISTORY = 4, 8
FACTS = Facts(bytes_per_token=1.0, words_per_token=None)
DISTRIBUTIONS = ["point", "gaussian", "student_t", "quantiles"]


def pair(name: str, preprocessor: Preprocessor, *, carry: bool, **options: Any) -> tuple[SequenceModel, Forecast]:
    model = Case(name, (("dropout", 0.0),)).make().double().train()
    torch.manual_seed(1)
    given = {"distribution": "point", "relative": True, "patch": 1, **options}
    task = Forecast(
        horizon=HORIZON, dim=model.dim, carry=carry, max_length=HISTORY, preprocessor=preprocessor, **given
    ).double()
    model.embed = ValueProjection(num_features=task.num_features, dim=model.dim).double()
    return model, task


def streams(source: Held, split: Any, task: Forecast) -> Any:
    preprocessor, rows = prepared(source)
    return task.series_stream(rows[split], preprocessor, context=HISTORY)


@pytest.mark.parametrize(
    ("name", "lanes", "lengths"), [("lstm", 1, LENGTHS), ("lstm", 3, (60, 60, 60)), ("gpt", 1, LENGTHS)]
)
def test_chunks_of_series_with_carried_state_equal_the_whole(name: str, lanes: int, lengths: tuple[int, ...]) -> None:
    # As evaluation lays them out: a lane each, or, where their lengths differ, one after another on a single lane.
    source = Held(numbers(lengths=lengths), lengths=lengths)
    model, task = pair(name, prepared(source)[0], carry=True)
    batcher = streams(source, "validation", task)
    losses = []
    for length in (400, 7):
        cut = TBPTT(k1=length, k2=length, carry=True, reset="document")
        plan = StreamPlan(documents=batcher.documents, lanes=lanes, tbptt=cut, seed=0, shuffle=False)
        sums: dict[str, float] = {}
        state, loader = model.initial(lanes), EvalLoader(batcher, plan, batch_size=None)
        task.eval()
        for batch in loader:
            if batch.reset_lanes is not None:
                state = reset(state, batch.reset_lanes)
            with torch.no_grad():
                terms, state = task.evaluate(model, batch, state)
            for key, (total, count) in terms.items():
                sums[key] = sums.get(key, 0.0) + float(total)
                sums[f"{key} count"] = sums.get(f"{key} count", 0) + count
        losses.append(sums)
    assert losses[0].keys() == losses[1].keys()
    assert losses[0]["mse count"] == losses[1]["mse count"] > 0
    for key, value in losses[0].items():
        assert losses[1][key] == pytest.approx(value, rel=1e-9), key


def learner_of(name: str, source: Held, folder: Path, accumulate: int, *, carry: bool, **options: Any) -> Learner:
    preprocessor, rows = prepared(source)
    model, task = pair(name, preprocessor, carry=carry, **options)
    if carry:
        batcher = task.series_stream(rows["train"], preprocessor, context=0)
        cut = TBPTT(k1=8, k2=16, carry=True, reset="document")
        layout = StreamPlan(documents=batcher.documents, lanes=4, tbptt=cut, seed=0, shuffle=False)
    else:
        batcher = task.examples(rows["train"], preprocessor, max_length=HISTORY, seed=0)
        layout = ExamplePlan(lengths=batcher.lengths, batch_tokens=None, batch_size=8, seed=0, shuffle=True)
    learner = Learner(
        model=model,
        task=task,
        carry=carry,
        lanes=4 if carry else 0,
        facts={"train": FACTS, "validation": FACTS},
        seed=3,
        optimizer=partial(torch.optim.AdamW, lr=0.01),
    )
    make_trainer(folder, accumulate=accumulate).fit(learner, TrainLoader(batcher, layout, accumulate=accumulate))
    return learner


@pytest.mark.long
@pytest.mark.parametrize(
    ("carry", "strategy", "accumulate"), [(True, "direct", 2), (False, "direct", 4), (False, "recursive", 2)]
)
def test_micro_batches_of_missing_values_change_no_number(
    carry: bool, strategy: str, accumulate: int, tmp_path: Path
) -> None:
    source, options = Held(numbers(missing=0.5)), {"carry": carry, "strategy": strategy}
    whole, parts = (learner_of("lstm", source, tmp_path, each, **options) for each in (1, accumulate))
    assert whole.global_step == 10
    kept = ["weights", "optimizer", "sums", "tokens"]
    for each in kept:
        assert_near(everything(parts)[each], everything(whole)[each], 1e-9)


def test_values_that_are_all_but_missing_leave_every_weight_a_number(tmp_path: Path) -> None:
    for carry in (True, False):
        learner = learner_of("gru", Held(numbers(missing=0.97)), tmp_path, 1, carry=carry)
        assert learner.global_step == 10
        assert all(bool(weight.isfinite().all()) for weight in learner.state_dict().values()), carry


def window_batch(task: Forecast, source: Held, count: int = 12) -> Any:
    preprocessor, rows = prepared(source)
    examples = task.examples(rows["train"], preprocessor, max_length=HISTORY, seed=0)
    index = np.arange(count)
    return examples.collate(index, 0, examples.totals(index, 0))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_missing_target_has_no_gradient_and_is_in_no_number(distribution: str) -> None:
    source = Held(numbers(missing=0.4))
    model, task = pair("gru", prepared(source)[0], carry=False, distribution=distribution)
    batch = window_batch(task, source)
    absent = batch.targets.isnan()
    assert absent.any()
    outputs: list[torch.Tensor] = []
    handle = task.head.register_forward_hook(lambda module, given, found: outputs.append(found))
    total, count = task.evaluate(model, batch, None)[0]["loss"]
    handle.remove()
    assert count == int((~absent).sum())
    (gradient,) = torch.autograd.grad(total, outputs)
    gradient = gradient.unflatten(-1, (HORIZON, task.num_channels, -1))
    assert (gradient[absent] == 0).all()
    assert bool(gradient.isfinite().all())
    assert (gradient[~absent] != 0).any(-1).float().mean() > 0.9
    with torch.no_grad():
        found, _ = task.eval().evaluate(model, batch, None)
    assert all(np.isfinite(float(each)) for each, _ in found.values())
    total, count = found["mse"]
    assert count == int((~absent).sum())
    # It is of the forecast that predict writes.
    written = np.stack([task.ahead(model, window.numpy(), 1)["forecast"] for window in batch.tokens])
    assert float(total) == pytest.approx(np.nansum((written - batch.targets[:, 0].numpy()) ** 2), rel=1e-6)


def test_an_error_over_a_naive_error_of_zero_is_left_out() -> None:
    values = numbers(missing=0.0, columns=2)
    # The second column repeats with the season; a forecast of it has no error to be measured in.
    values[:, 1] = np.concatenate([np.tile([1.0, 2.0], length)[:length] for length in LENGTHS])
    source = Held(values, season=2)
    preprocessor, _ = prepared(source)
    assert preprocessor.series is not None
    assert [naive[1] for naive in preprocessor.series.naive] == [0.0, 0.0, 0.0]
    model, task = pair("gru", preprocessor, carry=False)
    terms, _ = task.eval().evaluate(model, window_batch(task, source), None)
    assert terms["mase"][1] * 2 == terms["mse"][1]
    assert np.isfinite(float(terms["mase"][0]))
    # The baselines are measured in the same way.
    errors = Errors(np.array(preprocessor.series.naive), np.ones((3, 2)))
    errors.add(np.zeros((1, 1, 2)), np.ones((1, 1, 2)), np.array([0]))
    assert errors.metrics["mase"] == pytest.approx(1 / preprocessor.series.naive[0][0])


def test_a_relative_forecast_of_weights_zero_is_the_last_value_in_windows_and_streams() -> None:
    source = Held(numbers(missing=0.0))
    preprocessor, rows = prepared(source)
    for carry in (False, True):
        model, task = pair("gru", preprocessor, carry=carry)
        torch.nn.init.zeros_(task.head.weight)
        torch.nn.init.zeros_(task.head.bias)
        if carry:
            batcher = task.series_stream(rows["validation"], preprocessor, context=HISTORY)
            plan = StreamPlan(
                documents=batcher.documents,
                lanes=1,
                tbptt=TBPTT(k1=400, k2=400, carry=True, reset="document"),
                seed=0,
                shuffle=False,
            )
            batch = next(iter(EvalLoader(batcher, plan, batch_size=None)))
        else:
            batch = window_batch(task, source)
        found = task.distribution.median(task.params(model, copy.copy(batch), None)[0])
        newest = batch.tokens[..., :2] if carry else batch.tokens[:, -1:, :2]
        assert torch.equal(found, newest.unsqueeze(2).expand_as(found))


# -- pictures ----------------------------------------------------------------------------------------------------


def samples(source: Held, **options: Any) -> tuple[Any, Any]:
    """Samples of some windows of validation, and the series that they are of."""
    preprocessor, rows = prepared(source)
    model, task = pair("gru", preprocessor, carry=False, **options)
    model.embed = ValueProjection(num_features=task.num_features * task.patch, dim=model.dim).double()
    examples = task.examples(rows["validation"], preprocessor, max_length=HISTORY, seed=0)
    index = np.arange(0, len(examples.lengths), 2)
    batch: Any = examples.collate(index, 0, examples.totals(index, 0))
    with torch.no_grad():
        found = task.samples(model.eval(), batch, preprocessor, SAMPLES)
    return found, (batch, rows["validation"].series.series)


@pytest.mark.parametrize(("channels", "patch"), [("together", 4), ("apart", 1)])
def test_history_and_truth_are_the_values_of_the_file_and_missing_ones_are_gaps(channels: str, patch: int) -> None:
    source = Held(numbers(missing=0.3), channels=channels)
    found, (batch, series) = samples(source, patch=patch)
    columns = series.columns
    for sample, row, number in zip(found, batch.rows.tolist(), batch.series[:, 0].tolist(), strict=True):
        values = series.values[:, 0]
        np.testing.assert_allclose(sample.fan.history, values[row - HISTORY : row], atol=1e-9)
        np.testing.assert_allclose(sample.fan.truth, values[row : row + HORIZON], atol=1e-9)
        column = columns[series.channels[number][0]]
        place = row - series.offsets[number]
        assert sample.fan.title == sample.columns["text"] == f"{column}, row {place:,}"
    assert any(np.isnan(sample.fan.history).any() for sample in found)


def test_the_picture_shows_the_forecast_that_the_words_say_between_its_intervals() -> None:
    for distribution in DISTRIBUTIONS:
        for sample in samples(Held(numbers(missing=0.0)), distribution=distribution)[0]:
            assert sample.columns["forecast"] == " ".join(f"{value:.4g}" for value in sample.fan.median)
            assert bool(sample.fan.bands) == (distribution != "point")
            for low, high in sample.fan.bands.values():
                assert (low <= sample.fan.median).all(), distribution
                assert (sample.fan.median <= high).all(), distribution


# -- a forecast that begins as least squares ---------------------------------------------------------------------


def linear_pair(
    preprocessor: Preprocessor, *, dim: int = 8, window: int = HISTORY, **options: Any
) -> tuple[AR, Forecast]:
    torch.manual_seed(0)
    given = {"distribution": "point", "relative": True, "patch": 1, **options}
    task = Forecast(horizon=HORIZON, dim=dim, max_length=HISTORY, preprocessor=preprocessor, **given)
    front = ValueProjection(num_features=task.num_features, dim=dim)
    model = AR(embed=front, dim=dim, window=window, dropout=0.0, fit="least_squares")
    return model.double().eval(), task.double().eval()


@pytest.mark.parametrize(
    ("channels", "window", "relative"), [("apart", HISTORY, True), ("together", HISTORY + 5, False)]
)
def test_before_the_first_step_it_is_the_baseline(channels: Any, window: int, relative: bool) -> None:
    # Values that depend on those before them, or a fit of nothing would be as good.
    values = numbers(missing=0.0).cumsum(0)
    preprocessor, rows = prepared(Held(values, channels=channels))
    model, task = linear_pair(preprocessor, window=window, relative=relative)
    said: list[str] = []
    task.first_weights(model, rows["train"], preprocessor, said.append)
    windows = task.examples(rows["validation"], preprocessor, max_length=HISTORY, seed=0)
    index = np.arange(len(windows.lengths))
    batch = windows.collate(index, 0, windows.totals(index, 0))
    with torch.no_grad():
        terms, _ = task.evaluate(model, batch, None)
    found = {name: float(total) / count for name, (total, count) in terms.items()}
    expected = task.baselines(rows["train"], rows["validation"], preprocessor, said.append)["ar"]
    for name in ("mse", "mae", "mase"):
        assert found[name] == pytest.approx(expected[name], rel=1e-9)
    assert f"an autoregression of order {HISTORY}" in said[0]


def test_where_values_are_missing_it_is_said_that_the_baseline_reads_others() -> None:
    preprocessor, rows = prepared(Held(numbers(missing=0.02)))
    model, task = linear_pair(preprocessor)
    said: list[str] = []
    task.first_weights(model, rows["train"], preprocessor, said.append)
    assert "a missing value is read as the mean of train" in said[-1]


def test_a_model_that_is_trained_is_left_as_it_was_drawn() -> None:
    preprocessor, rows = prepared(Held(numbers(missing=0.0)))
    model, task = linear_pair(preprocessor)
    model.linear_order = None
    before = [weight.clone() for weight in (*model.parameters(), *task.parameters())]
    task.first_weights(model, rows["train"], preprocessor, pytest.fail)
    for one, two in zip(before, (*model.parameters(), *task.parameters()), strict=True):
        assert torch.equal(one, two)


def test_what_least_squares_cannot_give_is_refused_with_what_to_set() -> None:
    preprocessor, _ = prepared(Held(numbers(missing=0.0)))
    ar = Case("ar", ()).make(fit="least_squares")
    cases = [
        (linear_pair(preprocessor, distribution="gaussian"), "use task.distribution=point"),
        (linear_pair(preprocessor, patch=2), "use task.patch=1"),
        (linear_pair(preprocessor), None),
        ((ar, next_token(ar)), "use model.fit=trained"),
    ]
    for (model, task), words in cases:
        reason = incompatibility(model, task, TBPTT(k1=64, k2=64, carry=False, reset="never"), HISTORY)
        assert (reason is None) == (words is None)
        assert words is None or words in str(reason)
