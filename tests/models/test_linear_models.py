"""The linear models of series against their definitions, written out window by window, and against least squares."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqtrain.models.ar import AR, factored
from seqtrain.models.dlinear import DLinear
from seqtrain.models.layers.front_ends import ValueProjection
from seqtrain.tasks.baselines.autoregression import Autoregression
from seqtrain.tasks.baselines.windows import blocks_of
from tests.support.model_cases import assert_near


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


@pytest.mark.parametrize("window", [2, 5, 30])
def test_an_autoregression_is_a_weighted_sum_of_each_window(window: int) -> None:
    model = drawn(AR(embed=nn.Identity(), dim=3, window=window, dropout=0.0))
    x = values(2, 20, 3)
    for lane, hidden in enumerate(model(x)[0]):
        for row, last in zip(hidden, of_windows(x[lane], window), strict=True):
            assert_near(row, (last * model.filters).sum(0), 1e-12)


@pytest.mark.parametrize("kernel_size", [3, 5, 25])
@pytest.mark.parametrize("window", [2, 7, 30])
def test_dlinear_maps_the_trend_and_the_remainder_of_each_window(window: int, kernel_size: int) -> None:
    model = drawn(DLinear(embed=nn.Identity(), dim=3, window=window, kernel_size=kernel_size, dropout=0.0))
    x = values(2, 40, 3)
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


def test_the_model_with_factored_least_squares_forecasts_what_least_squares_does() -> None:
    series = values(400, 1).cumsum(0)
    fitted = Autoregression.fit(blocks_of(series.numpy()), order=12, horizon=5)
    dim = 8
    front = ValueProjection(num_features=1, dim=dim)
    model = AR(embed=front, dim=dim, window=12, dropout=0.0).double()
    head = nn.Linear(dim, 5).double()
    filters, weight = factored(torch.from_numpy(fitted.weights[0]), dim)
    with torch.no_grad():
        nn.init.ones_(front.linear.weight)  # each unit reads the value itself
        nn.init.zeros_(front.linear.bias)
        model.filters.copy_(filters)
        head.weight.copy_(weight)
        head.bias.copy_(torch.from_numpy(fitted.bias[0]))
        found = head(model(series[None])[0])[0, 11:]
    windows = np.lib.stride_tricks.sliding_window_view(series[:, 0].numpy(), 12)
    assert_near(found, torch.from_numpy(fitted.predict(windows)), 1e-9)
    with pytest.raises(ValueError, match="dim=4: 12 values and a horizon of 5 need 5"):
        factored(torch.from_numpy(fitted.weights[0]), 4)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: AR(embed=nn.Identity(), dim=2, window=1, dropout=0.0), "window=1 must be above 1"),
        (lambda: DLinear(embed=nn.Identity(), dim=2, window=1, kernel_size=3, dropout=0.0), "window=1"),
        (
            lambda: DLinear(embed=nn.Identity(), dim=2, window=9, kernel_size=4, dropout=0.0),
            "kernel_size=4 must be odd",
        ),
        (
            lambda: DLinear(embed=nn.Identity(), dim=2, window=9, kernel_size=1, dropout=0.0),
            "kernel_size=1 must be odd",
        ),
    ],
)
def test_a_window_or_an_average_that_is_none_is_refused(made, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made()
