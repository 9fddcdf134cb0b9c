"""What a task is: the head, the named parts of its loss as sums and counts, and what they mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from seqtrain.interface import Capability, SequenceModel, State

Parts = dict[str, tuple[Tensor, int]]
"""Named parts of a batch: each a sum over targets and the count of those targets."""


@dataclass(frozen=True)
class Facts:
    """What turns a loss per token into one per byte or word: means over the split that was read."""

    bytes_per_token: float
    words_per_token: float | None  # None where words are not the tokeniser's units


class Task(nn.Module, ABC):
    """Owns what a batch means; the model knows nothing of it."""

    requires: Capability
    differentiated: tuple[str, ...] = ("loss",)  # the parts whose means are summed and descended

    @abstractmethod
    def evaluate(self, model: SequenceModel, batch: Any, state: State | None) -> tuple[Parts, State]:
        """The parts of a batch's loss, and the state after it; in training only the differentiated parts."""

    @abstractmethod
    def measure(self, totals: dict[str, tuple[float, float]], facts: Facts) -> dict[str, float]:
        """Metrics by name from the sums and counts of all parts; losses are in nats."""

    @abstractmethod
    def head_flops(self) -> float:
        """Floating-point operations of a forward pass of the head per target."""
