"""Where a token stands: sinusoids (Vaswani et al. 2017) and rotary angles (Su et al. 2021, arXiv 2104.09864)."""

from __future__ import annotations

import torch
from torch import Tensor

BASE = 10_000.0


def angles(index: Tensor, width: int) -> Tensor:
    """The `width / 2` angles of each position in float64, since float32 drifts after a million tokens."""
    rates = BASE ** (-torch.arange(0, width, 2, device=index.device, dtype=torch.float64) / width)
    return index.to(torch.float64).unsqueeze(-1) * rates


def sinusoids(index: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """Sines and cosines of any integer positions: index (...) to (..., dim)."""
    angle = angles(index, dim)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).to(dtype)


def rotary_table(length: int, width: int, device: torch.device) -> Tensor:
    """Cosines and sines of positions 0 to length - 1: (2, length, width), float64."""
    angle = angles(torch.arange(length, device=device), width)
    return torch.stack([angle.cos(), angle.sin()]).repeat(1, 1, 2)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Turns each pair (i, i + K/2) of x (..., T, K) by its position's angle; table (2, T, K)."""
    cos, sin = table.to(x.dtype)
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin
