"""Laws of optional capabilities: continuing from a source, and two directions that can be read separately."""

from __future__ import annotations

import torch

from seqtrain.models.base import Capability, directions, select
from seqtrain.models.laws.agreement import EXACT, Broken, agree, agree_in_what_follows, nowhere
from seqtrain.models.laws.reading import padded_readings
from seqtrain.models.laws.subject import LANES, Subject, law, num_tokens, other_tokens, some_tokens


@law(
    "begin(source) continues from the source as from a prefix.",
    Capability.CONDITIONAL | Capability.UNCONDITIONAL,
)
def source_is_a_prefix(subject: Subject) -> None:
    """Compare reading after begin(source) with reading source and tokens at once."""
    model = subject.make()
    tokens = some_tokens(LANES, 12)
    whole = model(tokens)[0]
    # A model that can start from nothing can read a source only as a prefix.
    hidden = model(tokens[:, 8:], model.begin(tokens[:, :8]))[0]
    agree(hidden, whole[:, 8:], "4 tokens after a source of 8, compared with all 12 read at once")


@law("A different source leads to different hidden states.", Capability.CONDITIONAL)
def source_matters(subject: Subject) -> None:
    """Check that two sources give different hidden states at every position."""
    model = subject.make()
    source, tokens = some_tokens(LANES, 8), some_tokens(LANES, 4, seed=1)
    one = model(tokens, model.begin(source))[0]
    two = model(tokens, model.begin(other_tokens(source)))[0]
    # At every position: a model that forgets its source after one token would still differ at the first.
    nowhere((one == two).all(-1), "two sources (3, 8) that differ everywhere give the same hidden state")


@law("Padding of a source changes nothing, and an empty source is the same as none.", Capability.CONDITIONAL)
def source_is_read_by_its_length(subject: Subject) -> None:
    """Compare padded sources with each source begun alone, and an empty one with initial(1)."""
    model = subject.make()
    source, tokens = some_tokens(5, 9), some_tokens(5, 4, seed=1)
    # Once with empty and with longer lanes, once with all lanes shorter than the tensor.
    for lengths in ([7, 0, 9, 1, 7], [4, 3, 2, 1, 5]):
        state = model.begin(source, torch.tensor(lengths))
        hidden = model(tokens, state)[0]
        for lane, length in enumerate(lengths):
            own = slice(lane, lane + 1)
            alone = model.begin(source[own, :length]) if length else model.initial(1)
            what = f"sources (5, 9) of lengths {lengths}, compared with each source read alone"
            agree(hidden[own], model(tokens[own], alone)[0], f"{what}: 4 tokens after it", first_lane=lane)
            agree_in_what_follows(model, select(state, own), alone, what, of_source=True, first_lane=lane)


NAMES = ("forward", "backward")


@law("Each of its two directions has dim/2 units.", Capability.SEPARABLE)
def directions_are_halves(subject: Subject) -> None:
    """Check the shape of both directions' hidden states, also for one token of one lane."""
    model = subject.make()
    for batch, width in ((LANES, num_tokens(model)), (1, 1)):
        expected = (batch, width, model.dim // 2)
        for name, hidden in zip(NAMES, directions(model, some_tokens(batch, width)), strict=True):
            if tuple(hidden.shape) != expected:
                raise Broken(f"{name} hidden states are {tuple(hidden.shape)} instead of {expected}, half of dim")


@law(
    "No direction sees a token that it has not read: a forward state no later token, a backward state no earlier one.",
    Capability.SEPARABLE,
)
def directions_see_one_side(subject: Subject) -> None:
    """Change the tokens that a direction has not read yet; its hidden states must not change."""
    model = subject.make()
    tokens = some_tokens(LANES, num_tokens(model))
    before = directions(model, tokens)
    for place in (1, 7, tokens.shape[1] - 2):
        # For each direction, the side that it has read at `place`, and the side that it has not.
        sides = ((slice(None, place), slice(place, None)), (slice(place + 1, None), slice(None, place + 1)))
        for direction, (read, unread) in enumerate(sides):
            other = tokens.clone()
            other[:, unread] = other_tokens(tokens[:, unread])
            changed = directions(model, other)[direction]
            what = f"{NAMES[direction]}, tokens changed from position {place} on: hidden states read before it"
            agree(changed[:, read], before[direction][:, read], what, tolerance=EXACT)
            same = (changed[:, place] == before[direction][:, place]).all(-1)  # (B,)
            nowhere(same, f"{NAMES[direction]}: another token at position {place} gives the same hidden state")


@law("Right padding does not change the hidden states of a direction.", Capability.SEPARABLE)
def directions_without_padding(subject: Subject) -> None:
    """Compare each lane of a padded batch with the lane read alone, in both directions."""
    for model, tokens, words, _, lengths in padded_readings(subject):
        given = directions(model, tokens, torch.tensor(lengths))
        for lane, length in enumerate(lengths):
            alone = directions(model, tokens[lane : lane + 1, :length])
            for name, one, other in zip(NAMES, given, alone, strict=True):
                what = f"{words}, lengths {lengths}, {name}, compared with each lane read alone"
                agree(one[lane : lane + 1, :length], other, what, first_lane=lane)


@law("Every trainable weight gets a gradient from the two directions, possibly zero.", Capability.SEPARABLE)
def directions_reach_every_weight(subject: Subject) -> None:
    """Check that each trainable weight gets a gradient from the sum of both directions."""
    model = subject.make()
    forwards, backwards = directions(model, some_tokens(LANES, num_tokens(model)))
    (forwards.sum() + backwards.sum()).backward()
    # DistributedDataParallel fails at the second step if a weight got no gradient in the first.
    idle = [name for name, value in model.named_parameters() if value.requires_grad and value.grad is None]
    if idle:
        raise Broken(f"no gradient reaches {', '.join(idle)}")
