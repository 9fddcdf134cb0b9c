"""Sums and counts of what a task measures, running over steps and joined over processes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from seqtrain.tasks.base import LossTerms, Reduced

LOSS = "loss"
"""Name of the term, and of the metric, that every task has."""

Terms = dict[str, tuple[Tensor | float, int]]
"""Running sum and count of each term, by name."""


class Accumulators:
    """Running sums and counts of named terms, in float64; on a GPU, and where they are tables, they stay tensors."""

    def __init__(self) -> None:
        self.terms: Terms = {}

    def add(self, terms: LossTerms) -> None:
        """Adds the terms of one batch."""
        for name, (total, count) in terms.items():
            if total.dim() == 0 and total.device.type == "cpu":
                self.add_term(name, total.item(), count)
            else:
                # As a tensor: to read a number off a GPU would make every step wait for it.
                self.add_term(name, total.detach().double(), count)

    def add_term(self, name: str, total: Tensor | float, count: int) -> None:
        """Adds a sum over `count` targets."""
        # Python's numbers are float64 too: in float32 a sum over an epoch would lose its last digits.
        total_before, count_before = self.terms.get(name, (0.0, 0))
        self.terms[name] = total_before + total, count_before + count

    def finite(self) -> bool:
        """Whether all sums are numbers still, as far as that can be told without waiting for a GPU."""
        return all(math.isfinite(total) for total, _ in self.terms.values() if isinstance(total, float))

    def read(self) -> Reduced:
        """Sum and count of each term, as numbers, or as nested lists of them."""
        reduced: Reduced = {}
        for name, (total, count) in self.terms.items():
            if isinstance(total, Tensor):
                total = total.tolist()
            reduced[name] = total, float(count)
        return reduced


def on_cpu(terms: Terms) -> Terms:
    """The same sums and counts, as they can be sent to other processes."""
    moved = dict(terms)  # a copy: the learner goes on adding on its own device
    for name, (total, count) in terms.items():
        if isinstance(total, Tensor):
            moved[name] = total.cpu(), count
    return moved


def merged(terms_by_rank: Sequence[Terms]) -> Accumulators:
    """The sums and counts of all processes, added by rank: in another order they would have other bits."""
    accumulators = Accumulators()
    for terms in terms_by_rank:
        for name, (total, count) in terms.items():
            accumulators.add_term(name, total, count)
    return accumulators
