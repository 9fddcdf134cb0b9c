"""The linear models of series against their definitions, written out window by window, and against least squares."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqtrain.errors import UserError
from seqtrain.models.ar import AR
from seqtrain.models.dlinear import DLinear
from seqtrain.models.layers.front_ends import ValueProjection
from seqtrain.tasks.baselines.autoregression import Autoregression
from tests.support.model_cases import assert_near
from tests.support.series import blocks_of


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def drawn(model: nn.Module) -> nn.Module:
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.double().eval()


def of_windows(x: Tensor, window: int) -> list[Tensor]:
    """The last `window` rows at each position of (T, D), with zeros before the first."""
    padded = torch.cat([x.new_zeros(window - 1, x.shape[1]), x])
    return [padded[end : end + window] for end in range(len(x))]


def test_an_autoregression_is_a_weighted_sum_of_each_window() -> None:
    x = values(2, 20, 3)
    for window in (2, 5, 30):
        model = drawn(AR(embed=nn.Identity(), dim=3, window=window, dropout=0.0))
        for lane, hidden in enumerate(model(x)[0]):
            for row, last in zip(hidden, of_windows(x[lane], window), strict=True):
                assert_near(row, (last * model.filters).sum(0), 1e-12)


def test_dlinear_maps_the_trend_and_the_remainder_of_each_window() -> None:
    x = values(2, 40, 3)
    for window, kernel_size in ((2, 3), (2, 25), (7, 5), (30, 25)):
        model = drawn(DLinear(embed=nn.Identity(), dim=3, window=window, kernel_size=kernel_size, dropout=0.0))
        for lane, hidden in enumerate(model(x)[0]):
            for row, last in zip(hidden, of_windows(x[lane], window), strict=True):
                # The moving average as it was published: the ends repeated, then the mean around each value.
                ends = [last[:1]] * (kernel_size // 2), [last[-1:]] * (kernel_size // 2)
                around = torch.cat([*ends[0], last, *ends[1]])
                trend = torch.stack([around[place : place + kernel_size].mean(0) for place in range(window)])
                assert_near(row, (trend * model.trend + (last - trend) * model.remainder).sum(0), 1e-12)


def test_dlinear_begins_as_the_mean_over_the_window_as_published() -> None:
    model = DLinear(embed=nn.Identity(), dim=2, window=30, kernel_size=25, dropout=0.0).double()
    x = values(1, 50, 2)
    assert_near(model(x)[0][0, -1], x[0, -30:].mean(0), 1e-7)


@pytest.mark.parametrize(("order", "horizon", "channels"), [(12, 5, 1), (4, 9, 1), (6, 3, 2)])
def test_a_model_set_to_least_squares_forecasts_each_channel_as_they_do(
    order: int, horizon: int, channels: int
) -> None:
    series = values(400, channels).cumsum(0)
    fitted = Autoregression.fit(blocks_of(series.numpy()), order=order, horizon=horizon)
    dim = channels * min(order, horizon) + 1  # and a unit that is left over
    front = ValueProjection(num_features=channels + 2, dim=dim)  # and features that are no values
    model = AR(embed=front, dim=dim, window=12, dropout=0.0, fit="least_squares").double()
    head = model.set_linear(torch.from_numpy(fitted.weights), channels)
    bias = torch.from_numpy(fitted.bias).unsqueeze(1)
    inputs = torch.cat([series, values(400, 2, seed=1)], 1)
    found = (model(inputs[None])[0] @ head.t()).unflatten(-1, (horizon, channels))[0, order - 1 :] + bias
    windows = np.lib.stride_tricks.sliding_window_view(series.numpy(), order, axis=0).transpose(0, 2, 1)
    assert_near(found, torch.from_numpy(fitted.predict(windows)), 1e-9)


def test_a_model_too_narrow_for_least_squares_is_refused_with_what_to_set() -> None:
    model = AR(embed=ValueProjection(num_features=2, dim=9), dim=9, window=12, dropout=0.0, fit="least_squares")
    with pytest.raises(UserError, match=r"set model.dim=10, or data.channels=apart"):
        model.set_linear(values(12, 5), 2)
