"""What the interface promises, kept by every shipped model."""

from __future__ import annotations

import random
from functools import partial
from itertools import product

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor

from seqtrain.models.base import Capability, SequenceModel, State, detach, reset, select
from seqtrain.training.model_and_task import make_model
from tests.support import model_cases
from tests.support.model_cases import (
    MODELS,
    VARIANTS,
    VOCABULARY,
    Case,
    assert_near,
    cases,
    mixtures_long,
    outputs,
    starting,
)

BATCH, TIME = 3, 24
some_tokens = partial(model_cases.some_tokens, specials=3)


def per_case(promise: Capability = Capability.NONE):
    """Parametrises a test over all models that promise something."""
    return pytest.mark.parametrize("case", mixtures_long(cases(promise)), ids=str)


def pieces(model: SequenceModel, tokens: Tensor, cuts: list[int], state: State | None) -> tuple[Tensor, State]:
    """Hidden states and final state of a reading from cut to cut."""
    hidden = []
    for begin, end in zip([0, *cuts], [*cuts, tokens.shape[1]], strict=True):
        out, state = model(tokens[:, begin:end], state)
        hidden.append(out)
    assert state is not None
    return torch.cat(hidden, 1), state


def used(model: SequenceModel, batch: int = BATCH) -> State:
    """A state that some tokens left."""
    return detach(model(some_tokens(batch, 5, seed=9), starting(model, batch))[1])


def beginnings(model: SequenceModel, batch: int = BATCH) -> list[State | None]:
    """Nothing read, in both spellings; and the source, of a model that needs one."""
    start = starting(model, batch)
    return [None, model.initial(batch)] + ([] if start is None else [start])


def assert_same_state(model: SequenceModel, one: State, two: State) -> None:
    """Two states agree; those of an encoder-decoder may hold unequal amounts of padding, but go on to the same end."""
    if Capability.UNCONDITIONAL in model.capabilities:
        assert_near(one, two)
        return
    for name in one.keys() & two.keys():
        if one[name].shape == two[name].shape:
            assert_near(one[name], two[name])
    for length in (1, 2):
        tokens = some_tokens(len(next(iter(one.values()))), length)
        (hidden, one), (expected, two) = model(tokens, one), model(tokens, two)
        assert_near(hidden, expected)


def test_every_model_file_is_picked_up() -> None:
    files = {path.stem for path in MODELS.glob("*.yaml")}
    assert {case.name for case in cases()} == files - {name for name in files if name.endswith("_model")}
    assert set(VARIANTS) <= files


@per_case(Capability.STATEFUL)
def test_chunks_equal_the_whole(case: Case) -> None:
    model, tokens = case.make(), some_tokens(BATCH, TIME)
    generator = random.Random(0)
    every = list(range(1, TIME))
    ways = [[], every, [1], [TIME - 1], *(sorted(generator.sample(every, number)) for number in (2, 3, 5, 9))]
    nothing, *others = beginnings(model)
    for whole, states in ((nothing, [nothing, others[0]]), *((state, [state]) for state in others[1:])):
        expected, after = model(tokens, whole)
        for cuts, state in product(ways, states):
            hidden, final = pieces(model, tokens, cuts, state)
            assert_near(hidden, expected)
            assert_near(final, after)


@per_case(Capability.CAUSAL)
def test_future_tokens_change_no_past_hidden_state(case: Case) -> None:
    model, tokens = case.make(), some_tokens(BATCH, TIME)
    for state in (*beginnings(model), used(model)):
        before = model(tokens, state)[0]
        for place in (1, 7, TIME - 1):
            other = tokens.clone()
            other[:, place:] = (other[:, place:] + 1) % (tokens.max() + 1)
            changed = model(other, state)[0]
            assert_near(changed[:, :place], before[:, :place], 0)
            assert (changed[:, place] != before[:, place]).any(-1).all()


@per_case(Capability.BIDIRECTIONAL)
def test_every_hidden_state_depends_on_every_token(case: Case) -> None:
    model, tokens = case.make(), some_tokens(1, 6)
    embedded = outputs(model.embed)
    for place in range(6):
        hidden = model(tokens)[0]
        (gradient,) = torch.autograd.grad(hidden[:, place].sum(), embedded[-1])
        assert (gradient != 0).any(-1).all()


@per_case()
def test_a_promise_of_one_direction_excludes_the_other(case: Case) -> None:
    found = case.make().capabilities
    assert (Capability.BIDIRECTIONAL in found) != (Capability.CAUSAL in found)


@per_case()
def test_padding_changes_nothing_and_the_state_is_that_of_each_lane_read_alone(case: Case) -> None:
    model, tokens = case.make(), some_tokens(5, TIME)
    stateful = Capability.STATEFUL in model.capabilities
    states = [*beginnings(model, 5), used(model, 5)] if stateful else [None]
    uneven = [torch.tensor(lengths) for lengths in ([7, 0, TIME - 3, 1, 7], [TIME, 3, 8, 1, 5])]
    for state, lengths in product(states, uneven if stateful else uneven[1:]):
        hidden, after = model(tokens, state, lengths)
        assert hidden.shape == (5, TIME, model.dim)
        for lane, length in enumerate(lengths.tolist()):
            before = None if state is None else select(state, slice(lane, lane + 1))
            if length == 0:
                assert_same_state(model, select(after, slice(lane, lane + 1)), before or model.initial(1))
                continue
            alone, left = model(tokens[lane : lane + 1, :length], before)
            assert_near(hidden[lane, :length], alone[0])
            assert_same_state(model, select(after, slice(lane, lane + 1)), left)


@per_case(Capability.STATEFUL)
def test_lanes_that_are_all_empty_leave_the_state_as_it_was(case: Case) -> None:
    model = case.make()
    state = used(model)
    hidden, after = model(some_tokens(BATCH, 4), state, torch.zeros(BATCH, dtype=torch.long))
    assert hidden.shape == (BATCH, 4, model.dim)
    assert_same_state(model, after, state)


@per_case(Capability.STATEFUL)
def test_the_state_is_flat_batch_first_and_zero_at_first(case: Case) -> None:
    model = case.make()
    for state in (*beginnings(model)[1:], used(model)):
        assert state
        assert all(isinstance(value, Tensor) and value.shape[0] == BATCH for value in state.values())
    assert not any(value.any() for value in model.initial(BATCH).values())


@per_case(Capability.STATEFUL | Capability.UNCONDITIONAL)
def test_the_state_before_anything_was_read_has_the_shape_of_any_other(case: Case) -> None:
    model = case.make()
    shapes = [{name: value.shape for name, value in state.items()} for state in (model.initial(BATCH), used(model))]
    assert shapes[0] == shapes[1]


@per_case(Capability.STATEFUL)
def test_the_state_given_is_left_as_it_was_and_none_is_kept(case: Case) -> None:
    model, tokens = case.make(), some_tokens(BATCH, 5)
    state = used(model)
    before = {name: value.clone() for name, value in state.items()}
    first = model(tokens, state)[0]
    assert all(torch.equal(state[name], before[name]) for name in before)
    assert torch.equal(model(tokens, state)[0], first)
    assert not any(torch.equal(buffer, value) for buffer in model.buffers() for value in state.values())


def assert_fresh(model: SequenceModel, hidden: Tensor, expected: Tensor) -> None:
    """Equal bit for bit; near, where the state of nothing has another shape than one that was reset."""
    if Capability.UNCONDITIONAL in model.capabilities:
        assert torch.equal(hidden, expected)
    assert_near(hidden, expected)


@per_case(Capability.STATEFUL)
def test_resetting_one_lane_leaves_the_others_untouched_bit_for_bit(case: Case) -> None:
    model, tokens = case.make(), some_tokens(BATCH, 6)
    state = used(model)
    starts = torch.tensor([False, True, False])
    kept, fresh = model(tokens, state)[0], model(tokens, model.initial(BATCH))[0]
    hidden = model(tokens, reset(state, starts))[0]
    assert torch.equal(hidden[~starts], kept[~starts])
    assert_fresh(model, hidden[starts], fresh[starts])
    assert not torch.equal(kept[starts], fresh[starts])


@per_case(Capability.STATEFUL)
def test_a_reset_survives_a_state_that_is_no_number(case: Case) -> None:
    model, tokens = case.make(), some_tokens(BATCH, 6)
    broken = {
        name: torch.full_like(value, torch.nan) if value.is_floating_point() else value
        for name, value in used(model).items()
    }
    hidden = model(tokens, reset(broken, torch.ones(BATCH, dtype=torch.bool)))[0]
    assert_fresh(model, hidden, model(tokens, model.initial(BATCH))[0])


@per_case(Capability.STATEFUL)
def test_lanes_are_read_independently_of_each_other(case: Case) -> None:
    model, tokens = case.make(), some_tokens(BATCH, 6)
    state, order = used(model), torch.tensor([2, 0, 2, 1])
    hidden, after = model(tokens, state)
    mixed, later = model(tokens[order], select(state, order))
    assert_near(mixed, hidden[order])
    assert_near(later, select(after, order))


@per_case(Capability.CONDITIONAL | Capability.UNCONDITIONAL)
def test_a_model_goes_on_from_the_source_that_it_began_with(case: Case) -> None:
    model, tokens = case.make(), some_tokens(BATCH, 12)
    whole = model(tokens)[0]
    assert_near(model(tokens[:, 8:], model.begin(tokens[:, :8]))[0], whole[:, 8:])


@per_case(Capability.CONDITIONAL)
def test_another_source_leads_to_other_hidden_states(case: Case) -> None:
    model, source, tokens = case.make(), some_tokens(BATCH, 8), some_tokens(BATCH, 4, seed=1)
    one, two = (model(tokens, model.begin(read))[0] for read in (source, (source + 1) % (VOCABULARY + 3)))
    assert (one != two).any(-1).all()


@per_case(Capability.CONDITIONAL)
def test_padding_of_the_source_changes_nothing_and_an_empty_one_is_the_beginning(case: Case) -> None:
    model, source, tokens = case.make(), some_tokens(5, 9), some_tokens(5, 4, seed=1)
    for lengths in ([7, 0, 9, 1, 7], [4, 3, 2, 1, 5]):
        state = model.begin(source, torch.tensor(lengths))
        hidden = model(tokens, state)[0]
        for lane, length in enumerate(lengths):
            own = slice(lane, lane + 1)
            alone = model.begin(source[own, :length]) if length else model.initial(1)
            assert_near(hidden[own], model(tokens[own], alone)[0])
            assert_same_state(model, select(state, own), alone)


@per_case()
def test_every_parameter_takes_part(case: Case) -> None:
    model = case.make()
    model(some_tokens(BATCH, TIME), starting(model, BATCH))[0].sum().backward()
    assert [name for name, value in model.named_parameters() if value.grad is None] == []


@per_case()
def test_first_weights_are_a_function_of_the_seed_alone(case: Case) -> None:
    def drawn(seed: int) -> Tensor:
        model = make_model(OmegaConf.merge(case.config(), {"seed": seed}), VOCABULARY, ())  # type: ignore[arg-type]
        return torch.cat([weight.detach().flatten() for weight in model.parameters()])

    first = drawn(1)
    torch.rand(5)
    assert torch.equal(drawn(1), first)
    assert not torch.equal(drawn(2), first)


@per_case()
def test_dropout_acts_in_training_only(case: Case) -> None:
    model, tokens = case.make(dropout=0.5), some_tokens(BATCH, 6)

    def read(model: SequenceModel) -> Tensor:
        return model(tokens, starting(model, BATCH))[0]

    assert torch.equal(read(model), read(case.make()))
    model.train()
    torch.manual_seed(0)
    first = read(model)
    assert not torch.equal(first, read(model))
    torch.manual_seed(0)
    assert torch.equal(first, read(model))


@per_case(Capability.STATEFUL)
def test_the_state_keeps_the_precision_of_the_parameters_under_autocast(case: Case) -> None:
    model, tokens = case.make().float(), some_tokens(BATCH, 6)
    with torch.autocast("cpu", torch.bfloat16):
        state = starting(model, BATCH) or model.initial(BATCH)
        for _ in range(2):
            hidden, state = model(tokens, state)
            assert hidden.isfinite().all()
            assert {value.dtype for value in state.values() if value.is_floating_point()} == {torch.float32}


def test_a_reset_survives_nan_and_keeps_every_kind_of_tensor() -> None:
    state = {"a": torch.full((2, 3, 4), torch.nan), "filled": torch.tensor([5, 6])}
    after = reset(state, torch.tensor([True, False]))
    assert not after["a"][0].any()
    assert after["a"][1].isnan().all()
    assert after["filled"].tolist() == [0, 6]
    assert after["filled"].dtype == torch.long
