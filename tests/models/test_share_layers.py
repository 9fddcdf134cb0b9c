"""Laws of layers that share their weights: one layer, applied several times, is a deep model of equal layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seqtrain.analysis.formula import formula_of
from seqtrain.analysis.recording import prepared
from seqtrain.analysis.recording import recording as recording_layers
from seqtrain.errors import UserError
from seqtrain.inference import attention_maps, gates
from seqtrain.models.base import SequenceModel, blank_input
from seqtrain.training.cost import count, state_size
from seqtrain.training.transfer import copy_matching
from tests.support.model_cases import SHARED, Case, assert_near, cases, some_tokens, starting

CASES = [case for case in cases() if "share_layers" in dict(case.options)]
DEPTH = SHARED["num_layers"]


def alone(case: Case, **options: Any) -> SequenceModel:
    """The same model, each of whose layers has weights of its own."""
    return case.make(share_layers=False, **options)


def with_equal_layers(case: Case) -> SequenceModel:
    """A model without shared weights that was given those of one that shares them."""
    shared, model = case.make(), alone(case)
    given = dict(shared.state_dict())
    for name in model.state_dict():
        if name in given:
            continue
        # torch's own stacks name a layer by a suffix, where ours has a list of layers.
        part, _, rest = name.rpartition(".")
        kind, _, layer = rest.rpartition("_l")
        given[name] = given[f"{part}.{layer}.{kind}_l0"]
    model.load_state_dict({name: given[name] for name in model.state_dict()})
    return model


def test_a_layer_applied_several_times_is_a_stack_of_layers_with_equal_weights_read_twice() -> None:
    tokens = some_tokens(3, 7)
    for case in CASES:
        shared, model = case.make(), with_equal_layers(case)
        states = [starting(each, 3) for each in (shared, model)]
        for _ in range(2):
            one, two = (each(tokens, state) for each, state in zip((shared, model), states, strict=True))
            assert_near(one, two)
            states = [one[1], two[1]]


def test_shared_weights_count_once_and_operations_and_states_count_at_each_depth() -> None:
    for case in CASES:
        shared, model = case.make(), alone(case)
        period = len(dict(case.options).get("mixers", "1"))
        # First states are of each depth, and so are those that a decoder begins from; a first layer may be wider.
        first = case.name == "rnn_encoder_decoder" or "learned_state" in dict(case.options)
        assert first or count(shared) == count(alone(case, num_layers=period)), case
        assert shared.flops_per_token(7, False) == model.flops_per_token(7, False), case
        assert formula_of(shared, 7).flops == formula_of(model, 7).flops, case
        assert state_size(shared) == state_size(model), case
        assert count(shared.to("meta")) < count(model), case  # they stay one wherever they are moved


def test_each_depth_has_a_map_of_attention_of_its_own() -> None:
    for name, source in (("gpt", None), ("encoder_decoder", [1, 2])):
        case = Case(name, tuple(SHARED.items()))
        found = [attention_maps.look(each, [0, 1, 2], str, source) for each in (case.make(), alone(case))]
        assert [seen.name for seen in found[0]] == [seen.name for seen in found[1]]
        assert not torch.allclose(found[0][0].weights, found[0][1].weights)


def test_each_depth_has_gates_of_its_own() -> None:
    for case in CASES:
        if case.name not in ("lstm", "gru", "rnn_encoder_decoder"):
            continue
        source = [1, 2, 3] if case.name == "rnn_encoder_decoder" else None
        one, two = (gates.look(each, [0, 1, 2], str, source) for each in (case.make(), with_equal_layers(case)))
        assert [seen.name for seen in one] == [seen.name for seen in two]
        for mine, other in zip(one, two, strict=True):
            assert_near(mine.values, other.values)


def test_gradients_are_measured_at_each_depth() -> None:
    for name in ("gpt", "rnn"):
        model = prepared(Case(name, tuple(SHARED.items())).make())
        with recording_layers(model) as recorder:
            for _ in range(2):
                model(blank_input(model, 1, 4))
        for reading in recorder.readings:
            assert len(reading) == DEPTH
            assert len({float(value.detach().sum()) for value in reading.values()}) == DEPTH


def test_weights_that_differ_between_layers_are_not_loaded_into_one() -> None:
    case = Case("gpt", tuple(SHARED.items()))
    shared, others = case.make(), alone(case).state_dict()
    given = {f"model.{name}": value for name, value in others.items()}
    with (
        torch.no_grad(),
        pytest.raises(UserError, match=r"init_from: model.blocks.0.\S+ and model.blocks.1.\S+ differ"),
    ):
        copy_matching(shared, None, given, same_task=False, say=print)


def test_convolutions_with_dilations_of_their_own_share_nothing() -> None:
    with pytest.raises(UserError, match=r"model.share_layers=true: the layers of encoder=cnn differ"):
        Case("encoder_decoder", (("encoder", "cnn"),)).make(share_layers=True)
