"""Attention with rotary positions: against scores reckoned pair by pair, and read alone against keys kept."""

from __future__ import annotations

import math
from copy import deepcopy
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor

from seqtrain.models.layers.attention import BidirectionalSelfAttention, CausalSelfAttention, split_heads
from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.layers.positions import rotary_table, rotate, turns_of
from tests.models.test_attention import turned
from tests.support.model_cases import assert_near

DIM, HEADS, TIME = 12, 3, 5


def options(bias: bool = True) -> BlockOptions:
    return BlockOptions(dim=DIM, num_heads=HEADS, dropout=0.0, norm="pre", bias=bias)


def test_each_key_is_turned_by_its_own_position_and_each_query_by_its_own() -> None:
    torch.manual_seed(0)
    made = BidirectionalSelfAttention(options(), "self").double()
    x, width = torch.randn(1, TIME, DIM, dtype=torch.float64), DIM // HEADS
    queries, keys, values = (part.view(TIME, HEADS, width) for part in made.query_key_value(x[0]).chunk(3, -1))
    rows = []
    for now in range(TIME):
        for head in range(HEADS):
            known = torch.stack([turned(keys[place, head], place) for place in range(TIME)])
            weights = (known @ turned(queries[now, head], now) / math.sqrt(width)).softmax(0)
            rows.append(weights @ values[:, head])
    expected = made.out(torch.cat(rows).view(1, TIME, DIM))
    assert_near(made(x, None, rotary_table(TIME, width, x.device)), expected)


def followed(made: CausalSelfAttention, x: Tensor, table: Tensor | None) -> Tensor:
    """What `alone` gives, by a plain map and `rotate`, whose gradient is autograd's."""
    query, key, value = split_heads(made.query_key_value(x), 3, HEADS)
    if table is not None:
        query, key = rotate(query, table), rotate(key, table)
    return made.out(made.attend(query, key, value, None, causal=True))


def test_what_is_read_alone_and_its_gradients_are_those_of_a_map_that_autograd_follows() -> None:
    tolerances = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.1}
    for bias, positions, dtype in product((False, True), ("rotary", "none"), tolerances):
        torch.manual_seed(0)
        made = CausalSelfAttention(options(bias=bias), "self").to(dtype)
        x, weighting = torch.randn(2, 2, TIME, DIM).to(dtype)
        x.requires_grad_()
        exact = deepcopy(made).double()
        table = rotary_table(TIME, DIM // HEADS, x.device) if positions == "rotary" else None
        rounded = None if table is None else table.to(dtype)

        def read(module: CausalSelfAttention, mixed: Tensor, x: Tensor, by: Tensor = weighting) -> list[Tensor]:
            return [mixed, *torch.autograd.grad((mixed * by.to(x.dtype)).sum(), [x, *module.parameters()])]

        given = x.detach().double().requires_grad_()
        expected = read(exact, followed(exact, given, table), given)
        for one, two in zip(read(made, made.alone(x, rounded), x), expected, strict=True):
            assert one.dtype == dtype
            assert_near(one.double(), two, tolerances[dtype])


def test_reading_alone_writes_over_nothing_that_a_caller_holds() -> None:
    made = BidirectionalSelfAttention(options(), "self")
    x, table = torch.randn(1, TIME, DIM), rotary_table(TIME, DIM // HEADS, torch.device("cpu")).float()
    held = [x, table, *made.parameters()]
    before = [each.clone() for each in held]
    grad = torch.ones(1, TIME, DIM)
    made(x, None, table).backward(grad)
    assert all(torch.equal(one, two) for one, two in zip(held, before, strict=True))
    assert torch.equal(grad, torch.ones_like(grad))


@pytest.mark.parametrize("rotary", [True, False])
def test_under_autocast_gradients_are_those_of_a_map_that_autograd_follows(rotary: bool) -> None:
    torch.manual_seed(0)
    made = CausalSelfAttention(options(), "self")
    x, weighting = torch.randn(2, 2, TIME, DIM)
    table = rotary_table(TIME, DIM // HEADS, x.device).float() if rotary else None
    found = []
    for read in (made.alone, lambda x, table: made(x, None, None, table)[0], partial(followed, made)):
        inputs = [x.clone().requires_grad_(), *made.parameters()]
        with torch.autocast("cpu", torch.bfloat16):
            mixed = read(inputs[0], table)
        assert mixed.dtype == torch.bfloat16
        found.append(torch.autograd.grad((mixed * weighting).sum(), inputs))
    for alone, kept, expected in zip(*found, strict=True):
        assert alone.dtype == kept.dtype == expected.dtype == torch.float32
        assert_near(alone, expected, 0.05)
        assert_near(kept, expected, 0.05)


def test_weights_that_are_frozen_get_no_gradient() -> None:
    made = CausalSelfAttention(options(), "self")
    made.query_key_value.requires_grad_(False)
    x = torch.randn(1, TIME, DIM, requires_grad=True)
    made.alone(x, rotary_table(TIME, DIM // HEADS, x.device).float()).sum().backward()
    assert x.grad is not None
    assert made.query_key_value.weight.grad is None
    assert made.query_key_value.bias.grad is None


@pytest.mark.parametrize("rotary", [True, False])
def test_what_is_kept_for_the_gradient_is_what_autograd_keeps(rotary: bool) -> None:
    made = CausalSelfAttention(options(), "self").query_key_value
    x = torch.randn(2, TIME, DIM, requires_grad=True)
    turns = turns_of(rotary_table(TIME, DIM // HEADS, x.device).float()) if rotary else None
    kept = []
    for given in ((), (HEADS, turns)):
        sizes: list[int] = []
        with (
            torch.autograd.graph.saved_tensors_hooks(lambda saved, sizes=sizes: sizes.append(saved.nbytes), id),
            torch.autocast("cpu", torch.bfloat16),
        ):
            made(x, *given)
        kept.append(sum(sizes))
    table = 0 if turns is None else turns.nbytes
    # Autograd keeps the weights in fewer bits, too, which is a copy; this keeps the weights themselves.
    assert kept[1] - table - made.weight.nbytes == kept[0] - made.weight.nbytes // 2 == x.nbytes // 2
