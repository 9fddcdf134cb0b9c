"""Kinds of leak, and the limit of each; apart from the search, so that importing them does not import numpy."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["documents", "short documents", "text"]
LIMITS: dict[Kind, float] = {"documents": 0.1, "short documents": 0.5, "text": 0.1}
"""Share from which metrics measure memorised text; short documents also recur without a leak."""


class Leak(NamedTuple):
    """Share of a text that occurs in another text."""

    share: float
    kind: Kind  # unit that was searched for
    asked: int  # number of units searched for
