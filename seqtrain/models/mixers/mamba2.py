"""Mamba-2 (Dao & Gu 2024, arXiv 2405.21060): one scalar decay per head, keys and queries shared by all heads."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.mixers.base import Mixer, ShortConvolution, exact, full_precision, heads, joined
from seqtrain.models.mixers.chunks import CHUNK, decayed_sum, steps_in_chunks
from seqtrain.models.mixers.gated_delta import decay_parameters
from seqtrain.models.stepper import State


class Mamba2(Mixer):
    """Heads of P channels, each with a memory of N x P numbers; all heads share keys and queries."""

    def __init__(
        self, *, dim: int, head_dim: int | None = None, state_dim: int = 64, expand: int = 2, conv: int = 4
    ) -> None:
        """Make the weights.

        Args:
            dim: D, the width of the stream.
            head_dim: P, the channels of a head. None: 64, or less if 64 does not divide the inner width.
            state_dim: N, the size of the memory of each channel.
            expand: Inner width, in units of D.
            conv: Width of the short convolution, in tokens; 0 for none.
        """
        super().__init__()
        inner = expand * dim
        head_dim = math.gcd(inner, 64) if head_dim is None else head_dim
        if inner % head_dim:
            raise ValueError(f"head_dim={head_dim}: does not divide expand * dim = {inner}")
        self.num_heads, self.state_dim = inner // head_dim, state_dim
        self.widths = [inner, inner + 2 * state_dim, self.num_heads]
        self.split = [inner, state_dim, state_dim]
        self.wide = nn.Linear(dim, sum(self.widths), bias=False)
        self.conv = ShortConvolution(self.widths[1], conv, bias=True)
        self.norm = nn.RMSNorm(inner, eps=1e-5)
        self.out = nn.Linear(inner, dim, bias=False)
        self.log_rate, self.step_bias = decay_parameters(self.num_heads, least=1.0)
        self.skip = nn.Parameter(torch.ones(self.num_heads))

    def initial(self, batch: int) -> State:
        width = self.split[0] // self.num_heads
        memory = self.norm.weight.new_zeros(batch, self.num_heads, self.state_dim, width)
        return {"memory": memory, **self.conv.initial(batch)}

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        gate, packed, step = self.wide(x).split(self.widths, -1)
        packed, after = self.conv(packed, state, starts)
        value, key, query = (exact(part) for part in packed.split(self.split, -1))
        step = F.softplus(exact(step) + self.step_bias).transpose(1, 2)  # (B, H, T)
        value = heads(value, self.num_heads)
        log_decay = -self.log_rate.exp()[:, None] * step
        with full_precision(x.device):
            written = value * step.unsqueeze(-1)
            read, memory = decayed_sum(
                query.unsqueeze(1), [(key.unsqueeze(1), written)], log_decay, exact(state["memory"]), starts=starts
            )
        read = joined(read + self.skip[:, None, None] * value).to(self.norm.weight.dtype)
        mixed = self.norm(read * F.silu(gate))
        return self.out(mixed), {"memory": memory.to(state["memory"].dtype), **after}

    def flops(self, length: int) -> float:
        size, width = min(CHUNK, length), self.split[0] // self.num_heads
        # Products of keys and queries are computed once for all heads.
        return 2 * (size * self.state_dim + self.num_heads * (size * width + 2 * self.state_dim * width))

    def steps(self, length: int) -> int:
        return steps_in_chunks(length)
