"""One vector of a whole sequence, from its hidden states."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Pool = Literal["last", "mean", "max", "cls"]


def pool(hidden: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"], how: Pool) -> Float[Tensor, "B D"]:
    """Reduce each lane's real positions to one vector: the last, the first (cls), their mean or their maximum."""
    if how == "cls":
        return hidden[:, 0]
    if how == "last":
        return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
    if how == "max":
        return hidden.masked_fill(padding(hidden, lengths), -math.inf).amax(1)
    return hidden.masked_fill(padding(hidden, lengths), 0.0).sum(1) / lengths.unsqueeze(1).to(hidden.dtype)


def padding(hidden: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Bool[Tensor, "B T 1"]:
    """Return a mask that is True at padding, on the right of shorter lanes."""
    return (torch.arange(hidden.shape[1], device=hidden.device) >= lengths.unsqueeze(1)).unsqueeze(-1)
