"""Which tokens of a right-padded batch are real."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor


def real_lengths(x: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"] | None) -> Int[Tensor, " B"]:
    """`lengths` as they are; without them every lane is as long as the batch is wide."""
    if lengths is not None:
        return lengths
    return torch.full((len(x),), x.shape[1], device=x.device)


def padding_of(lengths: Int[Tensor, " B"], width: int) -> Bool[Tensor, "B {width}"]:
    """Which of `width` positions of each lane stand behind its end."""
    return torch.arange(width, device=lengths.device) >= lengths.unsqueeze(1)
