"""The minimal GRU against its equations, and the learned state of recurrent models."""

from __future__ import annotations

import torch
from torch import Tensor

from seqtrain.models.base import detach, reset
from seqtrain.models.recurrent import Recurrent
from seqtrain.training.model_and_task import make_model
from tests.support.model_cases import VOCABULARY, Case, assert_near, some_tokens


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


CARRIERS = ("rnn", "gru", "lstm")


def with_first_state(name: str) -> tuple[Recurrent, dict[str, Tensor]]:
    """A model of two layers that begins from a learned state, and that state by part (L, D)."""
    model = Case(name, ()).make(learned_state=True)
    assert isinstance(model, Recurrent)
    assert model.first is not None
    first = {part: torch.stack([model.first[f"{part}_l{layer}"] for layer in range(2)]) for part in model.state_names}
    return model, first


def test_a_learned_state_is_where_reading_begins_and_where_a_reset_leads_back_to() -> None:
    tokens = some_tokens(3, 5)
    for name in CARRIERS:
        model, first = with_first_state(name)
        plain = Case(name, ()).make()
        plain.load_state_dict({key: value for key, value in model.state_dict().items() if not key.startswith("first.")})
        begun = {part: value.detach().expand(3, -1, -1) for part, value in first.items()}
        expected = plain(tokens, begun)[0]
        assert_near(model(tokens)[0], expected)
        other = model(some_tokens(3, 4, seed=1))[1]
        assert_near(model(tokens, reset(other, torch.ones(3, dtype=torch.bool)))[0], expected)
        assert not torch.allclose(model(tokens, other)[0], expected)
        # A state that was read to zero is not taken for nothing read.
        zeros = {part: torch.zeros_like(other[part]) for part in model.state_names}
        assert not torch.allclose(model(tokens, other | zeros)[0], expected)


def test_only_lanes_that_begin_in_a_chunk_move_the_learned_state() -> None:
    tokens = some_tokens(3, 6)
    for name in CARRIERS:
        model, _ = with_first_state(name)
        state = reset(detach(model(tokens)[1]), torch.tensor([False, True, False]))
        model(tokens, state)[0].sum().backward()
        assert model.first is not None
        found = {key: value.grad for key, value in model.first.items()}
        alone, _ = with_first_state(name)
        alone(tokens[1:2])[0].sum().backward()
        assert alone.first is not None
        for key, value in alone.first.items():
            assert value.grad is not None
            assert value.grad.any()
            assert_near(found[key], value.grad)
        model.zero_grad()
        model(tokens, detach(model(tokens)[1]))[0].sum().backward()
        assert not any(value.grad.any() for value in model.first.values() if value.grad is not None)


def test_a_new_learned_state_is_that_of_zeros_and_no_matrix_for_an_optimizer() -> None:
    tokens = some_tokens(2, 5)
    for name in CARRIERS:
        model = make_model(Case(name, ()).config(learned_state=True), VOCABULARY)
        plain = make_model(Case(name, ()).config(), VOCABULARY)
        assert torch.equal(model(tokens)[0], plain(tokens)[0])
        assert {value.dim() for key, value in model.named_parameters() if key.startswith("first.")} == {1}
