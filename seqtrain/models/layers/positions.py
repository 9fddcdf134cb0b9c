"""Where a token stands: sinusoids (Vaswani et al. 2017) and rotary angles (Su et al. 2021, arXiv 2104.09864)."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Positions = Literal["rotary", "sinusoidal", "learned", "none"]

BASE = 10_000.0


def check_sizes(dim: int, num_heads: int, positions: Positions, max_length: int | None) -> None:
    """ValueError where the sizes of a Transformer do not fit each other or its kind of positions."""
    if dim % num_heads:
        raise ValueError(f"dim={dim} must be a multiple of num_heads={num_heads}")
    if positions == "rotary" and dim // num_heads % 2:
        raise ValueError(f"dim / num_heads = {dim // num_heads} must be even for rotary positions")
    if positions == "sinusoidal" and dim % 2:
        raise ValueError(f"dim={dim} must be even for sinusoidal positions")
    if (positions == "learned") != (max_length is not None):
        raise ValueError("max_length is the table of learned positions: set it with positions=learned, and only then")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length={max_length} must be above 0")


def place(
    x: Float[Tensor, "B T D"], positions: Positions, table: nn.Embedding | None, filled: Int[Tensor, " B"] | None = None
) -> Float[Tensor, "B T D"]:
    """Adds absolute positions, counted on from the `filled` tokens before, where there are any; `table` is learned."""
    if positions in ("rotary", "none"):
        return x
    index = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
    if filled is not None:
        index = index + filled.unsqueeze(1)
    return x + (sinusoids(index, x.shape[-1], x.dtype) if table is None else table(index))


def angles(index: Int[Tensor, "*T"], width: int) -> Float[Tensor, "*T {width}//2"]:
    """The `width / 2` angles of each position in float64, since float32 drifts after a million tokens."""
    rates = BASE ** (-torch.arange(0, width, 2, device=index.device, dtype=torch.float64) / width)
    return index.to(torch.float64).unsqueeze(-1) * rates


def sinusoids(index: Int[Tensor, "*T"], dim: int, dtype: torch.dtype) -> Float[Tensor, "*T {dim}"]:
    """Sines and cosines of any integer positions."""
    angle = angles(index, dim)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).to(dtype)


def rotary_table(length: int, width: int, device: torch.device) -> Float[Tensor, "2 {length} {width}"]:
    """Cosines and sines of positions 0 to length - 1, in float64."""
    angle = angles(torch.arange(length, device=device), width)
    return torch.stack([angle.cos(), angle.sin()]).repeat(1, 1, 2)


def rotate(x: Float[Tensor, "*B T K"], table: Float[Tensor, "2 T K"]) -> Float[Tensor, "*B T K"]:
    """Turns each pair (i, i + K/2) of x by its position's angle."""
    cos, sin = table.to(x.dtype)
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin
