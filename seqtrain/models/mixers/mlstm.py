"""The matrix memory of xLSTM (Beck et al. 2024, arXiv 2405.04517): exponential input gates, a normaliser."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.mixers.base import Mixer, ShortConvolution, exact, full_precision, heads, joined
from seqtrain.models.mixers.chunks import CHUNK, chunked, later, memories, numbered, steps_in_chunks, summed
from seqtrain.models.stepper import State

BLOCK = 4  # channels among which queries, keys and values are mixed
EPS = 1e-6


class MLSTM(Mixer):
    """A memory of K x K numbers, a forget gate and an input gate per head; reads are divided by a normaliser."""

    def __init__(self, *, dim: int, num_heads: int, expand: int = 2, conv: int = 4) -> None:
        """Make the weights.

        Args:
            dim: D, the width of the stream.
            num_heads: H.
            expand: Inner width, in units of D.
            conv: Width of the short convolution of queries and keys, in tokens; 0 for none.
        """
        super().__init__()
        inner = expand * dim
        if inner % num_heads or inner % BLOCK:
            raise ValueError(f"num_heads={num_heads}: expand * dim = {inner} must be a multiple of it and of {BLOCK}")
        self.num_heads, self.head_dim = num_heads, inner // num_heads
        self.wide = nn.Linear(dim, 2 * inner, bias=False)
        self.conv = ShortConvolution(inner, conv, bias=True)
        # Maps of four channels each, to queries, keys and values.
        self.maps = nn.Parameter(torch.randn(3, inner // BLOCK, BLOCK, BLOCK) * (2 / (5 * BLOCK)) ** 0.5)
        self.gates = nn.Linear(3 * inner, 2 * num_heads)
        nn.init.zeros_(self.gates.weight)
        with torch.no_grad():
            self.gates.bias[:num_heads].normal_(std=0.1)
            self.gates.bias[num_heads:] = torch.linspace(3.0, 6.0, num_heads)
        self.norm = nn.RMSNorm(self.head_dim, eps=1e-5)
        self.skip = nn.Parameter(torch.ones(inner))
        self.out = nn.Linear(inner, dim, bias=False)

    def initial(self, batch: int) -> State:
        zeros = self.out.weight.new_zeros
        return {
            "memory": zeros(batch, self.num_heads, self.head_dim, self.head_dim),
            "normaliser": zeros(batch, self.num_heads, self.head_dim),
            "scale": zeros(batch, self.num_heads),  # logarithm of the divisor of both
            **self.conv.initial(batch),
        }

    def forward(
        self, x: Float[Tensor, "B T D"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        inner, gate = self.wide(x).chunk(2, -1)
        mixed, after = self.conv(inner, state, starts)
        sources = torch.stack([mixed, mixed, inner]).unflatten(-1, (-1, BLOCK))
        packed = torch.einsum("nbtgi,ngio->nbtgo", sources, self.maps.to(sources.dtype)).flatten(-2)
        gates = exact(self.gates(torch.cat(list(packed), -1))).transpose(1, 2)  # (B, 2H, T)
        query, key, value = (heads(exact(part), self.num_heads) for part in packed)
        with full_precision(x.device):
            read, new = read_gated(
                query,
                key * self.head_dim**-0.5,
                value,
                gates[:, : self.num_heads],
                F.logsigmoid(gates[:, self.num_heads :]),
                {name: exact(state[name]) for name in ("memory", "normaliser", "scale")},
                starts=starts,
            )
        read = joined(self.norm(read.to(self.norm.weight.dtype))) + self.skip * mixed
        after |= {name: value.to(state[name].dtype) for name, value in new.items()}
        return self.out(read * F.silu(gate)), after

    def flops(self, length: int) -> float:
        size, keys = min(CHUNK, length), self.head_dim
        values = keys + 1  # and the normaliser
        return 2 * self.num_heads * (size * (keys + values) + 2 * keys * values)

    def steps(self, length: int) -> int:
        return steps_in_chunks(length)


def read_gated(
    query: Float[Tensor, "B H T K"],
    key: Float[Tensor, "B H T K"],
    value: Float[Tensor, "B H T V"],
    log_input: Float[Tensor, "B H T"],
    log_forget: Float[Tensor, "B H T"],
    state: State,
    starts: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B H T V"], State]:
    """Compute C_t = f C_{t-1} + i k_t v_t^T, n_t = f n_{t-1} + i k_t, and q^T C / max(|q . n|, 1), in chunks.

    C and n are kept divided by e^m, with m the largest logarithm so far, so that no exponential overflows.

    Args:
        query: Query q to the memory after each token.
        key: Key k of each token.
        value: Value v of each token.
        log_input: Logarithm of i.
        log_forget: Logarithm of f, at most 0.
        state: `memory` C (B, H, K, V), `normaliser` n (B, H, K) and `scale` m (B, H) before the first token.
        starts: True where the state is reset to zeros before a token. None: nowhere.

    Returns:
        The values read after each token, and the state after the last.
    """
    length = query.shape[2]
    size = min(CHUNK, length)  # the result does not depend on it
    missing = -length % size
    # Padding writes nothing and forgets nothing.
    log_input = F.pad(log_input, (0, missing), value=-torch.inf)
    log_forget = F.pad(log_forget, (0, missing))
    query, key, value, log_input, log_forget = (
        chunked(part, size) for part in (query, key, value, log_input, log_forget)
    )
    document = numbered(starts, size)
    total = summed(log_forget.double(), document, -1)  # in float64, as in `Decay`
    given = log_input - total  # strength of a write, relative to the beginning of the chunk or of its document
    unseen, to_end = later(total.unsqueeze(-1), document), total[..., -1:] + given
    if document is None:
        largest, goes_on = given.cummax(-1).values, torch.ones_like(total[:, :1], dtype=torch.bool)
    else:
        goes_on = document == 0
        to_end = to_end.masked_fill(document < document[..., -1:], -torch.inf)
        largest = given.unsqueeze(-2).masked_fill(unseen, -torch.inf).amax(-1)
    # m before each chunk, and after the last.
    scales_before = [state["scale"].double()]
    for faded, written, whole in zip(
        total[..., -1].unbind(2), to_end.amax(-1).unbind(2), goes_on[..., -1].unbind(2), strict=True
    ):
        scales_before.append(torch.maximum(written, faded + torch.where(whole, scales_before[-1], 0.0)))
    scale = torch.stack(scales_before, 2).unsqueeze(-1)  # (B, H, N + 1, 1)
    scales = total + torch.maximum(torch.where(goes_on, scale[:, :, :-1], 0.0), largest)  # (B, H, N, C): m after each

    def share(logarithm: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        return logarithm.to(query.dtype).exp()

    weights = ((total - scales).unsqueeze(-1) + given.unsqueeze(-2)).masked_fill(unseen, -torch.inf)
    kept = (total + scale[:, :, :-1]).masked_fill(~goes_on, -torch.inf)
    asked = query * share(kept - scales).unsqueeze(-1)
    # The normaliser is one more column of the memory, into which each token writes 1.
    value = F.pad(value, (0, 1), value=1.0)
    written = (key * share(to_end - scale[:, :, 1:]).unsqueeze(-1)).transpose(-1, -2) @ value
    memory = torch.cat([state["memory"], state["normaliser"].unsqueeze(-1)], -1)
    before, memory = memories(share(kept[..., -1:] - scale[:, :, 1:]).unsqueeze(-1), written, memory)
    read = (query @ key.transpose(-1, -2) * share(weights)) @ value + asked @ before
    # With a divisor beyond e^80 the result is 0 in any case, and an infinite divisor has no gradient.
    least = torch.maximum(read[..., -1].abs(), share((-scales).clamp(max=80))) + EPS
    read = read[..., :-1] / least.unsqueeze(-1)
    new = {"memory": memory[..., :-1], "normaliser": memory[..., -1], "scale": scale[:, :, -1, 0]}
    return read.flatten(2, 3)[:, :, :length], new
