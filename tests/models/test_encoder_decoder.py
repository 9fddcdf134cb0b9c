"""Laws of the encoder-decoder: the source is read once, and the target comes out the same however it is cut."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seqtrain.models.base import State, detach, reset, select
from seqtrain.models.encoder_decoder import EncoderDecoder
from seqtrain.models.layers.front_ends import TokenEmbedding
from tests.support.model_cases import assert_near, outputs, some_tokens

VOCABULARY = 7
BATCH, SOURCE, TIME = 4, 5, 8
LENGTHS = torch.tensor([SOURCE, 2, 0, 3])
SHAPE: dict[str, Any] = {
    "encoder": "transformer",
    "decoder": "transformer",
    "dim": 8,
    "num_layers": 2,
    "num_heads": 2,
    "dropout": 0.0,
    "positions": "sinusoidal",
    "max_length": None,
    "norm": "pre",
    "activation": "relu",
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "activation": "gelu"},
    {"positions": "learned", "max_length": 16},
    {"positions": "none"},
    {"positions": "rotary"},
]
per_option = pytest.mark.parametrize("options", OPTIONS, ids=str)


def make(**options: Any) -> EncoderDecoder:
    """A small model in float64 with weights large enough that a wrong read shows; two vocabularies."""
    chosen = SHAPE | options
    torch.manual_seed(0)
    embeds = [TokenEmbedding(vocab_size=size, dim=chosen["dim"], specials=3) for size in (VOCABULARY, VOCABULARY + 2)]
    model = EncoderDecoder(embed=embeds[0], target_embed=embeds[1], **chosen).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def sources(*, seed: int = 1) -> Tensor:
    return some_tokens(BATCH, SOURCE, seed=seed)


def pieces(model: EncoderDecoder, tokens: Tensor, cuts: list[int], state: State) -> tuple[Tensor, State]:
    """Hidden states and final state of a reading from cut to cut."""
    hidden = []
    for begin, end in zip([0, *cuts], [*cuts, tokens.shape[1]], strict=True):
        out, state = model(tokens[:, begin:end], state)
        hidden.append(out)
    return torch.cat(hidden, 1), state


def real(state: State, lane: int) -> State:
    """What a lane's state says, without the room that longer lanes take."""
    kept = {"source_": int(state["source_filled"][lane]), "": int(state["filled"][lane])}
    found = {}
    for name, value in state.items():
        number = kept["source_" if name.startswith("source_") else ""]
        own = value[lane]
        if own.dim() == 3:
            own = own[:, :number] if name.startswith("source_") else own[:, own.shape[1] - number :]
        found[name] = own
    return found


@per_option
def test_chunks_equal_the_whole(options: dict[str, Any]) -> None:
    model, tokens = make(**options), some_tokens(BATCH, TIME)
    state = model.begin(sources(), LENGTHS)
    whole, after = model(tokens, state)
    every, generator = list(range(1, TIME)), random.Random(0)
    for cuts in (every, [1], [TIME - 1], *(sorted(generator.sample(every, number)) for number in (2, 3))):
        hidden, final = pieces(model, tokens, cuts, state)
        assert_near(hidden, whole)
        assert_near(final, after)


@per_option
def test_padding_of_the_source_changes_nothing(options: dict[str, Any]) -> None:
    model, tokens, source = make(**options), some_tokens(BATCH, TIME), sources()
    hidden, after = model(tokens, model.begin(source, LENGTHS))
    for lane, length in enumerate(LENGTHS.tolist()):
        state = model.begin(source[lane : lane + 1, :length]) if length else model.initial(1)
        alone, left = model(tokens[lane : lane + 1], state)
        assert_near(hidden[lane], alone[0])
        assert_near(real(after, lane), real(left, 0))


@per_option
def test_padding_of_the_target_changes_nothing_and_each_lane_goes_on_from_its_own_end(options: dict[str, Any]) -> None:
    model, tokens, later = make(**options), some_tokens(BATCH, 6), some_tokens(BATCH, 2, seed=5)
    first = model.begin(sources(), LENGTHS)
    for state in (first, detach(model(some_tokens(BATCH, 3, seed=7), first, torch.tensor([3, 1, 2, 0]))[1])):
        for lengths in (torch.tensor([6, 0, 3, 1]), torch.tensor([2, 4, 0, 1])):
            hidden, after = model(tokens, state, lengths)
            onward = model(later, after)[0]
            for lane, length in enumerate(lengths.tolist()):
                own = select(state, slice(lane, lane + 1))
                alone, left = model(torch.cat([tokens[lane, :length], later[lane]]).unsqueeze(0), own)
                assert_near(hidden[lane, :length], alone[0, :length])
                assert_near(onward[lane], alone[0, length:])
                assert_near(real(model(later, after)[1], lane), real(left, 0))


@per_option
def test_lanes_are_read_independently_and_can_be_selected_at_any_time(options: dict[str, Any]) -> None:
    model, tokens, order = make(**options), some_tokens(BATCH, TIME), torch.tensor([2, 0, 3, 2, 1])
    fresh = model.begin(sources(), LENGTHS)
    for state in (fresh, model(some_tokens(BATCH, 3, seed=7), fresh)[1]):
        hidden, after = model(tokens, state)
        mixed, later = model(tokens[order], select(state, order))
        assert_near(mixed, hidden[order])
        assert_near(later, select(after, order))


@per_option
def test_an_empty_source_is_the_initial_state_and_gives_finite_numbers(options: dict[str, Any]) -> None:
    model, tokens = make(**options), some_tokens(BATCH, TIME)
    bare = model(tokens)[0]
    empty = model.begin(sources(), torch.zeros(BATCH, dtype=torch.long))
    assert not any(value.any() for value in [*empty.values(), *model.initial(BATCH).values()])
    assert bare.isfinite().all()
    assert_near(model(tokens, model.initial(BATCH))[0], bare, 0)
    assert_near(model(tokens, empty)[0], bare)


@per_option
def test_gradients_are_finite_where_a_source_is_empty(options: dict[str, Any]) -> None:
    model = make(**options)
    model(some_tokens(BATCH, TIME), model.begin(sources(), LENGTHS))[0].square().sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


@per_option
def test_a_lane_that_is_reset_is_that_of_an_empty_source(options: dict[str, Any]) -> None:
    model, tokens = make(**options), some_tokens(BATCH, TIME)
    state = model(some_tokens(BATCH, 3, seed=7), model.begin(sources()))[1]
    broken = {name: value * torch.nan if value.is_floating_point() else value for name, value in state.items()}
    starts = torch.tensor([True, False, True, False])
    assert_near(model(tokens, reset(state, starts))[0][starts], model(tokens)[0][starts])
    assert_near(model(tokens, reset(state, starts))[0][~starts], model(tokens, state)[0][~starts], 0)
    assert_near(model(tokens, reset(broken, starts))[0][starts], model(tokens)[0][starts])


@per_option
def test_every_target_token_depends_on_the_whole_source_and_on_no_later_target(options: dict[str, Any]) -> None:
    model = make(**options)
    source, target = outputs(model.embed), outputs(model.target_embed)
    for place in range(TIME):
        hidden = model(some_tokens(1, TIME), model.begin(sources()[:1], torch.tensor([4])))[0]
        read, own = torch.autograd.grad(hidden[0, place, 0], [source[-1], target[-1]])
        assert ((read[0] != 0).any(-1) == torch.tensor([True] * 4 + [False])).all()
        assert ((own[0] != 0).any(-1) == (torch.arange(TIME) <= place)).all()


def test_training_computes_no_key_twice_and_attends_to_no_empty_slot() -> None:
    model = make()
    state = model.begin(sources(), LENGTHS)
    assert set(state) == {"source_filled", *(f"source_{part}.{layer}" for part in ("key", "value") for layer in (0, 1))}
    kept = model(some_tokens(BATCH, 3), state)[1]
    assert kept["key.0"].shape == kept["value.1"].shape == (BATCH, 2, 3, 4)
    assert all(kept[name] is value for name, value in state.items())
    grown = model(some_tokens(BATCH, 2), kept, torch.tensor([1, 0, 1, 1]))[1]
    assert grown["key.0"].shape[2] == 4
    assert grown["filled"].tolist() == [4, 3, 4, 4]
    assert not grown["key.0"][1, :, 0].any()  # room that this lane does not need holds nothing


def test_a_step_costs_the_same_matrices_whatever_was_read_before() -> None:
    model, counts = make(), []
    state = model.begin(sources())
    for _ in range(4):
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            state = model(some_tokens(BATCH, 1), state)[1]
        counts.append(counter.get_total_flops())
    assert len({later - earlier for earlier, later in pairwise(counts)}) == 1
    assert counts[1] - counts[0] == BATCH * 4 * len(model.decoder.blocks) * model.dim


def test_a_shared_front_end_is_one_set_of_weights() -> None:
    embed = TokenEmbedding(vocab_size=VOCABULARY, dim=8, specials=3)
    shared = EncoderDecoder(embed=embed, target_embed=embed, **SHAPE)
    apart = make()
    saved = sum(p.numel() for p in apart.target_embed.parameters())
    assert sum(p.numel() for p in shared.parameters()) == sum(p.numel() for p in apart.parameters()) - saved


def test_the_state_keeps_the_precision_of_the_parameters_under_autocast() -> None:
    model = make().float()
    with torch.autocast("cpu", torch.bfloat16):
        state = model.begin(sources(), LENGTHS)
        for _ in range(2):
            assert {value.dtype for value in state.values() if value.is_floating_point()} == {torch.float32}
            hidden, state = model(some_tokens(BATCH, 3), state)
            assert hidden.isfinite().all()


@pytest.mark.parametrize("length", [1, 6])
def test_operations_are_those_that_torch_counts(length: int) -> None:
    model = make()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(some_tokens(3, length), model.begin(some_tokens(3, length)))
    assert counter.get_total_flops() / (2 * 3 * length) == model.flops_per_token(length, False)
