"""Comparison of two readings, and the description of the first place where they differ."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.laws.subject import some_tokens

TOLERANCE = 1e-9  # between two ways to compute the same result, in float64
EXACT = 1e-12  # for a result that must not depend on a change at all
HIDDEN_AXES = ("lane", "position", "unit")
STATE_AXES = ("lane",)  # only the model knows the meaning of the other axes


class Broken(AssertionError):
    """A law that does not hold, with the first counterexample in words."""


def agree(
    actual: Shaped[Tensor, "..."],
    expected: Shaped[Tensor, "..."],
    what: str,
    *,
    tolerance: float = TOLERANCE,
    axes: Sequence[str] = HIDDEN_AXES,
    first_lane: int = 0,
) -> None:
    """Raise Broken, with the first place and the largest difference, unless two tensors agree.

    Args:
        actual: the model's result.
        expected: the result that the law requires.
        what: description of the circumstances, with which the counterexample begins.
        tolerance: the largest absolute difference.
        axes: names of the axes.
        first_lane: number of the first lane in the tensors.
    """
    if actual.shape != expected.shape:
        raise Broken(f"{what}: shape {tuple(actual.shape)} instead of {tuple(expected.shape)}")
    if actual.dtype != expected.dtype:
        raise Broken(f"{what}: {actual.dtype} instead of {expected.dtype}")
    if actual.dtype == torch.bool:
        actual, expected = actual.int(), expected.int()  # bools cannot be subtracted
    far = ~torch.isclose(actual, expected, rtol=0.0, atol=tolerance)
    if not far.any():
        return
    first = tuple(far.nonzero()[0].tolist())
    one, two = actual[first].item(), expected[first].item()
    largest = (actual - expected).abs().max().item()
    raise Broken(
        f"{what}: {_place(first, axes, first_lane)}: {one:.6g} instead of {two:.6g}, off by {abs(one - two):.2g}; "
        f"{int(far.sum())} of {far.numel()} values differ, by {largest:.2g} at most; shape {tuple(actual.shape)}"
    )


def agree_in_bits(
    actual: Shaped[Tensor, "..."], expected: Shaped[Tensor, "..."], what: str, *, axes: Sequence[str] = HIDDEN_AXES
) -> None:
    """Raise Broken unless two tensors are equal bit for bit."""
    agree(actual, expected, what, tolerance=0.0, axes=axes)


def agree_in_state(actual: State, expected: State, what: str, *, first_lane: int = 0) -> None:
    """Raise Broken unless two states hold the same values."""
    if actual.keys() != expected.keys():
        raise Broken(f"{what}: the state holds {sorted(actual)} instead of {sorted(expected)}")
    for name, value in expected.items():
        agree(actual[name], value, f'{what}: state["{name}"]', axes=STATE_AXES, first_lane=first_lane)


def agree_in_what_follows(
    model: SequenceModel, actual: State, expected: State, what: str, *, of_source: bool = False, first_lane: int = 0
) -> None:
    """Raise Broken unless two states are equivalent.

    States of a model that needs a source, or states right after a source (`of_source`), may hold different amounts of
    padding. Such states are equivalent if reading on from them gives equal results.
    """
    if Capability.UNCONDITIONAL in model.capabilities and not of_source:
        agree_in_state(actual, expected, what, first_lane=first_lane)
        return
    for name in actual.keys() & expected.keys():
        if actual[name].shape == expected[name].shape:
            words = f'{what}: state["{name}"]'
            agree(actual[name], expected[name], words, axes=STATE_AXES, first_lane=first_lane)
    lanes = len(next(iter(actual.values())))
    for length in (1, 2):
        tokens = some_tokens(lanes, length)
        one, actual = model(tokens, actual)
        two, expected = model(tokens, expected)
        agree(one, two, f"{what}: hidden states of tokens read after it", first_lane=first_lane)


def nowhere(mask: Bool[Tensor, "..."], what: str, *, axes: Sequence[str] = HIDDEN_AXES) -> None:
    """Raise Broken, with the first place, if any element of a mask is set."""
    if mask.any():
        raise Broken(f"{what} at {_place(tuple(mask.nonzero()[0].tolist()), axes)}; shape {tuple(mask.shape)}")


def _place(index: tuple[int, ...], axes: Sequence[str], first_lane: int = 0) -> str:
    """Describe an index in words: lane 1, position 7, unit 0."""
    if not index:
        return "its only value"
    numbers = [index[0] + first_lane, *index[1:]]
    names = [*axes[: len(index)], *["index"] * (len(index) - len(axes))]
    return ", ".join(f"{name} {number}" for name, number in zip(names, numbers, strict=True))
