"""What a task is: the head, the named parts of its loss as sums and counts, and what they mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State

if TYPE_CHECKING:
    from seqtrain.data.batching.examples import ExampleBatch, Examples
    from seqtrain.data.rows import Rows, Vocabularies

Parts = dict[str, tuple[Tensor, int]]
"""Named parts of a batch: each a sum over targets and the count of those targets; a table of sums is a part too."""

Totals = dict[str, tuple[Any, float]]
"""Sums and counts of all parts of a split: numbers, and tables as nested lists."""


@dataclass(frozen=True)
class Facts:
    """What turns a loss per token into one per byte or word: means over the split that was read."""

    bytes_per_token: float
    words_per_token: float | None  # None where words are not the tokeniser's units


class Task(nn.Module, ABC):
    """Owns what a batch means; the model knows nothing of it."""

    requires: Capability
    fields: ClassVar[tuple[str, ...]] = ("text",)  # of the rows that it reads
    specials: ClassVar[int] = 3  # tokens that stand for no text: start, separator, mask
    signatures: ClassVar[Mapping[str, str]] = MappingProxyType({})  # how a metric was reckoned
    metrics: ClassVar[tuple[str, ...]] = ()  # all that `measure` may give; early stopping is held against it
    differentiated: tuple[str, ...] = ("loss",)  # the parts whose means are summed and descended
    monitor: ClassVar[tuple[str, Literal["min", "max"]]] = (
        "loss",
        "min",
    )  # the metric that says which weights are best

    @abstractmethod
    def evaluate(self, model: SequenceModel, batch: Any, state: State | None) -> tuple[Parts, State]:
        """The parts of a batch's loss, and the state after it; in training only the differentiated parts."""

    @abstractmethod
    def measure(self, totals: Totals, facts: Facts) -> dict[str, float]:
        """Metrics by name from the sums and counts of all parts; losses are in nats."""

    @abstractmethod
    def head_flops(self) -> float:
        """Floating-point operations of a forward pass of the head per target."""

    def misfit(self, model: SequenceModel) -> str | None:
        """Why the task cannot be done with this model although it promises what is required; None where it can."""
        return None


class ExampleTask(Task):
    """A task whose rows are examples that are read each by itself."""

    uncut: ClassVar[str | None] = "each example is read whole"  # why tbptt.k2 cuts none; None where it does

    @abstractmethod
    def examples(self, rows: Rows, vocabularies: Vocabularies, *, max_length: int, seed: int) -> Examples:
        """The examples that the rows of a split make, each of at most `max_length` tokens."""

    @abstractmethod
    def baselines(self, train: Rows, split: Rows, vocabularies: Vocabularies) -> dict[str, dict[str, float]]:
        """Metrics of `split` by those who know nothing of sequences, or little."""

    @abstractmethod
    def show(self, model: SequenceModel, batch: ExampleBatch, vocabularies: Vocabularies) -> list[str]:
        """What the model makes of each example of a batch, in words."""
