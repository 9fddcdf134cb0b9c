"""Gated DeltaNet (Yang et al. 2024, arXiv 2412.06464), and DeltaProduct (Siems et al. 2025, arXiv 2502.10297)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.mixers.base import Mixer, ShortConvolution, exact, full_precision, heads, joined
from seqtrain.models.mixers.chunks import delta_flops, gated_delta_rule, steps_in_chunks
from seqtrain.models.stepper import State


class GatedDelta(Mixer):
    """A memory of K x V numbers per head: a gate lets it decay, and each token replaces the value of its key."""

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        betas: Literal[1, 2] = 1,
        householders: int = 1,
        conv: int = 4,
    ) -> None:
        """Make the weights.

        Args:
            dim: D, the width of the stream.
            num_heads: H.
            key_dim: K, the width of a key. None: three quarters of D, shared among the heads.
            value_dim: V, the width of a value. None: 2 K.
            betas: The largest beta. With 2, a step can negate the value of a key, as parity requires.
            householders: Number of keys that each token writes to in turn; two can swap values, as permutations need.
            conv: Width of the short convolution of queries, keys and values, in tokens; 0 for none.
        """
        super().__init__()
        self.num_heads, self.betas, self.householders = num_heads, betas, householders
        self.key_dim = 3 * dim // (4 * num_heads) if key_dim is None else key_dim
        if self.key_dim < 1:
            raise ValueError(f"num_heads={num_heads}: dim={dim} is too small for so many heads")
        self.value_dim = 2 * self.key_dim if value_dim is None else value_dim
        keys, values = num_heads * self.key_dim, num_heads * self.value_dim
        self.widths = [keys, householders * keys, householders * values]
        self.query_key_value = nn.Linear(dim, sum(self.widths), bias=False)
        self.conv = ShortConvolution(sum(self.widths), conv)
        self.gates = nn.Linear(dim, (1 + householders) * num_heads, bias=False)
        self.gate = nn.Linear(dim, values, bias=False)
        self.norm = nn.RMSNorm(self.value_dim, eps=1e-5)
        self.out = nn.Linear(values, dim, bias=False)
        self.log_rate, self.step_bias = decay_parameters(num_heads)

    def initial(self, batch: int) -> State:
        memory = self.norm.weight.new_zeros(batch, self.num_heads, self.key_dim, self.value_dim)
        return {"memory": memory, **self.conv.initial(batch)}

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        packed, after = self.conv(self.query_key_value(x), state, starts)
        query, key, value = (exact(part) for part in packed.split(self.widths, -1))
        step, beta = exact(self.gates(x)).split([self.num_heads, self.householders * self.num_heads], -1)
        query = unit(heads(query, self.num_heads)) * self.key_dim**-0.5
        key = unit(self._in_turn(key))
        value, beta = self._in_turn(value), self.betas * self._in_turn(beta).squeeze(-1).sigmoid()
        log_decay = -self.log_rate.exp() * F.softplus(step + self.step_bias)  # (B, T, H)
        log_decay = log_decay.transpose(1, 2)
        count = self.householders
        if count > 1:  # the memory decays before a token's first key, and is read after its last
            log_decay = F.pad(log_decay.unsqueeze(-1), (0, count - 1)).flatten(2)
            query = F.pad(query.unsqueeze(3), (0, 0, count - 1, 0)).flatten(2, 3)
            if starts is not None:
                starts = F.pad(starts.unsqueeze(-1), (0, count - 1)).flatten(1)
        with full_precision(x.device):
            read, memory = gated_delta_rule(query, key, value, beta, log_decay, exact(state["memory"]), starts=starts)
        read = self.norm(read[:, :, count - 1 :: count].to(self.norm.weight.dtype))
        mixed = joined(read) * F.silu(self.gate(x))
        return self.out(mixed), {"memory": memory.to(state["memory"].dtype), **after}

    def flops(self, length: int) -> float:
        count = self.householders
        return count * self.num_heads * delta_flops(length * count, self.key_dim, self.value_dim)

    def steps(self, length: int) -> int:
        return steps_in_chunks(length * self.householders)

    def _in_turn(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B H N F"]:
        """Split channels into heads, and place the householders of a token one after another: N = householders T."""
        return x.unflatten(-1, (self.householders, self.num_heads, -1)).permute(0, 3, 1, 2, 4).flatten(2, 3)


def unit(x: Float[Tensor, "*B K"]) -> Float[Tensor, "*B K"]:
    """Scale vectors to length 1; a vector of zeros stays zero."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def decay_parameters(num_heads: int, least: float = 1e-3) -> tuple[nn.Parameter, nn.Parameter]:
    """Draw the logarithm of a rate and the bias of a step, which together give the initial decay of each head.

    Args:
        num_heads: H.
        least: The lower bound of the rates, which are drawn uniformly.

    Returns:
        Two vectors (H,): log rates, and biases for which softplus gives steps from .001 to .1, uniform in logarithm.
    """
    rate = torch.empty(num_heads).uniform_(least, 16.0)
    step = torch.empty(num_heads).uniform_(math.log(1e-3), math.log(1e-1)).exp()
    return nn.Parameter(rate.log()), nn.Parameter(step + torch.log(-torch.expm1(-step)))
