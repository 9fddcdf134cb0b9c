"""Masks of the real tokens in a right-padded batch, and the last of these tokens."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, cat

from seqtrain.models.layers.convolution import convolve


def real_lengths(x: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"] | None) -> Int[Tensor, " B"]:
    """Return `lengths` unchanged, or the width of the batch for every lane if None."""
    if lengths is not None:
        return lengths
    return torch.full((x.shape[0],), x.shape[1], device=x.device)


def padding_of(lengths: Int[Tensor, " B"], width: int) -> Bool[Tensor, "B {width}"]:
    """Return a mask that is True at the positions of `width` after each lane's end."""
    return torch.arange(width, device=lengths.device) >= lengths.unsqueeze(1)


def last_inputs(
    inputs: Float[Tensor, "B N D"], lengths: Int[Tensor, " B"] | None, reach: int
) -> Float[Tensor, "B {reach} D"]:
    """Return the last `reach` of N inputs (`reach` old and T new), or the `reach` inputs before each lane's end."""
    if lengths is None:
        return inputs[:, inputs.shape[1] - reach :]
    # The old inputs come first, so the `reach` inputs before a lane's end begin at index `lengths`.
    index = lengths.unsqueeze(1) + torch.arange(reach, device=inputs.device)
    return inputs.gather(1, index.unsqueeze(-1).expand(-1, -1, inputs.shape[2]))


def filtered(
    x: Float[Tensor, "B T D"],
    before: Float[Tensor, "B P D"],
    filters: Float[Tensor, "K D"],
    lengths: Int[Tensor, " B"] | None,
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B P D"]]:
    """Sum, at each position, the last K inputs of each channel, weighted by the channel's filter.

    Args:
        x: Inputs, padded on the right.
        before: The P = K - 1 inputs before them; zeros where there were none.
        filters: The weights, that of the newest input last.
        lengths: Number of real inputs of each lane; None if all are real.

    Returns:
        The sums, and the last K - 1 inputs of each lane.
    """
    inputs = cat([before.to(x.dtype), x], 1)
    # One filter per channel: as many groups as channels. torch's convolution takes (B, D, T) and does not reverse the
    # filter.
    sums = convolve(inputs.transpose(1, 2), filters.t().unsqueeze(1), groups=x.shape[2])
    after = last_inputs(inputs, lengths, len(filters) - 1)
    return sums.transpose(1, 2), after.to(before.dtype)
