"""Positions of tokens: sinusoids (Vaswani et al. 2017) and rotary angles (Su et al. 2021, arXiv 2104.09864)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

from seqtrain.models.layers.block_options import BlockOptions

Positions = Literal["rotary", "sinusoidal", "learned", "none"]

BASE = 10_000.0
"""Ratio of the longest wavelength to the shortest, for sinusoids and, by default, rotary angles."""


def check_sizes(options: BlockOptions, positions: Positions, max_length: int | None) -> None:
    """Raise ValueError if the sizes of a Transformer do not fit each other or its kind of positions."""
    if options.head_dim is None and options.dim % options.num_heads:
        raise ValueError(f"dim={options.dim} must be a multiple of num_heads={options.num_heads}")
    if options.num_heads % options.kv_heads:
        raise ValueError(f"num_heads={options.num_heads} must be a multiple of num_kv_heads={options.kv_heads}")
    # Rotary positions rotate pairs of a head's numbers, and sinusoids are pairs of a sine and a cosine.
    if positions == "rotary" and options.head_width % 2:
        source = "dim / num_heads" if options.head_dim is None else "head_dim"
        raise ValueError(f"{source} = {options.head_width} must be even for rotary positions")
    if positions == "sinusoidal" and options.dim % 2:
        raise ValueError(f"dim={options.dim} must be even for sinusoidal positions")
    # Without a table, max_length would only truncate texts; a table needs its size.
    if (positions == "learned") != (max_length is not None):
        raise ValueError(
            "positions=learned: add max_length, the size of their table"
            if max_length is None
            else f"max_length={max_length}: needs learned positions; add positions=learned, or leave it out"
        )


def learned_positions(max_length: int | None, dim: int) -> nn.Embedding | None:
    """Create the table of learned positions, or return None for a model without them."""
    if max_length is None:
        return None
    return nn.Embedding(max_length, dim)


def place(
    x: Float[Tensor, "B T D"],
    positions: Positions,
    table: nn.Embedding | None,
    num_before: Int[Tensor, " B"] | Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T D"]:
    """Add absolute positions if the model has them.

    Args:
        x: embedded tokens.
        positions: the kind; rotary positions are added in attention, so x is not changed here.
        table: of learned positions; None for sinusoids.
        num_before: number of tokens that each lane, or each token's document, has read before; positions continue from
        it. None for 0.
    """
    if positions in ("rotary", "none"):
        return x
    index = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
    if num_before is not None:
        index = index + num_before.view(len(x), -1)
    if table is not None:
        return x + table(index)
    return x + sinusoids(index, x.shape[-1], x.dtype)


class PlacedInput(nn.Module):
    """The input of the first block on either side of an encoder-decoder: embedded tokens, scaled, plus positions."""

    def __init__(
        self, options: BlockOptions, *, positions: Positions, max_length: int | None, rotary_base: float
    ) -> None:
        super().__init__()
        self.scale = math.sqrt(options.dim)
        self.positions: Positions = positions
        self.head_width, self.rotary_base = options.head_width, rotary_base
        self.table = learned_positions(max_length, options.dim)
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, x: Float[Tensor, "B T D"], num_before: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B T D"]:
        """Scale x and add positions. `num_before`: tokens that each lane has already read; None for 0."""
        return self.dropout(place(x * self.scale, self.positions, self.table, num_before))

    def rotary(self, length: int, like: Float[Tensor, "*Any"], begin: int = 0) -> Float[Tensor, "2 {length} K"] | None:
        """Return cosines and sines of `length` positions from `begin` on, in the dtype of `like`, or None."""
        if self.positions != "rotary":
            return None
        return rotary_table(length, self.head_width, like.device, begin, self.rotary_base).to(like.dtype)


def angles(index: Int[Tensor, "*T"], width: int, base: float = BASE) -> Float[Tensor, "*T {width}//2"]:
    """Return the `width / 2` angles of each position, in float64."""
    # Positions of a stream grow without end, and an angle in float32 is inexact after a million tokens.
    rates = base ** (-torch.arange(0, width, 2, device=index.device, dtype=torch.float64) / width)
    return index.to(torch.float64).unsqueeze(-1) * rates


def sinusoids(index: Int[Tensor, "*T"], dim: int, dtype: torch.dtype) -> Float[Tensor, "*T {dim}"]:
    """Return sines and cosines of any integer positions."""
    angle = angles(index, dim)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).to(dtype)


def rotary_table(
    length: int, width: int, device: torch.device, begin: int = 0, base: float = BASE
) -> Float[Tensor, "2 {length} {width}"]:
    """Return cosines and signed sines of `length` positions from `begin` on, in float64, in the layout of `rotate`."""
    angle = angles(torch.arange(begin, begin + length, device=device), width, base)
    cos, sin = angle.cos(), angle.sin()
    # Repeated, once for each half of a pair.
    return torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)])


def rotate(x: Float[Tensor, "*B T K"], table: Float[Tensor, "2 T K"]) -> Float[Tensor, "*B T K"]:
    """Rotate each pair (i, i + K/2) of x by its position's angle."""
    cos, sin = table.to(x.dtype)
    # A pair consists of halves, not neighbours: then one roll swaps them, and the sines carry the signs.
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def turns_of(table: Float[Tensor, "2 T K"]) -> Complex[Tensor, "T P"]:
    """Convert the table of `rotate` to one complex number a pair. At least float32: 16-bit complex is not supported."""
    cos, sin = table.to(torch.promote_types(table.dtype, torch.float32)).unflatten(-1, (2, -1))[:, :, 1]
    return torch.complex(cos, sin)


def turn(x: Float[Tensor, "*B T K"], turns: Complex[Tensor, "T P"]) -> None:
    """Rotate each pair (2i, 2i + 1) of x by its position's angle, in place, in one pass (`rotate` takes four)."""
    exact = x.to(turns.real.dtype)
    torch.view_as_complex(exact.unflatten(-1, (-1, 2))).mul_(turns)
    if exact is not x:
        x.copy_(exact)


def neighbours(rows: Float[Tensor, " R *I"], num_heads: int) -> Float[Tensor, " R *I"]:
    """Reorder the rows of a map to queries, keys and values: make the pairs of `rotate` in the first two adjacent."""
    return _exchanged(rows, (2 * num_heads, 2, -1))


def halves(rows: Float[Tensor, " R *I"], num_heads: int) -> Float[Tensor, " R *I"]:
    """Undo `neighbours`: reorder such rows back to the order that `rotate` expects."""
    return _exchanged(rows, (2 * num_heads, -1, 2))


def _exchanged(rows: Float[Tensor, " R *I"], shape: tuple[int, int, int]) -> Float[Tensor, " R *I"]:
    query, key, value = rows.chunk(3)
    pairs = torch.cat([query, key]).unflatten(0, shape)
    return torch.cat([pairs.transpose(1, 2).flatten(0, 2), value])
