"""Laws of the scaling law: a known law is found, its intervals hold what they say, and what is not known is said."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from seqtrain.analysis import scaling_law
from seqtrain.analysis.scaling_law import CONFIDENCE

fit = partial(scaling_law.fit, resamples=60)  # enough to see what an interval does
LADDER = np.array([1e11, 2e11, 4e11, 8e11])
HELD_BACK = 3.2e12


def law(flops: np.ndarray | float, a: float = 1.0, b: float = 0.2, c: float = 1.2) -> np.ndarray:
    return a * (np.asarray(flops) / 1e11) ** -b + c


def test_a_law_without_noise_is_found_again_and_predicts() -> None:
    found = fit(LADDER.tolist(), law(LADDER).tolist())
    assert found.law.b == pytest.approx(0.2, abs=0.01)
    assert found.law.c == pytest.approx(1.2, abs=0.05)
    prediction = found.predict(HELD_BACK)
    assert prediction.loss == pytest.approx(law(HELD_BACK), rel=1e-3)
    assert prediction.low <= prediction.loss <= prediction.high


@pytest.mark.long
def test_the_interval_holds_a_single_training_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    ladder = np.repeat(LADDER, 3)
    inside = []
    for trial in range(60):
        losses = law(ladder) * np.exp(rng.normal(size=len(ladder)) * 0.005)
        held_back = law(HELD_BACK) * np.exp(rng.normal() * 0.005)
        found = fit(ladder.tolist(), losses.tolist(), seed=trial, resamples=20)  # 60 take three times as long
        prediction = found.predict(HELD_BACK, seed=trial)
        inside.append(prediction.low <= held_back <= prediction.high)
    # A binomial with 60 draws of 0.9 is below 45 once in ten thousand times, and so is one of 0.6 above it.
    assert CONFIDENCE == 0.9
    assert sum(inside) >= 45


def test_more_noise_gives_a_wider_interval() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=8)
    ladder = np.repeat(LADDER, 2)

    def width(scale: float) -> float:
        prediction = fit(ladder.tolist(), (law(ladder) * np.exp(scale * noise)).tolist()).predict(HELD_BACK)
        return prediction.high - prediction.low

    assert width(0.02) > 2 * width(0.002)


def test_a_ladder_that_does_not_predict_itself_promises_little() -> None:
    bent = law(LADDER)
    bent[-1] *= 0.95  # the last rung falls by more than those below it had promised
    ladder = np.repeat(LADDER, 2)

    def width(losses: np.ndarray) -> float:
        found = fit(ladder.tolist(), np.repeat(losses, 2).tolist())
        prediction = found.predict(HELD_BACK)
        return (prediction.high - prediction.low) / prediction.loss

    assert width(law(LADDER)) < 0.005
    assert width(bent) > 0.1


def test_one_run_that_went_wrong_does_not_bend_the_law() -> None:
    ladder = np.repeat(LADDER, 4)
    losses = law(ladder)
    losses[5] *= 1.3
    assert fit(ladder.tolist(), losses.tolist()).predict(HELD_BACK).loss == pytest.approx(law(HELD_BACK), rel=0.02)


def test_a_plain_power_law_is_said_to_be_one() -> None:
    rng = np.random.default_rng(0)
    ladder = np.repeat(LADDER, 2)
    losses = law(ladder, c=0.0) * np.exp(rng.normal(size=8) * 0.01)
    assert any(
        "c cannot be distinguished from 0" in remark for remark in fit(ladder.tolist(), losses.tolist()).remarks()
    )


def test_fewer_than_four_budgets_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer than 4 budgets"):
        fit([1e11] * 5 + [2e11] * 5, [2.0] * 5 + [1.9] * 5)


@pytest.mark.long
def test_a_loss_that_does_not_fall_has_no_exponent() -> None:
    found = fit(np.repeat(LADDER, 2).tolist(), [2.0] * 8)
    assert found.predict(HELD_BACK).loss == pytest.approx(2.0, rel=1e-3)
