"""Laws of what a forecast says of each value: losses, quantiles and draws are those of the distribution it names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from seqtrain.tasks.forecast_heads import ForecastDistribution, Gaussian, Point, Quantiles, StudentT

LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
KINDS = {"point": Point(), "gaussian": Gaussian(), "student_t": StudentT(), "quantiles": Quantiles(LEVELS)}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_scipy(kind: ForecastDistribution, params: Tensor) -> Any:
    """The distribution of float64 parameters."""
    loc, scale, *df = params.double().numpy().swapaxes(0, -1)
    return stats.t(df[0], loc, scale) if df else stats.norm(loc, scale)


def test_losses_are_those_of_the_distribution_in_nats() -> None:
    true = drawn(1, 500)
    for name in ("gaussian", "student_t"):
        kind = KINDS[name]
        params = kind.parameters(3 * drawn(0, 500, kind.num_params))
        expected = -by_scipy(kind, params).logpdf(true.numpy())
        np.testing.assert_allclose(kind.loss(params, true).numpy(), expected, rtol=1e-10, atol=1e-10)


def test_extremes_in_float32_are_near_float64_and_have_gradients_that_are_numbers() -> None:
    values = torch.tensor([-1e4, -50.0, -1.0, 0.0, 1.0, 50.0, 1e4])
    for name, kind in KINDS.items():
        raw = torch.cartesian_prod(values, values, values).float()[:, torch.arange(kind.num_params) % 3]
        raw.requires_grad_(True)
        for y in (-1e6, -1.0, 0.0, 1e-3, 1e6):
            params = kind.parameters(raw)
            loss = kind.loss(params, torch.full((len(raw),), y))
            (gradient,) = torch.autograd.grad(loss.sum(), raw)
            assert loss.isfinite().all(), (name, y)
            assert gradient.isfinite().all(), (name, y)
            exact = kind.loss(params.detach().double(), torch.full((len(raw),), y, dtype=torch.float64))
            torch.testing.assert_close(loss.detach().double(), exact, rtol=2e-5, atol=2e-5)


def test_many_degrees_of_freedom_are_a_gaussian_in_float32_too() -> None:
    true = drawn(1, 200).float()
    for df in (10.0, 31.9, 32.1, 1e3, 1e6, 1e12):
        params = torch.tensor([0.3, 1.7, df]).expand(200, 3)
        expected = -by_scipy(StudentT(), params).logpdf(true.double().numpy())
        np.testing.assert_allclose(StudentT().loss(params, true).numpy(), expected, rtol=2e-6, atol=3e-6)


def test_quantiles_are_those_of_the_distribution() -> None:
    for kind in (KINDS["gaussian"], KINDS["student_t"]):
        params = kind.parameters(3 * drawn(0, 300, kind.num_params))
        for level in (1e-9, 0.01, 0.1, 0.5, 0.9, 0.999):
            expected = by_scipy(kind, params).ppf(level)
            np.testing.assert_allclose(kind.quantile(params, level).numpy(), expected, rtol=1e-6, atol=1e-8)
        interval = kind.interval(params, 0.8)
        assert interval is not None
        assert torch.equal(interval[0], kind.quantile(params, 0.1))
        assert torch.equal(interval[1], kind.quantile(params, 0.9))
        assert torch.equal(kind.median(params), kind.quantile(params, 0.5))


def test_quantiles_never_cross_and_the_known_levels_are_answered_as_they_are() -> None:
    kind = Quantiles(LEVELS)
    params = kind.parameters(drawn(0, 50, 7))
    assert (params.diff(dim=-1) >= 0).all()
    for number, level in enumerate(LEVELS):
        torch.testing.assert_close(kind.quantile(params, level), params[:, number], rtol=1e-12, atol=1e-12)


def test_what_a_forecast_does_not_tell_is_refused_or_none() -> None:
    params = drawn(0, 4, 3)
    few = Quantiles([0.2, 0.5, 0.8])
    with pytest.raises(ValueError, match=r"only quantiles of levels \(0\.2, 0\.5, 0\.8\)"):
        few.quantile(few.parameters(params), 0.9)
    assert few.interval(few.parameters(params), 0.8) is None
    assert few.interval(few.parameters(params), 0.6) is not None
    assert Point().interval(params[:, :1], 0.8) is None
    assert torch.equal(Point().median(params[:, :1]), params[:, 0])


def test_a_forecast_that_is_moved_says_the_same_at_another_place() -> None:
    by = torch.tensor([10.0, -3.0]).double()  # one for each channel
    for kind in KINDS.values():
        params, true = kind.parameters(drawn(0, 6, 2, kind.num_params)), drawn(1, 6, 2)
        moved = kind.moved(params, by)
        for level in (0.1, 0.5, 0.9) if kind.is_probabilistic else (0.5,):
            torch.testing.assert_close(kind.quantile(moved, level), kind.quantile(params, level) + by)
        torch.testing.assert_close(kind.crps(moved, true + by), kind.crps(params, true))


def test_the_crps_is_the_distance_of_draws_to_the_truth_less_half_of_that_between_them() -> None:
    shares = torch.arange(0.5, 2000, dtype=torch.float64) / 2000
    for name in ("gaussian", "student_t", "quantiles"):
        sure = KINDS["gaussian" if name == "quantiles" else name]
        params, true = sure.parameters(drawn(0, 3, sure.num_params)), drawn(1, 3)
        draws = torch.stack([sure.quantile(params, share) for share in shares.tolist()])
        between = (draws[:, None] - draws[None]).abs().mean((0, 1))
        expected = (draws - true).abs().mean(0) - between / 2
        found = Quantiles(shares.tolist()).crps(draws.T, true) if name == "quantiles" else sure.crps(params, true)
        torch.testing.assert_close(found, expected, rtol=5e-3, atol=5e-3)
