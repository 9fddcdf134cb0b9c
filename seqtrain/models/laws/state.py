"""Laws of the state: its form, chunks that continue from it, and lanes that end or are reset."""

from __future__ import annotations

import random

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqtrain.models.base import Capability, SequenceModel, State, reset, select
from seqtrain.models.laws.agreement import (
    STATE_AXES,
    TOLERANCE,
    Broken,
    agree,
    agree_in_bits,
    agree_in_state,
    agree_in_what_follows,
    nowhere,
)
from seqtrain.models.laws.reading import padded_readings
from seqtrain.models.laws.subject import (
    LANES,
    NUM_READ_BEFORE,
    Subject,
    beginnings,
    lane_of,
    law,
    num_tokens,
    some_tokens,
    starting,
    used_state,
)


@law("State is a flat dict of tensors, batch first; all zeros before anything is read.", Capability.STATEFUL)
def state_is_flat(subject: Subject) -> None:
    """Check the form of initial(B), of begin(source) and of a later state; initial(B) must be 0."""
    model = subject.make()
    first = model.initial(LANES)
    _check_flat(first, "initial(3)")
    for name, value in first.items():
        nowhere(value != 0, f'initial(3)["{name}"] is not 0', axes=STATE_AXES)
    start = starting(model, LANES)
    if start is not None:
        _check_flat(start, "begin(source)")
    _check_flat(model(some_tokens(LANES, NUM_READ_BEFORE), start)[1], "the state after 5 tokens of 3 lanes")


def _check_flat(state: object, what: str) -> None:
    """Raise Broken unless a state of three lanes is a dict of tensors, batch first."""
    if not isinstance(state, dict) or not state:
        kind = state if isinstance(state, dict) else type(state).__name__
        raise Broken(f"{what} is {kind}, not a dict of tensors")
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise Broken(f'{what}["{name}"] is of type {type(value).__name__}, not a tensor')
        if value.dim() == 0 or value.shape[0] != LANES:
            raise Broken(f'{what}["{name}"] has shape {tuple(value.shape)}: its first dimension is not the batch')


@law("The state keeps its shape.", Capability.STATEFUL | Capability.UNCONDITIONAL)
def state_keeps_its_shape(subject: Subject) -> None:
    """Compare the shapes of initial(B) and of the state after 5 tokens."""
    model = subject.make()
    # Lanes of a batch may have read different numbers of tokens: a growing state could not be selected or reset.
    first = {name: tuple(value.shape) for name, value in model.initial(LANES).items()}
    later = {name: tuple(value.shape) for name, value in used_state(model).items()}
    if first != later:
        raise Broken(f"initial(3) holds {first}, and after 5 tokens {later}")


@law("A given state is not modified, and the model keeps none.", Capability.STATEFUL)
def state_is_left_alone(subject: Subject) -> None:
    """Check that a given state is neither modified nor held in a buffer of the model."""
    model = subject.make()
    tokens, state = some_tokens(LANES, 5), used_state(model)
    # Copies, because a model that writes into its state would change these tensors too.
    before = {name: value.clone() for name, value in state.items()}
    first = model(tokens, state)[0]
    for name, value in before.items():
        agree_in_bits(state[name], value, f'state["{name}"] after a reading from it', axes=STATE_AXES)
    agree_in_bits(model(tokens, state)[0], first, "read twice from the same state")
    for name, buffer in model.named_buffers():
        # By value, because a buffer may be a copy of the given state.
        if any(torch.equal(buffer, value) for value in state.values()):
            raise Broken(f"the buffer {name} holds the given state")


@law("Chunks with carried state equal the whole.", Capability.STATEFUL)
def chunks_equal_the_whole(subject: Subject) -> None:
    """Compare reading in chunks with reading at once, for several ways to cut."""
    model = subject.make()
    tokens = some_tokens(LANES, num_tokens(model))
    for words, state in beginnings(model):
        expected, after = model(tokens, state)
        # Cuts directly after the first token and before the last test the borders of kernels and windows.
        for cuts in _ways_to_cut(tokens.shape[1]):
            hidden, final = _in_chunks(model, tokens, cuts, state)
            what = f"{tokens.shape[1]} tokens read {words}, cut at {cuts}"
            agree(hidden, expected, f"{what}: hidden states")
            agree_in_state(final, after, what)


def _ways_to_cut(time: int) -> list[list[int]]:
    """Return lists of chunk borders: a single cut near either end, random cuts, and a cut at every position."""
    generator = random.Random(0)
    everywhere = list(range(1, time))
    ways = [[1], [time - 1]]
    for number in (2, 3, 5, 9):
        ways.append(sorted(generator.sample(everywhere, number)))
    return [*ways, everywhere]


def _in_chunks(
    model: SequenceModel, tokens: Int[Tensor, "B T"], cuts: list[int], state: State | None
) -> tuple[Float[Tensor, "B T D"], State]:
    """Read from cut to cut; return the hidden states of all chunks and the final state."""
    hidden = []
    for chunk in tokens.tensor_split(cuts, 1):
        out, state = model(chunk, state)
        hidden.append(out)
    assert state is not None  # there is at least one chunk
    return torch.cat(hidden, 1), state


@law("Gradients flow through a carried state as through the whole.", Capability.STATEFUL)
def gradients_flow_through_the_state(subject: Subject) -> None:
    """Compare each weight's gradient with and without cuts, for the last token."""
    model = subject.make()
    tokens = some_tokens(LANES, 12)
    weights = {name: value for name, value in model.named_parameters() if value.requires_grad}

    def gradients(cuts: list[int]) -> tuple[Float[Tensor, "..."], ...]:
        last = _in_chunks(model, tokens, cuts, starting(model, LANES))[0][:, -1]
        # A separate weight for each unit: the plain sum of a layer norm's output has no gradient.
        loss = (last * torch.linspace(-1.0, 1.0, last.numel(), dtype=last.dtype).view_as(last)).sum()
        return torch.autograd.grad(loss, list(weights.values()), allow_unused=True, materialize_grads=True)

    for name, whole, cut in zip(weights, gradients([]), gradients([7, 11]), strict=True):
        agree(cut, whole, f"gradient of {name}, for the last of 12 tokens, cut at [7, 11]", axes=())


@law("With `lengths`, the state is that after each lane's own tokens.", Capability.STATEFUL)
def state_is_that_after_lengths(subject: Subject) -> None:
    """Compare the state of each padded lane with that of the lane read alone."""
    for model, tokens, words, state, lengths in padded_readings(subject):
        after = model(tokens, state, torch.tensor(lengths))[1]
        for lane, length in enumerate(lengths):
            alone = lane_of(state, lane) or model.initial(1)
            if length:
                alone = model(tokens[lane : lane + 1, :length], alone)[1]
            what = f"{words}, lengths {lengths}, compared with each lane read alone"
            agree_in_what_follows(model, select(after, slice(lane, lane + 1)), alone, what, first_lane=lane)


@law("Lanes that are all empty leave the state as it was.", Capability.STATEFUL)
def empty_lanes_leave_the_state(subject: Subject) -> None:
    """Read lanes of length 0; the state must not change."""
    model = subject.make()
    state = used_state(model)
    hidden, after = model(some_tokens(LANES, 4), state, torch.zeros(LANES, dtype=torch.long))
    if tuple(hidden.shape) != (LANES, 4, model.dim):
        raise Broken(f"lengths [0, 0, 0]: hidden states {tuple(hidden.shape)} instead of {(LANES, 4, model.dim)}")
    agree_in_what_follows(model, after, state, "lengths [0, 0, 0]")


@law("A lane that is reset starts from nothing, and the others continue bit for bit.", Capability.STATEFUL)
def reset_is_of_one_lane(subject: Subject) -> None:
    """Reset one of three lanes; compare it with a new lane, and the others with lanes that were not reset."""
    model = subject.make()
    tokens, state = some_tokens(LANES, 6), used_state(model)
    lane = torch.tensor([False, True, False])
    going_on = model(tokens, state)[0]
    from_nothing = model(tokens, model.initial(LANES))[0]
    hidden = model(tokens, reset(state, lane))[0]
    agree_in_bits(torch.where(lane.view(-1, 1, 1), going_on, hidden), going_on, "lane 1 of 3 was reset: the others")
    _agree_with_new(model, hidden[lane], from_nothing[lane], "reset lane 1 of 3, compared with a new one", first_lane=1)
    # A model that ignores its state passes all checks above.
    if torch.equal(going_on[lane], from_nothing[lane]):
        raise Broken("lane 1: after 5 tokens the model reads on as if it had read nothing: its state has no effect")


@law("A reset clears a state that is not finite.", Capability.STATEFUL)
def reset_survives_nan(subject: Subject) -> None:
    """Reset a state of NaN; compare the reading with one from initial(B)."""
    model = subject.make()
    tokens = some_tokens(LANES, 6)
    state = used_state(model)
    for name, value in state.items():
        if value.is_floating_point():  # counts of tokens cannot be NaN
            state[name] = torch.full_like(value, torch.nan)
    hidden = model(tokens, reset(state, torch.ones(LANES, dtype=torch.bool)))[0]
    from_nothing = model(tokens, model.initial(LANES))[0]
    _agree_with_new(model, hidden, from_nothing, "all lanes reset from a state of NaN")


def _agree_with_new(
    model: SequenceModel,
    hidden: Float[Tensor, "B T D"],
    from_nothing: Float[Tensor, "B T D"],
    what: str,
    first_lane: int = 0,
) -> None:
    """Raise Broken unless reset lanes are read as new ones: bit for bit if the model is UNCONDITIONAL."""
    tolerance = 0.0
    if Capability.UNCONDITIONAL not in model.capabilities:
        # A new state may have another shape than one that was reset, and kernels then sum in another order.
        tolerance = TOLERANCE
    agree(hidden, from_nothing, what, tolerance=tolerance, first_lane=first_lane)


@law("Under autocast the state keeps the precision of the weights.", Capability.STATEFUL)
def state_keeps_its_precision(subject: Subject) -> None:
    """Read two chunks under autocast; state and weights must have the same precision."""
    model = subject.make().float()
    tokens = some_tokens(LANES, 6)
    # A state in bfloat16 would lose precision at every chunk of an endless stream.
    with torch.autocast("cpu", torch.bfloat16):
        state = starting(model, LANES) or model.initial(LANES)
        for reading in ("first", "second"):  # the second continues from a state computed under autocast
            hidden, state = model(tokens, state)
            nowhere(~hidden.isfinite(), f"the {reading} chunk of 6 tokens in bfloat16: hidden states are not finite")
            for name, value in state.items():
                if value.is_floating_point() and value.dtype != torch.float32:
                    raise Broken(
                        f'state["{name}"] is {value.dtype} after the {reading} chunk, with torch.float32 weights'
                    )
