"""Mixers: in chunks they compute what their equations say token by token, exactly, and nothing sees the future."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain import conf  # pyright: ignore[reportAttributeAccessIssue]  # mapped in by pyproject.toml
from seqtrain.config.instantiate import make
from seqtrain.models.mixers.attention import Attention
from seqtrain.models.mixers.base import Mixer
from seqtrain.models.mixers.chunks import decayed_sum, gated_delta_rule
from seqtrain.models.mixers.mlstm import EPS, read_gated
from seqtrain.models.stack import Stack
from tests.support.model_cases import assert_near

MIXERS = sorted(path.stem for path in Path(conf.__path__[0], "mixer").glob("*.yaml"))
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "gated_delta": [{"betas": 2, "householders": 2}, {"conv": 0}],
    "kda": [{"betas": 2}],
    "attention": [{"num_kv_heads": 1, "qk_norm": True}],
    "lstm": [{"conv": 3, "units": 10}],
    "min_gru": [{"conv": 4}],
}
CASES = [(name, options) for name in MIXERS for options in ({}, *OPTIONS.get(name, []))]
B, H, T, K, V = 2, 3, 41, 8, 6
LENGTH = 37


def mixer(name: str, options: dict[str, Any], *, dim: int = 16) -> Mixer:
    torch.manual_seed(0)
    node = OmegaConf.load(Path(conf.__path__[0], "mixer", f"{name}.yaml"))
    config = OmegaConf.create({"tbptt": {"k2": 5}, "mixer": OmegaConf.merge(node, options)})
    made = make(config.mixer)(dim=dim).double()
    for weight in made.parameters():  # so that no gate stands where it is half open, and nothing is zero
        weight.data += 0.3 * torch.randn_like(weight)
    return made


def text(length: int = LENGTH, dim: int = 16) -> Tensor:
    return torch.randn(B, length, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


# -- equations ---------------------------------------------------------------------------------------------------


def decayed_by_token(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, memory: Tensor) -> Any:
    read = []
    for t in range(query.shape[2]):
        memory = log_decay[:, :, t, None, None].exp() * memory + key[:, :, t, :, None] * value[:, :, t, None]
        read.append((query[:, :, t, None] @ memory).squeeze(-2))
    return torch.stack(read, 2), memory


def delta_by_token(query: Tensor, key: Tensor, value: Tensor, beta: Tensor, log_decay: Tensor, memory: Tensor) -> Any:
    read = []
    for t in range(query.shape[2]):
        memory = log_decay[:, :, t].exp().reshape(*log_decay.shape[:2], -1, 1) * memory
        held = (key[:, :, t, None] @ memory).squeeze(-2)
        change = beta[:, :, t, None] * (value[:, :, t] - held)
        memory = memory + key[:, :, t, :, None] * change[:, :, None]
        read.append((query[:, :, t, None] @ memory).squeeze(-2))
    return torch.stack(read, 2), memory


def gated_by_token(
    query: Tensor, key: Tensor, value: Tensor, log_input: Tensor, log_forget: Tensor, memory: Tensor, norm: Tensor,
    scale: Tensor,
) -> Any:  # fmt: skip
    read = []
    for t in range(query.shape[2]):
        new = torch.maximum(log_forget[:, :, t] + scale, log_input[:, :, t])
        keep, write = (log_forget[:, :, t] + scale - new).exp(), (log_input[:, :, t] - new).exp()
        memory = keep[..., None, None] * memory + write[..., None, None] * key[:, :, t, :, None] * value[:, :, t, None]
        norm = keep[..., None] * norm + write[..., None] * key[:, :, t]
        asked = (query[:, :, t] * norm).sum(-1)
        least = torch.maximum(asked.abs(), (-new).exp()) + EPS
        read.append((query[:, :, t, None] @ memory).squeeze(-2) / least[..., None])
        scale = new
    return torch.stack(read, 2), memory, norm, scale


def agree(one: Callable[..., Any], other: Callable[..., Any], given: list[Tensor], *, relative: float = 1e-10) -> None:
    """Both give the same values, and the same gradients of all that is given."""
    torch.manual_seed(3)
    found = []
    for function in (one, other):
        out = function(*given)
        weights = [torch.randn(part.shape, generator=torch.Generator().manual_seed(4)).double() for part in out]
        loss = torch.stack([(a * b).sum() for a, b in zip(out, weights, strict=True)]).sum()
        grads = torch.autograd.grad(loss, given)
        found.append([*out, *grads])
    for a, b in zip(*found, strict=True):
        assert (a - b).abs().max() <= relative * (1 + b.abs().max())


SIZES = (1, 7, 64)  # of a chunk: of one token, one that does not divide the length, and one that is longer


def test_a_decayed_sum_is_that_of_its_equation() -> None:
    torch.manual_seed(0)
    for size, fade in product(SIZES, (0.0, 1.0, 50.0)):
        log_decay = (-fade * torch.rand(B, H, T).double()).requires_grad_()
        given = [drawn(B, H, T, K), drawn(B, H, T, K), drawn(B, H, T, V), log_decay, drawn(B, H, K, V)]
        agree(lambda q, k, v, g, m, size=size: decayed_sum(q, [(k, v)], g, m, size), decayed_by_token, given)


@pytest.mark.parametrize("channels", [(), (K,)])
def test_the_gated_delta_rule_is_that_of_its_equation(channels: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    for size, fade in product(SIZES, (0.0, 1.0, 4.99)):
        key = F.normalize(torch.randn(B, H, T, K).double(), dim=-1).requires_grad_()
        beta = (2 * torch.rand(B, H, T).double()).requires_grad_()
        log_decay = (-fade * torch.rand(B, H, T, *channels).double()).requires_grad_()
        given = [drawn(B, H, T, K), key, drawn(B, H, T, V), beta, log_decay, drawn(B, H, K, V)]
        agree(partial(gated_delta_rule, size=size), delta_by_token, given)


def test_an_mlstm_is_that_of_its_equation() -> None:
    def in_chunks(size: int, q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, *state: Tensor) -> Any:
        names = ("memory", "normaliser", "scale")
        read, after = read_gated(q, k, v, i, f, dict(zip(names, state, strict=True)), size)
        return read, after["memory"], after["normaliser"], after["scale"]

    torch.manual_seed(0)
    for size, strength in product(SIZES, (1.0, 10.0)):
        log_forget = F.logsigmoid(strength * torch.randn(B, H, T).double()).requires_grad_()
        log_input = (strength * torch.randn(B, H, T).double()).requires_grad_()
        state = [drawn(B, H, K, V), drawn(B, H, K), drawn(B, H)]
        given = [drawn(B, H, T, K), drawn(B, H, T, K), drawn(B, H, T, V), log_input, log_forget, *state]
        relative = 1e-8 if strength > 1 else 1e-10  # a kink, and sums of e^30
        agree(partial(in_chunks, size), gated_by_token, given, relative=relative)


# -- every mixer: cuts, resets and extremes are in test_packed_documents.py ------------------------------------------


def test_a_later_token_changes_no_earlier_output_by_a_bit_and_nan_stays_in_its_lane() -> None:
    for name, options in CASES:
        one, x = mixer(name, options).float(), text().float()
        other = x.clone()
        other[:, 20:] += 1
        first, second = (one(each, one.initial(B))[0][:, :20] for each in (x, other))
        assert torch.equal(first, second), (name, options)
        broken = torch.stack([torch.full_like(x[0], torch.nan), x[1]])
        assert_near(one(broken, one.initial(B))[0][1, :20], first[1], 1e-12)
        x.requires_grad_()
        (grad,) = torch.autograd.grad(one(x, one.initial(B))[0][:, :20].sum(), x)
        assert not grad[:, 20:].any(), (name, options)


def windowed() -> Stack:
    """Two layers of attention behind a window that is longer than what they read."""
    torch.manual_seed(0)
    attention = {"attention": partial(Attention, num_heads=2, window=64)}
    return Stack(embed=nn.Embedding(5, 16), dim=16, num_layers=2, mixers="attention", options=attention, dropout=0.0)


def test_what_is_read_from_nothing_needs_no_keys_of_a_window_and_is_counted_without_them() -> None:
    model = windowed()
    x = torch.randint(5, (3, 12), generator=torch.Generator().manual_seed(1))
    shapes: list[tuple[int, int]] = []
    hook = model.blocks[1].register_forward_hook(
        lambda _, given, result: shapes.append((given[1]["key"].shape[2], result[1]["key"].shape[2]))
    )
    whole = model(x, model.initial(3))[0]
    assert_near(model.encode(x), whole, 1e-6)
    assert_near(model(x)[0], whole, 1e-6)
    assert shapes == [(64, 64), (0, 12), (0, 12)]  # places for keys before and after
    hook.remove()
    assert model.flops_per_token(12, carried=False) < model.flops_per_token(12, carried=True) - 2 * 2 * 2 * 60 * 16


def test_lanes_that_go_on_from_a_short_text_may_be_of_unequal_lengths() -> None:
    model = windowed()
    x = torch.randint(5, (2, 12), generator=torch.Generator().manual_seed(1))
    state = model(x[:, :5])[1]
    assert {name: value.shape for name, value in state.items()} == {
        name: value.shape for name, value in model.initial(2).items()
    }
    hidden = model(x[:, 5:], state, torch.tensor([3, 7]))[0]
    assert_near(hidden[0, :3], model(x)[0][0, 5:8], 1e-6)
    assert_near(hidden[1], model(x)[0][1, 5:], 1e-6)
