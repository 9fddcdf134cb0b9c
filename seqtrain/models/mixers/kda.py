"""Kimi delta attention (Kimi Team 2025, arXiv 2510.26692): the gated delta rule with a decay for each channel."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqtrain.models.mixers.base import Mixer, ShortConvolution, exact, full_precision, heads, joined
from seqtrain.models.mixers.chunks import delta_flops, gated_delta_rule, steps_in_chunks
from seqtrain.models.mixers.gated_delta import unit
from seqtrain.models.stepper import State

MOST = 5.0  # largest decrease of a decay's logarithm in one step


class KDA(Mixer):
    """A memory of K x V numbers per head: each of its K rows has its own decay; each token replaces its key's value."""

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        betas: Literal[1, 2] = 1,
        conv: int = 4,
    ) -> None:
        """Make the weights.

        Args:
            dim: D, the width of the stream.
            num_heads: H.
            key_dim: K, the width of a key. None: D/H.
            value_dim: V, the width of a value. None: K.
            betas: The largest beta. With 2, a step can negate the value of a key, as parity requires.
            conv: Width of the short convolution of queries, keys and values, in tokens; 0 for none.
        """
        super().__init__()
        self.num_heads, self.betas = num_heads, betas
        self.key_dim = dim // num_heads if key_dim is None else key_dim
        if self.key_dim < 1:
            raise ValueError(f"num_heads={num_heads}: dim={dim} is too small for so many heads")
        self.value_dim = self.key_dim if value_dim is None else value_dim
        keys, values = num_heads * self.key_dim, num_heads * self.value_dim
        self.widths = [keys, keys, values]
        self.query_key_value = nn.Linear(dim, sum(self.widths), bias=False)
        self.conv = ShortConvolution(sum(self.widths), conv)
        self.beta = nn.Linear(dim, num_heads, bias=False)
        # Both gates pass through a bottleneck of few channels, because their outputs are as wide as keys and values.
        self.decay = nn.Sequential(nn.Linear(dim, self.value_dim, bias=False), nn.Linear(self.value_dim, keys))
        self.gate = nn.Sequential(nn.Linear(dim, self.value_dim, bias=False), nn.Linear(self.value_dim, values))
        self.log_rate = nn.Parameter(torch.zeros(num_heads))
        self.norm = nn.RMSNorm(self.value_dim, eps=1e-5)
        self.out = nn.Linear(values, dim, bias=False)

    def initial(self, batch: int) -> State:
        memory = self.norm.weight.new_zeros(batch, self.num_heads, self.key_dim, self.value_dim)
        return {"memory": memory, **self.conv.initial(batch)}

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        packed, after = self.conv(self.query_key_value(x), state, starts)
        query, key, value = (heads(exact(part), self.num_heads) for part in packed.split(self.widths, -1))
        beta = self.betas * exact(self.beta(x)).sigmoid().transpose(1, 2)
        rate = self.log_rate.exp()[:, None, None]
        log_decay = -MOST * (rate * heads(exact(self.decay(x)), self.num_heads)).sigmoid()
        with full_precision(x.device):
            query = unit(query) * self.key_dim**-0.5
            read, memory = gated_delta_rule(
                query, unit(key), value, beta, log_decay, exact(state["memory"]), starts=starts
            )
        mixed = joined(self.norm(read.to(self.norm.weight.dtype))) * self.gate(x).sigmoid()
        return self.out(mixed), {"memory": memory.to(state["memory"].dtype), **after}

    def flops(self, length: int) -> float:
        return self.num_heads * delta_flops(length, self.key_dim, self.value_dim)

    def steps(self, length: int) -> int:
        return steps_in_chunks(length)
