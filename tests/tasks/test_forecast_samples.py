"""Laws of the pictures of forecasts: in the units of the data, over what came, with gaps where nothing was seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seqtrain.models.layers.front_ends import ValueProjection
from seqtrain.tasks.base import SampleOptions
from tests.support.series import Held, numbers, prepared
from tests.tasks.test_forecast import DISTRIBUTIONS, HISTORY, HORIZON, pair

OPTIONS = SampleOptions(prompt="", length=1, temperature=0.0, top_k=None, top_p=None)


def samples(source: Held, split: Any = "validation", **options: Any) -> tuple[Any, Any]:
    """Samples of some windows, and the series that they are of."""
    preprocessor, rows = prepared(source)
    model, task = pair("gru", preprocessor, carry=False, **options)
    width = task.num_features * task.patch
    model.embed = ValueProjection(num_features=width, dim=model.dim).double()
    examples = task.examples(rows[split], preprocessor, max_length=HISTORY, seed=0)
    index = np.arange(0, len(examples.lengths), 2)
    batch: Any = examples.collate(index, 0, examples.totals(index, 0))
    with torch.no_grad():
        return task.samples(model.eval(), batch, preprocessor, OPTIONS), (batch, rows[split].series.series)


@pytest.mark.parametrize("patch", [1, 4])
@pytest.mark.parametrize("channels", ["together", "apart"])
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


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_picture_shows_the_forecast_that_the_words_say_between_its_intervals(distribution: str) -> None:
    found, _ = samples(Held(numbers(missing=0.0)), distribution=distribution)
    for sample in found:
        assert sample.columns["forecast"] == " ".join(f"{value:.4g}" for value in sample.fan.median)
        assert bool(sample.fan.bands) == (distribution != "point")
        for low, high in sample.fan.bands.values():
            assert (low <= sample.fan.median).all()
            assert (sample.fan.median <= high).all()
