"""All that is measured of a batch of forecasts, as sums and counts."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from seqtrain.tasks.base import LossTerms
from seqtrain.tasks.forecast_heads import ForecastDistribution
from seqtrain.tasks.metrics import forecasts as metrics

SHARE = 0.8  # of the values are to lie in the interval that coverage is told of


def sums(
    distribution: ForecastDistribution,
    params: Float[Tensor, "B T H C P"],
    true: Float[Tensor, "B T H C"],
    std: Float[Tensor, "B T 1 C"],
    naive: Float[Tensor, "B T 1 C"],
) -> LossTerms:
    """Sum all metrics of forecasts over the targets that are not missing.

    Args:
        distribution: The distribution that is predicted for each value.
        params: Its parameters, scaled.
        true: The true values, scaled; NaN where one is missing.
        std: Standard deviation by which the channels of each forecast were scaled.
        naive: Their seasonal naive error in train, scaled.

    Returns:
        A sum and the count of its targets for each metric; `crps` and `covered` only for probabilistic forecasts.
    """
    here = ~true.isnan()
    # A missing target has a number in its place, which is not summed.
    filled = true.nan_to_num()
    median = distribution.median(params)
    terms: LossTerms = {"loss": metrics.summed(distribution.loss(params.double(), filled.double()), here)}
    terms["mse"] = metrics.squared_error(median, true)
    terms["mae"] = metrics.absolute_error(median, true)
    terms["mae_original"] = metrics.absolute_error(median.double() * std, true.double() * std)
    terms["mse_original"] = metrics.squared_error(median.double() * std, true.double() * std)
    terms["mase"], _ = metrics.scaled_error(median, true, naive.expand_as(true))
    if distribution.is_probabilistic:
        terms["crps"] = metrics.summed(distribution.crps(params, filled), here)
    # A point has none, and then there is no coverage rather than one of 0.
    interval = distribution.interval(params, SHARE)
    if interval is not None:
        terms["covered"] = metrics.coverage(*interval, true)
    return terms
