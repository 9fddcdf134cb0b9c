"""Masks of the real tokens in a right-padded batch, and the last of these tokens."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


def real_lengths(x: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"] | None) -> Int[Tensor, " B"]:
    """Return `lengths` unchanged, or the width of the batch for every lane if None."""
    if lengths is not None:
        return lengths
    return torch.full((len(x),), x.shape[1], device=x.device)


def padding_of(lengths: Int[Tensor, " B"], width: int) -> Bool[Tensor, "B {width}"]:
    """Return a mask that is True at the positions of `width` after each lane's end."""
    return torch.arange(width, device=lengths.device) >= lengths.unsqueeze(1)


def last_inputs(
    inputs: Float[Tensor, "B N D"], lengths: Int[Tensor, " B"] | None, reach: int
) -> Float[Tensor, "B {reach} D"]:
    """Return the last `reach` of N inputs (`reach` old and T new), or the `reach` inputs before each lane's end."""
    if lengths is None:
        return inputs[:, inputs.shape[1] - reach :]
    # The old inputs come first, so what stands before a lane's end begins `lengths` inputs in.
    index = lengths.unsqueeze(1) + torch.arange(reach, device=inputs.device)
    return inputs.gather(1, index.unsqueeze(-1).expand(-1, -1, inputs.shape[2]))
