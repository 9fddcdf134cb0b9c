"""Sums and counts of a task's measurements, accumulated over steps and joined over processes."""

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
    """Running sums and counts of named terms, in float64. On a GPU, and for tables, they stay tensors."""

    def __init__(self) -> None:
        self.terms: Terms = {}

    def add(self, terms: LossTerms) -> None:
        """Add the terms of one batch."""
        for name, (total, count) in terms.items():
            if total.dim() == 0 and total.device.type == "cpu":
                self.add_term(name, total.item(), count)
            else:
                # As a tensor: reading a number from a GPU would make every step wait.
                self.add_term(name, total.detach().double(), count)

    def add_term(self, name: str, total: Tensor | float, count: int) -> None:
        """Add a sum over `count` targets."""
        # Python's numbers are float64 too: in float32 a sum over an epoch would lose its last digits.
        total_before, count_before = self.terms.get(name, (0.0, 0))
        self.terms[name] = total_before + total, count_before + count

    def finite(self) -> bool:
        """Return True if all sums are finite. Sums kept as tensors are not checked: that would wait for a GPU."""
        return all(math.isfinite(total) for total, _ in self.terms.values() if isinstance(total, float))

    def read(self) -> Reduced:
        """Return sum and count of each term, as numbers or as nested lists of numbers."""
        reduced: Reduced = {}
        for name, (total, count) in self.terms.items():
            if isinstance(total, Tensor):
                total = total.tolist()
            reduced[name] = total, float(count)
        return reduced


def on_cpu(terms: Terms) -> Terms:
    """Return the same sums and counts on the CPU, so that they can be sent to other processes."""
    moved = dict(terms)  # a copy: the learner continues to add on its own device
    for name, (total, count) in terms.items():
        if isinstance(total, Tensor):
            moved[name] = total.cpu(), count
    return moved


def merged(terms_by_rank: Sequence[Terms]) -> Accumulators:
    """Return the sums and counts of all processes, added in the order of ranks: another order would change bits."""
    accumulators = Accumulators()
    for terms in terms_by_rank:
        for name, (total, count) in terms.items():
            accumulators.add_term(name, total, count)
    return accumulators
