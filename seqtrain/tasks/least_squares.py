"""Initial weights of a forecast in closed form: the least-squares fit to train, before any step of training."""

from __future__ import annotations

from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.values.reading import Reading
from seqtrain.data.values.series import SeriesSplit
from seqtrain.models.base import SequenceModel
from seqtrain.tasks.base import Say


class LinearMap(Protocol):
    """A model that can be a linear map of its last inputs, with weights from least squares."""

    linear_order: int | None  # number of inputs that it maps; None: its initial weights are random

    def set_linear(self, weights: Float[Tensor, "K H"], num_channels: int) -> Float[Tensor, "O D"]:
        """Set the weights in place, and return head weights with which each channel is mapped by `weights`.

        The O = H C outputs of the head are those of all channels for the first step, then for the next step, and so
        on.
        """
        ...


@runtime_checkable
class BeginsFitted(Protocol):
    """A task that can begin with weights fitted in closed form."""

    def first_weights(self, model: SequenceModel, train: Rows, preprocessor: Preprocessor, say: Say) -> None:
        """Set weights of model and task from train, if the model asks for it; `say` receives a message on them."""
        ...


def linear_order_of(model: SequenceModel) -> int | None:
    """Return the number of inputs of the least-squares fit that the model begins as; None if its weights are random."""
    return getattr(model, "linear_order", None)


@torch.no_grad()
def begin_with_least_squares(
    model: SequenceModel,
    head: nn.Linear,
    train: SeriesSplit,
    reading: Reading,
    *,
    order: int,
    horizon: int,
    relative: bool,
    say: Say,
) -> None:
    """Set model and head to the autoregression that is reported as the baseline `ar` of a forecast.

    Args:
        model: A model that can be linear (`LinearMap`).
        head: The layer that returns a number for each future value and channel.
        train: The split to fit to: one fit for all channels, which maps each channel separately.
        reading: The scaled values of the split.
        order: Number of values that are read.
        horizon: Number of values that are forecast.
        relative: True if the task adds the last value to the output of the head.
        say: Receives a message on the fit.

    Raises:
        UserError: If train has no window without a missing value, or the model is too narrow.
    """
    from seqtrain.tasks.baselines.autoregression import Autoregression
    from seqtrain.tasks.baselines.forecasts import ScaledBlocks

    fitted = Autoregression.fit(ScaledBlocks(reading, train.begin, train.end), order, horizon)
    weights = torch.from_numpy(fitted.weights.copy())
    if relative:
        # The task adds the last value itself, so its weight is less by 1.
        weights[-1] -= 1
    num_channels = reading.scaling.num_channels
    head.weight.copy_(cast(LinearMap, model).set_linear(weights, num_channels))
    head.bias.copy_(torch.from_numpy(fitted.bias).repeat_interleave(num_channels))
    say(
        f"model.fit=least_squares: initial weights are an autoregression of order {order:,}, fitted by least squares "
        f"to {fitted.num_windows:,} windows of train"
    )
    if reading.scaling.num_masked:
        say(
            "model.fit=least_squares: a missing value is read as the mean of train; the baseline ar reads the value "
            "before it instead"
        )


def incompatibility(*, is_point: bool, patch: int) -> str | None:
    """Return the reason why least squares cannot meet the options of a forecast, or None if it can."""
    if not is_point:
        return (
            "model.fit=least_squares: gives one number for each future value, not a distribution; use "
            "task.distribution=point, or model.fit=trained"
        )
    if patch > 1:
        return f"model.fit=least_squares: reads row by row, not task.patch={patch}; use task.patch=1"
    return None
