"""Laws of a source: what a model goes on from."""

from __future__ import annotations

import torch

from seqtrain.models.base import Capability, select
from seqtrain.models.laws.agreement import agree, agree_in_what_follows, nowhere
from seqtrain.models.laws.subject import LANES, Subject, law, other_tokens, some_tokens


@law(
    "begin(source) goes on from the source as from a prefix.",
    Capability.CONDITIONAL | Capability.UNCONDITIONAL,
)
def source_is_a_prefix(subject: Subject) -> None:
    """Compare reading after begin(source) with reading source and tokens at once."""
    model = subject.make()
    tokens = some_tokens(LANES, 12)
    whole = model(tokens)[0]
    # A model that can start from nothing has no other way to read a source than as what stands before.
    hidden = model(tokens[:, 8:], model.begin(tokens[:, :8]))[0]
    agree(hidden, whole[:, 8:], "4 tokens after a source of 8, beside all 12 read at once")


@law("Another source leads to other hidden states.", Capability.CONDITIONAL)
def source_matters(subject: Subject) -> None:
    """Check that two sources give different hidden states at every position."""
    model = subject.make()
    source, tokens = some_tokens(LANES, 8), some_tokens(LANES, 4, seed=1)
    one = model(tokens, model.begin(source))[0]
    two = model(tokens, model.begin(other_tokens(source)))[0]
    # Position by position, since a model that forgets its source after a token would pass by the first alone.
    nowhere((one == two).all(-1), "two sources (3, 8) that differ everywhere give the same hidden state")


@law("Padding of a source changes nothing, and an empty source is the beginning.", Capability.CONDITIONAL)
def source_is_read_by_its_length(subject: Subject) -> None:
    """Compare padded sources with each source begun alone, and an empty one with initial(1)."""
    model = subject.make()
    source, tokens = some_tokens(5, 9), some_tokens(5, 4, seed=1)
    # Once with lanes that are empty and full, once with none that is as long as the tensor is wide.
    for lengths in ([7, 0, 9, 1, 7], [4, 3, 2, 1, 5]):
        state = model.begin(source, torch.tensor(lengths))
        hidden = model(tokens, state)[0]
        for lane, length in enumerate(lengths):
            own = slice(lane, lane + 1)
            alone = model.begin(source[own, :length]) if length else model.initial(1)
            what = f"sources (5, 9) of lengths {lengths}, beside each source read alone"
            agree(hidden[own], model(tokens[own], alone)[0], f"{what}: 4 tokens after it", first_lane=lane)
            agree_in_what_follows(model, select(state, own), alone, what, of_source=True, first_lane=lane)
