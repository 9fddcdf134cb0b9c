"""A forecast that begins as least squares is the baseline, and what is no such thing is refused in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seqtrain.data.batching.plan import TBPTT
from seqtrain.data.preprocess import Preprocessor
from seqtrain.models.ar import AR
from seqtrain.models.layers.front_ends import ValueProjection
from seqtrain.tasks.forecast import Forecast
from seqtrain.training.compatibility import incompatibility
from tests.support.model_cases import Case, next_token
from tests.support.series import Held, numbers, prepared

HORIZON, HISTORY = 4, 8


def pair(preprocessor: Preprocessor, *, dim: int = 8, window: int = HISTORY, **options: Any) -> tuple[AR, Forecast]:
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
    model, task = pair(preprocessor, window=window, relative=relative)
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
    assert f"the last {HISTORY} values" in said[0]


def test_where_values_are_missing_it_is_said_that_the_baseline_reads_others() -> None:
    preprocessor, rows = prepared(Held(numbers(missing=0.02)))
    model, task = pair(preprocessor)
    said: list[str] = []
    task.first_weights(model, rows["train"], preprocessor, said.append)
    assert "a missing value is read as the mean of train" in said[-1]


def test_a_model_that_is_trained_is_left_as_it_was_drawn() -> None:
    preprocessor, rows = prepared(Held(numbers(missing=0.0)))
    model, task = pair(preprocessor)
    model.linear_order = None
    before = [weight.clone() for weight in (*model.parameters(), *task.parameters())]
    task.first_weights(model, rows["train"], preprocessor, pytest.fail)
    for one, two in zip(before, (*model.parameters(), *task.parameters()), strict=True):
        assert torch.equal(one, two)


def test_what_least_squares_cannot_give_is_refused_with_what_to_set() -> None:
    preprocessor, _ = prepared(Held(numbers(missing=0.0)))
    ar = Case("ar", ()).make(fit="least_squares")
    cases = [
        (pair(preprocessor, distribution="gaussian"), "use task.distribution=point"),
        (pair(preprocessor, patch=2), "use task.patch=1"),
        (pair(preprocessor), None),
        ((ar, next_token(ar)), "use model.fit=trained"),
    ]
    for (model, task), words in cases:
        reason = incompatibility(model, task, TBPTT(k1=64, k2=64, carry=False, reset="never"), HISTORY)
        assert (reason is None) == (words is None)
        assert words is None or words in str(reason)
