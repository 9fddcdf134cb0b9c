"""Kinds of leak, and the limit of each; apart from the search, so that importing them does not import numpy."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["documents", "short documents", "text"]
LIMITS: dict[Kind, float] = {"documents": 0.1, "short documents": 0.5, "text": 0.1}
"""From which share on figures are those of text learnt by heart; short documents recur by themselves."""


class Leak(NamedTuple):
    """Share of a text that stands in another one."""

    share: float
    kind: Kind  # of what it is the share
    asked: int  # how many were looked for
