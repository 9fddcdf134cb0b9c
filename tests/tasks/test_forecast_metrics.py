"""Laws of the metrics of forecasts: they add up over batches, and what is missing is left out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from seqtrain.tasks.metrics import forecasts

NAN = float("nan")
LEVELS = (0.1, 0.5, 0.9)
METRICS: dict[str, Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, int]]] = {
    "squared": forecasts.squared_error,
    "absolute": forecasts.absolute_error,
    "scaled": lambda found, true, mask: forecasts.scaled_error(found, true, torch.tensor(2.0), mask)[0],
    "coverage": lambda found, true, mask: forecasts.coverage(found - 0.5, found + 0.5, true, mask),
}
EVERY = pytest.mark.parametrize("name", METRICS)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@EVERY
def test_sums_and_counts_of_parts_add_up_to_those_of_the_whole(name: str) -> None:
    found, true, metric = drawn(0, 40, 6), drawn(1, 40, 6), METRICS[name]
    true[::3, 2] = NAN
    total, count = metric(found, true, None)
    parts = [metric(found[begin : begin + 7], true[begin : begin + 7], None) for begin in range(0, 40, 7)]
    assert sum(part[1] for part in parts) == count
    torch.testing.assert_close(sum(part[0] for part in parts), total, rtol=1e-12, atol=0.0)
    assert total.dtype == torch.float64


@EVERY
def test_missing_and_masked_targets_are_neither_summed_nor_counted(name: str) -> None:
    found, true, metric = drawn(0, 30), drawn(1, 30), METRICS[name]
    mask = torch.arange(30) % 4 != 0
    kept = mask & (torch.arange(30) % 5 != 0)
    expected = metric(found[kept], true[kept], None)
    true[::5] = NAN
    total, count = metric(found, true, mask)
    assert count == expected[1] == int(kept.sum())
    assert torch.equal(total, expected[0])
    assert total.isfinite().all()
    nothing, none = metric(found, torch.full((30,), NAN), None)
    assert none == 0
    assert not nothing.any()


def test_a_series_without_a_seasonal_error_is_said_and_nothing_is_divided_by_zero() -> None:
    found, true = torch.zeros(5, 2), torch.ones(5, 2)
    true[0, 0] = NAN
    (total, count), left_out = forecasts.scaled_error(found, true, torch.tensor([0.0, 4.0]))
    assert (total.item(), count, left_out) == (5 / 4, 5, 4)


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


CASES = [(0.0, 1.0, 0.0), (0.0, 1.0, 3.0), (2.0, 0.3, -1.0), (-1.0, 5.0, 4.0)]


@pytest.mark.parametrize(("loc", "scale", "y"), CASES)
def test_the_closed_crps_of_a_gaussian_is_its_integral(loc: float, scale: float, y: float) -> None:
    found = forecasts.crps_of_gaussian(torch.tensor(loc), torch.tensor(scale).double(), torch.tensor(y))
    assert found.item() == pytest.approx(integrated(stats.norm(loc, scale), y), rel=1e-7)


@pytest.mark.parametrize("df", [2.1, 5.0, 300.0])
@pytest.mark.parametrize(("loc", "scale", "y"), CASES)
def test_the_closed_crps_of_student_t_is_its_integral(df: float, loc: float, scale: float, y: float) -> None:
    given = [torch.tensor(number).double() for number in (df, loc, scale, y)]
    found = forecasts.crps_of_student_t(*given)
    assert found.item() == pytest.approx(integrated(stats.t(df, loc, scale), y), rel=1e-5)


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


def test_the_crps_of_many_quantiles_is_that_of_their_distribution() -> None:
    levels = (np.arange(2000) + 0.5) / 2000
    quantiles = torch.from_numpy(stats.norm.ppf(levels))
    y = torch.tensor([-2.0, 0.1, 1.5]).double()
    found = forecasts.crps_of_quantiles(quantiles.expand(3, -1), y, levels.tolist())
    expected = forecasts.crps_of_gaussian(torch.zeros(3), torch.ones(3), y)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_the_central_interval_of_the_true_distribution_covers_its_share() -> None:
    true = drawn(3, 100_000)
    bound = torch.tensor(stats.norm.ppf(0.9)).float().expand_as(true)
    total, count = forecasts.coverage(-bound, bound, true)
    assert total.item() / count == pytest.approx(0.8, abs=0.005)
