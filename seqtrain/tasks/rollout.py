"""Forecasts of one step after another: fed the true values (teacher forcing), or running free on their own answers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from seqtrain.models.base import Capability, SequenceModel, State


def begin(model: SequenceModel, window: Float[Tensor, "B T F"]) -> State:
    """Return the state from which the horizon is read: after all rows of a window but the newest.

    The newest row has the last known value, and the first step is forecast from it. A model that reads on from a prefix
    and a decoder behind its encoder therefore read the same rows, each of them once.
    """
    return model.begin(window[:, :-1])


def teacher_forced(
    model: SequenceModel, window: Float[Tensor, "B T F"], ahead: Float[Tensor, "B H F"]
) -> Float[Tensor, "B H D"]:
    """Return hidden states of the horizon, each row read with the true value before it (Williams and Zipser 1989)."""
    return model(ahead, begin(model, window))[0]


def free_running(
    model: SequenceModel,
    window: Float[Tensor, "B T F"],
    ahead: Float[Tensor, "B H F"],
    predict: Callable[[Float[Tensor, "B 1 D"], Float[Tensor, "B 1 F"]], Float[Tensor, "B C"]],
    num_masked: int,
) -> Float[Tensor, "B H C"]:
    """Forecast the values of the horizon, each from the forecasts before it.

    Args:
        model: The model, which reads one row at a time and keeps its state.
        window: The rows up to the first one that is predicted.
        ahead: Features of the rows that are predicted. After the first row only those known ahead are used.
        predict: Function that returns the next value from a hidden state and the row that was read last.
        num_masked: Number of channels with a feature for missing values.
    """
    state = begin(model, window)
    row = ahead[:, :1]
    found: list[Float[Tensor, "B C"]] = []
    for step in range(ahead.shape[1]):
        if found:
            row = fed_back(found[-1], ahead[:, step : step + 1], num_masked)
        hidden, state = model(row, state)
        found.append(predict(hidden, row))
    return torch.stack(found, 1)


def fed_back(values: Float[Tensor, "B C"], row: Float[Tensor, "B 1 F"], num_masked: int) -> Float[Tensor, "B 1 F"]:
    """Return the features of a row for these values before it, in the layout of `Reading.features`."""
    # Made anew, so that no true value of the row can get through.
    seen = row.new_ones(len(row), 1, num_masked)
    since = row.new_zeros(len(row), 1, num_masked)  # the logarithm of one plus no step
    known = row[..., values.shape[-1] + 2 * num_masked :]
    return torch.cat([values.unsqueeze(1).to(row.dtype), seen, since, known], -1)


def incompatibility(
    model: SequenceModel, *, streams: bool, patch: int, is_point: bool, history: int, horizon: int
) -> str | None:
    """Return the reason why a model cannot read its own forecasts with these options, or None if it can.

    Args:
        model: The forecasting model.
        streams: Whether a forecast is made at each row of a stream.
        patch: Rows that are read as one time step.
        is_point: Whether a forecast is one number for each value.
        history: Rows of a window.
        horizon: Rows that are predicted.
    """
    strategy = "task.strategy=recursive"
    if streams:
        return f"tbptt.carry=true: {strategy} forecasts from windows, not at each row of a stream; use tbptt=whole"
    if patch > 1:
        return f"task.patch={patch}: {strategy} reads its forecasts back in row by row; use task.patch=1"
    if not is_point:
        return (
            f"task.distribution: {strategy} reads back one number a step, as if it were certain, so that intervals "
            "would be too narrow; use task.distribution=point, or task.strategy=direct"
        )
    # A prefix and the horizon stand in one table of positions; of an encoder-decoder each has one of its own.
    longest = history + horizon - 1
    if Capability.UNCONDITIONAL not in model.capabilities:
        longest = max(history - 1, horizon)
    if model.max_length is not None and longest > model.max_length:
        return (
            f"{strategy}: reads {longest} rows, window and horizon, and model.max_length={model.max_length} positions "
            "are fewer"
        )
    return None
