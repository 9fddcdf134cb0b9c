"""Documents that begin anywhere in a chunk are read as if each stood alone: the same numbers, and nothing leaks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from seqtrain.models.base import Capability, SequenceModel, State, read, reset, select
from tests.models.test_mixers import CASES as MIXER_CASES
from tests.models.test_mixers import mixer
from tests.support.model_cases import Case, assert_near, some_tokens, unmixed

LENGTH = 40
STARTS = ((), (7,), (0, 5, 6, 30, 39), (1, 17, 18, 19, 34))
"""Positions at which documents begin in each lane: none, one, the first and the last, neighbours, a chunk's edge."""
CUTS = [1, 4, 2, 33]

Read = Callable[[Tensor, State, Tensor | None], tuple[Tensor, State]]

MODELS = [
    case
    for case in unmixed(Capability.STATEFUL | Capability.UNCONDITIONAL)
    if case.name != "stack" and "max_length" not in str(case)
]
HYBRID = Case("stack", (("mixers", ("gated_delta", "slstm")),))
READERS = pytest.mark.parametrize("case", [*MODELS, *MIXER_CASES, HYBRID], ids=str)


class Lanes:
    """A model or a mixer, something for it to read, and where documents begin in that."""

    def __init__(self, case: Any) -> None:
        self.starts = torch.zeros(len(STARTS), LENGTH, dtype=torch.bool)
        for lane, places in enumerate(STARTS):
            self.starts[lane, list(places)] = True
        count, generator = len(STARTS), torch.Generator().manual_seed(1)
        self.part: torch.nn.Module
        if isinstance(case, tuple):
            self.part = part = mixer(*case)
            self.given = torch.randn(count, LENGTH, 16, generator=generator, dtype=torch.float64)
            self.other = self.given + torch.randn(self.given.shape, generator=generator, dtype=torch.float64)
            self.read: Read = part
            before = part(self.other[:, :9], part.initial(count))[1]
        else:
            model: SequenceModel = case.make()
            self.part = model
            self.given, self.other = some_tokens(count, LENGTH, seed=1), some_tokens(count, LENGTH, seed=2)
            self.read = lambda x, state, starts: read(model, x, state, starts)
            before = model(self.other[:, :9], model.initial(count))[1]
        self.state = {name: value.detach() for name, value in before.items()}

    def alone(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Read each document by itself, the first of a lane from its state."""
        hidden, states = [], []
        for lane, places in enumerate(STARTS):
            edges = sorted({0, *places, LENGTH})
            own, parts = select(state, slice(lane, lane + 1)), []
            for begin, end in pairwise(edges):
                if begin in places:
                    own = reset(own, torch.ones(1, dtype=torch.bool))
                out, own = self.read(x[lane : lane + 1, begin:end], own, None)
                parts.append(out)
            hidden.append(torch.cat(parts, 1))
            states.append(own)
        return torch.cat(hidden), {name: torch.cat([each[name] for each in states]) for name in state}

    def whole(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Read all lanes at once."""
        return self.read(x, state, self.starts)

    def cut(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Read all lanes in chunks that carry the state."""
        parts = []
        for chunk, starts in zip(x.split(CUTS, 1), self.starts.split(CUTS, 1), strict=True):
            hidden, state = self.read(chunk, state, starts)
            parts.append(hidden)
        return torch.cat(parts, 1), state


def same_state(one: State, two: State) -> None:
    for name, value in one.items():
        turns = name.endswith("angle")  # which may differ by a whole turn
        a, b = ((each.sin(), each.cos()) if turns else each for each in (value, two[name]))
        assert_near(a, b, 1e-10)


@READERS
def test_packed_documents_cut_or_whole_give_the_numbers_and_the_gradients_of_each_alone(case: Any) -> None:
    lanes = Lanes(case)
    x = lanes.given.requires_grad_(lanes.given.is_floating_point())
    state = {name: value.clone().requires_grad_(value.is_floating_point()) for name, value in lanes.state.items()}
    found = []
    for way in (lanes.alone, lanes.whole, lanes.cut):
        hidden, after = way(x, state)
        generator = torch.Generator().manual_seed(2)
        loss = torch.zeros((), dtype=torch.float64)
        for value in (hidden, *(after[name] for name in sorted(after) if not name.endswith("angle"))):
            if value.is_floating_point():
                loss = loss + (value * torch.randn(value.shape, generator=generator, dtype=torch.float64)).sum()
        given = [part for part in (x, *state.values(), *lanes.part.parameters()) if part.requires_grad]
        found.append((hidden, after, torch.autograd.grad(loss, given, allow_unused=True, materialize_grads=True)))
    expected, expected_after, expected_grads = found[0]
    for hidden, after, grads in found[1:]:
        assert_near(hidden, expected, 1e-10)
        same_state(after, expected_after)
        for a, b in zip(grads, expected_grads, strict=True):
            assert (a - b).abs().max() <= 1e-9 * (1 + b.abs().max())


@READERS
def test_another_document_changes_no_bit_and_gets_no_gradient(case: Any) -> None:
    lanes = Lanes(case)
    # The third document of lane 2, 6 to 29, and the last of lane 3, from 34 to the end.
    inside = torch.zeros(len(STARTS), LENGTH, dtype=torch.bool)
    inside[2, 6:30] = inside[3, 34:] = True
    mask = inside if lanes.given.dim() == 2 else inside.unsqueeze(-1)
    changed = torch.where(mask, lanes.given, lanes.other)
    state = {name: value + 1 for name, value in lanes.state.items()}
    (hidden, after), (other, other_after) = lanes.whole(lanes.given, lanes.state), lanes.whole(changed, state)
    assert torch.equal(hidden[inside], other[inside])
    assert all(torch.equal(value[3], other_after[name][3]) for name, value in after.items())
    if lanes.given.is_floating_point():
        x = lanes.given.requires_grad_()
        (grad,) = torch.autograd.grad(lanes.whole(x, lanes.state)[0][inside].square().sum(), x)
        assert grad[inside].all()
        assert not grad[~inside].any()


def test_extremes_beside_a_start_are_finite_in_float32_with_their_gradients() -> None:
    for case in MIXER_CASES:
        lanes = Lanes(case)
        lanes.part.float()
        state = {name: value.float() if value.is_floating_point() else value for name, value in lanes.state.items()}
        for scale in (0.0, 1.0, 1e3):
            x = (scale * lanes.given.detach()).float().requires_grad_()
            hidden, after = lanes.whole(x, state)
            grads = torch.autograd.grad(hidden.sum(), [x, *lanes.part.parameters()], allow_unused=True)
            for value in (hidden, *after.values(), *(grad for grad in grads if grad is not None)):
                assert torch.isfinite(value).all(), (case, scale)


def test_a_model_that_carries_nothing_reads_each_document_from_nothing() -> None:
    model = Case("cnn", ()).make()
    model.capabilities = Capability.CAUSAL | Capability.UNCONDITIONAL
    lanes = Lanes(Case("gru", ()))
    hidden, after = read(model, lanes.given, None, lanes.starts)
    for lane, places in enumerate(STARTS):
        edges = sorted({0, *places, LENGTH})
        for begin, end in pairwise(edges):
            assert_near(
                hidden[lane : lane + 1, begin:end], model.encode(lanes.given[lane : lane + 1, begin:end]), 1e-10
            )
    assert not after
