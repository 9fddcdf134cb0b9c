"""Ranges of positions that double in length: 1, 2, 3-4, 5-8 and so on."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

NUM_RANGES = 32  # the last one holds all positions beyond


def range_of(positions: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Return the index of the range of each position; position 0 is in the first range."""
    # By comparisons of integers: a logarithm in floats would put a power of two beside its range.
    ends = 2 ** torch.arange(NUM_RANGES - 1, device=positions.device)
    return torch.searchsorted(ends, positions)


def range_names() -> list[str]:
    """Return the label of each range of positions."""
    names = ["1", "2"]
    for number in range(2, NUM_RANGES):
        names.append(f"{2 ** (number - 1) + 1}-{2**number}")
    return names
