"""Sums and counts of what a task measures, running over steps and joined over processes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from seqtrain.tasks.base import LossTerms, Reduced


class Accumulators:
    """Running sums and counts of named parts, in float64; on a GPU, and where they are tables, they stay tensors."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[Tensor | float, int]] = {}

    def add(self, parts: LossTerms) -> None:
        for name, (total, count) in parts.items():
            plain = total.dim() == 0 and total.device.type == "cpu"
            more = total.item() if plain else total.detach().double()
            before, counted = self.parts.get(name, (0.0, 0))
            self.parts[name] = before + more, counted + count

    def finite(self) -> bool:
        """Whether all sums are numbers still, as far as that can be told without waiting for a GPU."""
        return all(math.isfinite(total) for total, _ in self.parts.values() if isinstance(total, float))

    def read(self) -> Reduced:
        """Sum and count of each part, as numbers, or as nested lists of them."""
        return {
            name: (total.tolist() if isinstance(total, Tensor) else float(total), float(count))
            for name, (total, count) in self.parts.items()
        }


def on_cpu(parts: dict[str, tuple[Tensor | float, int]]) -> dict[str, tuple[Tensor | float, int]]:
    """Sums and counts, to be told to other processes."""
    return {
        name: (total.cpu() if isinstance(total, Tensor) else total, count) for name, (total, count) in parts.items()
    }


def merged(everyone: Sequence[dict[str, tuple[Tensor | float, int]]]) -> Accumulators:
    """The sums and counts of all processes, by rank."""
    sums = Accumulators()
    for parts in everyone:
        for name, (total, count) in parts.items():
            before, counted = sums.parts.get(name, (0.0, 0))
            sums.parts[name] = before + total, counted + count
    return sums
