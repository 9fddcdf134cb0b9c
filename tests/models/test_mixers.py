"""Mixers: nothing sees the future, and attention behind a window reads no more than there is.

Their equations are in test_mixer_equations.py; cuts, resets and extremes in test_packed_documents.py.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from seqtrain import conf  # pyright: ignore[reportAttributeAccessIssue]  # mapped in by pyproject.toml
from seqtrain.config.instantiate import make
from seqtrain.models.mixers.attention import Attention
from seqtrain.models.mixers.base import Mixer
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
B, LENGTH = 2, 37


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
