"""Laws of the bootstrap: blocks are drawn anew with replacement, and the interval is that of the theory."""

from __future__ import annotations

import numpy as np
import pytest

from seqtrain.tasks.metrics.bootstrap import interval, resample


def test_the_interval_of_a_mean_is_that_of_its_standard_error() -> None:
    values = np.random.default_rng(1).normal(size=400)
    draws = resample(lambda times_drawn: values @ times_drawn / 400, 400, num_resamples=4000)
    low, high = interval(draws)
    error = values.std() / 20
    assert [low, high] == pytest.approx([values.mean() - 1.96 * error, values.mean() + 1.96 * error], abs=0.1 * error)


def test_each_draw_has_as_many_blocks_as_there_are_and_repeats_some() -> None:
    draws = resample(lambda times_drawn: times_drawn, 50, num_resamples=20)
    assert draws.shape == (20, 50)
    assert (draws.sum(1) == 50).all()
    assert (draws.max(1) > 1).all()
    assert not (draws == draws[0]).all()


def test_columns_are_drawn_together() -> None:
    values = np.random.default_rng(2).normal(size=(30, 1)) + np.array([0.0, 5.0])
    low, high = interval(resample(lambda times_drawn: times_drawn @ values / 30, 30))
    assert low.shape == (2,)
    assert [high[1] - high[0], low[1] - low[0]] == pytest.approx([5.0, 5.0])
