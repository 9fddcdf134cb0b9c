"""Mamba-3 (arXiv 2603.15569), single input, single output: rotated keys, and writes that include the token before."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.mixers.base import Mixer, exact, full_precision, heads, joined
from seqtrain.models.mixers.chunks import CHUNK, decayed_sum, steps_in_chunks, summed
from seqtrain.models.mixers.gated_delta import decay_parameters
from seqtrain.models.stepper import State


class Mamba3(Mixer):
    """Heads of P channels, each with a memory of N x P numbers; angles computed from the tokens rotate its keys."""

    def __init__(self, *, dim: int, head_dim: int | None = None, state_dim: int = 64, expand: int = 2) -> None:
        """Make the weights.

        Args:
            dim: D, the width of the stream.
            head_dim: P, the channels of a head. None: 64, or less if 64 does not divide the inner width.
            state_dim: N, the size of the memory of each channel; half of it is rotated.
            expand: Inner width, in units of D.
        """
        super().__init__()
        inner = expand * dim
        head_dim = math.gcd(inner, 64) if head_dim is None else head_dim
        if inner % head_dim:
            raise ValueError(f"head_dim={head_dim}: does not divide expand * dim = {inner}")
        if state_dim % 4:
            raise ValueError(f"state_dim={state_dim}: must be a multiple of 4, because half of it is rotated in pairs")
        self.num_heads, self.state_dim, self.head_dim = inner // head_dim, state_dim, head_dim
        self.num_angles = state_dim // 4
        self.widths = [inner, inner, state_dim, state_dim, *[self.num_heads] * 3, self.num_angles]
        self.wide = nn.Linear(dim, sum(self.widths), bias=False)
        self.key_norm, self.query_norm = (nn.RMSNorm(state_dim, eps=1e-5) for _ in range(2))
        # Stored as vectors, so that weight decay does not apply to these biases.
        self.key_bias, self.query_bias = (nn.Parameter(torch.ones(self.num_heads * state_dim)) for _ in range(2))
        self.out = nn.Linear(inner, dim, bias=False)
        self.step_bias = decay_parameters(self.num_heads)[1]
        self.skip = nn.Parameter(torch.ones(self.num_heads))

    def initial(self, batch: int) -> State:
        zeros = self.out.weight.new_zeros
        return {
            "memory": zeros(batch, self.num_heads, self.state_dim, self.head_dim),
            "angle": zeros(batch, self.num_heads, self.num_angles),
            "key": zeros(batch, self.num_heads, self.state_dim),  # of the last token, rotated
            "value": zeros(batch, self.num_heads, self.head_dim),
        }

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        gate, value, key, query, step, rate, share, angle = self.wide(x).split(self.widths, -1)
        with full_precision(x.device):
            step = F.softplus(exact(step) + self.step_bias).transpose(1, 2)  # (B, H, T)
            log_decay = -_rate(exact(rate)).transpose(1, 2) * step
            share = exact(share).sigmoid().transpose(1, 2)
            turns = math.pi * exact(angle).tanh().unsqueeze(1) * step.unsqueeze(-1)  # (B, H, T, R)
            # In float64 and modulo 2 pi: the sum over a long text would lose its digits.
            angles, document = state["angle"].double().unsqueeze(2), None
            if starts is not None:
                document = starts.cumsum(1)[:, None, :, None]
                angles = torch.where(document == 0, angles, 0.0)
            angles = ((angles + summed(turns.double(), document, 2)) % (2 * math.pi)).to(step.dtype)
            key = turned(self._keys(key, self.key_norm, self.key_bias), angles)
            query = turned(self._keys(query, self.query_norm, self.query_bias), angles)
            value = heads(exact(value), self.num_heads)
            # Each token writes a share of its value now and the rest with the next token, before that token's decay.
            now, late = share * step, (1 - share) * step * log_decay.exp()
            if starts is not None:
                late = late.masked_fill(starts.unsqueeze(1), 0.0)
            # A single write with both strengths added would include the next token's share early, then subtract it.
            last_key, last_value = (
                torch.cat([state[name].unsqueeze(2).to(each), each[:, :, :-1]], 2)
                for name, each in (("key", key), ("value", value))
            )
            writes = [(key, value * now.unsqueeze(-1)), (last_key, last_value * late.unsqueeze(-1))]
            read, memory = decayed_sum(query, writes, log_decay, exact(state["memory"]), starts=starts)
            read = read + self.skip[:, None, None] * value
        after = {"memory": memory, "angle": angles[:, :, -1], "key": key[:, :, -1], "value": value[:, :, -1]}
        mixed = joined(read).to(self.out.weight.dtype) * F.silu(gate)
        return self.out(mixed), {name: new.to(state[name].dtype).contiguous() for name, new in after.items()}

    def flops(self, length: int) -> float:
        size, memory = min(CHUNK, length), self.state_dim * self.head_dim
        a_write = size * (self.state_dim + self.head_dim) + memory
        return 2 * self.num_heads * (2 * a_write + memory)

    def steps(self, length: int) -> int:
        return steps_in_chunks(length)

    def _keys(self, x: Float[Tensor, "B T N"], norm: nn.RMSNorm, bias: Float[Tensor, " W"]) -> Float[Tensor, "B H T N"]:
        """Return keys or queries of each head: normalised, and shifted by the head's bias."""
        normed = norm(x.to(norm.weight.dtype)).unsqueeze(1)
        return exact(normed + bias.unflatten(0, (self.num_heads, 1, -1)))


def _rate(x: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return a positive rate: 1 + x above 0, 1 / (1 - x) below."""
    # Each branch gets only numbers of its own range: otherwise its division could give an infinite gradient.
    return torch.where(x >= 0, 1 + x.clamp(min=0), 1 / (1 - x.clamp(max=0))).clamp(min=1e-4)


def turned(x: Float[Tensor, "B H T N"], angles: Float[Tensor, "B H T R"]) -> Float[Tensor, "B H T N"]:
    """Rotate the first R pairs of neighbours (2i, 2i + 1) by their angles; the rest is unchanged."""
    pairs, rest = x[..., : 2 * angles.shape[-1]].unflatten(-1, (-1, 2)), x[..., 2 * angles.shape[-1] :]
    first, second = pairs.unbind(-1)
    cos, sin = angles.cos(), angles.sin()
    both = torch.stack([first * cos - second * sin, first * sin + second * cos], -1)
    return torch.cat([both.flatten(-2), rest], -1)
