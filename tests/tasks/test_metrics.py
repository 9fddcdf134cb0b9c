"""Laws of metrics: BLEU and chrF of sums are those of sacreBLEU, those of forecasts add up, intervals hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from sacrebleu.metrics.chrf import CHRF
from scipy import integrate, stats
from torch import Tensor

from seqtrain.tasks.metrics import forecasts, translations
from seqtrain.tasks.metrics.bootstrap import interval, resample

TEXT = "a Man man's in the green-blue room, sleeps on 3.5 couches . ! größer &amp; 你好 naïve U.S. on.\t é"


def pairs(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Hypotheses and references: garbled words of any number, none included; some are equal."""
    draw, words = random.Random(seed), TEXT.split(" ")
    references = [" ".join(draw.choices(words, k=draw.choice([0, 1, 2, 5, 12]))) for _ in range(count)]
    hypotheses = [" ".join(w if draw.random() < 0.8 else draw.choice(words) for w in r.split(" ")) for r in references]
    return [text if draw.random() < 0.8 else text[: len(text) // 2] for text in hypotheses], references


OF_TEXTS = (
    (translations.bleu_statistics, translations.bleu_score),
    (translations.chrf_statistics, translations.chrf_score),
)


def summed(statistics: Any, hypotheses: list[str], references: list[str]) -> torch.Tensor:
    return torch.stack([statistics(h, r) for h, r in zip(hypotheses, references, strict=True)]).sum(0)


def test_scores_of_summed_statistics_are_those_of_sacrebleu_of_the_corpus() -> None:
    for count, seed in product((1, 2, 50), range(20)):
        hypotheses, references = pairs(count, seed)
        expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
        sums = summed(translations.bleu_statistics, hypotheses, references)
        assert translations.bleu_score(sums) == pytest.approx(expected, abs=1e-9), (count, seed)
        assert translations.bleu_score(sums.tolist()) == translations.bleu_score(sums)
        sums = summed(translations.chrf_statistics, hypotheses, references)
        expected = CHRF().corpus_score(hypotheses, [references]).score
        assert translations.chrf_score(sums) == pytest.approx(expected, abs=1e-9), (count, seed)
        assert translations.chrf_score(sums.tolist()) == translations.chrf_score(sums)


def test_a_score_is_of_sums_however_they_are_batched_100_if_perfect_and_0_of_nothing() -> None:
    text = ["A man sleeps in a green room .", "Two dogs play."]
    hypotheses, references = pairs(30, 5)
    for statistics, score in OF_TEXTS:
        whole = summed(statistics, hypotheses, references)
        parts = sum(summed(statistics, hypotheses[i : i + 7], references[i : i + 7]) for i in range(0, 30, 7))
        assert score(parts) == score(whole)  # type: ignore[arg-type]
        assert 5 < score(whole) < 95
        assert score(summed(statistics, text, text)) == pytest.approx(100)
        assert score(summed(statistics, ["", ""], text)) == score(summed(statistics, ["xyz", "q"], text)) == 0


def test_the_signature_is_the_one_that_sacrebleu_prints_for_such_a_corpus() -> None:
    expected = sacrebleu.BLEU()
    expected.corpus_score(["a b"], [["a b"]])
    assert translations.bleu_signature() == str(expected.get_signature())


# -- of forecasts: they add up over batches, and what is missing is left out ---------------------------------------

NAN = float("nan")
LEVELS = (0.1, 0.5, 0.9)
METRICS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, int]]] = {
    "squared": forecasts.squared_error,
    "absolute": forecasts.absolute_error,
    "scaled": lambda found, true: forecasts.scaled_error(found, true, torch.full_like(true, 2.0)),
    "coverage": lambda found, true: forecasts.coverage(found - 0.5, found + 0.5, true),
}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_sums_and_counts_of_parts_add_up_to_those_of_the_whole_without_missing_targets() -> None:
    for name, metric in METRICS.items():
        found, true = drawn(0, 40, 6), drawn(1, 40, 6)
        kept = torch.arange(240).view(40, 6) % 5 != 0
        expected = metric(found[kept], true[kept])
        true[~kept] = NAN
        total, count = metric(found, true)
        assert (total, count) == (expected[0], int(kept.sum())), name
        assert total.isfinite().all(), name
        parts = [metric(found[begin : begin + 7], true[begin : begin + 7]) for begin in range(0, 40, 7)]
        assert sum(part[1] for part in parts) == count, name
        torch.testing.assert_close(sum(part[0] for part in parts), total, rtol=1e-12, atol=0.0)
        assert total.dtype == torch.float64, name
        assert metric(found, torch.full_like(true, NAN)) == (0, 0), name


def test_a_series_without_a_seasonal_error_is_left_out_and_nothing_is_divided_by_zero() -> None:
    found, true = torch.zeros(5, 2), torch.ones(5, 2)
    true[0, 0] = NAN
    total, count = forecasts.scaled_error(found, true, torch.tensor([0.0, 4.0]).expand(5, 2))
    assert (total.item(), count) == (5 / 4, 5)


def test_the_quantile_loss_is_least_at_the_quantile() -> None:
    true = drawn(2, 100_000).double()
    for level in (0.1, 0.3, 0.9):
        near = stats.norm.ppf(level) + np.linspace(-0.5, 0.5, 21)
        found = torch.from_numpy(near).expand(len(true), -1)
        totals = [forecasts.pinball_losses(found[:, i : i + 1], true, [level]).sum().item() for i in range(21)]
        assert abs(int(np.argmin(totals)) - 10) <= 1


def integrated(distribution: stats.rv_continuous, y: float) -> float:
    """The CRPS by its definition: the integral of the squared distance of distribution functions."""
    below = integrate.quad(lambda x: distribution.cdf(x) ** 2, -np.inf, y, epsabs=1e-12)[0]
    above = integrate.quad(lambda x: distribution.sf(x) ** 2, y, np.inf, epsabs=1e-12)[0]
    return below + above


def test_the_closed_crps_is_the_integral_of_its_distribution() -> None:
    for case in ((0.0, 1.0, 0.0), (0.0, 1.0, 3.0), (2.0, 0.3, -1.0), (-1.0, 5.0, 4.0)):
        loc, scale, y = (torch.tensor(number).double() for number in case)
        found = forecasts.crps_of_gaussian(loc, scale, y)
        assert found.item() == pytest.approx(integrated(stats.norm(*case[:2]), case[2]), rel=1e-7), case
        for df in (2.1, 5.0, 300.0):
            found = forecasts.crps_of_student_t(torch.tensor(df).double(), loc, scale, y)
            assert found.item() == pytest.approx(integrated(stats.t(df, *case[:2]), case[2]), rel=1e-5), (df, case)


def test_the_crps_of_student_t_becomes_that_of_a_gaussian_and_stays_a_number() -> None:
    loc, scale, y = drawn(0, 50).double(), drawn(1, 50).double().exp(), 3 * drawn(2, 50).double()
    near = forecasts.crps_of_student_t(torch.full((50,), 1e6).double(), loc, scale, y)
    torch.testing.assert_close(near, forecasts.crps_of_gaussian(loc, scale, y), rtol=1e-4, atol=1e-5)
    far = torch.tensor([-1e30, 0.0, 1e30])
    one = torch.ones(3)
    for found in (
        forecasts.crps_of_gaussian(0 * one, one, far),
        forecasts.crps_of_student_t(2.01 * one, 0 * one, one, far),
        forecasts.crps_of_student_t(1e12 * one, 0 * one, one, torch.tensor([-1e30, 0.1, 1e30])),
    ):
        assert found.isfinite().all()
        assert found[0].item() == pytest.approx(1e30)


def test_the_central_interval_of_the_true_distribution_covers_its_share() -> None:
    true = drawn(3, 100_000)
    bound = torch.tensor(stats.norm.ppf(0.9)).float().expand_as(true)
    total, count = forecasts.coverage(-bound, bound, true)
    assert total.item() / count == pytest.approx(0.8, abs=0.005)


# -- the bootstrap -----------------------------------------------------------------------------------------------


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
