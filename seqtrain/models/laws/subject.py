"""The definition of a law, and the small model that it checks: how it is created, its inputs and its start states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, detach, select

VOCAB_SIZE = 7  # tokens of text
SPECIALS = 3  # start, separator, mask
LANES = 3
TIME = 24  # tokens that most laws read
NUM_READ_BEFORE = 5  # tokens read before a `used_state`
WEIGHT_SCALE = 0.4


@dataclass(frozen=True)
class Subject:
    """A model that laws check, created as often as they need."""

    make: Callable[[], SequenceModel]  # prepared by `prepare`, always with the same weights
    make_with_dropout: Callable[[], SequenceModel] | None  # the same with dropout; None without such an option
    draw: Callable[[int], SequenceModel]  # creates the model with weights drawn from a seed


class Law(NamedTuple):
    """One sentence that a model must satisfy, and the function that checks it."""

    name: str
    sentence: str
    promise: Capability  # checked only for models that promise all of this
    check: Callable[[Any], None]  # raises Broken; takes a Subject, or for laws of tasks a TaskSubject


def law(sentence: str, promise: Capability = Capability.NONE) -> Callable[[Callable[[Any], None]], Law]:
    """Turn a function into a law named after it. Models are checked once it is listed in `contract.LAWS`."""

    def make(check: Callable[[Any], None]) -> Law:
        return Law(check.__name__, sentence, promise, check)

    return make


def prepare(model: SequenceModel) -> SequenceModel:
    """Prepare a model for laws: float64, evaluation mode, and weights so large that errors are visible.

    A model whose hidden states are not finite with such weights keeps its own.
    """
    model = model.double().eval()
    own = {name: value.clone() for name, value in model.state_dict().items()}
    enlarge(model)
    if not _is_finite(model):
        model.load_state_dict(own)
    return model


def enlarge(model: nn.Module) -> None:
    """Redraw every weight from torch's generator, with a larger scale than usual initial weights."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=WEIGHT_SCALE)


def _is_finite(model: SequenceModel) -> bool:
    try:
        with torch.no_grad():
            hidden = model(some_tokens(LANES, NUM_READ_BEFORE), starting(model, LANES))[0]
    except (Exception, SystemExit):  # a law will meet the error again and report it
        return True
    return bool(hidden.isfinite().all())


def some_tokens(*shape: int, seed: int = 0, vocab_size: int = VOCAB_SIZE + SPECIALS) -> Int[Tensor, "..."]:
    """Draw token ids of any shape uniformly."""
    return torch.randint(0, vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def other_tokens(tokens: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Replace each token by another one."""
    return (tokens + 1) % (VOCAB_SIZE + SPECIALS)


def num_tokens(model: SequenceModel) -> int:
    """Return the largest number of tokens that laws read after the tokens of a used state."""
    if model.max_length is None:
        return TIME
    return min(TIME, model.max_length - NUM_READ_BEFORE)


def starting(model: SequenceModel, batch: int) -> State | None:
    """Return the start state: None, or, for a model that needs a source, the state after sources of uneven lengths."""
    if Capability.UNCONDITIONAL in model.capabilities:
        return None
    return model.begin(some_tokens(batch, 6, seed=5), torch.arange(batch) * 2 % 6 + 1)


def used_state(model: SequenceModel, batch: int = LANES) -> State:
    """Return the state after `NUM_READ_BEFORE` tokens."""
    return detach(model(some_tokens(batch, NUM_READ_BEFORE, seed=9), starting(model, batch))[1])


def beginnings(model: SequenceModel, batch: int = LANES) -> list[tuple[str, State | None]]:
    """Return the start states with a description of each: nothing read, and a source if the model needs one."""
    states = [("from state=None", None), ("from initial()", model.initial(batch))]
    start = starting(model, batch)
    if start is not None:
        states.append(("from a source", start))
    return states


def states_to_read_from(model: SequenceModel, batch: int = LANES) -> list[tuple[str, State | None]]:
    """Return the same as `beginnings`, and for a STATEFUL model the state after earlier tokens."""
    states = beginnings(model, batch)
    if Capability.STATEFUL in model.capabilities:
        states.append(("after 5 tokens", used_state(model, batch)))
    return states


def lane_of(state: State | None, lane: int) -> State | None:
    """Select one lane of a state, as a batch of one."""
    if state is None:
        return None
    return select(state, slice(lane, lane + 1))
