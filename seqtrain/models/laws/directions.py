"""Laws of models whose two directions can be read apart."""

from __future__ import annotations

import torch

from seqtrain.models.base import Capability, directions
from seqtrain.models.laws.agreement import EXACT, Broken, agree, nowhere
from seqtrain.models.laws.reading import padded_readings
from seqtrain.models.laws.subject import LANES, Subject, law, num_tokens, other_tokens, some_tokens

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
    "Neither direction sees a token that it has not read yet: forwards no later one, backwards no earlier one.",
    Capability.SEPARABLE,
)
def directions_see_one_side(subject: Subject) -> None:
    """Change the tokens that a direction has not read yet; its hidden states must not change."""
    model = subject.make()
    tokens = some_tokens(LANES, num_tokens(model))
    before = directions(model, tokens)
    for place in (1, 7, tokens.shape[1] - 2):
        # Of each direction the side that it has read at `place`, and the one that it has not.
        sides = ((slice(None, place), slice(place, None)), (slice(place + 1, None), slice(None, place + 1)))
        for direction, (read, unread) in enumerate(sides):
            other = tokens.clone()
            other[:, unread] = other_tokens(tokens[:, unread])
            changed = directions(model, other)[direction]
            what = f"{NAMES[direction]}, other tokens from position {place} on: hidden states that came before"
            agree(changed[:, read], before[direction][:, read], what, tolerance=EXACT)
            same = (changed[:, place] == before[direction][:, place]).all(-1)  # (B,)
            nowhere(same, f"{NAMES[direction]}: another token at position {place} gives the same hidden state")


@law("Right padding changes nothing that a direction says.", Capability.SEPARABLE)
def directions_without_padding(subject: Subject) -> None:
    """Compare each lane of a padded batch with the lane read alone, in both directions."""
    for model, tokens, words, _, lengths in padded_readings(subject):
        given = directions(model, tokens, torch.tensor(lengths))
        for lane, length in enumerate(lengths):
            alone = directions(model, tokens[lane : lane + 1, :length])
            for name, one, other in zip(NAMES, given, alone, strict=True):
                what = f"{words}, lengths {lengths}, {name} beside each lane read alone"
                agree(one[lane : lane + 1, :length], other, what, first_lane=lane)


@law("Every weight that is trained gets a gradient from the two directions, be it zero.", Capability.SEPARABLE)
def directions_reach_every_weight(subject: Subject) -> None:
    """Check that each trainable weight gets a gradient from the sum of both directions."""
    model = subject.make()
    forwards, backwards = directions(model, some_tokens(LANES, num_tokens(model)))
    (forwards.sum() + backwards.sum()).backward()
    # DistributedDataParallel stops at the second step where a weight got no gradient in the first.
    idle = [name for name, value in model.named_parameters() if value.requires_grad and value.grad is None]
    if idle:
        raise Broken(f"no gradient reaches {', '.join(idle)}")
