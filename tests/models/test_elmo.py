"""Laws of ELMo: what its hidden states are made of, by arithmetic done here."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor, nn

from seqtrain.models.elmo import ELMo
from tests.support.model_cases import Case, assert_near, some_tokens


def made(**options: int) -> ELMo:
    return cast(ELMo, Case("elmo", ()).make(**options))


def read_alone(stack: nn.ModuleList, x: Tensor) -> list[Tensor]:
    """The outputs of each layer of a stack, read from the first vector to the last."""
    found = []
    for layer in stack:
        x = layer(x)[0]
        found.append(x)
    return found


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_hidden_states_are_the_mix_of_the_embedding_and_of_both_directions_of_each_layer(num_layers: int) -> None:
    model, tokens = made(num_layers=num_layers), some_tokens(3, 7)
    x = model.embed(tokens)
    forwards, backwards = read_alone(model.forwards, x), read_alone(model.backwards, x.flip(1))
    shares = model.mix.exp() / model.mix.exp().sum()
    expected = shares[0] * x
    for layer in range(num_layers):
        both = torch.cat([forwards[layer], backwards[layer].flip(1)], -1)
        expected = expected + shares[layer + 1] * both
    assert_near(model(tokens)[0], model.scale * expected, 1e-12)
    there, back = model.directions(tokens)
    assert_near(there, forwards[-1], 1e-12)
    assert_near(back, backwards[-1].flip(1), 1e-12)


def test_at_first_all_layers_weigh_the_same_and_a_language_model_leaves_them_so() -> None:
    model = ELMo(embed=nn.Embedding(9, 8), dim=8, num_layers=3, dropout=0.0, bias=True)
    assert model.layer_weights().tolist() == [0.25] * 4
    there, back = model.directions(some_tokens(2, 5) % 9)
    (there.sum() + back.sum()).backward()
    assert model.mix.grad is not None
    assert model.scale.grad is not None
    gradients = [*model.mix.grad.tolist(), *model.scale.grad.tolist()]
    assert gradients == [0.0] * 5, "there, so that several processes can train, and 0"
