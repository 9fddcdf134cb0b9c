"""Each mixer is the layer of its paper: gates, convolution, norms and all, written down once more token by token.

Each function here reads one lane x (T, D) from nothing, with the weights of a mixer. Equations: the papers that the
mixers' own files name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqtrain.models.mixers.base import Mixer
from tests.models.test_mixers import mixer, text


def convolved(x: Tensor, conv: Any) -> Tensor:
    """The sum over the last values of each channel, each with its own weight, then silu."""
    if not conv.width:
        return x
    padded = torch.cat([x.new_zeros(conv.width - 1, x.shape[1]), x])
    rows = [(padded[t : t + conv.width] * conv.weight[:, 0].T).sum(0) for t in range(len(x))]
    return F.silu(torch.stack(rows) + (0 if conv.bias is None else conv.bias))


def unit(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def rms(x: Tensor, norm: Any) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight


def delta(query: Tensor, keys: Tensor, values: Tensor, decay: Tensor, betas: Tensor) -> Tensor:
    """Fade, then for each key of a token replace what it holds, then ask. (T, H, ..); keys (T, n, H, K)."""
    memory, read = query.new_zeros(*keys.shape[2:], values.shape[-1]), []
    for q, many, written, faded, shares in zip(query, keys, values, decay, betas, strict=True):
        memory = faded.unsqueeze(-1) * memory
        for k, v, beta in zip(many, written, shares, strict=True):
            held = torch.einsum("hk,hkv->hv", k, memory)
            memory = memory + torch.einsum("h,hk,hv->hkv", beta, k, v - held)
        read.append(torch.einsum("hk,hkv->hv", q, memory))
    return torch.stack(read)


def gated_delta(m: Any, x: Tensor) -> Tensor:
    count, heads = m.householders, m.num_heads
    q, k, v = convolved(m.query_key_value(x), m.conv).split(m.widths, -1)
    q = unit(q.unflatten(-1, (heads, -1))) / math.sqrt(m.key_dim)
    k, v = (part.unflatten(-1, (count, heads, -1)) for part in (k, v))
    step, beta = m.gates(x).split([heads, count * heads], -1)
    decay = torch.exp(-m.log_rate.exp() * F.softplus(step + m.step_bias))
    beta = m.betas * beta.sigmoid().unflatten(-1, (count, heads))
    read = delta(q, unit(k), v, decay.unsqueeze(-1), beta)
    return m.out(rms(read, m.norm).flatten(1) * F.silu(m.gate(x)))


def kda(m: Any, x: Tensor) -> Tensor:
    parts = convolved(m.query_key_value(x), m.conv).split(m.widths, -1)
    q, k, v, decay = (part.unflatten(-1, (m.num_heads, -1)) for part in (*parts, m.decay(x)))
    decay = torch.exp(-5 * torch.sigmoid(m.log_rate.exp()[:, None] * decay))
    beta = m.betas * m.beta(x).sigmoid()
    read = delta(unit(q) / math.sqrt(m.key_dim), unit(k)[:, None], v[:, None], decay, beta[:, None])
    return m.out(rms(read, m.norm).flatten(1) * m.gate(x).sigmoid())


def mamba2(m: Any, x: Tensor) -> Tensor:
    gate, packed, step = m.wide(x).split(m.widths, -1)
    v, k, q = convolved(packed, m.conv).split(m.split, -1)
    v, step = v.unflatten(-1, (m.num_heads, -1)), F.softplus(step + m.step_bias)
    memory, read = x.new_zeros(m.num_heads, m.state_dim, v.shape[-1]), []
    for t in range(len(x)):
        decay = torch.exp(-m.log_rate.exp() * step[t])
        memory = decay[:, None, None] * memory + torch.einsum("h,n,hp->hnp", step[t], k[t], v[t])
        read.append(torch.einsum("n,hnp->hp", q[t], memory) + m.skip[:, None] * v[t])
    return m.out(rms(torch.stack(read).flatten(1) * F.silu(gate), m.norm))


def mamba3(m: Any, x: Tensor) -> Tensor:
    gate, v, k, q, step, rate, share, angle = m.wide(x).split(m.widths, -1)
    v, step, share = v.unflatten(-1, (m.num_heads, -1)), F.softplus(step + m.step_bias), share.sigmoid()
    rate = torch.where(rate >= 0, 1 + rate.abs(), 1 / (1 + rate.abs()))
    k, q = (
        rms(part, norm)[:, None] + bias.view(m.num_heads, -1)
        for part, norm, bias in ((k, m.key_norm, m.key_bias), (q, m.query_norm, m.query_bias))
    )
    phi = (math.pi * angle.tanh()[:, None] * step[..., None]).cumsum(0)  # (T, H, R)
    turn = torch.polar(torch.ones_like(phi), phi)

    def turned(part: Tensor) -> Tensor:
        first, rest = part.split([2 * phi.shape[-1], part.shape[-1] - 2 * phi.shape[-1]], -1)
        pairs = torch.view_as_complex(first.unflatten(-1, (-1, 2)).contiguous()) * turn
        return torch.cat([torch.view_as_real(pairs).flatten(-2), rest], -1)

    k, q = turned(k), turned(q)
    memory, read = x.new_zeros(m.num_heads, m.state_dim, m.head_dim), []
    for t in range(len(x)):
        decay = torch.exp(-rate[t] * step[t])
        memory = decay[:, None, None] * memory
        if t:
            late = (1 - share[t]) * step[t] * decay
            memory = memory + torch.einsum("h,hn,hp->hnp", late, k[t - 1], v[t - 1])
        memory = memory + torch.einsum("h,hn,hp->hnp", share[t] * step[t], k[t], v[t])
        read.append(torch.einsum("hn,hnp->hp", q[t], memory) + m.skip[:, None] * v[t])
    return m.out(torch.stack(read).flatten(1) * F.silu(gate))


def mlstm(m: Any, x: Tensor) -> Tensor:
    inner, gate = m.wide(x).chunk(2, -1)
    mixed = convolved(inner, m.conv)
    q, k, v = (
        torch.cat([part @ block for part, block in zip(source.split(4, -1), maps, strict=True)], -1)
        for source, maps in zip((mixed, mixed, inner), m.maps, strict=True)
    )
    log_input, forget = m.gates(torch.cat([q, k, v], -1)).chunk(2, -1)
    q, k, v = (part.unflatten(-1, (m.num_heads, -1)) for part in (q, k / math.sqrt(m.head_dim), v))
    memory, norm = x.new_zeros(m.num_heads, m.head_dim, m.head_dim), x.new_zeros(m.num_heads, m.head_dim)
    scale, read = x.new_zeros(m.num_heads), []
    for t in range(len(x)):
        faded = F.logsigmoid(forget[t]) + scale
        new = torch.maximum(faded, log_input[t])
        keep, write = (faded - new).exp(), (log_input[t] - new).exp()
        memory = keep[:, None, None] * memory + torch.einsum("h,hk,hv->hkv", write, k[t], v[t])
        norm, scale = keep[:, None] * norm + write[:, None] * k[t], new
        least = torch.maximum((q[t] * norm).sum(-1).abs(), (-scale).exp()) + 1e-6
        read.append(torch.einsum("hk,hkv->hv", q[t], memory) / least[:, None])
    return m.out((rms(torch.stack(read), m.norm).flatten(1) + m.skip * mixed) * F.silu(gate))


def slstm(m: Any, x: Tensor) -> Tensor:
    given = m.wide(convolved(x, m.conv)).unflatten(-1, (m.num_heads, -1))
    hidden, cell, norm, log_scale = (x.new_zeros(m.num_heads, given.shape[-1] // 4) for _ in range(4))
    read = []
    for t in range(len(x)):
        log_input, forget, candidate, output = (given[t] + torch.einsum("hk,hko->ho", hidden, m.recurrent)).chunk(4, -1)
        faded = F.logsigmoid(forget) + log_scale
        new = torch.maximum(faded, log_input) if t else log_input
        keep, write = ((faded - new).exp() if t else torch.zeros_like(new)), (log_input - new).exp()
        cell, norm, log_scale = keep * cell + write * candidate.tanh(), keep * norm + write, new
        hidden = output.sigmoid() * cell / norm
        read.append(hidden)
    return m.out(rms(torch.stack(read), m.norm).flatten(1))


def scan(m: Any, x: Tensor) -> Tensor:
    given, hidden, read = m.wide(convolved(x, m.conv)), x.new_zeros(x.shape[1]), []
    for row in given:
        if m.kind == "min_gru":
            update, candidate = row.chunk(2)
            hidden = (1 - update.sigmoid()) * hidden + update.sigmoid() * candidate
        else:
            first, second, candidate = row.chunk(3)
            first, second = first.sigmoid(), second.sigmoid()
            if m.kind == "min_lstm":
                hidden = (first * hidden + second * candidate) / (first + second)
            else:
                keep = torch.exp(-8 * F.softplus(m.rate) * first)
                hidden = keep * hidden + (1 - keep**2).sqrt() * second * candidate
        read.append(hidden)
    return m.out(torch.stack(read))


LAYERS: list[tuple[str, dict[str, Any], Callable[[Any, Tensor], Tensor]]] = [
    ("gated_delta", {}, gated_delta),
    ("gated_delta", {"betas": 2, "householders": 2, "conv": 0}, gated_delta),
    ("kda", {"betas": 2}, kda),
    ("mamba2", {}, mamba2),
    ("mamba3", {}, mamba3),
    ("mlstm", {}, mlstm),
    ("slstm", {}, slstm),
    ("min_gru", {"conv": 4}, scan),
    ("min_lstm", {}, scan),
    ("rg_lru", {}, scan),
]


@pytest.mark.parametrize(("name", "options", "layer"), LAYERS)
def test_a_mixer_is_the_layer_of_its_paper(
    name: str, options: dict[str, Any], layer: Callable[[Mixer, Tensor], Tensor]
) -> None:
    made = mixer(name, options)
    x = text(70)[:1].requires_grad_()  # longer than a chunk
    found, expected = made(x, made.initial(1))[0][0], layer(made, x[0])
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(2), dtype=found.dtype)
    given = [x, *made.parameters()]
    pairs = [(found, expected)]
    pairs += zip(*(torch.autograd.grad((each * weights).sum(), given) for each in (found, expected)), strict=True)
    for one, other in pairs:
        assert (one - other).abs().max() <= 1e-9 * (1 + other.abs().max())
