"""A context in which attention layers hand out their maps, so that no flag changes what a model returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class AttentionMap(NamedTuple):
    """What one attention layer looked at in one call."""

    name: str  # its place in the model, such as "layer 1 self" or "layer 2 cross"
    weights: Float[Tensor, "B H T N"]  # how each of T queries shares itself out among N keys, before dropout


_open: list[list[AttentionMap]] = []  # innermost last; a plain list, since torch.compile cannot trace a ContextVar


@contextmanager
def recording() -> Iterator[list[AttentionMap]]:
    """Gives a list to which every attention layer called inside appends, in order; of nested ones the inner gets it."""
    maps: list[AttentionMap] = []
    _open.append(maps)
    try:
        yield maps
    finally:
        _open.pop()


def active() -> bool:
    """Whether anybody listens; where not, weights need not be computed."""
    return len(_open) > 0


def record(name: str, weights: Float[Tensor, "B H T N"]) -> None:
    """Hands out a map, cut from the graph; without a recorder nothing happens."""
    if _open:
        _open[-1].append(AttentionMap(name, weights.detach()))
