"""A context in which attention layers expose their maps, so that no flag changes what a model returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

EACH_LAYER = "layer {}"
"""Name of a layer. A layer that is applied several times keeps the placeholder, and its maps are numbered."""


class AttentionMap(NamedTuple):
    """The weights of one attention layer in one call."""

    name: str  # its position in the model, such as "layer 1 self" or "layer 2 cross"
    weights: Float[Tensor, "B H T N"]  # weights of N keys for each of T queries, before dropout


_open: list[list[AttentionMap]] = []  # innermost last; a plain list, since torch.compile cannot trace a ContextVar


@contextmanager
def recording() -> Iterator[list[AttentionMap]]:
    """Yield a list to which attention layers called inside append, in order. Only the innermost list is filled."""
    maps: list[AttentionMap] = []
    _open.append(maps)
    try:
        yield maps
    finally:
        _open.pop()


def active() -> bool:
    """Return True if a recorder is open; otherwise weights need not be computed."""
    return len(_open) > 0


def record(name: str, weights: Float[Tensor, "B H T N"]) -> None:
    """Append a map, detached from the graph, to the innermost recorder; do nothing without one."""
    if _open:
        if "{}" in name:
            seen = {each.name for each in _open[-1]}
            name = next(numbered for number in count(1) if (numbered := name.format(number)) not in seen)
        _open[-1].append(AttentionMap(name, weights.detach()))
