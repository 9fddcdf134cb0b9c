"""The recurrent models against their textbook equations, written out a step at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tests.support.model_cases import Case, assert_near, some_tokens

Parts = tuple[Tensor, ...]


def elman(x: Tensor, state: Parts, weights: Parts, activation: Callable[[Tensor], Tensor]) -> Parts:
    into, over, bias, bias_over = weights
    return (activation(into @ x + bias + over @ state[0] + bias_over),)


def gru(x: Tensor, state: Parts, weights: Parts) -> Parts:
    into, over, bias, bias_over = weights
    forget, update, candidate = (into @ x + bias).chunk(3)
    forget_over, update_over, candidate_over = (over @ state[0] + bias_over).chunk(3)
    gate = (update + update_over).sigmoid()
    new = (candidate + (forget + forget_over).sigmoid() * candidate_over).tanh()
    return ((1 - gate) * new + gate * state[0],)


def lstm(x: Tensor, state: Parts, weights: Parts) -> Parts:
    into, over, bias, bias_over = weights
    enter, forget, new, leave = (into @ x + bias + over @ state[0] + bias_over).chunk(4)
    cell = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


CELLS = {
    "rnn": (partial(elman, activation=torch.tanh), {}, 1),
    "rnn-relu": (partial(elman, activation=torch.relu), {"activation": "relu"}, 1),
    "gru": (gru, {}, 1),
    "lstm": (lstm, {}, 2),
}


def weights_of(core: nn.RNNBase, layer: int) -> Parts:
    return tuple(getattr(core, f"{kind}_l{layer}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))


@pytest.mark.parametrize("name", CELLS)
def test_a_recurrence_equals_its_equations(name: str) -> None:
    cell, options, parts = CELLS[name]
    model = Case(name.partition("-")[0], tuple(options.items())).make()
    assert isinstance(model.layer, nn.RNNBase)
    tokens = some_tokens(2, 9)
    hidden, after = model(tokens)
    for lane in range(2):
        states = [(torch.zeros(model.dim).double(),) * parts for _ in range(2)]
        for time, token in enumerate(tokens[lane]):
            x = model.embed(token)
            for layer in range(2):
                states[layer] = cell(x, states[layer], weights_of(model.layer, layer))
                x = states[layer][0]
            assert_near(hidden[lane, time], x, 1e-12)
        final = torch.stack([torch.stack(state) for state in states])  # (L, parts, D)
        for part, name_of in enumerate(("hidden", "cell")[:parts]):
            assert_near(after[name_of][lane], final[:, part], 1e-12)


def test_min_gru_equals_its_equations() -> None:
    model, tokens = Case("min_gru", ()).make(), some_tokens(1, 13)
    hidden = model(tokens)[0]
    states = [torch.zeros(model.dim).double() for _ in range(2)]
    for time, token in enumerate(tokens[0]):
        x = model.embed(token)
        for layer, (norm, gates) in enumerate(zip(model.norms, model.gates, strict=False)):  # type: ignore[arg-type]
            gate, candidate = gates(norm(x)).chunk(2)
            update = gate.sigmoid()
            states[layer] = (1 - update) * states[layer] + update * candidate
            x = x + states[layer]
        assert_near(hidden[0, time], model.norms[-1](x), 1e-12)  # type: ignore[index]
